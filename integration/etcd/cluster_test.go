package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/crew"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

func openEtcdAt(t testing.TB, url string) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.Open(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Clients of a cluster count while a member fails.
func TestEtcdClusterFailover(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(*testing.T, *servers.EtcdCluster, *crew.Crew){
		"the leader is killed": func(t *testing.T, c *servers.EtcdCluster, cr *crew.Crew) {
			leader := lead(t, c, -1)
			cr.Hold("steady", cr.Client(openEtcdAt(t, c.URL(0, 1, 2)), crew.SteadyTTL), func(lease *pawl.Lease) {
				c.Members[leader].Kill()
				cr.Extended(lease)
			})
			cr.GoOn(2, cr.Others(crew.Only(leader))...)
			if err := c.Members[leader].Restart(true); err != nil {
				t.Fatal(err)
			}
		},
		"the leader is stopped until there is another": func(t *testing.T, c *servers.EtcdCluster, cr *crew.Crew) {
			leader := lead(t, c, -1)
			cr.Hold("pinned", cr.Client(openEtcdAt(t, c.URL(leader)), crew.TTL), func(lease *pawl.Lease) {
				c.Members[leader].Pause()
				cr.Told(lease)
			})
			lead(t, c, leader)
			cr.GoOn(2, cr.Others(crew.Only(leader))...)
			c.Members[leader].Resume()
		},
		"a follower is stopped": func(t *testing.T, c *servers.EtcdCluster, cr *crew.Crew) {
			follower := (lead(t, c, -1) + 1) % 3
			cr.Hold("steady", cr.Client(openEtcdAt(t, c.URL(0, 1, 2)), crew.SteadyTTL), func(lease *pawl.Lease) {
				c.Members[follower].Pause()
				cr.Extended(lease)
			})
			cr.GoOn(2, cr.Others(crew.Only(follower))...)
			c.Members[follower].Resume()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := servers.RunEtcdCluster(t, 3)
			cr := crew.New(t)
			for i := range c.Members {
				cr.Hire(crew.Only(i), openEtcdAt(t, c.URL(i)), crew.TTL)
			}
			for _, who := range []string{"any", "some"} {
				cr.Hire(who, openEtcdAt(t, c.URL(0, 1, 2)), crew.TTL)
			}
			cr.GoOn(2)
			f(t, c, cr)
			cr.GoOn(1)
			cr.End()
		})
	}
}

