package etcd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// unanswered enters claims whose requests do not arrive, as far as is known.
func unanswered(t *testing.T, s driver.Store, m *meddler, n int) (cs []driver.Claim) {
	t.Helper()
	m.set(func(req any, send func() error) error {
		if touches(req, "pawl/q/") {
			return errUnknown
		}
		return send()
	})
	defer m.set(nil)
	for range n {
		c := storetest.Mutex("unanswered "+driver.NewID(), time.Minute)
		if _, err := s.Enter(t.Context(), c); err == nil {
			t.Fatal("entered")
		}
		cs = append(cs, c)
	}
	return cs
}

// takesClaims does by each way there is what puts a claim on a lease of the store's, and
// says if one of them tries for ever.
func takesClaims(t *testing.T, e *servers.Etcd, s driver.Store, m *meddler) {
	t.Helper()
	other := openEtcd(t, e)
	lasts := errors.New("it is tried for ever")
	try := func(what string, f func(ctx context.Context) (driver.Status, error)) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(await.Context(t))
		defer cancel(nil)
		var requests atomic.Int64
		m.set(func(req any, send func() error) error {
			if touches(req, "pawl/q/") && requests.Add(1) == 1000 {
				cancel(lasts)
			}
			return send()
		})
		defer m.set(nil)
		if st, err := f(ctx); err != nil || st.State != driver.Holding {
			t.Fatalf("%s: %v, %v (%v)", what, st.State, err, context.Cause(ctx))
		}
	}
	enter := func(c driver.Claim) func(ctx context.Context) (driver.Status, error) {
		return func(ctx context.Context) (driver.Status, error) { return s.Enter(ctx, c) }
	}
	readers := "readers " + driver.NewID()
	reader := func() driver.Claim {
		return driver.Claim{Name: readers, ID: driver.NewID(), Kind: driver.KindRW, Units: 1, Limit: 9, TTL: time.Minute}
	}
	try("enter", enter(storetest.Mutex("new "+driver.NewID(), time.Minute)))
	try("enter", enter(reader()))
	try("enter behind another", enter(reader()))
	tried := reader()
	tried.Try = true
	try("try to enter beside others", enter(tried))
	c := storetest.Mutex("another's "+driver.NewID(), time.Minute)
	storetest.Enter(t, other, c, driver.Holding)
	try("enter what another has entered", enter(c))
	c = storetest.Mutex("another's "+driver.NewID(), time.Minute)
	a := adoption(c, storetest.Enter(t, other, c, driver.Holding).Token)
	try("adopt", func(ctx context.Context) (driver.Status, error) { return s.Adopt(ctx, a) })
}

// Two claims whose Enter got no reply leave at the same time, and the replies
// come in another order than the requests were carried out: their lease takes claims
// all the same.
func TestEtcdTwoLeaveAtOnce(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s := m.store(t, e)
	storetest.Enter(t, s, storetest.Mutex("kept", time.Minute), driver.Holding)
	cs := unanswered(t, s, &m, 2)
	var bars atomic.Int32
	carried, second := make(chan struct{}), make(chan struct{})
	m.set(func(req any, send func() error) error {
		if !touches(req, "pawl/b/") || bars.Add(1) > 1 {
			return send()
		}
		err := send()
		close(carried)
		<-second // its reply is slow
		return err
	})
	var both sync.WaitGroup
	both.Go(func() { storetest.Leave(t, s, cs[0]) })
	await.Value(t, "the first bar", carried)
	storetest.Leave(t, s, cs[1])
	close(second)
	both.Wait()
	takesClaims(t, e, s, &m)
}

// The same for a crowd, in whatever order.
func TestEtcdManyLeaveAtOnce(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s := m.store(t, e)
	storetest.Enter(t, s, storetest.Mutex("kept", time.Minute), driver.Holding)
	for range 5 {
		var all sync.WaitGroup
		for _, c := range unanswered(t, s, &m, 50) {
			all.Go(func() { storetest.Leave(t, s, c) })
		}
		all.Wait()
		takesClaims(t, e, s, &m)
	}
}

// A claim leaves, and the reply about its bar is slow: others enter meanwhile, and none
// of them tries again and again until it is there.
func TestEtcdEnterWhileAnotherLeaves(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s := m.store(t, e)
	storetest.Enter(t, s, storetest.Mutex("kept", time.Minute), driver.Holding)
	c := unanswered(t, s, &m, 1)[0]
	carried, slow := make(chan struct{}), make(chan struct{})
	m.set(func(req any, send func() error) error {
		err := send()
		if touches(req, "pawl/b/") {
			close(carried)
			<-slow
		}
		return err
	})
	left := make(chan struct{})
	go func() {
		defer close(left)
		storetest.Leave(t, s, c)
	}()
	await.Value(t, "the bar", carried)
	takesClaims(t, e, s, &m)
	close(slow)
	await.Value(t, "the one that leaves", left)
}

// The bar of a lease has gone: with the lease, or somebody has deleted it.
func TestEtcdBarIsGone(t *testing.T) {
	for what, remove := range map[string]func(t testing.TB, raw *clientv3.Client, kept driver.Claim){
		"with the lease": revoke,
		"by itself": func(t testing.TB, raw *clientv3.Client, _ driver.Claim) {
			if res, err := raw.Delete(t.Context(), "pawl/b/", clientv3.WithPrefix()); err != nil || res.Deleted != 1 {
				t.Fatalf("%v, %v", res, err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			e := servers.RunEtcd(t, servers.EtcdOptions{})
			var m meddler
			s := m.store(t, e)
			kept := storetest.Mutex("kept", time.Minute)
			storetest.Enter(t, s, kept, driver.Holding)
			storetest.Leave(t, s, unanswered(t, s, &m, 1)[0])
			remove(t, dialEtcd(t, e.Addr()), kept)
			takesClaims(t, e, s, &m)
			want := driver.Holding
			if what == "with the lease" {
				want = driver.Gone
			}
			longer := kept
			longer.TTL *= 2
			for _, c := range []driver.Claim{longer, kept} {
				if st, err := storetest.Renew(await.Context(t), s, c); err != nil || st.State != want {
					t.Errorf("the claim that was there: %v, %v", st.State, err)
				}
			}
		})
	}
}
