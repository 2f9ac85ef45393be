package pawl_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
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

func TestRenewalKeepsTheLock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		l := lock(t, newClient(t, store, nil).Mutex("x"))
		time.Sleep(time.Hour)
		if err := l.Err(); err != nil {
			t.Errorf("after an hour: %v", err)
		}
		if d := time.Until(l.Deadline()); d < pawl.DefaultTTL/2 || d > pawl.DefaultTTL {
			t.Errorf("deadline in %v", d)
		}
		unlock(t, l)
		want(t, l.Unlock(t.Context()), pawl.ErrReleased)
		want(t, l.Err(), pawl.ErrReleased)
	})
}

// TestToldBeforeOthersHold: the engine stops replying. The lease ends by the
// holder's clock before the store may grant the name to another.
func TestToldBeforeOthersHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		a, b := newClient(t, f, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		ctx := l.Context(t.Context())
		time.Sleep(time.Minute)
		f.Set(func() { f.Down = true })
		told := make(chan time.Time, 1)
		go func() {
			<-ctx.Done()
			told <- time.Now()
		}()
		cut := time.Now()
		next := lock(t, b.Mutex("x"))
		select {
		case at := <-told:
			if !at.Before(time.Now()) {
				t.Errorf("another holds at %v, told at %v", time.Now(), at)
			}
		default:
			t.Error("another holds, and the holder was not told")
		}
		if d := time.Since(cut); d > pawl.DefaultTTL {
			t.Errorf("it took %v", d)
		}
		err := context.Cause(ctx)
		want(t, err, pawl.ErrLost)
		want(t, err, context.DeadlineExceeded) // what the engine did not reply to
		select {
		case <-l.Lost():
		default:
			t.Error("Lost is open")
		}
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		f.Set(func() { f.Down = false })
		want(t, l.Unlock(t.Context()), pawl.ErrLost)
		unlock(t, next)
	})
}

func TestReleaseByOperator(t *testing.T) {
	store := memstore.New()
	a, b := newClient(t, store, nil), newClient(t, store, nil)
	l := lock(t, a.Mutex("x"))
	gone, err := b.ForceRelease(t.Context(), "x")
	if err != nil || len(gone) != 1 || gone[0].Token != l.Token() {
		t.Errorf("release: %+v, %v", gone, err)
	}
	<-l.Lost()
	want(t, l.Err(), pawl.ErrLost)
	next := lock(t, b.Mutex("x"))
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	want(t, l.Unlock(t.Context()), pawl.ErrLost)
	unlock(t, next)
}

func TestUnlock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)

		// The reply is lost; the repeat finds nothing.
		l := lock(t, c.Mutex("x"))
		lose := true
		f.Set(func() {
			f.After = func(op string) error {
				if op == "leave" && lose {
					lose = false
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		unlock(t, l)
		f.Set(func() { f.After = nil })

		// The engine has forgotten it.
		l = lock(t, c.Mutex("x"))
		store.Break(t.Context(), "x")
		f.Set(func() { f.Hook = nil })
		want(t, l.Unlock(t.Context()), pawl.ErrLost)

		// Under a context that is over.
		l = lock(t, c.Mutex("x"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims after unlock", n)
		}

		// The engine is away: bounded in time, done in the background.
		l = lock(t, c.Mutex("x"))
		f.Set(func() { f.Down = true })
		start := time.Now()
		unlock(t, l)
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("unlock took %v", d)
		}
		f.Set(func() { f.Down = false })
		time.Sleep(3 * time.Second)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims 3 s after the engine came back", n)
		}
	})
}

// TestUsedTokensAreTold: the store must know what was used when a claim
// leaves, or the next token may not be greater.
func TestUsedTokensAreTold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, nil)
		var highest int64
		var wg sync.WaitGroup
		held := lock(t, c.Mutex("x"))
		for range 8 {
			wg.Go(func() {
				l := lock(t, c.Mutex("x"))
				highest = max(highest, l.Token())
				unlock(t, l)
			})
		}
		time.Sleep(20 * time.Millisecond)
		unlock(t, held)
		wg.Wait()
		if highest <= held.Token() {
			t.Fatalf("highest token %d, first %d", highest, held.Token())
		}
		if r := f.Leaves[len(f.Leaves)-1]; r.Used != highest {
			t.Errorf("left with %d, used %d", r.Used, highest)
		}
	})
}

func TestMaxHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, &pawl.Options{MaxHold: time.Minute})
		l := lock(t, c.Mutex("x"))
		if d := time.Until(l.Deadline()); d > pawl.DefaultTTL {
			t.Errorf("deadline in %v", d)
		}
		time.Sleep(time.Minute - time.Second)
		if d := time.Until(l.Deadline()); l.Err() != nil || d != time.Second {
			t.Errorf("a second before: %v, deadline in %v", l.Err(), d)
		}
		<-l.Lost()
		if err := l.Err(); !errors.Is(err, pawl.ErrLost) || !strings.Contains(err.Error(), "MaxHold") {
			t.Errorf("after a minute: %v", err)
		}
		start := time.Now()
		next := lock(t, newClient(t, store, nil).Mutex("x"))
		if d := time.Since(start); d > time.Second {
			t.Errorf("the next one waited %v", d)
		}
		unlock(t, next)
		want(t, l.Unlock(t.Context()), pawl.ErrLost)
		synctest.Wait()
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims", n)
		}
	})
}

func TestMinHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		start := time.Now()
		c := pawl.New(store, &pawl.Options{MinHold: time.Minute})
		unlock(t, lock(t, c.Mutex("x")))
		if d := time.Since(start); d > time.Second {
			t.Errorf("unlock waited %v", d)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		next := lock(t, newClient(t, store, nil).Mutex("x"))
		if d := time.Since(start); d < time.Minute || d > time.Minute+time.Second {
			t.Errorf("free after %v", d)
		}
		unlock(t, next)
	})
}

func TestNoRenewal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		plain := newClient(t, store, &pawl.Options{TTL: 10 * time.Second, NoRenewal: true})
		first := lock(t, newClient(t, store, nil).Mutex("x"))
		go func() {
			time.Sleep(25 * time.Second)
			unlock(t, first)
		}()
		l := lock(t, plain.Mutex("x")) // having waited longer than its TTL
		time.Sleep(5 * time.Second)
		if err := l.Err(); err != nil {
			t.Fatalf("after half of the TTL: %v", err)
		}
		if err := l.Extend(t.Context(), 0); err != nil {
			t.Error(err)
		}
		time.Sleep(8 * time.Second)
		if err := l.Err(); err != nil {
			t.Errorf("it was extended: %v", err)
		}
		time.Sleep(3 * time.Second)
		want(t, l.Err(), pawl.ErrLost)
		want(t, l.Extend(t.Context(), 0), pawl.ErrLost)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims", n)
		}
	})
}

// TestExtendNeverShortens: nobody may hold while the lease says that it holds.
func TestExtendNeverShortens(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, &pawl.Options{TTL: time.Hour, NoRenewal: true})
		l := lock(t, c.Mutex("x"))
		if err := l.Extend(t.Context(), 2*time.Second); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		next := lock(t, newClient(t, store, nil).Mutex("x"))
		want(t, l.Err(), pawl.ErrLost)
		if d := time.Since(start); d < 59*time.Minute {
			t.Errorf("another holds after %v", d)
		}
		unlock(t, next)
		want(t, l.Extend(t.Context(), time.Microsecond), pawl.ErrInvalid)
	})
}

