//go:build unix

package command

import (
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

// testReleaseClaim takes single claims away: of who waits, of who holds, and, where
// there are handles, of who has adopted it.
func testReleaseClaim(b *bundle, e servers.Engine) {
	holder, _ := b.hold("claim", "--ttl=6s", "--kill-after=0s") // what is not told learns it after a third of that
	w := b.waiter("claim", "sh", "-c", "echo its turn")
	q := b.show("claim")
	b.Run("release", "claim", "--claim", q.Waiters[0].ID).Want(0)
	proctest.Eventually(b.T, func() bool {
		now := b.show("claim")
		return len(now.Waiters) == 1 && now.Waiters[0].ID != q.Waiters[0].ID && now.Holders[0].ID == q.Holders[0].ID
	}, "who waited does not wait again")
	b.Run("release", "claim", "--claim", q.Holders[0].ID).Want(0)
	holder.Want(79)
	w.Want(0)
	b.Run("release", "claim", "--claim", q.Holders[0].ID).Want(79)
	if e.Name == "quorum" || e.Name == "zookeeper" { // no handles without a keeper
		return
	}
	b.Run("acquire", "--no-renewal", "--ttl=1h", "claim").Want(0)
	b.Run("release", "claim", "--claim", b.show("claim").Holders[0].ID).Want(0)
	b.Run("run", "-n", "claim", "true").Want(0)
}
