package zookeeper

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/zkstore"
)

// The leader hears of a session from what its follower says now and then, not from
// the session's requests. A follower that dies right after it has confirmed a renewal
// takes with it what the leader has not heard: nobody else holds before the deadline
// that was confirmed, whenever the session said something before that.
func TestZooKeeperFollowerDiesAfterRenewal(t *testing.T) {
	t.Parallel()
	const ttl = 6144 * time.Millisecond                          // the longest of its session
	z := servers.RunZooKeeperEnsemble(t, 3, 10, "tickTime=2000") // as usual: it says something every second
	leader := leadZooKeeper(t, z, -1)
	follower := (leader + 1) % 3
	near := openZooKeeper(t, z.URL(leader), nil)
	var far []*zkstore.Store
	var held []driver.Claim
	var renewing, waiting sync.WaitGroup
	var deadlines [10]time.Time
	for i := range deadlines {
		s, c, next := openZooKeeper(t, z.URL(follower), nil), storetest.Mutex(fmt.Sprint("x", i), ttl), storetest.Mutex(fmt.Sprint("x", i), ttl)
		far, held = append(far, s), append(held, c)
		storetest.Enter(t, s, c, driver.Holding)
		storetest.Enter(t, near, next, driver.Waiting)
		renewing.Add(1)
		waiting.Go(func() {
			st, err := storetest.Get(await.Context(t), near, next)
			now := time.Now()
			if err != nil || st.State != driver.Holding {
				t.Errorf("%s: who waits: %v, %v", next.Name, st.State, err)
			}
			renewing.Wait()
			if early := deadlines[i].Sub(now); early > 0 {
				t.Errorf("%s: another holds %v before the deadline", next.Name, early)
			}
		})
		time.Sleep(250 * time.Millisecond) // so long do the earlier ones say nothing
	}
	for i := range deadlines {
		go func() {
			defer renewing.Done()
			st, err := storetest.Renew(await.Context(t), far[i], held[i])
			if err != nil {
				t.Errorf("renew: %v", err)
			}
			deadlines[i] = st.Deadline // zero if the machine was so slow that it has lapsed
		}()
	}
	renewing.Wait()
	z.Members[follower].Pause()
	t.Cleanup(z.Members[follower].Resume)
	waiting.Wait()
}