func TestReentrant(t *testing.T) {
	store := memstore.New()
	c := newClient(t, store, nil)
	outer := lock(t, c.Mutex("x"))
	ctx := outer.Context(t.Context())
	_, err := c.Mutex("x").Lock(ctx)
	want(t, err, pawl.ErrDeadlock)
	unlock(t, lock(t, c.Mutex("y"))) // another name is no deadlock
	unlock(t, outer)
	want(t, context.Cause(ctx), pawl.ErrReleased)

	m := c.With(func(o *pawl.Options) { o.Reentrant = true }).Mutex("x")
	outer = lock(t, m)
	ctx = outer.Context(t.Context())
	inner, err := m.Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	deepest, err := m.TryLock(inner.Context(context.WithoutCancel(ctx)))
	if err != nil {
		t.Fatal(err)
	}
	if inner.Token() != outer.Token() || deepest.Token() != outer.Token() {
		t.Errorf("tokens %d, %d, %d", outer.Token(), inner.Token(), deepest.Token())
	}
	unlock(t, outer)
	unlock(t, deepest)
	want(t, deepest.Unlock(ctx), pawl.ErrReleased)
	if n := claims(t, store, "x"); n != 1 || inner.Err() != nil || ctx.Err() != nil {
		t.Errorf("one lease is left: %d claims, %v, %v", n, inner.Err(), ctx.Err())
	}
	unlock(t, inner)
	if n := claims(t, store, "x"); n != 0 || ctx.Err() == nil {
		t.Errorf("after the last: %d claims, %v", n, ctx.Err())
	}
}

func TestHandOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		ctx := l.Context(t.Context())
		handle, err := l.HandOver(t.Context())
		if err != nil || handle != l.Handle() {
			t.Fatalf("%q, %v", handle, err)
		}
		want(t, context.Cause(ctx), pawl.ErrReleased)
		want(t, l.Unlock(t.Context()), pawl.ErrReleased)
		time.Sleep(pawl.DefaultTTL / 2)

		adopted, err := b.Mutex("x").Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		if adopted.Token() <= l.Token() || adopted.Handle() == handle {
			t.Errorf("token %d after %d, handle %s after %s", adopted.Token(), l.Token(), adopted.Handle(), handle)
		}
		time.Sleep(time.Hour)
		if err := adopted.Err(); err != nil {
			t.Errorf("after an hour: %v", err)
		}
		_, err = a.Mutex("x").TryLock(t.Context())
		want(t, err, pawl.ErrHeld)
		unlock(t, adopted)
		_, err = b.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrLost)
	})
}

func TestClose(t *testing.T) {
	store := memstore.New()
	c := pawl.New(store, nil)
	l := lock(t, c.Mutex("x"))
	ctx := l.Context(t.Context())
	other := newClient(t, store, nil)
	blocked := lock(t, other.Mutex("y"))
	errs := make(chan error, 2)
	for _, name := range []string{"x", "y"} {
		go func() {
			_, err := c.Mutex(name).Lock(t.Context())
			errs <- err
		}()
	}
	for claims(t, store, "y") != 2 {
		time.Sleep(time.Millisecond)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for range 2 {
		want(t, <-errs, pawl.ErrClosed)
	}
	want(t, context.Cause(ctx), pawl.ErrClosed)
	want(t, l.Unlock(t.Context()), pawl.ErrClosed)
	_, err := c.Mutex("z").Lock(t.Context())
	want(t, err, pawl.ErrClosed)
	if n := claims(t, store, "x") + claims(t, store, "y"); n != 1 {
		t.Errorf("%d claims are left, want the other client's", n)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	unlock(t, blocked)
}

func TestCloseTellsWhatItCouldNotRelease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := pawl.New(f, nil)
		lock(t, c.Mutex("stays"))
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Close(ctx)
		want(t, err, faultstore.ErrNetwork)
		if err == nil || !strings.Contains(err.Error(), `"stays"`) {
			t.Errorf("%v does not name the lock", err)
		}
	})
}

func TestObserver(t *testing.T) {
	var (
		mu    sync.Mutex
		kinds []string
	)
	store := memstore.New()
	c := newClient(t, store, &pawl.Options{Observer: func(e pawl.Event) {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, e.Kind.String())
		if e.Name != "x" || e.Claim == "" {
			t.Errorf("%+v", e)
		}
		if e.Kind == pawl.EventWaiting && (e.Blocker == nil || e.Blocker.Owner.Label != "other") {
			t.Errorf("%+v does not say for whom", e)
		}
	}})
	first := lock(t, newClient(t, store, &pawl.Options{Label: "other"}).Mutex("x"))
	done := make(chan *pawl.Lease)
	go func() { done <- lock(t, c.Mutex("x")) }()
	for claims(t, store, "x") != 2 {
		time.Sleep(time.Millisecond)
	}
	unlock(t, first)
	unlock(t, <-done)
	if err := c.Close(t.Context()); err != nil { // after the last event
		t.Error(err)
	}
	if got := strings.Join(kinds, " "); got != "waiting acquired released" {
		t.Errorf("observed: %s", got)
	}
}

