package etcd

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// dialEtcd makes a client that ends with the test.
func dialEtcd(t testing.TB, addr string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), DialOptions: opts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func openEtcd(t testing.TB, e *servers.Etcd) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.Open(e.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func etcdStore(t testing.TB, c *clientv3.Client) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// The server is killed while one holds and many wait: with its data all keep
// their places and the holder its lock, without it all enter again; tokens rise.
func TestEtcdRestart(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			t.Parallel()
			const waiters, ttl = 30, 24 * time.Second
			e := servers.RunEtcd(t, servers.EtcdOptions{})
			stores := []driver.Store{openEtcd(t, e), openEtcd(t, e)}
			h := storetest.Mutex("restart", ttl)
			first := storetest.Enter(t, stores[0], h, driver.Holding)
			ctx := await.Context(t)
			var mu sync.Mutex
			var order []int
			last := first.Token
			var wg sync.WaitGroup
			for i := range waiters {
				s, w := stores[i%2], storetest.Mutex("restart", ttl)
				storetest.Enter(t, s, w, driver.Waiting)
				wg.Go(func() {
					st, err := storetest.Get(ctx, s, w)
					if err != nil {
						t.Errorf("waiter %d: %v", i, err)
						return
					}
					mu.Lock()
					if st.Token <= last {
						t.Errorf("token %d after %d", st.Token, last)
					}
					last, order = st.Token, append(order, i)
					mu.Unlock()
					for {
						if _, err := s.Leave(ctx, storetest.Ref(w)); err == nil || ctx.Err() != nil {
							return
						}
					}
				})
			}
			if err := e.Restart(keep); err != nil {
				t.Fatal(err)
			}
			if keep {
				st, err := storetest.Renew(ctx, stores[0], h)
				for err != nil && time.Now().Before(first.Deadline) {
					st, err = storetest.Renew(ctx, stores[0], h)
				}
				if err != nil || st.State != driver.Holding || st.Token != first.Token {
					t.Errorf("the holder after the restart: %+v, %v; it had token %d", st, err, first.Token)
				}
				if _, err := stores[0].Leave(ctx, storetest.Ref(h)); err != nil {
					t.Error(err)
				}
			}
			wg.Wait()
			if len(order) != waiters {
				t.Errorf("%d of %d were served", len(order), waiters)
			}
			for i := range order {
				if keep && order[i] != i {
					t.Fatalf("served in the order %v", order)
				}
			}
		})
	}
}

// While the server stands still, calls end with their contexts; after that all
// goes on.
func TestEtcdPause(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	s := openEtcd(t, e)
	h, w := storetest.Mutex("pause", time.Minute), storetest.Mutex("pause", time.Minute)
	first := storetest.Enter(t, s, h, driver.Holding)
	storetest.Enter(t, s, w, driver.Waiting)
	e.Pause()
	for what, call := range map[string]func(context.Context) error{
		"enter": func(ctx context.Context) error {
			_, err := s.Enter(ctx, storetest.Mutex("other", time.Minute))
			return err
		},
		"wait":  func(ctx context.Context) error { _, err := s.Wait(ctx, storetest.Ref(w)); return err },
		"renew": func(ctx context.Context) error { _, err := storetest.Renew(ctx, s, h); return err },
		"leave": func(ctx context.Context) error {
			_, err := s.Leave(ctx, storetest.Ref(storetest.Mutex("x", 1)))
			return err
		},
		"list":    func(ctx context.Context) error { return storetest.List(ctx, s, "") },
		"load":    func(ctx context.Context) error { _, err := s.Load(ctx, "x"); return err },
		"listen":  func(ctx context.Context) error { return s.Listen(ctx, func(driver.Notice) {}) },
		"inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "pause"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	e.Resume()
	ctx := await.Context(t)
	st, err := storetest.Renew(ctx, s, h)
	for err != nil && ctx.Err() == nil {
		st, err = storetest.Renew(ctx, s, h)
	}
	if err != nil || st.State != driver.Holding || st.Token != first.Token {
		t.Errorf("the holder: %+v, %v", st, err)
	}
	if _, err := s.Leave(ctx, storetest.Ref(h)); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Get(ctx, s, w); err != nil || st.State != driver.Holding {
		t.Errorf("the waiter: %v, %v", st.State, err)
	}
}

// A waiting claim whose lease ends is gone, and does not take the deletion of
// the one in front for its grant.
func TestEtcdLeaseEndsWhileWaiting(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	c := dialEtcd(t, e.Addr())
	a, b, third := etcdStore(t, c), openEtcd(t, e), openEtcd(t, e)
	h, w, next := storetest.Mutex("revoked", time.Minute), storetest.Mutex("revoked", time.Minute), storetest.Mutex("revoked", time.Minute)
	storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	ctx := await.Context(t)
	waited := make(chan driver.Status, 1)
	go func() {
		st, err := b.Wait(ctx, storetest.Ref(w))
		for err == nil && st.State == driver.Waiting {
			st, err = b.Wait(ctx, storetest.Ref(w))
		}
		if err != nil {
			t.Error(err)
		}
		waited <- st
	}()
	storetest.Enter(t, third, next, driver.Waiting)
	res, err := c.Get(ctx, "pawl/q/revoked/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 3 {
		t.Fatalf("%v, %v", res, err)
	}
	for _, kv := range res.Kvs {
		if strings.Contains(string(kv.Value), w.ID) {
			if _, err := c.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := a.Leave(ctx, storetest.Ref(h)); err != nil {
		t.Fatal(err)
	}
	if st := <-waited; st.State != driver.Gone {
		t.Errorf("its lease has ended, and Wait returns %+v", st)
	}
	if st, err := storetest.Renew(ctx, b, w); err != nil || st.State != driver.Gone {
		t.Errorf("its lease has ended, and Renew returns %+v, %v", st, err)
	}
	if st, err := storetest.Get(ctx, third, next); err != nil {
		t.Errorf("the one behind: %v, %v", st.State, err)
	}
	storetest.Enter(t, b, storetest.Mutex("revoked/again", time.Minute), driver.Holding) // on a new lease
}

// The connection of the holder breaks: it is told before another holds.
func TestEtcdToldBeforeAnotherHolds(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	for name, fault := range map[string]func(*servers.Proxy){
		"replies swallowed": func(p *servers.Proxy) { p.Swallow(false, true) },
		"all swallowed":     func(p *servers.Proxy) { p.Swallow(true, true) },
		"cut and refused":   (*servers.Proxy).Cut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := servers.RunEtcd(t, servers.EtcdOptions{})
			p := servers.RunProxy(t, e.Addr())
			client := func(addr string) *pawl.Client {
				s, err := etcdstore.Open("etcd://"+addr, nil)
				if err != nil {
					t.Fatal(err)
				}
				c := pawl.New(s, &pawl.Options{TTL: ttl})
				t.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
					defer cancel()
					c.Close(ctx)
					s.Close()
				})
				return c
			}
			far, near := client(p.Addr()), client(e.Addr())
			old, next := storetest.TakenOver(t, far, near, func() { fault(p) })
			if next.Token() <= old.Token() {
				t.Errorf("token %d after %d", next.Token(), old.Token())
			}
		})
	}
}

