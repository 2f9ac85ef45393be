"""A process that locks by redis-py, as it is told on its input."""

import os
import random
import sys
import time

import redis

host, port = os.environ["ADDR"].split(":")
client = redis.Redis(host=host, port=int(port))
lock = client.lock(os.environ["KEY"], timeout=60, sleep=0.025)


def ready():
    client.ping()
    return "ready"


def try_():
    return "holds" if lock.acquire(blocking=False) else "refused"


def free():
    lock.release()
    return "free"


def count(path, rounds):
    for _ in range(int(rounds)):
        with lock:
            with open(path) as f:
                n = int(f.read())
            time.sleep(random.random() * 0.002)
            with open(path, "r+") as f:
                f.write("%010d" % (n + 1))
    return "counted"


calls = {"ready": ready, "try": try_, "free": free, "count": count}
for line in sys.stdin:
    what, *args = line.split()
    print(calls[what](*args), flush=True)
