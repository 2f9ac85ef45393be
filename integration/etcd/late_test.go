package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// meddler decides what becomes of the requests of a client.
type meddler struct {
	with atomic.Pointer[func(req any, send func() error) error]
}

// set has f decide, nil: nobody.
func (m *meddler) set(f func(req any, send func() error) error) {
	if f == nil {
		m.with.Store(nil)
		return
	}
	m.with.Store(&f)
}

func (m *meddler) store(t testing.TB, e *servers.Etcd) *etcdstore.Store {
	t.Helper()
	return etcdStore(t, m.client(t, e))
}

func (m *meddler) client(t testing.TB, e *servers.Etcd) *clientv3.Client {
	t.Helper()
	return dialEtcd(t, e.Addr(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			f := m.with.Load()
			if f == nil {
				return invoke(ctx, method, req, reply, cc, opts...)
			}
			// Whose peer it is is written when the request ends, also if nobody waits for
			// it any longer: etcd's client looks at it by then.
			opts = slices.DeleteFunc(slices.Clone(opts), func(o grpc.CallOption) bool { _, ok := o.(grpc.PeerCallOption); return ok })
			return (*f)(req, func() error { return invoke(context.WithoutCancel(ctx), method, req, reply, cc, opts...) })
		}))
}

// hold holds back the first request that is of a kind, until it is let go.
func (m *meddler) hold(kind func(req any) bool) (held <-chan struct{}, release func()) {
	h, r := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	m.set(func(req any, send func() error) error {
		if kind(req) && first.CompareAndSwap(false, true) { // others pass
			close(h)
			select {
			case <-r:
			case <-time.After(await.Limit): // the test has failed
			}
		}
		return send()
	})
	return h, sync.OnceFunc(func() { close(r) })
}

var errUnknown = status.Error(codes.Unavailable, "nobody knows what has become of it")

// touches tells whether a request changes a key of that prefix.
func touches(req any, prefix string) bool {
	switch r := req.(type) {
	case *pb.DeleteRangeRequest:
		return strings.HasPrefix(string(r.Key), prefix)
	case *pb.PutRequest:
		return strings.HasPrefix(string(r.Key), prefix)
	case *pb.TxnRequest:
		for _, op := range r.Success {
			if d := op.GetRequestDeleteRange(); d != nil && touches(d, prefix) {
				return true
			}
			if p := op.GetRequestPut(); p != nil && touches(p, prefix) {
				return true
			}
			if n := op.GetRequestTxn(); n != nil && touches(n, prefix) {
				return true
			}
		}
	}
	return false
}

// states renews claims with a TTL and returns how they are.
func states(t testing.TB, s driver.Store, cs []driver.Claim, ttl time.Duration) []driver.State {
	t.Helper()
	refs, got := make([]driver.Ref, len(cs)), make([]driver.State, len(cs))
	for i, c := range cs {
		refs[i] = driver.Ref{Name: c.Name, ID: c.ID, TTL: ttl}
	}
	var mu sync.Mutex
	s.Renew(await.Context(t), refs, func(i int, st driver.Status, err error) {
		mu.Lock()
		defer mu.Unlock()
		if got[i] = st.State; err != nil {
			t.Errorf("renew %q: %v", refs[i].Name, err)
		}
	})
	return got
}

// many enters so many claims that not all are read with each renewal, and
// renews them, so that the next to be read are some of them.
func many(t testing.TB, s driver.Store, ttl time.Duration) []driver.Claim {
	t.Helper()
	all := make([]driver.Claim, 250)
	for i := range all {
		all[i] = storetest.Mutex(fmt.Sprintf("many/%d", i), ttl)
		storetest.Enter(t, s, all[i], driver.Holding)
	}
	for range 3 {
		states(t, s, all, ttl)
	}
	return all
}

