package zookeeper

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/crew"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/zkstore"
)

// Clients of an ensemble count while a server fails.
func TestZooKeeperEnsembleFailover(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(*testing.T, *servers.ZooKeeperEnsemble, *crew.Crew){
		"the leader is killed, then a follower is stopped": func(t *testing.T, z *servers.ZooKeeperEnsemble, cr *crew.Crew) {
			leader := leadZooKeeper(t, z, -1)
			steady := cr.Client(openZooKeeper(t, z.URL(0, 1, 2), nil), crew.SteadyTTL)
			cr.Hold("steady", steady, func(lease *pawl.Lease) {
				z.Members[leader].Kill()
				cr.Extended(lease)
			})
			cr.GoOn(2, cr.Others(crew.Only(leader))...)
			cr.Draw(cr.Clients["any"])
			if err := z.Members[leader].Restart(true); err != nil {
				t.Fatal(err)
			}
			cr.GoOn(1)

			follower := (leadZooKeeper(t, z, -1) + 1) % 3
			cr.Hold("steady", steady, func(lease *pawl.Lease) {
				z.Members[follower].Pause()
				cr.Extended(lease)
			})
			cr.GoOn(2, cr.Others(crew.Only(follower))...)
			z.Members[follower].Resume()
		},
		"the leader is stopped until there is another": func(t *testing.T, z *servers.ZooKeeperEnsemble, cr *crew.Crew) {
			leader := leadZooKeeper(t, z, -1)
			cr.Hold("pinned", cr.Client(openZooKeeper(t, z.URL(leader), nil), crew.TTL), func(lease *pawl.Lease) {
				z.Members[leader].Pause()
				cr.Told(lease)
			})
			leadZooKeeper(t, z, leader)
			cr.GoOn(2, cr.Others(crew.Only(leader))...)
			cr.Draw(cr.Clients["any"])
			z.Members[leader].Resume()
		},
		"the leader is cut off": func(t *testing.T, z *servers.ZooKeeperEnsemble, cr *crew.Crew) {
			leader := leadZooKeeper(t, z, -1)
			cr.Hold("pinned", cr.Client(openZooKeeper(t, z.URL(leader), nil), crew.TTL), func(lease *pawl.Lease) {
				z.CutOff(leader)
				cr.Told(lease)
			})
			leadZooKeeper(t, z, leader)
			cr.GoOn(2, cr.Others(crew.Only(leader))...)
			cr.Draw(cr.Clients["any"])
			z.Reconnect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := servers.RunZooKeeperEnsemble(t, 3, 5)
			cr := crew.New(t)
			for i := range z.Members {
				cr.Hire(crew.Only(i), openZooKeeper(t, z.URL(i), nil), crew.TTL)
			}
			for _, who := range []string{"any", "some"} {
				cr.Hire(who, openZooKeeper(t, z.URL(0, 1, 2), nil), crew.TTL)
			}
			cr.GoOn(10) // more transactions than the next leader has made when it draws
			cr.Draw(cr.Clients["any"])
			f(t, z, cr)
			cr.GoOn(1)
			cr.End()
		})
	}
}

func leadZooKeeper(t testing.TB, z *servers.ZooKeeperEnsemble, not int) int {
	t.Helper()
	leader, err := z.Leader(not)
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// detour is a Dial of a store that goes where it is told.
type detour struct {
	addr atomic.Pointer[string]
	last atomic.Pointer[net.Conn]
}

func (d *detour) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, *d.addr.Load())
	if err == nil {
		d.last.Store(&c)
	}
	return c, err
}

// move ends the connection, and lets the next one go to addr.
func (d *detour) move(addr string) {
	d.addr.Store(&addr)
	if c := d.last.Load(); c != nil {
		(*c).Close()
	}
}

