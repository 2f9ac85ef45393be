package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// swallowing is a store that does not reply to some requests.
type swallowing struct {
	*memstore.Store
	enters, renews, loads atomic.Int64 // still to be swallowed
}

// swallow waits for ctx if the request is one of those.
func swallow(ctx context.Context, n *atomic.Int64) error {
	if n.Add(-1) < 0 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *swallowing) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := swallow(ctx, &s.enters); err != nil {
		return driver.Status{}, err
	}
	return s.Store.Enter(ctx, c)
}

func (s *swallowing) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	if err := swallow(ctx, &s.enters); err != nil {
		return nil, err
	}
	return s.Store.EnterAll(ctx, cs)
}

func (s *swallowing) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if err := swallow(ctx, &s.renews); err != nil {
		for i := range rs {
			report(i, driver.Status{}, err)
		}
		return
	}
	s.Store.Renew(ctx, rs, report)
}

func (s *swallowing) Load(ctx context.Context, name string) (driver.Record, error) {
	if err := swallow(ctx, &s.loads); err != nil {
		return driver.Record{}, err
	}
	return s.Store.Load(ctx, name)
}

// TestSwallowedRequest: one request never gets a reply. It is sent again long
// before the caller gives up.
func TestSwallowedRequest(t *testing.T) {
	for name, f := range map[string]func(context.Context, *pawl.Client) error{
		"Lock":    func(ctx context.Context, c *pawl.Client) error { _, err := c.Mutex("x").Lock(ctx); return err },
		"TryLock": func(ctx context.Context, c *pawl.Client) error { _, err := c.Mutex("x").TryLock(ctx); return err },
		"LockAll": func(ctx context.Context, c *pawl.Client) error { _, err := c.LockAll(ctx, "x", "y"); return err },
		"Campaign": func(ctx context.Context, c *pawl.Client) error {
			_, err := c.Election("e").Campaign(ctx, nil)
			return err
		},
		"Latch": func(ctx context.Context, c *pawl.Client) error {
			_, err := c.Latch("l", 1).CountDown(ctx, "a")
			return err
		},
		"Extend": func(ctx context.Context, c *pawl.Client) error {
			l, err := c.With(func(o *pawl.Options) { o.NoRenewal = true }).Mutex("z").Lock(context.WithoutCancel(ctx))
			if err != nil {
				return err
			}
			return l.Extend(ctx, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := &swallowing{Store: memstore.New()}
				c := newClient(t, store, nil)
				for _, n := range []*atomic.Int64{&store.enters, &store.renews, &store.loads} {
					n.Store(1)
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
				defer cancel()
				err := f(ctx, c)
				if d := time.Since(start); err != nil || d > 6*time.Second {
					t.Errorf("after %v: %v", d, err)
				}
			})
		})
	}
}

// TestExtendEndsWithTheLease: the engine does not reply. Extend does not wait
// longer than the lease lasts, whatever its context allows.
func TestExtendEndsWithTheLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &swallowing{Store: memstore.New()}
		c := newClient(t, store, &pawl.Options{TTL: 5 * time.Second, NoRenewal: true})
		l := lock(t, c.Mutex("x"))
		store.renews.Store(1 << 30)
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		start := time.Now()
		err := l.Extend(ctx, 0)
		if d := time.Since(start); err == nil || d > 5*time.Second {
			t.Errorf("after %v: %v", d, err)
		}
	})
}

// distant is a store that needs that long for a reply.
type distant struct {
	driver.Store
	delay time.Duration
}

func (d *distant) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	select {
	case <-time.After(d.delay):
		return d.Store.Enter(ctx, c)
	case <-ctx.Done():
		return driver.Status{}, ctx.Err()
	}
}

// TestSlowEngine: each reply takes longer than a request is waited for at first.
func TestSlowEngine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, &distant{memstore.New(), 5 * time.Second}, nil)
		unlock(t, lock(t, c.Mutex("x")))
	})
}

// TestLostLeavesTheStore: a lease was lost here, and the store would keep its
// claim for another TTL. It is told to let it go.
func TestLostLeavesTheStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		l := lock(t, c.Mutex("x"))
		f.Set(func() {
			f.After = func(op string) error {
				if op == "renew" {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		<-l.Lost()
		want(t, l.Err(), pawl.ErrLost)
		f.Set(func() { f.After = nil })
		start := time.Now()
		unlock(t, lock(t, c.Mutex("x")))
		if d := time.Since(start); d > time.Second {
			t.Errorf("the next Lock of the same client took %v", d)
		}
		want(t, l.Unlock(t.Context()), pawl.ErrLost)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims", n)
		}
	})
}