func lead(t testing.TB, c *servers.EtcdCluster, not int) int {
	t.Helper()
	leader, err := c.Leader(not)
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// The leader is cut off from the others, but not from its clients: what it says
// of claims and records is not believed, also as long as it takes itself for the
// leader, and its holder is told before another holds.
func TestEtcdClusterCutOffLeader(t *testing.T) {
	t.Parallel()
	c := servers.RunEtcdCluster(t, 3)
	cr := crew.New(t)
	for i := range c.Members {
		cr.Hire(crew.Only(i), openEtcdAt(t, c.URL(i)), crew.TTL)
	}
	cr.GoOn(2)
	leader := lead(t, c, -1)
	far, near := openEtcdAt(t, c.URL(leader)), openEtcdAt(t, c.URL((leader+1)%3, (leader+2)%3))
	ctx := await.Context(t)
	was, err := near.CompareAndSwap(ctx, driver.Record{Name: "r", Value: []byte("old")})
	if err != nil {
		t.Fatal(err)
	}
	h := storetest.Mutex("h", time.Minute)
	storetest.Enter(t, near, h, driver.Holding)
	storetest.Renewed(t, far, h) // it has moved: far's is the word that counts
	w := storetest.Mutex("h", time.Minute)
	storetest.Enter(t, far, w, driver.Waiting)
	pinned := cr.Client(far, crew.TTL)
	cr.Hold("pinned", pinned, func(lease *pawl.Lease) {
		if err := c.CutOff(leader); err != nil {
			t.Error(err)
			return
		}
		lead(t, c, leader)
		now, err := swap(ctx, near, driver.Record{Name: "r", Value: []byte("new"), Version: was.Version})
		if err != nil {
			t.Error(err)
		}
		if broken, err := near.Break(ctx, "h"); err != nil || len(broken) != 1 {
			t.Errorf("break: %v, %v", broken, err)
		}
		// The one that waited comes to hold, and leaves for another.
		next := storetest.Mutex("h", time.Minute)
		storetest.Enter(t, near, next, driver.Waiting)
		storetest.Leave(t, near, w)
		for lease.Err() == nil && ctx.Err() == nil {
			asked := func() context.Context { return await.Brief(t, 200*time.Millisecond) }
			if r, err := far.Load(asked(), "r"); err == nil && r.Version != now.Version {
				t.Errorf("the leader that is none says that the record is %q", r.Value)
			}
			if q, err := far.Inspect(asked(), "h"); err == nil && (len(q.Claims) != 1 || q.Claims[0].ID != next.ID) {
				t.Errorf("the leader that is none shows %+v", q.Claims)
			}
			if st, err := storetest.Renew(asked(), far, h); err == nil && st.State != driver.Gone {
				t.Errorf("the leader that is none renews: %+v", st)
			}
			if st, err := far.Wait(asked(), storetest.Ref(w)); err == nil && st.State != driver.Gone {
				t.Errorf("the leader that is none tells one who has left: %+v", st)
			}
			if st, err := far.Enter(asked(), storetest.Mutex("free", crew.TTL)); err == nil {
				t.Errorf("the leader that is none grants: %+v", st)
			}
		}
		cr.Told(lease)
	})
	cr.GoOn(3, cr.Others(crew.Only(leader))...)
	c.Reconnect()
	cr.GoOn(1)
	if r, err := far.Load(ctx, "r"); err != nil || string(r.Value) != "new" {
		t.Errorf("in the end the record is %q, %v", r.Value, err)
	}
	cr.End()
}

// swap writes a record, through elections.
func swap(ctx context.Context, s driver.Store, r driver.Record) (driver.Record, error) {
	for {
		now, err := s.CompareAndSwap(ctx, r)
		if err == nil || ctx.Err() != nil || string(now.Value) == string(r.Value) {
			return now, err
		}
	}
}

// The leader is stopped until there is another, goes on, and is killed a moment
// later. If it renews a lease in that moment, as the leader that it takes itself
// for, that is not believed: the new one ends the lease at its own time.
func TestEtcdClusterLeaderOfYesterday(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	c := servers.RunEtcdCluster(t, 3)
	leader := lead(t, c, -1)
	far, near := openEtcdAt(t, c.URL(leader)), openEtcdAt(t, c.URL((leader+1)%3, (leader+2)%3))
	h, w := storetest.Mutex("x", ttl), storetest.Mutex("x", time.Minute)
	until := storetest.Enter(t, far, h, driver.Holding).Deadline
	storetest.Enter(t, near, w, driver.Waiting)
	c.Members[leader].Pause()
	lead(t, c, leader)
	time.Sleep(time.Until(until) - ttl/4)
	renewed := make(chan driver.Status, 1)
	go func() {
		ctx := await.Brief(t, ttl/4)
		st, err := storetest.Renew(ctx, far, h)
		for err != nil && ctx.Err() == nil {
			st, err = storetest.Renew(ctx, far, h)
		}
		t.Logf("renewed: %+v, %v", st, err)
		renewed <- st
	}()
	time.Sleep(100 * time.Millisecond) // so that the request waits for it
	c.Members[leader].Resume()
	if st := <-renewed; st.Deadline.After(until) {
		until = st.Deadline
	}
	c.Members[leader].Kill()
	if st, err := storetest.Get(await.Context(t), near, w); err != nil || st.State != driver.Holding {
		t.Fatalf("%+v, %v", st, err)
	}
	if left := time.Until(until); left > 0 {
		t.Errorf("another holds, and the first may take itself for the holder for %v", left)
	}
}
