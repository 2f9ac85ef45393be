package etcd

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// A claim that is put on a lease, or renewed on one, without another keepalive
// ends with it: not one TTL from now.
func TestEtcdDeadlineOnAnOldLease(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second // a sixth of it later, there is a keepalive
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	s := openEtcd(t, e)
	keepalives := func() float64 {
		t.Helper()
		n, err := e.Metric("etcd_debugging_lease_renewed_total")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for tries := 1; ; tries++ {
		storetest.Enter(t, s, storetest.Mutex("old"+driver.NewID(), ttl), driver.Holding)
		before, most := keepalives(), driver.Deadline(time.Now(), ttl)
		time.Sleep(100 * time.Millisecond)
		c := storetest.Mutex("new"+driver.NewID(), ttl)
		entered := storetest.Enter(t, s, c, driver.Holding)
		renewed, err := storetest.Renew(await.Context(t), s, c)
		if err != nil {
			t.Fatal(err)
		}
		if keepalives() != before { // a sixth of the TTL went by: a slow machine
			if tries == 5 {
				t.Fatal("a lease was never used twice without a keepalive between")
			}
			continue
		}
		if entered.Deadline.After(most) || renewed.Deadline.After(most) {
			t.Errorf("the lease ends before %v; the deadlines are %v later on Enter, %v on Renew", most,
				entered.Deadline.Sub(most), renewed.Deadline.Sub(most))
		}
		break
	}
	// One that is older than that is kept alive first.
	time.Sleep(ttl/6 + 100*time.Millisecond)
	before, sent := keepalives(), time.Now()
	if st := storetest.Enter(t, s, storetest.Mutex("newer", ttl), driver.Holding); st.Deadline.Before(driver.Deadline(sent, ttl-ttl/6)) {
		t.Errorf("%v are left of %v", time.Until(st.Deadline), ttl)
	}
	if n := keepalives() - before; n != 1 {
		t.Errorf("%v keepalives, want 1", n)
	}
}

// A grant that was decided under a limit is not written after SetLimit has taken
// that away.
func TestEtcdLateGrantAfterSetLimit(t *testing.T) {
	const name = "limit"
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var ml, mx meddler
	limits, late, s := ml.store(t, e), mx.store(t, e), openEtcd(t, e)
	ctx := await.Context(t)
	a, b, c := storetest.Mutex(name, time.Minute), storetest.Mutex(name, time.Minute), storetest.Mutex(name, time.Minute)
	storetest.Enter(t, s, a, driver.Holding)
	storetest.Enter(t, s, b, driver.Waiting)
	storetest.Enter(t, s, c, driver.Waiting)
	if err := s.SetLimit(ctx, name, driver.KindMutex, 1, 2); err != nil { // b is granted by that
		t.Fatal(err)
	}
	done := make(chan struct{}, 2)
	writes := func(req any) bool { return touches(req, "pawl/q/"+name+"/") }

	// SetLimit has looked; then the first one leaves, and somebody is about to
	// write the grant to the third.
	set, setNow := ml.hold(writes)
	go func() {
		if err := limits.SetLimit(ctx, name, driver.KindMutex, 2, 1); err != nil {
			t.Error(err)
		}
		done <- struct{}{}
	}()
	await.Value(t, "the request", set)
	if _, err := s.Leave(ctx, storetest.Ref(a)); err != nil {
		t.Fatal(err)
	}
	grant, grantNow := mx.hold(writes)
	go func() {
		if err := late.Ask(ctx, name); err != nil {
			t.Error(err)
		}
		done <- struct{}{}
	}()
	await.Value(t, "the request", grant)
	setNow()
	await.Value(t, "the request", done)
	grantNow()
	await.Value(t, "the request", done)
	if st, err := storetest.Renew(ctx, s, c); err != nil || st.State != driver.Waiting {
		t.Errorf("the limit is 1, one holds, and another one is %v, %v", st.State, err)
	}
	if _, err := s.Leave(ctx, storetest.Ref(b)); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Renew(ctx, s, c); err != nil || st.State != driver.Holding {
		t.Errorf("nobody else is there, and it is %v, %v", st.State, err)
	}
}

// A waiter of a mutex hears of a limit that was raised, also if those in front of
// it need no change for that.
func TestEtcdSetLimitWakes(t *testing.T) {
	const name = "raised"
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	s, other := openEtcd(t, e), openEtcd(t, e)
	ctx := await.Context(t)
	set := func(was, limit int64) {
		t.Helper()
		if err := other.SetLimit(ctx, name, driver.KindMutex, was, limit); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Enter(t, s, storetest.Mutex(name, time.Minute), driver.Holding)
	storetest.Enter(t, s, storetest.Mutex(name, time.Minute), driver.Waiting)
	set(1, 2)
	set(2, 1)
	early := storetest.Mutex("early", time.Minute) // it has come, and waits only after that
	storetest.Enter(t, s, storetest.Mutex("early", time.Minute), driver.Holding)
	storetest.Enter(t, s, early, driver.Waiting)
	if err := other.SetLimit(ctx, "early", driver.KindMutex, 1, 2); err != nil {
		t.Fatal(err)
	}
	if st, err := s.Wait(ctx, storetest.Ref(early)); err != nil || st.State != driver.Holding {
		t.Errorf("it was granted before Wait: %v, %v", st.State, err)
	}
	w := storetest.Mutex(name, time.Minute)
	storetest.Enter(t, s, w, driver.Waiting)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		time.Sleep(300 * time.Millisecond)
		if err := other.SetLimit(ctx, name, driver.KindMutex, 1, 3); err != nil {
			t.Error(err)
		}
	})
	for {
		st, err := s.Wait(ctx, storetest.Ref(w))
		if err != nil {
			t.Fatalf("it was granted, and Wait returns %v", err)
		}
		if st.State == driver.Holding {
			return
		}
	}
}