// A follower serves what it knows, and does not hear what the others do: who is
// connected to it, or comes to it with more than it knows, is not misled.
func TestZooKeeperEnsembleLaggingFollower(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeperEnsemble(t, 3, 100)
	leader := leadZooKeeper(t, z, -1)
	follower := (leader + 1) % 3
	var way detour
	way.move(z.Members[leader].Addr())
	mover, err := zkstore.New([]string{"somewhere:2181"}, &zkstore.Options{Dial: way.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mover.Close() })
	near, far := openZooKeeper(t, z.URL(leader), nil), openZooKeeper(t, z.URL(follower), nil)
	a, b, w, m := storetest.Mutex("a", time.Minute), storetest.Mutex("b", time.Minute), storetest.Mutex("a", time.Minute), storetest.Mutex("m", time.Minute)
	storetest.Enter(t, near, a, driver.Holding)
	storetest.Enter(t, far, w, driver.Waiting)
	storetest.Enter(t, far, b, driver.Holding)
	storetest.Renewed(t, far, b)
	st := storetest.Enter(t, mover, m, driver.Holding)

	z.Silence(follower)
	// The one that waits comes to hold, and is gone; so is the one that holds.
	storetest.Leave(t, near, a)
	next := []driver.Claim{storetest.Mutex("a", time.Minute), storetest.Mutex("b", time.Minute)}
	last := make(map[string]int64)
	for _, c := range next {
		if broken, err := near.Break(await.Context(t), c.Name); err != nil || len(broken) != 1 {
			t.Fatalf("break %s: %v, %v", c.Name, broken, err)
		}
		last[c.Name] = storetest.Enter(t, near, c, driver.Holding).Token
		storetest.Leave(t, near, c)
	}
	storetest.Leave(t, mover, m)
	m = storetest.Mutex("m", time.Minute)
	st = storetest.Enter(t, mover, m, driver.Holding)
	asked := func() context.Context { return await.Brief(t, 300*time.Millisecond) }
	for _, c := range []driver.Claim{w, b} {
		if st, err := storetest.Renew(asked(), far, c); err == nil {
			t.Errorf("renewed by a server that hears nobody: %+v", st)
		}
	}
	if st, err := far.Wait(asked(), storetest.Ref(w)); err == nil {
		t.Errorf("a server that hears nobody tells one who waits: %+v", st)
	}
	if st, err := far.Enter(asked(), storetest.Mutex("free", time.Minute)); err == nil {
		t.Errorf("a server that hears nobody grants: %+v", st)
	}
	way.move(z.Members[follower].Addr())
	for range 5 {
		if now, err := storetest.Renew(asked(), mover, m); err == nil && (now.State != driver.Holding || now.Token != st.Token) {
			t.Errorf("the holder that comes to a server that hears nobody: %+v", now)
		}
	}

	z.Reconnect()
	await.That(t, "the server serves again", func() bool {
		now, err := storetest.Renew(await.Brief(t, time.Second), mover, m)
		if err == nil && (now.State != driver.Holding || now.Token != st.Token) {
			t.Errorf("the holder after that: %+v; it had token %d", now, st.Token)
		}
		return err == nil
	})
	for _, c := range []driver.Claim{w, b} {
		if st := storetest.Renewed(t, far, c); st.State != driver.Gone {
			t.Errorf("what was broken meanwhile: %+v", st)
		}
		if st := storetest.Enter(t, far, storetest.Mutex(c.Name, time.Minute), driver.Holding); st.Token <= last[c.Name] {
			t.Errorf("token %d after %d", st.Token, last[c.Name])
		}
	}
}

// The leader is stopped until there is another, goes on, and is killed a moment
// later: what it says in that moment lengthens no claim, for the new one ends the
// session at its own time.
func TestZooKeeperEnsembleLeaderOfYesterday(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second
	z := servers.RunZooKeeperEnsemble(t, 3, 5)
	leader := leadZooKeeper(t, z, -1)
	far, near := openZooKeeper(t, z.URL(leader), nil), openZooKeeper(t, z.URL((leader+1)%3, (leader+2)%3), nil)
	h, w := storetest.Mutex("x", ttl), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, far, h, driver.Holding)
	storetest.Enter(t, near, w, driver.Waiting)
	until := storetest.Renewed(t, far, h).Deadline
	z.Members[leader].Pause()
	leadZooKeeper(t, z, leader)
	time.Sleep(time.Until(until) - ttl/4)
	renewed := make(chan time.Time, 1)
	go func() {
		ctx := await.Brief(t, ttl/4)
		st, err := storetest.Renew(ctx, far, h)
		for err != nil && ctx.Err() == nil {
			st, err = storetest.Renew(ctx, far, h)
		}
		renewed <- st.Deadline
	}()
	time.Sleep(100 * time.Millisecond) // so that the request waits for it
	z.Members[leader].Resume()
	if d := <-renewed; d.After(until) {
		until = d
	}
	z.Members[leader].Kill()
	if st, err := storetest.Get(await.Context(t), near, w); err != nil || st.State != driver.Holding {
		t.Fatalf("%+v, %v", st, err)
	}
	if left := time.Until(until); left > 0 {
		t.Errorf("another holds, and the first may take itself for the holder for %v", left)
	}
}
