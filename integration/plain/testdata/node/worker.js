// A process that locks by node-redlock, as it is told on its input.
const readline = require("readline");
const fs = require("fs");
const Redis = require("ioredis");
const Redlock = require("redlock");

const client = new Redis(process.env.ADDR.split(":")[1], "127.0.0.1");
const key = process.env.KEY;
const ttl = 60000;
const patient = new Redlock([client], { retryCount: -1, retryDelay: 25, retryJitter: 10 });
const hasty = new Redlock([client], { retryCount: 0 });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let held;

async function count(file, rounds) {
  for (let i = 0; i < rounds; i++) {
    const lock = await patient.lock(key, ttl);
    const n = parseInt(fs.readFileSync(file, "utf8"), 10);
    await sleep(Math.random() * 2);
    fs.writeFileSync(file, String(n + 1).padStart(10, "0"), { flag: "r+" });
    await lock.unlock();
  }
  return "counted";
}

const calls = {
  ready: async () => (await client.ping(), "ready"),
  try: async () => {
    try {
      held = await hasty.lock(key, ttl);
      return "holds";
    } catch (e) {
      if (e.name !== "LockError") throw e;
      return "refused";
    }
  },
  free: async () => (await held.unlock(), "free"),
  count: (file, rounds) => count(file, parseInt(rounds, 10)),
};

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [what, ...args] = line.split(" ");
    console.log(await calls[what](...args));
  }
  client.disconnect();
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
