package pawl_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
)

// The tests of this file are of what was wrong once; their comments say how.

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

// A renewal by the keeper with the old TTL reaches the store after Extend
// with a longer one.
func TestOldRenewalDoesNotShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		s := &slowRenew{Store: store, ttl: pawl.DefaultTTL, gate: make(chan struct{})}
		a, b := newClient(t, s, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		s.hold.Store(true)
		for !s.once.Load() {
			time.Sleep(10 * time.Millisecond) // the keeper's batch is made, not sent
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

// The store says that a holding claim waits (restored from an old copy).
type answersWaiting struct {
	driver.Store
	on atomic.Bool
}

func (s *answersWaiting) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	s.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
		if s.on.Load() {
			st.State, st.Token, st.Spare = driver.Waiting, 0, 0
		}
		report(i, st, err)
	})
}

func TestHolderIsToldItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &answersWaiting{Store: memstore.New()}
		a := newClient(t, s, nil)
		l := lock(t, a.Mutex("x"))
		s.on.Store(true)
		time.Sleep(time.Minute)
		if l.Err() == nil {
			t.Error("for a minute the store says that this claim waits; the lease holds")
		}
		s.on.Store(false)
		l.Unlock(t.Context())
	})
}

// A Backoff that takes its time stalls the keeper: other leases are not told.
func TestSlowBackoffStallsKeeper(t *testing.T) {
	// Real time: synctest does not move its clock while a mutex is waited for.
	store := memstore.New()
	f := &faulty{Store: store}
	slow := atomic.Bool{}
	a, b := newClient(t, f, &pawl.Options{TTL: time.Second, Backoff: func(int, error) (time.Duration, bool) {
		if slow.Load() {
			time.Sleep(4 * time.Second) // logs to a slow place
		}
		return 100 * time.Millisecond, true
	}}), newClient(t, store, nil)
	blocker := lock(t, b.Mutex("y"))
	l := lock(t, a.Mutex("x"))
	ctx := l.Context(t.Context())
	wctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { a.Mutex("y").Lock(wctx); close(done) }()
	time.Sleep(200 * time.Millisecond)
	slow.Store(true)
	f.set(func() { f.err = errNetwork })
	store.Advance(time.Millisecond) // y's Wait returns, and the next one fails
	next := lock(t, b.Mutex("x"))
	if ctx.Err() == nil {
		t.Errorf("another holds x (token %d), the context of %d is alive", next.Token(), l.Token())
	}
	unlock(t, next)
	f.set(func() { f.err = nil })
	slow.Store(false)
	unlock(t, blocker)
	cancel()
	<-done
}

// The background Leave after Unlock hangs on one swallowed request.
func TestBackgroundLeaveHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		a := newClient(t, f, &pawl.Options{TTL: 10 * time.Minute})
		l := lock(t, a.Mutex("x"))
		f.set(func() { f.down = true })
		unlock(t, l)
		time.Sleep(time.Second)
		f.set(func() { f.down = false })
		time.Sleep(5 * time.Minute)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("5 min after the engine came back (away for 3 s) the claim is there; %d leaves were sent", len(f.leaves))
		}
	})
}

// Adopt of a lease that was unlocked, while its claim serves the next
// local lease.
func TestAdoptEndedLease(t *testing.T) {
	store := memstore.New()
	a, b := newClient(t, store, nil), newClient(t, store, nil)
	first := lock(t, a.Mutex("x"))
	claim := first.Claim()
	got := make(chan *pawl.Lease)
	go func() { got <- lock(t, a.Mutex("x")) }()
	time.Sleep(20 * time.Millisecond)
	unlock(t, first)
	second := <-got
	adopted, err := b.Mutex("x").Adopt(t.Context(), claim)
	if !errors.Is(err, pawl.ErrLost) {
		t.Errorf("adopted an unlocked lease: error %v", err)
	}
	if adopted != nil && second.Err() == nil && adopted.Err() == nil {
		t.Errorf("token %d is adopted beside and after token %d", adopted.Token(), second.Token())
	}
	// also after a proper hand-over of the second
	c2, _ := second.HandOver(t.Context())
	old, err := newClient(t, store, nil).Mutex("x").Adopt(t.Context(), claim)
	t.Logf("second handed over as %s; Adopt(first's %s): %v %v", c2, claim, old != nil, err)
}

