package integration

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/zkstore"
)

// Clients of an ensemble count while a server fails.
func TestZooKeeperEnsembleFailover(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(*testing.T, *servers.ZooKeeperEnsemble, *crew){
		"the leader is killed, then a follower is stopped": func(t *testing.T, z *servers.ZooKeeperEnsemble, cr *crew) {
			leader := leadZooKeeper(t, z, -1)
			steady := cr.client(openZooKeeper(t, z.URL(0, 1, 2), nil), steadyTTL)
			cr.hold("steady", steady, func(lease *pawl.Lease) {
				z.Members[leader].Kill()
				cr.extended(lease)
			})
			cr.goOn(2, cr.others(only(leader))...)
			cr.draw(cr.clients["any"])
			if err := z.Members[leader].Restart(true); err != nil {
				t.Fatal(err)
			}
			cr.goOn(1)

			follower := (leadZooKeeper(t, z, -1) + 1) % 3
			cr.hold("steady", steady, func(lease *pawl.Lease) {
				z.Members[follower].Pause()
				cr.extended(lease)
			})
			cr.goOn(2, cr.others(only(follower))...)
			z.Members[follower].Resume()
		},
		"the leader is stopped until there is another": func(t *testing.T, z *servers.ZooKeeperEnsemble, cr *crew) {
			leader := leadZooKeeper(t, z, -1)
			cr.hold("pinned", cr.client(openZooKeeper(t, z.URL(leader), nil), clusterTTL), func(lease *pawl.Lease) {
				z.Members[leader].Pause()
				cr.told(lease)
			})
			leadZooKeeper(t, z, leader)
			cr.goOn(2, cr.others(only(leader))...)
			cr.draw(cr.clients["any"])
			z.Members[leader].Resume()
		},
		"the leader is cut off": func(t *testing.T, z *servers.ZooKeeperEnsemble, cr *crew) {
			leader := leadZooKeeper(t, z, -1)
			cr.hold("pinned", cr.client(openZooKeeper(t, z.URL(leader), nil), clusterTTL), func(lease *pawl.Lease) {
				z.CutOff(leader)
				cr.told(lease)
			})
			leadZooKeeper(t, z, leader)
			cr.goOn(2, cr.others(only(leader))...)
			cr.draw(cr.clients["any"])
			z.Reconnect()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			z := servers.RunZooKeeperEnsemble(t, 3, 5)
			cr := newCrew(t)
			for i := range z.Members {
				cr.hire(only(i), openZooKeeper(t, z.URL(i), nil), clusterTTL)
			}
			for _, who := range []string{"any", "some"} {
				cr.hire(who, openZooKeeper(t, z.URL(0, 1, 2), nil), clusterTTL)
			}
			cr.goOn(10) // more transactions than the next leader has made when it draws
			cr.draw(cr.clients["any"])
			f(t, z, cr)
			cr.goOn(1)
			cr.end()
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
	a, b, w, m := mutex("a", time.Minute), mutex("b", time.Minute), mutex("a", time.Minute), mutex("m", time.Minute)
	enter(t, near, a, driver.Holding)
	enter(t, far, w, driver.Waiting)
	enter(t, far, b, driver.Holding)
	held(t, far, b)
	st := enter(t, mover, m, driver.Holding)

	z.Silence(follower)
	// The one that waits comes to hold, and is gone; so is the one that holds.
	leave(t, near, a)
	next := []driver.Claim{mutex("a", time.Minute), mutex("b", time.Minute)}
	last := make(map[string]int64)
	for _, c := range next {
		if broken, err := near.Break(within(t, patience), c.Name); err != nil || len(broken) != 1 {
			t.Fatalf("break %s: %v, %v", c.Name, broken, err)
		}
		last[c.Name] = enter(t, near, c, driver.Holding).Token
		leave(t, near, c)
	}
	leave(t, mover, m)
	m = mutex("m", time.Minute)
	st = enter(t, mover, m, driver.Holding)
	asked := func() context.Context { return within(t, 300*time.Millisecond) }
	for _, c := range []driver.Claim{w, b} {
		if st, err := renew(asked(), far, c); err == nil {
			t.Errorf("renewed by a server that hears nobody: %+v", st)
		}
	}
	if st, err := far.Wait(asked(), ref(w)); err == nil {
		t.Errorf("a server that hears nobody tells one who waits: %+v", st)
	}
	if st, err := far.Enter(asked(), mutex("free", time.Minute)); err == nil {
		t.Errorf("a server that hears nobody grants: %+v", st)
	}
	way.move(z.Members[follower].Addr())
	for range 5 {
		if now, err := renew(asked(), mover, m); err == nil && (now.State != driver.Holding || now.Token != st.Token) {
			t.Errorf("the holder that comes to a server that hears nobody: %+v", now)
		}
	}

	z.Reconnect()
	eventually(t, "the server serves again", func() bool {
		now, err := renew(within(t, time.Second), mover, m)
		if err == nil && (now.State != driver.Holding || now.Token != st.Token) {
			t.Errorf("the holder after that: %+v; it had token %d", now, st.Token)
		}
		return err == nil
	})
	for _, c := range []driver.Claim{w, b} {
		if st := held(t, far, c); st.State != driver.Gone {
			t.Errorf("what was broken meanwhile: %+v", st)
		}
		if st := enter(t, far, mutex(c.Name, time.Minute), driver.Holding); st.Token <= last[c.Name] {
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
	h, w := mutex("x", ttl), mutex("x", time.Minute)
	enter(t, far, h, driver.Holding)
	enter(t, near, w, driver.Waiting)
	until := held(t, far, h).Deadline
	z.Members[leader].Pause()
	leadZooKeeper(t, z, leader)
	time.Sleep(time.Until(until) - ttl/4)
	renewed := make(chan time.Time, 1)
	go func() {
		ctx := within(t, ttl/4)
		st, err := renew(ctx, far, h)
		for err != nil && ctx.Err() == nil {
			st, err = renew(ctx, far, h)
		}
		renewed <- st.Deadline
	}()
	time.Sleep(100 * time.Millisecond) // so that the request waits for it
	z.Members[leader].Resume()
	if d := <-renewed; d.After(until) {
		until = d
	}
	z.Members[leader].Kill()
	if st, err := get(within(t, 90*time.Second), near, w); err != nil || st.State != driver.Holding {
		t.Fatalf("%+v, %v", st, err)
	}
	if left := time.Until(until); left > 0 {
		t.Errorf("another holds, and the first may take itself for the holder for %v", left)
	}
}
