package pawl_test

import (
	"context"
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

// The TTL of Extend stays for the next lease.
func TestExtendInherited(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		l := lock(t, c.Mutex("x"))
		got := make(chan *pawl.Lease)
		go func() { got <- lock(t, c.Mutex("x")) }()
		synctest.Wait()
		if err := l.Extend(t.Context(), 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		unlock(t, l)
		next := <-got
		if d := time.Until(next.Deadline()); d > pawl.DefaultTTL {
			t.Errorf("another goroutine's lease with TTL 15 s has a deadline in %v: a crash costs the others that", d)
		}
		time.Sleep(10 * time.Hour)
		t.Logf("10 h later: %v", time.Until(next.Deadline()))
		unlock(t, next)
	})
}

// After a failed Extend, Unlock gives up on the claim at once.
func TestUnlockAfterFailedExtend(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, &pawl.Options{TTL: time.Hour, NoRenewal: true})
		l := lock(t, c.Mutex("x"))
		time.Sleep(time.Minute)
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		l.Extend(t.Context(), 20*time.Second)
		unlock(t, l)
		time.Sleep(time.Second)
		f.Set(func() { f.Err = nil })
		time.Sleep(5 * time.Minute)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("engine away for 3 s at Unlock: 5 min later %d claim", n)
		}
	})
}

// slowRenew holds back the first Renew with the given TTL, then sends it on.
type slowRenew struct {
	driver.Store
	ttl  time.Duration
	gate chan struct{}
	once atomic.Bool
	hold atomic.Bool
}

func (s *slowRenew) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if rs[0].TTL == s.ttl && s.hold.Load() && !s.once.Swap(true) {
		<-s.gate
	}
	s.Store.Renew(ctx, rs, report)
}

// A renewal by the renewer with the old TTL reaches the store after Extend
// with a longer one.
func TestOldRenewalDoesNotShorten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		s := &slowRenew{Store: store, ttl: pawl.DefaultTTL, gate: make(chan struct{})}
		a, b := newClient(t, s, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		s.hold.Store(true)
		for !s.once.Load() {
			time.Sleep(10 * time.Millisecond) // the renewer's batch is made, not sent
		}
		if err := l.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		close(s.gate)
		time.Sleep(time.Minute)
		_, err := b.Mutex("x").TryLock(t.Context())
		want(t, err, pawl.ErrHeld)
		unlock(t, l)
	})
}

// Extend and Adopt hang as long as the store does.
func TestExtendHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, nil)
		l := lock(t, c.Mutex("x"))
		f.Set(func() { f.Down = true })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Extend(ctx, 0) }()
		time.Sleep(time.Hour)
		select {
		case <-done:
		default:
			t.Errorf("the lease is %v since an hour; Extend still waits", l.Err())
		}
		cancel()
		f.Set(func() { f.Down = false })
	})
}