// A Leave arrives after its caller has given up and the next claim has come: it
// must not delete that one, whose key might be the same.
func TestEtcdLateLeave(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s := m.store(t, e)
	first, second := storetest.Mutex("late", time.Minute), storetest.Mutex("late", time.Minute)
	storetest.Enter(t, s, first, driver.Holding)
	var late []func() error
	m.set(func(_ any, send func() error) error {
		late = append(late, send)
		return errUnknown
	})
	ctx := await.Context(t)
	if _, err := s.Leave(ctx, storetest.Ref(first)); err == nil {
		t.Fatal("the request is under way, and Leave returns without an error")
	}
	m.set(nil)
	if was, err := s.Leave(ctx, storetest.Ref(first)); err != nil || was != driver.Holding {
		t.Fatalf("leave again: %v, %v", was, err)
	}
	storetest.Enter(t, s, second, driver.Holding)
	for _, send := range late {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := storetest.Renew(ctx, s, second); err != nil || st.State != driver.Holding || len(late) == 0 {
		t.Errorf("after %d late requests to leave of the claim before it: %v, %v", len(late), st.State, err)
	}
}

// The same while Leave waits for its reply still, and the claim is known to be
// gone by another's doing.
func TestEtcdSlowLeave(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s, other := m.store(t, e), openEtcd(t, e)
	first, second := storetest.Mutex("slow", time.Minute), storetest.Mutex("slow", time.Minute)
	storetest.Enter(t, s, first, driver.Holding)
	ctx := await.Context(t)
	held, release := m.hold(func(req any) bool { return touches(req, "pawl/q/slow/") })
	left := make(chan struct{})
	go func() {
		defer close(left)
		if _, err := s.Leave(ctx, storetest.Ref(first)); err != nil {
			t.Error(err)
		}
	}()
	await.Value(t, "the request", held)
	if _, err := other.Break(ctx, "slow"); err != nil {
		t.Fatal(err)
	}
	if st, err := storetest.Renew(ctx, s, first); err != nil || st.State != driver.Gone {
		t.Fatalf("renew: %v, %v", st.State, err)
	}
	m.set(nil)
	storetest.Enter(t, s, second, driver.Holding)
	release()
	await.Value(t, "the request", left)
	if st, err := storetest.Renew(ctx, s, second); err != nil || st.State != driver.Holding {
		t.Errorf("after the claim before it has left: %v, %v", st.State, err)
	}
}

// A claim is taken over by another process, and then its first owner leaves,
// who does not know: the new owner is told with its next renewal.
func TestEtcdTakenOverAndLeft(t *testing.T) {
	const ttl = time.Minute
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	a, b := openEtcd(t, e), openEtcd(t, e)
	cs := many(t, b, ttl)
	c := storetest.Mutex("taken over", ttl)
	storetest.Enter(t, a, c, driver.Holding)
	storetest.Enter(t, b, c, driver.Holding)
	cs = append(cs, c)
	if got := states(t, b, cs, ttl); got[len(cs)-1] != driver.Holding {
		t.Fatalf("taken over: %v", got[len(cs)-1])
	}
	if was, err := a.Leave(await.Context(t), storetest.Ref(c)); err != nil || was != driver.Holding {
		t.Fatalf("leave: %v, %v", was, err)
	}
	if got := states(t, b, cs, ttl); got[len(cs)-1] != driver.Gone {
		t.Errorf("its first owner has left, and the second renews: %v", got[len(cs)-1])
	}
}

// A claim is taken over by another process, which dies: its first owner, if it
// is there still, does not count on a lease that the claim is not on any more.
func TestEtcdTakenOverAndDied(t *testing.T) {
	const ttl = time.Minute
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	a, b := openEtcd(t, e), openEtcd(t, e)
	cs := append(many(t, a, ttl), storetest.Mutex("taken over", ttl))
	c := cs[len(cs)-1]
	storetest.Enter(t, a, c, driver.Holding)
	storetest.Enter(t, b, c, driver.Holding)
	revoke(t, dialEtcd(t, e.Addr()), c)
	if got := states(t, a, cs, ttl); got[len(cs)-1] != driver.Gone {
		t.Errorf("the process that took it over is dead, and the first renews: %v", got[len(cs)-1])
	}
}

// revoke ends the lease that a claim is on.
func revoke(t testing.TB, raw *clientv3.Client, c driver.Claim) {
	t.Helper()
	ctx := await.Context(t)
	res, err := raw.Get(ctx, "pawl/q/"+c.Name+"/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 1 {
		t.Fatalf("%v, %v", res, err)
	}
	if _, err := raw.Revoke(ctx, clientv3.LeaseID(res.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
}

// A renewal has moved a claim to another lease, and the reply was lost: what
// counts is where it is.
func TestEtcdLostMove(t *testing.T) {
	const ttl = 20 * time.Second
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s := m.store(t, e)
	cs := append(many(t, s, ttl), storetest.Mutex("moved", ttl))
	c := cs[len(cs)-1]
	storetest.Enter(t, s, c, driver.Holding)
	ctx := await.Context(t)
	m.set(func(req any, send func() error) error {
		err := send()
		if touches(req, "pawl/q/moved/") {
			return errUnknown
		}
		return err
	})
	longer := c
	longer.TTL = time.Minute
	if _, err := storetest.Renew(ctx, s, longer); err == nil {
		t.Fatal("the reply was lost, and Renew returns without an error")
	}
	m.set(nil)
	revoke(t, dialEtcd(t, e.Addr()), c)
	if got := states(t, s, cs, ttl); got[len(cs)-1] != driver.Gone || got[0] != driver.Holding {
		t.Errorf("the lease it was on has ended: %v; another claim: %v", got[len(cs)-1], got[0])
	}
}

// A renewal that was to move a claim arrives when the claim is gone: it does not
// come back.
func TestEtcdLateMove(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s, other := m.store(t, e), openEtcd(t, e)
	c, next := storetest.Mutex("late move", 20*time.Second), storetest.Mutex("late move", time.Minute)
	storetest.Enter(t, s, c, driver.Holding)
	ctx := await.Context(t)
	var late []func() error
	m.set(func(req any, send func() error) error {
		if touches(req, "pawl/q/") {
			late = append(late, send)
			return errUnknown
		}
		return send()
	})
	longer := c
	longer.TTL = time.Minute
	if _, err := storetest.Renew(ctx, s, longer); err == nil || len(late) != 1 {
		t.Fatalf("%v; %d requests are under way", err, len(late))
	}
	if _, err := other.Break(ctx, c.Name); err != nil {
		t.Fatal(err)
	}
	storetest.Enter(t, other, next, driver.Holding)
	if err := late[0](); err != nil {
		t.Fatal(err)
	}
	q, err := other.Inspect(ctx, c.Name)
	if err != nil || len(q.Claims) != 1 || q.Claims[0].ID != next.ID {
		t.Errorf("it was broken, and then there are %+v, %v", q.Claims, err)
	}
}

// A claim's time is over, and its store is about to delete it, while a renewal is
// under way that was sent in time: either the claim is gone for both, or stays.
func TestEtcdRenewedWhileBuried(t *testing.T) {
	t.Parallel()
	const name, ttl = "buried", 3100 * time.Millisecond // on a lease of 4 s
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s, near := m.store(t, e), openEtcd(t, e)
	c, other := storetest.Mutex(name, ttl), storetest.Mutex("other", 4*time.Second)
	ctx := await.Context(t)
	storetest.Enter(t, s, c, driver.Holding)
	entered := time.Now()
	time.Sleep(ttl / 2)
	renewing, renew1 := m.hold(func(req any) bool {
		r, ok := req.(*pb.TxnRequest)
		return ok && len(r.Success) > 0 && strings.HasPrefix(string(r.Success[0].GetRequestRange().GetKey()), "pawl/q/"+name)
	})
	var st driver.Status
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		if st, err = storetest.Renew(ctx, s, c); err != nil {
			t.Error(err)
		}
	}()
	await.Value(t, "the request", renewing)
	deleting, delete1 := m.hold(func(req any) bool { return touches(req, "pawl/q/"+name) })
	time.Sleep(time.Until(entered.Add(ttl - 600*time.Millisecond)))
	storetest.Enter(t, s, other, driver.Holding) // that keeps the lease alive for long enough
	await.Value(t, "the request", deleting)
	renew1()
	await.Value(t, "the request", done)
	delete1()
	deadline := time.Now().Add(500 * time.Millisecond)
	for time.Now().Before(deadline) {
		q, err := near.Inspect(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if there := len(q.Claims) == 1; there != (st.State == driver.Holding) && time.Now().Before(st.Deadline) {
			t.Fatalf("renew returned %v, and in the queue are %+v", st.State, q.Claims)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A store deletes mail that it has read: not what has come since, about the next
// claim in the same place.
func TestEtcdMailComesWhileOldIsDeleted(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	var m meddler
	s, other := m.store(t, e), openEtcd(t, e)
	first, second := storetest.Mutex("mail", time.Minute), storetest.Mutex("mail", time.Minute)
	storetest.Enter(t, s, first, driver.Holding)
	ctx := await.Context(t)
	breakIt := func() {
		t.Helper()
		if _, err := other.Break(ctx, "mail"); err != nil {
			t.Fatal(err)
		}
	}
	breakIt()
	held, release := m.hold(func(req any) bool { return touches(req, "pawl/m/") })
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		if st, err := storetest.Renew(ctx, s, first); err != nil || st.State != driver.Gone {
			t.Errorf("renew: %v, %v", st.State, err)
		}
	}()
	await.Value(t, "the request", held)
	m.set(nil)
	storetest.Enter(t, s, second, driver.Holding)
	breakIt()
	release()
	await.Value(t, "the request", renewed)
	res, err := raw.Get(ctx, "pawl/m/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 1 || !strings.Contains(string(res.Kvs[0].Value), second.ID) {
		t.Errorf("mail: %v, %v; want that about %s", res, err, second.ID)
	}
}

// What bars late requests was changed, and the reply was lost: claims that come
// meanwhile do not try in vain for ever.
func TestEtcdLostBar(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s := m.store(t, e)
	ctx := await.Context(t)
	storetest.Enter(t, s, storetest.Mutex("other", time.Minute), driver.Holding)
	c, next := storetest.Mutex("barred", time.Minute), storetest.Mutex("next", time.Minute)
	m.set(func(any, func() error) error { return errUnknown })
	if _, err := s.Enter(ctx, c); err == nil {
		t.Fatal("the request is under way, and Enter returns without an error")
	}
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	m.set(func(req any, send func() error) error {
		if touches(req, "pawl/q/next/") {
			once.Do(func() { close(held); <-release })
		}
		err := send()
		if touches(req, "pawl/b/") {
			return errUnknown
		}
		return err
	})
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		if st, err := s.Enter(ctx, next); err != nil || st.State != driver.Holding {
			t.Errorf("enter: %v, %v", st.State, err)
		}
	}()
	await.Value(t, "the request", held)
	if _, err := s.Leave(ctx, storetest.Ref(c)); err == nil {
		t.Error("the reply was lost, and Leave returns without an error")
	}
	m.set(nil)
	close(release)
	await.Value(t, "the request", entered)
}
