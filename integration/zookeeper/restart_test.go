package zookeeper

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// The server is killed and comes back with its data: claims that hold and wait
// are there, and who waits is served.
func TestZooKeeperRestartWithData(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("restart", time.Minute), storetest.Mutex("restart", time.Minute)
	first := storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	got := make(chan driver.Status, 1)
	go func() {
		st, _ := storetest.Get(await.Context(t), b, w)
		got <- st
	}()
	time.Sleep(50 * time.Millisecond) // so that it waits
	if err := z.Restart(true); err != nil {
		t.Fatal(err)
	}
	if st := storetest.Renewed(t, a, h); st.State != driver.Holding || st.Token != first.Token {
		t.Fatalf("after the restart: %v with token %d, want it to hold with %d", st.State, st.Token, first.Token)
	}
	select {
	case st := <-got:
		t.Fatalf("the other one stopped waiting: %+v", st)
	default:
	}
	storetest.Leave(t, a, h)
	if st := <-got; st.State != driver.Holding || st.Token <= first.Token {
		t.Fatalf("the next: %+v, want it to hold with a token above %d", st, first.Token)
	}
}

// It comes back without data: nobody holds any more, and tokens rise all the
// same, for Stores that lived through it and for new ones.
func TestZooKeeperRestartWithoutData(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a := openZooKeeper(t, z.URL(), nil)
	h := storetest.Mutex("lost", 2*time.Second)
	for range 50 {
		h.ID = driver.NewID()
		storetest.Enter(t, a, h, driver.Holding)
		storetest.Leave(t, a, h)
	}
	h.ID = driver.NewID()
	st := storetest.Enter(t, a, h, driver.Holding)
	last := st.Token + st.Spare
	r, err := a.CompareAndSwap(await.Context(t), driver.Record{Name: "lost", Value: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Restart(false); err != nil {
		t.Fatal(err)
	}
	if st := storetest.Renewed(t, a, h); st.State != driver.Gone {
		t.Fatalf("the data is gone, the claim is %v", st.State)
	}
	for _, s := range []driver.Store{a, openZooKeeper(t, z.URL(), nil)} {
		c := storetest.Mutex("lost", 2*time.Second)
		next := storetest.Enter(t, s, c, driver.Holding)
		if next.Token <= last {
			t.Errorf("token %d after the loss of data, %d before", next.Token, last)
		}
		last = next.Token + next.Spare
		storetest.Leave(t, s, c)
	}
	again, err := a.CompareAndSwap(await.Context(t), driver.Record{Name: "lost", Value: []byte("y")})
	if err != nil || again.Version <= r.Version {
		t.Errorf("version %d after the loss of data, %d before: %v", again.Version, r.Version, err)
	}
}

// Under load the server is killed and comes back, several times: never two at
// once by their own clocks, tokens rise, and everybody ends.
func TestZooKeeperKilledUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a while")
	}
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	const workers, rounds = 6, 15
	ctx := await.Context(t)
	var holding atomic.Int64
	var mu sync.Mutex
	var last int64
	var work sync.WaitGroup
	for range workers {
		s := openZooKeeper(t, z.URL(), nil)
		work.Go(func() {
			for done := 0; done < rounds && ctx.Err() == nil; {
				c := storetest.Mutex("load", 4*time.Second)
				st, err := storetest.Get(ctx, s, c)
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				// Wait tells no deadline: it is that of the last renewal.
				if st.Deadline.IsZero() {
					st, err = storetest.Renew(ctx, s, c)
				}
				if err == nil && st.State == driver.Holding && time.Until(st.Deadline) > time.Second {
					if n := holding.Add(1); n != 1 {
						t.Errorf("%d hold at once", n)
					}
					mu.Lock()
					if st.Token <= last {
						t.Errorf("token %d after %d", st.Token, last)
					}
					last = st.Token
					mu.Unlock()
					time.Sleep(2 * time.Millisecond)
					if time.Now().Before(st.Deadline) {
						done++
					}
					holding.Add(-1)
				}
				for attempt := 0; attempt < 200; attempt++ {
					if _, err := s.Leave(ctx, storetest.Ref(c)); err == nil {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for range 3 {
		time.Sleep(300 * time.Millisecond)
		if err := z.Restart(true); err != nil {
			t.Fatal(err)
		}
	}
	work.Wait()
	q, err := openZooKeeper(t, z.URL(), nil).Inspect(await.Context(t), "load")
	if err != nil || len(q.Claims) != 0 {
		t.Errorf("at the end: %+v, %v", q, err)
	}
}
