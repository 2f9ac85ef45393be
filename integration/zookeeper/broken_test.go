package zookeeper

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/zkstore"
)

// Who held what was released by force is told by a notice, long before its next
// renewal, also if the process that released it ends at once; and so is who is asked
// to give way.
func TestZooKeeperNoticesOfShortProcesses(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	c := pawl.New(openZooKeeper(t, z.URL(), nil), &pawl.Options{TTL: time.Hour})
	defer c.Close(await.Context(t))
	process := func(f func(s *zkstore.Store) error) {
		t.Helper()
		s, err := zkstore.Open(z.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := f(s); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	for range 5 {
		lease, err := c.Mutex("x").Lock(await.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		process(func(s *zkstore.Store) error { return s.Ask(await.Context(t), "x") })
		await.Value(t, "it is asked to give way", lease.YieldRequested())
		process(func(s *zkstore.Store) error { _, err := s.Break(await.Context(t), "x"); return err })
		await.Value(t, "it is told that it was released", lease.Context(context.Background()).Done())
	}
}
