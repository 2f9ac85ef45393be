package pawl_test

import (
	"context"
	"errors"
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

func newClient(t *testing.T, s driver.Store, o *pawl.Options) *pawl.Client {
	t.Helper()
	c := pawl.New(s, o)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		if f, ok := s.(*faultstore.Store); ok {
			f.Settle() // Close may be repeated by the network, too
		}
	})
	return c
}

func lock(t *testing.T, m *pawl.Mutex) *pawl.Lease {
	t.Helper()
	l, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t *testing.T, l interface{ Unlock(context.Context) error }) {
	t.Helper()
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// claims returns how many claims the store has under the name.
func claims(t *testing.T, s driver.Store, name string) int {
	t.Helper()
	q, err := s.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(q.Claims)
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func TestMutexExcludes(t *testing.T) {
	store := memstore.New()
	clients := []*pawl.Client{newClient(t, store, nil), newClient(t, store, nil), newClient(t, store, nil)}
	var (
		wg      sync.WaitGroup
		counter int
		last    int64
	)
	for i := range 30 {
		m := clients[i%len(clients)].Mutex("counter")
		wg.Go(func() {
			for range 100 {
				lease, err := m.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				counter++
				unlock(t, lease)
			}
		})
	}
	wg.Wait()
	if counter != 3000 {
		t.Errorf("counter = %d, want 3000", counter)
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		first := lock(t, a.Mutex("x"))
		var order []int
		var wg sync.WaitGroup
		for i, c := range []*pawl.Client{b, a, b, a} {
			wg.Go(func() {
				l := lock(t, c.Mutex("x"))
				order = append(order, i)
				time.Sleep(time.Second)
				unlock(t, l)
			})
			synctest.Wait()
		}
		unlock(t, first)
		wg.Wait()
		// a's waiters were served in one turn, before b's: b had asked first,
		// but a's were here when b's claim came.
		if len(order) != 4 {
			t.Fatalf("order %v", order)
		}
		for _, pair := range [][2]int{{0, 2}, {1, 3}} {
			if index(order, pair[0]) > index(order, pair[1]) {
				t.Errorf("order %v: %d before %d of the same process", order, pair[1], pair[0])
			}
		}
	})
}

func index(s []int, v int) int {
	for i, x := range s {
		if x == v {
			return i
		}
	}
	return -1
}

// TestTurns: a process whose goroutines keep asking must not keep another
// process out.
func TestTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		greedy, other := newClient(t, store, nil), newClient(t, store, nil)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := greedy.Mutex("x").Lock(ctx)
					if err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
					unlock(t, l)
				}
			})
		}
		time.Sleep(10 * time.Second)
		for range 20 {
			asked := time.Now()
			l := lock(t, other.Mutex("x"))
			if waited := time.Since(asked); waited > 1500*time.Millisecond {
				t.Errorf("waited %v for a process with 10 goroutines of 100 ms", waited)
			}
			unlock(t, l)
		}
		stop()
		wg.Wait()
	})
}

// TestPassWithoutIO: the hand-over inside a process sends nothing.
func TestPassWithoutIO(t *testing.T) {
	store := &faultstore.Store{Store: memstore.New()}
	c := newClient(t, store, nil)
	held := lock(t, c.Mutex("x"))
	before := store.Calls.Load()
	var wg sync.WaitGroup
	var left atomic.Int64 // of all: nobody is alone at the end, however late
	left.Store(8000)
	for range 16 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				unlock(t, lock(t, c.Mutex("x")))
			}
		})
	}
	time.Sleep(50 * time.Millisecond) // let them queue up
	unlock(t, held)
	wg.Wait()
	// The queue may run empty near the end, and then claims come and go.
	if n := store.Calls.Load() - before; n > 200 {
		t.Errorf("%d calls for 8000 hand-overs", n)
	}
}

func TestTryLock(t *testing.T) {
	store := memstore.New()
	a := newClient(t, store, &pawl.Options{Label: "the first"})
	b := newClient(t, store, nil)
	l := lock(t, a.Mutex("x"))
	for name, c := range map[string]*pawl.Client{"same client": a, "other client": b} {
		_, err := c.Mutex("x").TryLock(t.Context())
		want(t, err, pawl.ErrHeld)
		var held *pawl.HeldError
		if !errors.As(err, &held) || held.Holder == nil || held.Holder.Owner.Label != "the first" || held.Holder.Token != l.Token() {
			t.Errorf("%s: %v does not say who", name, err)
		}
		if !strings.Contains(err.Error(), "the first") {
			t.Errorf("%s: message %q", name, err)
		}
	}
	if n := claims(t, store, "x"); n != 1 {
		t.Errorf("%d claims after refused tries", n)
	}
	unlock(t, l)
	l, err := b.Mutex("x").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, l)
}

func TestGivingUpLeavesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		for _, c := range []*pawl.Client{a, b} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
			_, err := c.Mutex("x").Lock(ctx)
			cancel()
			if err == nil || !strings.Contains(err.Error(), "too long") {
				t.Errorf("error %v does not name the context's cause", err)
			}
			if n := claims(t, store, "x"); n != 1 {
				t.Errorf("%d claims after giving up, want the holder's", n)
			}
		}
		unlock(t, l)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims at the end", n)
		}
	})
}

func TestBadInput(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	c := newClient(t, f, nil)
	for _, m := range []*pawl.Mutex{
		c.Mutex(""),
		c.Mutex(strings.Repeat("x", 513)),
		c.Mutex("a\nb"),
		c.Mutex("{a}"),
		c.Mutex("\xff"),
		c.With(func(o *pawl.Options) { o.TTL = time.Millisecond }).Mutex("x"),
		c.With(func(o *pawl.Options) { o.TTL = 200 * time.Hour }).Mutex("x"),
		c.With(func(o *pawl.Options) { o.MaxHold = -1 }).Mutex("x"),
		c.With(func(o *pawl.Options) { o.MinHold, o.MaxHold = time.Hour, time.Minute }).Mutex("x"),
		c.With(func(o *pawl.Options) { o.Label = "a\x00" }).Mutex("x"),
	} {
		_, err := m.Lock(t.Context())
		want(t, err, pawl.ErrInvalid)
		_, err = m.TryLock(t.Context())
		want(t, err, pawl.ErrInvalid)
	}
	_, err := c.Mutex("x").Adopt(t.Context(), "nonsense")
	want(t, err, pawl.ErrInvalid)
	_, err = c.ForceRelease(t.Context(), "")
	want(t, err, pawl.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Mutex("x").Lock(ctx)
	want(t, err, context.Canceled)
	if n := f.Calls.Load(); n != 0 {
		t.Errorf("%d calls reached the store", n)
	}
}

func TestDo(t *testing.T) {
	store := memstore.New()
	c := newClient(t, store, nil)
	mine := errors.New("mine")
	want(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
		if claims(t, store, "x") != 1 {
			t.Error("not held")
		}
		return mine
	}), mine)
	func() {
		defer func() { recover() }()
		c.Mutex("x").Do(t.Context(), func(context.Context) error { panic("oops") })
	}()
	if n := claims(t, store, "x"); n != 0 {
		t.Errorf("%d claims after Do", n)
	}
	want(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
		c.ForceRelease(ctx, "x")
		<-ctx.Done()
		want(t, context.Cause(ctx), pawl.ErrLost)
		return nil
	}), pawl.ErrLost)
}

// TestWaitError tells busy from out of reach, and the Observer when the engine
// is back.
func TestWaitError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		var kinds []string // by one goroutine, until Close
		c := pawl.New(f, &pawl.Options{Observer: func(e pawl.Event) {
			if len(kinds) == 0 || kinds[len(kinds)-1] != e.Kind.String() {
				kinds = append(kinds, e.Kind.String())
			}
		}})
		l := lock(t, newClient(t, store, nil).Mutex("x"))
		for _, broken := range []bool{false, true} {
			if broken {
				time.AfterFunc(10*time.Second, func() { f.Set(func() { f.RenewErr = faultstore.ErrNetwork }) })
				time.AfterFunc(20*time.Second, func() { f.Set(func() { f.RenewErr = nil }) })
				time.AfterFunc(40*time.Second, func() { f.Set(func() { f.RenewErr = faultstore.ErrNetwork }) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := c.Mutex("x").Lock(ctx)
			cancel()
			want(t, err, context.DeadlineExceeded)
			var w *pawl.WaitError
			if !errors.As(err, &w) || w.Name != "x" || errors.Is(w.Engine, faultstore.ErrNetwork) != broken {
				t.Errorf("broken %v: %v", broken, err)
			}
		}
		f.Set(func() { f.RenewErr = nil })
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Join(kinds, " "); got != "waiting gave up waiting retrying waiting retrying gave up" {
			t.Errorf("observed: %s", got)
		}
		unlock(t, l)
	})
}
