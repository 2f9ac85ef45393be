//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/proctest"
)

// awaitWaiters waits until so many wait for name.
func (b *bundle) awaitWaiters(name string, n int) (q queueJSON) {
	b.T.Helper()
	proctest.Eventually(b.T, func() bool { q = b.queue(name); return len(q.Waiters) == n }, "there do not wait %d for %s", n, name)
	return q
}

func TestReleaseClaim(t *testing.T) {
	b := newBundle(t)
	release := func(status int, want string, args ...string) {
		t.Helper()
		p := b.Run(append([]string{"release"}, args...)...).Want(status)
		if !strings.Contains(p.Printed(), want) {
			t.Errorf("release %q: want %q in %s", args, want, p.Printed())
		}
	}
	one := b.hold("d", "--limit=2", "--label=one")
	two := b.hold("d", "--limit=2", "--label=two")
	b.Start("run", "--limit=2", "--label=three", "d", "sleep", "100")
	q := b.awaitWaiters("d", 1)
	release(64, "by 1 more; add --force to take it away from all, or --claim ID", "d")
	release(0, `Released d: it was held by "two" (process`, "d", "--claim", q.Holders[1].ID)
	two.Want(79)
	proctest.Eventually(t, func() bool { q = b.queue("d"); return len(q.Holders) == 2 && len(q.Waiters) == 0 }, "the next one does not hold")
	if q.Holders[0].Label != "one" || q.Holders[1].Label != "three" || one.ProcessState != nil {
		t.Errorf("there hold %+v", q.Holders)
	}
	release(79, `"d" has no claim `, "d", "--claim", driver.NewID())
	release(64, "allowed are", "d", "--claim", "")

	b.Start("run", "--limit=2", "--label=four", "d", "sleep", "100")
	id := b.awaitWaiters("d", 1).Waiters[0].ID
	var out struct{ Removed []claimJSON }
	if b.Run("release", "d", "--json", "--claim", id).Want(0).JSON(&out); len(out.Removed) != 1 || out.Removed[0].ID != id {
		t.Errorf("%+v", out)
	}
	// It enters the name anew.
	proctest.Eventually(t, func() bool { q = b.queue("d"); return len(q.Waiters) == 1 && q.Waiters[0].ID != id }, "it does not wait again")

	b.Run("run", "--min-hold=1h", "m", "true").Want(0)
	release(79, "only --force frees it", "m", "--claim", b.queue("m").Holders[0].ID)
	release(0, "Released m", "m", "--force")
	if p := b.Run("__complete", "release", "d", "--claim", "").Want(0); !strings.Contains(p.Out.String(), q.Holders[0].ID+"\tone\n") {
		t.Error(p.Out)
	}
}
