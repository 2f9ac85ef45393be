package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// Those who wait for one name renew their claims without reading each other's, while
// nothing happens; and find what has happened without being woken.
func TestEtcdWaitingIsNotReadToEachOther(t *testing.T) {
	t.Parallel()
	const n = 100
	for _, limit := range []int64{1, 2} {
		e := servers.RunEtcd(t, servers.EtcdOptions{})
		var read atomic.Int64
		raw := dialEtcd(t, e.Addr(), grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoke(ctx, method, req, reply, cc, opts...)
				read.Add(int64(reply.(interface{ Size() int }).Size()))
				return err
			}))
		var stores []driver.Store
		var claims []driver.Claim
		for i := range n {
			c := driver.Claim{Name: "crowd", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: limit, Limit: limit, TTL: time.Hour,
				Owner: driver.Owner{Host: "host-name.example.org", PID: 12345, Label: "some label"}}
			want := driver.Waiting
			if i == 0 {
				want = driver.Holding
			}
			s := etcdStore(t, raw)
			storetest.Enter(t, s, c, want)
			stores, claims = append(stores, s), append(claims, c)
		}
		round := func() {
			t.Helper()
			for i := 1; i < n; i++ {
				st, err := storetest.Renew(await.Context(t), stores[i], claims[i])
				if err != nil || st.State != driver.Waiting || st.Ahead != i-1 || st.Blocker == nil {
					t.Fatalf("limit %d: claim %d: %+v, %v", limit, i, st, err)
				}
			}
		}
		round() // each has seen only those who were there when it came
		read.Store(0)
		round()
		if each := read.Load() / (n - 1); each > 1000 {
			t.Errorf("limit %d: renewing a claim that waits in a crowd of %d reads %d bytes", limit, n, each)
		}
		storetest.Leave(t, stores[0], claims[0])
		st, err := storetest.Renew(await.Context(t), stores[1], claims[1])
		if err != nil || st.State != driver.Holding {
			t.Errorf("limit %d: the next one after the first has left: %v, %v", limit, st.State, err)
		}
		if st, err := storetest.Renew(await.Context(t), stores[n-1], claims[n-1]); err != nil || st.Ahead != n-3 {
			t.Errorf("limit %d: the last one after the first has left: %+v, %v", limit, st, err)
		}
	}
}

// Processes that come for one lock and end leave no more keys to pass by than there
// are places, however many they are.
func TestEtcdProcessesShareKeys(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	keys := make(map[string]bool)
	for range 20 {
		s := etcdStore(t, raw)
		c := storetest.Mutex("cron", time.Minute)
		storetest.Enter(t, s, c, driver.Holding)
		res, err := raw.Get(t.Context(), "pawl/q/cron/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil || len(res.Kvs) != 1 {
			t.Fatal(res, err)
		}
		keys[string(res.Kvs[0].Key)] = true
		storetest.Leave(t, s, c)
		s.Close()
	}
	if len(keys) != 1 {
		t.Errorf("20 processes that held a lock one after the other have left %d keys in etcd's memory", len(keys))
	}
}

// walks counts how often a request has the server go through all claims of a name; whole:
// to tell them all.
func walks(req any, name string, whole bool) (n int) {
	r, ok := req.(*pb.TxnRequest)
	if !ok {
		return 0
	}
	queue := "pawl/q/" + name + "/"
	for _, op := range slices.Concat(r.Success, r.Failure) {
		if get := op.GetRequestRange(); get != nil && string(get.Key) == queue && !(whole && get.Limit > 0) {
			n++
		}
		if in := op.GetRequestTxn(); in != nil {
			n += walks(in, name, whole)
		}
	}
	return n
}

