//go:build unix

package command

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

const loop = `echo "leads with $PAWL_TOKEN, as $$."; while :; do sleep 0.05; done`

// testSynchronizers uses what the command offers beside one at a time.
func testSynchronizers(b *bundle, e servers.Engine) {
	// Readers and a writer.
	var readers []*proctest.Process
	for range 2 {
		p := b.Start("run", "--shared", "data", "sh", "-c", "echo reads; until test -e $D/read; do sleep 0.05; done")
		p.Await("reads")
		readers = append(readers, p)
	}
	b.Run("run", "--exclusive", "--no-wait", "data", "true").Want(75)
	writer := b.Start("run", "--exclusive", "data", "true")
	b.write("read", "")
	for _, p := range append(readers, writer) {
		p.Want(0)
	}

	// Units.
	two := b.Start("run", "--limit=3", "-u=2", "units", "sh", "-c", "echo has; until test -e $D/back; do sleep 0.05; done")
	two.Await("has")
	b.Run("run", "--limit=3", "--no-wait", "units", "true").Want(0)
	b.Run("run", "--limit=3", "-u=2", "--no-wait", "units", "true").Want(75)
	b.Run("run", "--limit=4", "units", "true").Want(64)
	b.write("back", "")
	two.Want(0)

	// A latch and a barrier.
	wait := b.Start("latch", "wait", "--count=2", "latch")
	for _, party := range []string{"a", "a", "b"} {
		b.Run("latch", "down", "--count=2", "--party="+party, "latch").Want(0)
	}
	wait.Want(0)
	parties := []*proctest.Process{b.Start("barrier", "--parties=3", "barrier"), b.Start("barrier", "--parties=3", "barrier"), b.Start("barrier", "--parties=3", "barrier")}
	indexes := ""
	for _, p := range parties {
		p.Want(0)
		indexes += strings.TrimSpace(p.Out.String())
	}
	if len(indexes) != 3 || !strings.Contains(indexes, "0") || !strings.Contains(indexes, "1") || !strings.Contains(indexes, "2") {
		b.T.Errorf("indexes %q", indexes)
	}
	b.Run("barrier", "--parties=3", "--timeout=3s", "barrier").Want(75)
	b.Run("barrier", "--parties=3", "barrier").Want(76)
	b.Run("barrier", "--parties=3", "--reset", "barrier").Want(0)

	// Leaders.
	b.Run("leader", "leader").Want(68)
	follow := b.Start("leader", "--follow", "--only-value", "leader")
	first := b.Start("elect", "--value=one", "--ttl=6s", "leader", "sh", "-c", loop)
	first.Await("leads with")
	second := b.Start("elect", "--value=two", "--ttl=10m", "leader", "sh", "-c", loop)
	proctest.Eventually(b.T, func() bool { return len(b.show("leader").waiters()) == 1 }, "the second does not stand")
	follow.Await("one\n")
	first.Process.Kill()
	second.Await("leads with")
	follow.Await("two\n")
	if p := b.Run("leader", "--only-value", "leader").Want(0); p.Out.String() != "two\n" {
		b.T.Error(p.Out)
	}
	second.Process.Signal(syscall.SIGTERM)
	second.Want(143)
	b.Run("leader", "leader").Want(68)
}

// A leader that can't reach the store ends its command in time, and stands again.
func TestElectThroughAnOutage(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	b := newBundle(t, r.URL())
	p := b.Start("elect", "--ttl=3s", "e", "sh", "-c", loop)
	p.Await("leads with")
	var token, pid int
	fmt.Sscanf(p.Out.String(), "leads with %d, as %d.", &token, &pid)
	r.Pause()
	proctest.Eventually(t, func() bool { return !alive(pid) }, "COMMAND outlives the leadership")
	p.Await("standing for election again") // a pawl that got no time ends COMMAND when the lock is lost
	r.Resume()
	proctest.Eventually(t, func() bool { return strings.Count(p.Out.String(), "leads with") == 2 }, "it does not lead again: %s", p.Printed())
	lines := strings.Split(p.Out.String(), "\n")
	var later, pid2 int
	if fmt.Sscanf(lines[1], "leads with %d, as %d.", &later, &pid2); later <= token {
		t.Errorf("token %d after %d: %q", later, token, lines)
	}
	p.Process.Signal(syscall.SIGTERM)
	p.Want(143)
	if alive(pid2) {
		t.Error("COMMAND lives on")
	}
	b.Run("leader", "e").Want(68)
}