// TestManyHeld: held locks cost memory, not goroutines, and are renewed in
// batches.
func TestManyHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 20_000
		var calls, renewed atomic.Int64
		store := &counting{Store: memstore.New(), calls: &calls, renewed: &renewed}
		c := newClient(t, store, &pawl.Options{TTL: 3 * time.Second})
		var before, after runtime.MemStats
		for i := range n {
			if i == 100 { // the client's own goroutines run by now
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			lock(t, c.Mutex("lock "+driver.NewID()))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		time.Sleep(2 * time.Second)
		if g := runtime.NumGoroutine(); g > 50 {
			t.Errorf("%d goroutines", g)
		}
		if calls, renewed := calls.Load(), renewed.Load(); renewed < n || calls > renewed/20 {
			t.Errorf("%d renewals in %d calls", renewed, calls)
		}
		t.Logf("%d bytes per lock, store included; %d renewals in %d calls", (after.HeapAlloc-before.HeapAlloc)/n, renewed.Load(), calls.Load())
	})
}

type counting struct {
	driver.Store
	calls, renewed *atomic.Int64
}

func (c *counting) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	c.calls.Add(1)
	c.renewed.Add(int64(len(rs)))
	c.Store.Renew(ctx, rs, report)
}

// Lock returns a lease that is over.
func TestLockReturnsExpired(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, &pawl.Options{TTL: 5 * time.Second})
		f.Set(func() {
			f.After = func(op string) error {
				if op == "enter" {
					time.Sleep(4990 * time.Millisecond)
				}
				return nil
			}
		})
		l, err := c.Mutex("x").Lock(t.Context())
		if err == nil {
			if d := time.Until(l.Deadline()); d <= 0 {
				t.Errorf("Lock returned a lease whose deadline was %v ago", -d)
			}
			l.Unlock(t.Context())
		}
	})
}

// Errors of Lock and the causes of contexts.
func TestCauses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		other := lock(t, c.Mutex("x"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
		defer cancel()
		_, err := c.Mutex("x").Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is not DeadlineExceeded", err)
		}
		l := lock(t, c.Mutex("y"))
		got := make(chan error, 1)
		go func() { _, err := c.Mutex("x").Lock(l.Context(t.Context())); got <- err }()
		synctest.Wait()
		unlock(t, l)
		err = <-got
		if errors.Is(err, pawl.ErrReleased) && !errors.Is(err, context.Canceled) {
			t.Errorf("Lock(x) was never granted, its error is ErrReleased, and not Canceled: %v", err)
		}
		unlock(t, other)
	})
}

// Adopt in the same client, without a hand-over: who held it loses it, and the
// adopted lease keeps its notices.
func TestUnregisterByID(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, &pawl.Options{TTL: time.Hour})
		l := lock(t, c.Mutex("x"))
		ad, err := c.Mutex("x").Adopt(t.Context(), l.Handle())
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.HandOver(t.Context())
		want(t, err, pawl.ErrLost)
		want(t, ad.Err(), nil)
		c.ForceRelease(t.Context(), "x")
		time.Sleep(time.Second)
		if ad.Err() == nil {
			t.Error("released by an operator, and not told at once")
		}
	})
}

// Deadline of a lease that is over.
func TestDeadlineOfReleased(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), nil)
		l := lock(t, c.Mutex("x"))
		got := make(chan *pawl.Lease)
		go func() { got <- lock(t, c.Mutex("x")) }()
		synctest.Wait()
		time.Sleep(time.Second)
		unlock(t, l)
		next := <-got
		time.Sleep(time.Hour)
		if time.Until(l.Deadline()) > 0 {
			t.Errorf("unlocked an hour ago, its deadline is in %v", time.Until(l.Deadline()))
		}
		unlock(t, next)
	})
}
