//go:build unix

package command

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

// counter is a process that counts under a lock, and writes its tokens into a log.
const counter = `
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
import pawl
client, d = pawl.Client(sys.argv[2]), pathlib.Path(os.environ["D"])
for i in range(int(sys.argv[3])):
    with client.lock("python", ttl=120, label="worker") as lease:
        n = int((d / "counter").read_text())
        with open(d / "tokens", "a") as f:
            f.write("%d\n" % lease.token)
        (d / "counter").write_text("%d\n" % (n + 1))
print("done", flush=True)
`

// surface is what else the client can do.
const surface = `
import sys, time
sys.path.insert(0, sys.argv[1])
import pawl
client = pawl.Client(sys.argv[2])
one = client.lock("a", ttl=120, wait=0, label="one")
assert one.valid() > 0 and one.token > 0 and one.handle
try:
    client.lock("a", wait=0)
    assert False, "a second holder"
except pawl.Held as e:
    assert e.holder["label"] == "one", e.holder
try:
    client.lock("a", wait=0.2)
    assert False, "a second holder"
except TimeoutError as e:
    assert "still held" in str(e), e
assert client.inspect("a")["waiters"] == [], "who gave up waits still"
one.renew()
readers = [client.lock("b", ttl=120, kind="rwmutex", shared=True) for _ in range(2)]
assert sorted(q["name"] for q in client.list()) == ["a", "b"]
assert [q["name"] for q in client.list("b")] == ["b"]
for r in readers:
    r.release()
    r.release()
try:
    client.lock("a", kind="nonsense")
    assert False, "a kind that does not exist"
except pawl.Refused as e:
    assert e.code == "invalid" and "nonsense" in str(e), e
client._give_up({"name": "a", "claim": one.claim})
for end in (one.renew, one.check, one.release):
    try:
        end()
        assert False, "the lease is over"
    except pawl.Lost:
        pass
assert one.lost.is_set()
kept = client.lock("c", ttl=2, wait=0)
began = time.monotonic()
while time.monotonic() - began < 5 and kept.valid() > 0:
    time.sleep(0.05)
if kept.valid() > 0:  # a machine that stood still has lost it
    kept.release()
try:
    pawl.Client("http://127.0.0.1:1", timeout=1).lock("a", wait=0)
    assert False, "no server"
except pawl.Unreachable as e:
    assert "127.0.0.1:1" in str(e), e
print("done", flush=True)
`

func (b *bundle) python(script string, args ...string) *proctest.Process {
	b.T.Helper()
	library, err := filepath.Abs(filepath.Join("..", "..", "clients", "python"))
	if err != nil {
		b.T.Fatal(err)
	}
	p := proctest.Command(b.T, "python3", append([]string{"-B", "-c", script, library}, args...)...)
	p.Env = append(os.Environ(), "D="+b.Dir)
	p.Start()
	return p
}

func TestPython(t *testing.T) {
	t.Parallel()
	b := newBundle(t, "file://"+t.TempDir()+"/store")
	_, address := b.serve()
	p := b.python(surface, address)
	p.Want(0).Await("done")
}

// Processes count under a lock, through two servers of which one is killed and started
// again: no count is lost, and tokens rise.
func TestPythonCounts(t *testing.T) {
	t.Parallel()
	b := newBundle(t, "file://"+t.TempDir()+"/store")
	b.write("counter", "0\n")
	one, first := b.serve()
	_, second := b.serve()
	u, err := url.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	const workers, times = 4, 10
	var running []*proctest.Process
	for i := range workers {
		running = append(running, b.python(counter, []string{first, second}[i%2], strconv.Itoa(times)))
	}
	proctest.Eventually(t, func() bool { return strings.Count(b.Read("tokens"), "\n") > workers }, "they do not begin")
	if err := one.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	one.Status()
	proctest.Eventually(t, func() bool {
		p := b.Start("serve", "--listen", u.Host)
		proctest.Eventually(t, func() bool { return p.Err.String() != "" }, "it says nothing")
		return strings.Contains(p.Err.String(), "serving")
	}, "the port stays taken")
	for _, p := range running {
		p.Want(0)
	}
	b.counted(workers * times)
}
