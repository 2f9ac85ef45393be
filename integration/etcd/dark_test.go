package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// A client's machine goes dark in the middle of a request, before or after that has
// arrived: whoever uses other names notices nothing, and of the name that it was
// about, the next one gets it when the claim has run out.
func TestEtcdClientGoesDark(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	steady := openEtcd(t, e)
	acts := map[string]func(ctx context.Context, s driver.Store, c driver.Claim){
		"enter": func(ctx context.Context, s driver.Store, c driver.Claim) { c.ID = driver.NewID(); s.Enter(ctx, c) },
		"renew": func(ctx context.Context, s driver.Store, c driver.Claim) { storetest.Renew(ctx, s, c) },
		"longer": func(ctx context.Context, s driver.Store, c driver.Claim) {
			c.TTL += time.Second
			storetest.Renew(ctx, s, c)
		},
		"leave": func(ctx context.Context, s driver.Store, c driver.Claim) { s.Leave(ctx, storetest.Ref(c)) },
		"linger": func(ctx context.Context, s driver.Store, c driver.Claim) {
			r := storetest.Ref(c)
			r.Linger = ttl
			s.Leave(ctx, r)
		},
		"resize": func(ctx context.Context, s driver.Store, c driver.Claim) { s.Resize(ctx, storetest.Ref(c), 1) },
		"limit":  func(ctx context.Context, s driver.Store, c driver.Claim) { s.SetLimit(ctx, c.Name, c.Kind, 3, 4) },
		"break":  func(ctx context.Context, s driver.Store, c driver.Claim) { s.Break(ctx, c.Name) },
	}
	var others sync.WaitGroup
	done := make(chan struct{})
	held := storetest.Mutex("steady", time.Minute)
	storetest.Enter(t, steady, held, driver.Holding)
	others.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if st, err := storetest.Renew(t.Context(), steady, held); t.Context().Err() == nil && (err != nil || st.State != driver.Holding) {
				t.Errorf("renew what has nothing to do with it: %v, %v", st.State, err)
				return
			}
		}
	})
	var cases sync.WaitGroup
	for what, act := range acts {
		for nth := range 3 {
			for _, arrives := range []bool{false, true} {
				cases.Go(func() {
					goesDark(t, e, fmt.Sprintf("%s/%d/%v", what, nth, arrives), ttl, act, nth, arrives)
				})
			}
		}
	}
	cases.Wait()
	close(done)
	others.Wait()
}

// goesDark has a client hold a name, and go dark with the nth request of what it does
// then.
func goesDark(t *testing.T, e *servers.Etcd, name string, ttl time.Duration, act func(context.Context, driver.Store, driver.Claim), nth int, arrives bool) {
	p := servers.RunProxy(t, e.Addr())
	var mu sync.Mutex
	counting, n := false, 0
	far := etcdStore(t, dialEtcd(t, p.Addr(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			mu.Lock()
			dark := counting && n == nth
			if counting {
				n++
			}
			mu.Unlock()
			if dark {
				p.Swallow(!arrives, true)
			}
			err := invoke(ctx, method, req, reply, cc, opts...)
			if dark {
				p.Swallow(true, true)
			}
			return err
		})))
	near := openEtcd(t, e)
	c := driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindRW, Units: 3, Limit: 3, TTL: ttl}
	if st, err := far.Enter(await.Context(t), c); err != nil || st.State != driver.Holding {
		t.Errorf("%s: enter: %v, %v", name, st.State, err)
		return
	}
	mu.Lock()
	counting = true
	mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	act(ctx, far, c)
	cancel()
	p.Swallow(true, true)
	w := c
	w.ID, w.TTL = driver.NewID(), time.Minute
	if st, err := storetest.Get(await.Context(t), near, w); err != nil || st.State != driver.Holding {
		t.Errorf("%s: the next one: %v, %v", name, st.State, err)
	}
}
