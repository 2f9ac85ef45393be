package zookeeper

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/zkstore"
)

// One lock and unlock that nobody contends for, beside the client's own recipe
// on the same server.
func BenchmarkZooKeeperUncontended(b *testing.B) {
	z := servers.RunZooKeeper(b, servers.ZooKeeperOptions{})
	b.Run("zkstore", func(b *testing.B) {
		s, err := zkstore.Open(z.URL(), nil)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		for b.Loop() {
			c := driver.Claim{Name: "bench", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: 15 * time.Second}
			if st, err := s.Enter(b.Context(), c); err != nil || st.State != driver.Holding {
				b.Fatal(st.State, err)
			}
			if _, err := s.Leave(b.Context(), driver.Ref{Name: c.Name, ID: c.ID}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("client's Lock", func(b *testing.B) {
		conn, _, err := zk.Connect([]string{z.Addr()}, 15*time.Second, zk.WithLogInfo(false))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		l := zk.NewLock(conn, "/lock", zk.WorldACL(zk.PermAll))
		for b.Loop() {
			if err := l.Lock(); err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