// A next claim without waiters is forgotten, and Close leaves it in the store.
func TestOrphanNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := pawl.New(store, nil), newClient(t, store, nil)
		held := lock(t, a.Mutex("x"))
		turn := make(chan *pawl.Lease)
		go func() { turn <- lock(t, a.Mutex("x")) }() // there before b: served in this turn
		synctest.Wait()
		var bl *pawl.Lease
		bgot := make(chan struct{})
		go func() { bl = lock(t, b.Mutex("x")); close(bgot) }()
		synctest.Wait() // wanted, turn = 1
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() { a.Mutex("x").Lock(ctx); close(gone) }() // one more: next is entered
		synctest.Wait()
		cancel() // and goes
		<-gone
		t.Logf("%d claims: a holds, b waits, a's next", claims(t, store, "x"))
		time.Sleep(time.Second)
		unlock(t, held)
		l := <-turn
		time.Sleep(time.Second)
		unlock(t, l)
		<-bgot
		time.Sleep(time.Minute)
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("b holds, nobody at a wants the lock: %d claims a minute later", n)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("after a.Close: %d claims", n)
		}
		unlock(t, bl)
	})
}

// TryLock says held while the engine is unreachable and nobody holds.
func TestTryLockBusyVsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New(), err: errNetwork}
		c := newClient(t, f, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan struct{})
		go func() { c.Mutex("x").Lock(ctx); close(done) }()
		synctest.Wait()
		_, err := c.Mutex("x").TryLock(t.Context())
		if errors.Is(err, pawl.ErrHeld) {
			t.Errorf("engine is away, nobody holds: %v", err)
		}
		<-done
		f.set(func() { f.err, f.down = nil, true })
		go c.Mutex("y").TryLock(t.Context())
		synctest.Wait()
		_, err = c.Mutex("y").TryLock(t.Context())
		if errors.Is(err, pawl.ErrHeld) {
			t.Errorf("engine hangs, nobody holds: %v", err)
		}
	})
}

// Close drops MinHold.
func TestCloseDropsMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := pawl.New(store, &pawl.Options{MinHold: time.Minute})
		lock(t, c.Mutex("x"))
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		start := time.Now()
		unlock(t, lock(t, newClient(t, store, nil).Mutex("x")))
		if d := time.Since(start); d < time.Minute-time.Second {
			t.Errorf("free %v after Close", d)
		}
	})
}

// A waiter's own Backoff is not asked while another is in front, and a
// newcomer's LimitBackoff sees the failures of others.
func TestBackoffOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New(), err: errNetwork}
		c := newClient(t, f, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go c.Mutex("x").Lock(ctx)
		synctest.Wait()
		got := make(chan error, 1)
		go func() {
			_, err := c.With(pawl.Options{Backoff: pawl.LimitBackoff(2, pawl.ConstantBackoff(time.Second))}).Mutex("x").Lock(ctx)
			got <- err
		}()
		select {
		case <-got:
		case <-time.After(time.Hour):
			t.Error("LimitBackoff(2, 1 s) did not give up for an hour behind another waiter")
		}
		cancel()
	})
}

func TestNewcomer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New(), err: errNetwork}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(10, pawl.ConstantBackoff(time.Second))})
		go c.Mutex("x").Lock(t.Context())
		time.Sleep(8500 * time.Millisecond)
		start := time.Now()
		_, err := c.Mutex("x").Lock(t.Context())
		t.Logf("newcomer: %v, %v", time.Since(start), err)
		if d := time.Since(start); d < 5*time.Second {
			t.Errorf("LimitBackoff(10, 1 s) gave up after %v: %v", d, err)
		}
	})
}

// Close without a deadline never ends while the engine is away.
func TestCloseForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := pawl.New(f, nil)
		lock(t, c.Mutex("x"))
		f.set(func() { f.err = errNetwork })
		done := make(chan struct{})
		go func() { c.Close(context.Background()); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Error("Close(Background) still tries to release a claim whose TTL of 15 s ended an hour ago")
			f.set(func() { f.err = nil })
			<-done
		}
	})
}

// Close stops the background release of an earlier Unlock and says nil.
func TestCloseStopsBackgroundLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		c := pawl.New(f, nil)
		l := lock(t, c.Mutex("x"))
		f.set(func() { f.err = errNetwork })
		unlock(t, l)
		time.AfterFunc(time.Second, func() { f.set(func() { f.err = nil }) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := c.Close(ctx)
		time.Sleep(2 * time.Second)
		if n := claims(t, store, "x"); n != 0 && err == nil {
			t.Errorf("Close had 10 s, the engine came back after 1 s: Close says %v, %d claim stays", err, n)
		}
	})
}

// Extend and Adopt hang as long as the store does.
func TestExtendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClient(t, f, nil)
		l := lock(t, c.Mutex("x"))
		f.set(func() { f.down = true })
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
		f.set(func() { f.down = false })
	})
}