// faultyTxn lets what happens to transactions be told.
type faultyTxn struct {
	fault atomic.Pointer[func(send func() error) error]
}

func (f *faultyTxn) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if fault := f.fault.Load(); fault != nil && strings.HasSuffix(method, "/Txn") {
			return (*fault)(func() error {
				return invoke(context.WithoutCancel(ctx), method, req, reply, cc, opts...)
			})
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

func (f *faultyTxn) set(fault func(send func() error) error) { f.fault.Store(&fault) }

// The reply to an Enter is lost, and nobody asks again: the claim ends with its
// TTL, though its lease goes on for others' sake. Asked again, it is one claim.
func TestEtcdLostReply(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var f faultyTxn
	a, b := etcdStore(t, dialEtcd(t, e.Addr(), f.option())), openEtcd(t, e)
	kept, lost, asked := storetest.Mutex("kept", ttl), storetest.Mutex("lost", ttl), storetest.Mutex("asked", ttl)
	ctx := await.Context(t)
	storetest.Enter(t, a, kept, driver.Holding)
	f.set(func(send func() error) error {
		if err := send(); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "the reply is lost")
	})
	for _, c := range []driver.Claim{lost, asked} {
		// The reply that is lost first may be that to something else, as to what
		// comes before entering when much time has passed.
		await.That(t, "the request arrives", func() bool {
			if _, err := a.Enter(ctx, c); err == nil {
				t.Error("the reply was lost, and Enter returns no error")
			}
			return len(storetest.IDs(t, b, c.Name)) == 1
		})
	}
	f.fault.Store(nil)
	storetest.Enter(t, a, kept, driver.Holding) // again: that may have taken a while
	st := storetest.Enter(t, a, asked, driver.Holding)
	w := storetest.Mutex("lost", ttl)
	storetest.Enter(t, b, w, driver.Waiting)
	entered := time.Now()
	for {
		if st, err := storetest.Renew(ctx, a, kept); err != nil || st.State != driver.Holding {
			t.Fatalf("the lease is renewed: %v, %v", st.State, err)
		}
		if again, err := storetest.Renew(ctx, a, asked); err != nil || again.State != driver.Holding || again.Token != st.Token {
			t.Fatalf("the claim that was asked for again: %+v, %v", again, err)
		}
		st, err := storetest.Renew(ctx, b, w)
		if err != nil {
			t.Fatal(err)
		}
		if st.State == driver.Holding {
			break
		}
		if time.Since(entered) > await.Limit {
			t.Fatal("the claim of which nobody knows does not end")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// An Enter arrives after its caller has given up, and has left: it is not
// carried out.
func TestEtcdLateEnter(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var f faultyTxn
	s := etcdStore(t, dialEtcd(t, e.Addr(), f.option()))
	storetest.Enter(t, s, storetest.Mutex("other", time.Minute), driver.Holding)
	var late []func() error
	f.set(func(send func() error) error {
		late = append(late, send)
		return status.Error(codes.Unavailable, "under way")
	})
	ctx := await.Context(t)
	c := storetest.Mutex("late", time.Minute)
	if _, err := s.Enter(ctx, c); err == nil {
		t.Fatal("the request is under way, and Enter returns without an error")
	}
	f.fault.Store(nil)
	if was, err := s.Leave(ctx, storetest.Ref(c)); err != nil || was != driver.Gone {
		t.Fatalf("leave: %v, %v", was, err)
	}
	for _, send := range late {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	if q, err := s.Inspect(ctx, "late"); err != nil || len(q.Claims) != 0 || len(late) == 0 {
		t.Errorf("it had left, %d requests came late, and the queue is %+v, %v", len(late), q, err)
	}
	storetest.Enter(t, s, storetest.Mutex("late", time.Minute), driver.Holding) // others are not barred
}

// What somebody deletes by hand is told with the next renewal.
func TestEtcdDeletedByHand(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	c := dialEtcd(t, e.Addr())
	s := etcdStore(t, c)
	h := storetest.Mutex("by hand", time.Minute)
	st := storetest.Enter(t, s, h, driver.Holding)
	ctx := await.Context(t)
	if _, err := c.Delete(ctx, "pawl/q/by hand/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Renew(ctx, s, h); err != nil || st.State != driver.Gone {
		t.Errorf("renew: %v, %v", st.State, err)
	}
	if next := storetest.Enter(t, s, storetest.Mutex("by hand", time.Minute), driver.Holding); next.Token <= st.Token {
		t.Errorf("token %d after %d", next.Token, st.Token)
	}
	// Without the epoch, tokens begin anew, above.
	last := st.Token
	for range 2 {
		if _, err := c.Delete(ctx, "pawl/epoch"); err != nil {
			t.Fatal(err)
		}
		next := storetest.Enter(t, s, storetest.Mutex(driver.NewID(), time.Minute), driver.Holding)
		if next.Token <= last {
			t.Errorf("token %d after %d", next.Token, last)
		}
		last = next.Token
	}
}

// Thousands of claims of one TTL are renewed by one keepalive, without a
// goroutine for each, and leave nothing behind.
func TestEtcdThousands(t *testing.T) {
	const ttl = time.Minute
	n := 1_000
	if await.Soak() {
		n = 10_000
	}
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	c := dialEtcd(t, e.Addr())
	s, other := etcdStore(t, c), etcdStore(t, c)
	ctx := await.Context(t)
	claims := make([]driver.Claim, n)
	refs := make([]driver.Ref, n)
	for i := range claims {
		claims[i] = storetest.Mutex(fmt.Sprintf("many/%d", i), ttl)
		refs[i] = storetest.Ref(claims[i])
	}
	each := func(f func(i int)) {
		var wg sync.WaitGroup
		for w := range 64 {
			wg.Go(func() {
				for i := w; i < n; i += 64 {
					f(i)
				}
			})
		}
		wg.Wait()
	}
	before := runtime.NumGoroutine()
	each(func(i int) {
		if st, err := s.Enter(ctx, claims[i]); err != nil || st.State != driver.Holding {
			t.Errorf("enter: %v, %v", st.State, err)
		}
	})
	await.That(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before+20 })
	const kept = "etcd_debugging_lease_renewed_total"
	renewals, err := e.Metric(kept)
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	round := func() {
		s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
			if err != nil || st.State != driver.Holding {
				refused.Add(1)
			}
		})
	}
	began := time.Now()
	for range 5 {
		round()
	}
	now, err := e.Metric(kept)
	if err != nil {
		t.Fatal(err)
	}
	if most := 1 + float64(time.Since(began)/(ttl/6)); now-renewals > most {
		t.Errorf("5 rounds took %v keepalives, %v at most are needed", now-renewals, most)
	}
	if refused.Load() > 0 {
		t.Errorf("%d renewals returned other than holding", refused.Load())
	}

	// One of them is broken, one is taken away by another process: both are
	// known with the next renewal, whatever round it is their turn in.
	if _, err := other.Break(ctx, claims[7].Name); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Leave(ctx, refs[n-10]); err != nil {
		t.Fatal(err)
	}
	s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
		if gone := i == 7 || i == n-10; err != nil || gone != (st.State == driver.Gone) {
			t.Errorf("claim %d: %v, %v", i, st.State, err)
		}
	})
	each(func(i int) {
		if _, err := s.Leave(ctx, refs[i]); err != nil {
			t.Error(err)
		}
	})
	res, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range res.Kvs {
		if key := string(kv.Key); key != "pawl/epoch" {
			t.Errorf("%s is left behind", key)
		}
	}
}