// A crowd's heartbeats have the cluster go through the queue once for all claims of a
// store, and not at all for one that waits there alone. The same holds for leaving.
func TestEtcdCrowdIsNotGoneThroughForEach(t *testing.T) {
	t.Parallel()
	const n, alone = 150, 10
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s, raw := m.store(t, e), m.client(t, e)
	storetest.Enter(t, s, storetest.Mutex("crowd", time.Hour), driver.Holding)
	var claims []driver.Claim
	var refs []driver.Ref
	for range n {
		c := storetest.Mutex("crowd", time.Hour)
		storetest.Enter(t, s, c, driver.Waiting)
		claims, refs = append(claims, c), append(refs, storetest.Ref(c))
	}
	var stores []driver.Store
	for range alone {
		s, c := etcdStore(t, raw), storetest.Mutex("crowd", time.Hour)
		storetest.Enter(t, s, c, driver.Waiting)
		stores, claims = append(stores, s), append(claims, c)
	}
	renew := func(walked int64, what string) {
		t.Helper()
		var got atomic.Int64
		m.set(func(req any, send func() error) error {
			got.Add(int64(walks(req, "crowd", false)))
			return send()
		})
		s.Renew(await.Context(t), refs, func(i int, st driver.Status, err error) {
			if err != nil || st.State != driver.Waiting || st.Ahead != i || st.Blocker == nil {
				t.Errorf("%s: claim %d: %+v, %v", what, i, st, err)
			}
		})
		if got.Swap(0) > walked {
			t.Errorf("%s: renewing %d claims that wait for one name goes through its queue more than %d times", what, n, walked)
		}
		for i, s := range stores {
			if st, err := storetest.Renew(await.Context(t), s, claims[n+i]); err != nil || st.State != driver.Waiting || st.Blocker == nil {
				t.Errorf("%s: one that waits alone: %+v, %v", what, st, err)
			}
		}
		if got := got.Load(); got > 0 {
			t.Errorf("%s: renewing %d claims, each of its own store, goes through the queue of %d %d times", what, alone, n, got)
		}
	}
	renew(2, "each has seen those who were there when it came")
	renew(1, "nothing has happened since")
	var got atomic.Int64
	m.set(func(req any, send func() error) error {
		got.Add(int64(walks(req, "crowd", false)))
		return send()
	})
	if was := storetest.Leave(t, stores[alone-1], claims[n+alone-1]); was != driver.Waiting || got.Load() > 0 {
		t.Errorf("the last one leaves: it was %v, and went through the queue %d times", was, got.Load())
	}
	// Nor is a change missed by who looks at two keys only.
	storetest.Leave(t, stores[alone-3], claims[n+alone-3])
	if st, err := storetest.Renew(await.Context(t), stores[alone-2], claims[n+alone-2]); err != nil || st.Ahead != n+alone-3 {
		t.Errorf("after the one in front has left: %+v, %v", st, err)
	}
	if _, err := raw.Delete(t.Context(), "pawl/q/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Renew(await.Context(t), stores[0], claims[n]); err != nil || st.State != driver.Gone {
		t.Errorf("after all were deleted: %+v, %v", st, err)
	}
}

// While nobody is told who is in a crowd that waits for one name, what is held beside
// that is renewed, by the same calls; and another name can be had.
func TestEtcdCrowdDelaysNoOther(t *testing.T) {
	t.Parallel()
	const held, n, most = 100, 100, 16
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s := m.store(t, e)
	var refs []driver.Ref
	for i := range held {
		c := storetest.Mutex(fmt.Sprint("held", i), time.Hour)
		storetest.Enter(t, s, c, driver.Holding)
		refs = append(refs, storetest.Ref(c))
	}
	first := storetest.Mutex("crowd", time.Hour)
	storetest.Enter(t, s, first, driver.Holding)
	refs = append(refs, storetest.Ref(first))
	for range n {
		c := storetest.Mutex("crowd", time.Hour)
		storetest.Enter(t, s, c, driver.Waiting)
		refs = append(refs, storetest.Ref(c))
	}
	stop := make(chan struct{})
	release := sync.OnceFunc(func() { close(stop) })
	t.Cleanup(release)
	var stopped atomic.Int64
	m.set(func(req any, send func() error) error {
		if walks(req, "crowd", true) > 0 {
			stopped.Add(1)
			<-stop
		}
		return send()
	})
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(release)
	var renewed, waiting atomic.Int64
	wg.Go(func() {
		s.Renew(await.Context(t), refs, func(i int, st driver.Status, err error) {
			switch {
			case err != nil:
				t.Errorf("renew %q: %v", refs[i].Name, err)
			case st.State == driver.Holding:
				renewed.Add(1)
			default:
				waiting.Add(1)
			}
		})
	})
	await.That(t, "what is held is renewed", func() bool { return renewed.Load() == held })
	before := stopped.Load()
	for range n {
		wg.Go(func() {
			if st, err := s.Enter(await.Context(t), storetest.Mutex("crowd", time.Hour)); err != nil || st.State != driver.Waiting {
				t.Errorf("enter: %v, %v", st.State, err)
			}
		})
	}
	await.That(t, "some more come", func() bool { return stopped.Load()-before >= most })
	storetest.Enter(t, s, storetest.Mutex("other", time.Hour), driver.Holding)
	// The two of the Renew, for whoever holds and for those who wait, may be among them.
	if got := stopped.Load() - before; got > most+2 {
		t.Errorf("%d requests of %d who come for one name are under way at once, want %d at most", got, n, most)
	}
	release()
	wg.Wait()
	if got := waiting.Load(); got != n || renewed.Load() != held+1 {
		t.Errorf("%d of %d that wait were renewed, and whoever holds: %v", got, n, renewed.Load() == held+1)
	}
}

