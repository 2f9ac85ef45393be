package pawl_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// An old error of the engine is blamed for a wait that was just busy.
func TestStaleEngineError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, nil)
		var bad atomic.Bool
		bad.Store(true)
		f.Set(func() {
			f.Hook = func(op string) error {
				switch {
				case op == "enter" && bad.Load():
					return faultstore.ErrNetwork
				case op == "leave" && bad.Load():
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Mutex("x").Lock(ctx); close(done) }()
		synctest.Wait()
		cancel()
		time.Sleep(10 * time.Millisecond) // it waits for its claim to leave
		bad.Store(false)
		l := lock(t, c.Mutex("x"))
		<-done
		time.Sleep(time.Minute)
		wctx, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		_, err := c.Mutex("x").Lock(wctx)
		if errors.Is(err, faultstore.ErrNetwork) {
			t.Errorf("the engine is fine for a minute, the lock is held here: %v", err)
		}
		unlock(t, l)
	})
}

// A Backoff that takes its time stalls the renewer: other leases are not told.
func TestSlowBackoffStallsRenewer(t *testing.T) {
	// Real time: synctest does not move its clock while a mutex is waited for.
	store := memstore.New()
	f := &faultstore.Store{Store: store}
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
	f.Set(func() { f.Err = faultstore.ErrNetwork })
	store.Advance(time.Millisecond) // y's Wait returns, and the next one fails
	next := lock(t, b.Mutex("x"))
	if ctx.Err() == nil {
		t.Errorf("another holds x (token %d), the context of %d is alive", next.Token(), l.Token())
	}
	unlock(t, next)
	f.Set(func() { f.Err = nil })
	slow.Store(false)
	unlock(t, blocker)
	cancel()
	<-done
}

// TryLock says held while the engine is unreachable and nobody holds.
func TestTryLockBusyVsUnreachable(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New(), Err: faultstore.ErrNetwork}
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
		f.Set(func() { f.Err, f.Down = nil, true })
		go c.Mutex("y").TryLock(t.Context())
		synctest.Wait()
		_, err = c.Mutex("y").TryLock(t.Context())
		if errors.Is(err, pawl.ErrHeld) {
			t.Errorf("engine hangs, nobody holds: %v", err)
		}
	})
}

// A waiter's own Backoff is not asked while another is in front, and a
// newcomer's LimitBackoff sees the failures of others.
func TestBackoffOfOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New(), Err: faultstore.ErrNetwork}
		c := newClient(t, f, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go c.Mutex("x").Lock(ctx)
		synctest.Wait()
		got := make(chan error, 1)
		go func() {
			_, err := c.With(func(o *pawl.Options) { o.Backoff = pawl.LimitBackoff(2, pawl.ConstantBackoff(time.Second)) }).Mutex("x").Lock(ctx)
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