// While a waiter's connection is cut, the lock becomes free and history is
// compacted: it hears of that as soon as it is connected again.
func TestEtcdCompacted(t *testing.T) {
	for name, limit := range map[string]int64{"mutex": 1, "semaphore": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := servers.RunEtcd(t, servers.EtcdOptions{})
			raw := dialEtcd(t, e.Addr())
			p := servers.RunProxy(t, e.Addr())
			s, err := etcdstore.Open("etcd://"+p.Addr(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			near := openEtcd(t, e)
			claim := func() driver.Claim {
				return driver.Claim{Name: "x", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: limit, Limit: limit, TTL: time.Minute}
			}
			h, w := claim(), claim()
			storetest.Enter(t, near, h, driver.Holding)
			storetest.Enter(t, s, w, driver.Waiting)
			ctx := await.Context(t)
			waited := make(chan struct{})
			go func() {
				defer close(waited)
				for {
					st, err := s.Wait(ctx, storetest.Ref(w))
					if st.State == driver.Holding {
						return
					}
					if err != nil && ctx.Err() != nil {
						t.Errorf("wait: %v, %v", st.State, err)
						return
					}
				}
			}()
			for n := 0.0; n == 0 && ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
				if n, err = e.Metric("etcd_debugging_mvcc_watcher_total"); err != nil {
					t.Fatal(err)
				}
			}
			p.Cut()
			if _, err := near.Leave(ctx, storetest.Ref(h)); err != nil {
				t.Fatal(err)
			}
			res, err := raw.Put(ctx, "something", "else")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := raw.Compact(ctx, res.Header.Revision); err != nil {
				t.Fatal(err)
			}
			p.Restore()
			<-waited
		})
	}
}

// Clients whose requests and replies are lost, late and repeated use one lock: no
// two of them believe at the same time that they hold it, and tokens rise.
func TestEtcdAloneBehindBadNetwork(t *testing.T) {
	t.Parallel()
	const name, ttl = "alone", 2 * time.Second
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	bad := await.Brief(t, 10*time.Second)
	ctx := await.Context(t)
	var mu sync.Mutex
	var inside struct { // who is, until when
		id    string
		until time.Time
	}
	var last, grants, faults int64
	var wg, under sync.WaitGroup
	for range 3 {
		var m meddler
		s := m.store(t, e)
		m.set(func(_ any, send func() error) error {
			if bad.Err() != nil {
				return send()
			}
			switch n := rand.IntN(100); {
			case n < 4:
				atomic.AddInt64(&faults, 1)
				_ = send()
				return errUnknown
			case n < 8:
				atomic.AddInt64(&faults, 1)
				under.Go(func() { time.Sleep(rand.N(ttl)); _ = send() })
				return errUnknown
			case n < 10:
				return errUnknown
			}
			return send()
		})
		for range 3 {
			wg.Go(func() {
				for bad.Err() == nil {
					c := storetest.Mutex(name, ttl)
					st, err := s.Enter(ctx, c)
					deadline := st.Deadline
					for bad.Err() == nil && (err != nil || st.State == driver.Waiting) {
						wait, cancel := context.WithTimeout(ctx, ttl/4)
						st, err = s.Wait(wait, storetest.Ref(c))
						cancel()
						if err != nil {
							if st, err = storetest.Renew(ctx, s, c); err == nil {
								deadline = st.Deadline
							}
						}
					}
					if err == nil && st.State == driver.Holding {
						mu.Lock()
						if now := time.Now(); now.Before(deadline) {
							if inside.id != "" && now.Before(inside.until) {
								t.Errorf("%s holds until %v from now, and so does %s", inside.id, inside.until.Sub(now), c.ID)
							}
							if st.Token <= last {
								t.Errorf("token %d after %d", st.Token, last)
							}
							last = st.Token
							grants++
							inside.id, inside.until = c.ID, deadline
						}
						mu.Unlock()
						time.Sleep(rand.N(20 * time.Millisecond))
						mu.Lock()
						if inside.id == c.ID {
							inside.id = ""
						}
						mu.Unlock()
					}
					for {
						if _, err := s.Leave(ctx, storetest.Ref(c)); err == nil || ctx.Err() != nil {
							break
						}
					}
				}
			})
		}
	}
	wg.Wait()
	under.Wait()
	if grants < 5 || faults < 5 {
		t.Errorf("%d grants, %d faults: that proves nothing", grants, faults)
	}
	t.Logf("%d grants, %d faults", grants, faults)
	// Nothing is left that nobody knows of.
	s := openEtcd(t, e)
	if st, err := storetest.Get(ctx, s, storetest.Mutex(name, ttl)); err != nil || st.State != driver.Holding {
		t.Errorf("at the end: %v, %v", st.State, err)
	}
}