// Of a crowd with a limit above 1 only the first watch all of the queue. Each has its
// turn all the same, without a renewal's telling it so: many at once, or some at a time.
func TestEtcdCrowdIsWokenInTurns(t *testing.T) {
	t.Parallel()
	const n = 60
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	for limit, units := range map[int64]int64{2: 2, 5: 3, n: 1} {
		name := fmt.Sprint("crowd", limit)
		enter := func(units int64) (driver.Store, driver.Claim, driver.Status) {
			s := etcdStore(t, raw)
			c := driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindSemaphore, Units: units, Limit: limit, TTL: time.Hour}
			st, err := s.Enter(await.Context(t), c)
			if err != nil {
				t.Fatal(err)
			}
			return s, c, st
		}
		s, first, _ := enter(limit)
		var wg sync.WaitGroup
		var used atomic.Int64
		for i := range n {
			s, c, st := enter(1 + int64(i)%units)
			wg.Go(func() {
				for st.State == driver.Waiting {
					var err error
					if st, err = s.Wait(await.Context(t), storetest.Ref(c)); err != nil {
						t.Errorf("limit %d: claim %d: %v", limit, i, err)
						return
					}
				}
				if now := used.Add(c.Units); st.State != driver.Holding || now > limit {
					t.Errorf("limit %d: claim %d: %v, and %d units are held", limit, i, st.State, now)
				}
				if limit == n {
					await.That(t, "all hold together", func() bool { return used.Load() == n })
				} else {
					used.Add(-c.Units)
				}
				storetest.Leave(t, s, c)
			})
		}
		storetest.Leave(t, s, first)
		wg.Wait()
	}
}

// Who stands 8 places behind another, which holds on with a permit of two, has its turn
// without a renewal's telling it so, though that one has not seen so many behind it: they
// came, and one has left, while it was told nothing.
func TestEtcdTellerHasSeenFewer(t *testing.T) {
	t.Parallel()
	const n = 9
	for _, leaver := range []int{-1, 4} { // of those who wait
		e := servers.RunEtcd(t, servers.EtcdOptions{})
		raw := dialEtcd(t, e.Addr())
		claim := func(units int64) driver.Claim {
			return driver.Claim{Name: "crowd", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: units, Limit: 2, TTL: time.Hour}
		}
		s, first := etcdStore(t, raw), claim(2)
		storetest.Enter(t, s, first, driver.Holding)
		var stores [n]driver.Store
		var claims [n]driver.Claim
		var holds [n]chan struct{}
		var stops [n]context.CancelFunc
		var wg sync.WaitGroup
		for i := range n {
			stores[i], claims[i], holds[i] = etcdStore(t, raw), claim(1), make(chan struct{})
			storetest.Enter(t, stores[i], claims[i], driver.Waiting)
			var ctx context.Context
			ctx, stops[i] = context.WithCancel(await.Context(t))
			wg.Go(func() {
				for {
					st, err := stores[i].Wait(ctx, storetest.Ref(claims[i]))
					if err != nil {
						return
					}
					if st.State == driver.Holding {
						close(holds[i])
						return
					}
				}
			})
		}
		if leaver >= 0 {
			stops[leaver]()
			storetest.Leave(t, stores[leaver], claims[leaver])
		}
		storetest.Leave(t, s, first)
		await.Value(t, "the first of those who wait holds", holds[0])
		for i := 1; i < n; i++ {
			if i == leaver {
				continue
			}
			await.Value(t, fmt.Sprintf("number %d holds, where number %d has left", i, leaver), holds[i])
			if i < n-1 {
				storetest.Leave(t, stores[i], claims[i])
			}
		}
		for _, stop := range stops {
			stop()
		}
		wg.Wait()
	}
}

// Who stands far back in a crowd hears of it when others get in before, when the limit
// is raised, and when it is lowered, so that those in front are too large and block
// nobody.
func TestEtcdCrowdHearsOfLimits(t *testing.T) {
	t.Parallel()
	const n = 60
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	s := etcdStore(t, raw)
	for _, name := range []string{"raised", "lowered"} {
		var wg sync.WaitGroup
		var hold atomic.Int64
		claim := func(units int64) driver.Claim {
			return driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindSemaphore, Units: units, Limit: 3, TTL: time.Hour}
		}
		wait := func(c driver.Claim) {
			s := etcdStore(t, raw)
			st := storetest.Enter(t, s, c, driver.Waiting)
			ctx := await.Context(t)
			wg.Go(func() {
				for st.State == driver.Waiting {
					var err error
					if st, err = s.Wait(ctx, storetest.Ref(c)); err != nil {
						return
					}
				}
				hold.Add(1)
			})
		}
		setLimit := func(limit, holding int64) {
			t.Helper()
			if err := s.SetLimit(await.Context(t), name, driver.KindSemaphore, 3, limit); err != nil {
				t.Fatal(err)
			}
			await.That(t, "those who fit hold", func() bool { return hold.Load() == holding })
		}
		first := claim(2)
		storetest.Enter(t, s, first, driver.Holding)
		for range n {
			wait(claim(2))
		}
		if name == "lowered" {
			wait(claim(1))
			setLimit(1, 0)
			time.Sleep(200 * time.Millisecond) // so that it has looked by then, and watches anew
			storetest.Leave(t, s, first)
			await.That(t, "the one that fits holds", func() bool { return hold.Load() == 1 })
			setLimit(2*n+1, n+1)
		} else {
			one := claim(1)
			one.Try, one.Overtake = true, true
			storetest.Enter(t, s, one, driver.Holding)
			setLimit(5, 1)
			setLimit(2*n+3, n)
		}
		wg.Wait()
	}
}