// TestToldBeforeMaxHoldReleases: contexts end before the lock is another's.
func TestToldBeforeMaxHoldReleases(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, &pawl.Options{MaxHold: time.Minute})
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &slowContext{Context: parent}
		l := lock(t, c.Mutex("x"))
		ended := l.Context(s)
		gate := make(chan struct{})
		s.gate.Store(&gate)
		time.Sleep(time.Minute + 5*time.Second)
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("%d claims, and its contexts have not ended all", n)
		}
		s.gate.Store(nil)
		close(gate)
		<-ended.Done()
		synctest.Wait()
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims", n)
		}
	})
}

// TestManyLostAtOnce: the engine is gone for good, and all leases with it. That
// costs no goroutine for each of them.
func TestManyLostAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 2000
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, nil)
		var last *pawl.Lease
		for i := range n {
			last = lock(t, c.Mutex(fmt.Sprint("x", i)))
		}
		before := runtime.NumGoroutine()
		f.Set(func() { f.Down = true })
		<-last.Lost()
		time.Sleep(time.Second)
		if more := runtime.NumGoroutine() - before; more > n/4 {
			t.Errorf("%d goroutines more", more)
		}
		f.Set(func() { f.Down = false })
	})
}

// TestBackoffIsTheCallersOwn: the engine is away for a moment. One caller's
// Backoff wants a long pause, or does not return; another's wants a short one.
func TestBackoffIsTheCallersOwn(t *testing.T) {
	for _, tt := range []struct {
		name    string
		backoff func(stop <-chan struct{}) pawl.Backoff
	}{
		{"long", func(<-chan struct{}) pawl.Backoff { return pawl.ConstantBackoff(time.Hour) }},
		{"stuck", func(stop <-chan struct{}) pawl.Backoff {
			return func(int, error) (time.Duration, bool) { <-stop; return time.Hour, true }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := &faultstore.Store{Store: memstore.New()}
				stop := make(chan struct{})
				c := newClient(t, f, nil)
				defer close(stop)
				f.Set(func() { f.Err = faultstore.ErrNetwork })
				first := make(chan *pawl.Lease, 1)
				go func() { first <- lock(t, c.With(func(o *pawl.Options) { o.Backoff = tt.backoff(stop) }).Mutex("x")) }()
				time.Sleep(time.Second)
				start := time.Now()
				second := make(chan *pawl.Lease, 1)
				go func() {
					second <- lock(t, c.With(func(o *pawl.Options) { o.Backoff = pawl.ConstantBackoff(10 * time.Millisecond) }).Mutex("x"))
				}()
				time.Sleep(time.Second)
				f.Set(func() { f.Err = nil })
				unlock(t, <-first)
				unlock(t, <-second)
				if d := time.Since(start); d > 2*time.Second {
					t.Errorf("who wants an attempt each 10 ms has waited for %v", d)
				}
			})
		})
	}
}

// TestAttemptsAreTheCallersOwn: what fails for one who tries again at once does not
// count for one who waits longer.
func TestAttemptsAreTheCallersOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, nil)
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		slow := pawl.LimitBackoff(5, pawl.ConstantBackoff(time.Minute))
		first, failed := make(chan error, 1), make(chan error, 1)
		go func() {
			l, err := c.With(func(o *pawl.Options) { o.Backoff = slow }).Mutex("x").Lock(t.Context())
			if err == nil {
				unlock(t, l)
			}
			first <- err
		}()
		synctest.Wait()
		go func() {
			_, err := c.With(func(o *pawl.Options) { o.Backoff = pawl.LimitBackoff(100, pawl.ConstantBackoff(time.Millisecond)) }).Mutex("x").Lock(t.Context())
			failed <- err
		}()
		if err := <-failed; !errors.Is(err, faultstore.ErrNetwork) {
			t.Errorf("after 100 attempts: %v", err)
		}
		f.Set(func() { f.Err = nil })
		want(t, <-first, nil)
	})
}
