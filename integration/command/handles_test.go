//go:build unix

package command

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
)

// testHandles takes locks without a command, renews them, and passes them on.
func testHandles(b *bundle, e servers.Engine) {
	lasts := []string{"--no-renewal", "--ttl=1h"}
	if e.Name == "zookeeper" {
		b.Run("acquire", "--no-renewal", "--ttl=1h", "h").Want(64)
		lasts = []string{"--for-pid=" + strconv.Itoa(os.Getpid())}
	}
	handle := func(args ...string) string {
		b.T.Helper()
		return strings.TrimSpace(b.Run(args...).Want(0).Out.String())
	}
	first := handle(append(append([]string{"acquire"}, lasts...), "h")...)
	b.Run("renew", first).Want(0)
	b.Run("run", "-n", "h", "true").Want(75)
	kept := handle("adopt", "--for-pid="+strconv.Itoa(os.Getpid()), first)
	b.Run("renew", kept).Want(0)
	last := kept
	if e.Name != "zookeeper" {
		given := handle("handover", kept)
		b.Run("unlock", kept).Want(79)
		last = handle(append(append([]string{"adopt"}, lasts...), given)...)
	}
	b.Run("unlock", first).Want(79)
	b.Run("run", "-n", "h", "true").Want(75)
	b.Run("unlock", last).Want(0)
	b.Run("unlock", last).Want(79)
	b.Run("run", "-n", "h", "true").Want(0)

	// The keeper is gone with its process, and the lock with it.
	script := b.Command()
	script.Path, script.Args = "/bin/sh", []string{"sh", "-c", `"$0" acquire --ttl 1h --for-pid $$ k && kill -9 $$`, script.Path}
	script.Start()
	script.Want(137)
	b.Run("run", "-w", "60", "k", "true").Want(0)
}

// noHandles checks that acquire is refused before anything is taken.
func noHandles(t *testing.T, b *bundle) {
	t.Helper()
	p := b.Run("acquire", "--no-renewal", "--ttl=1h", "handles").Want(64)
	if !strings.Contains(p.Printed(), "locks of this store can't be passed on to another process, use 'pawl run'") {
		t.Error(p.Printed())
	}
	b.Run("run", "-n", "handles", "true").Want(0)
}
