package pawl_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

func rlock(t *testing.T, m *pawl.RWMutex) *pawl.RWLease {
	t.Helper()
	l, err := m.RLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wlock(t *testing.T, m *pawl.RWMutex) *pawl.RWLease {
	t.Helper()
	l, err := m.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Readers come and go and overlap without end, in the writer's own process or
// another, with or without push: a writer has its turn.
func TestWritersAreNotStarved(t *testing.T) {
	for what, tt := range map[string]struct{ sameProcess, mute bool }{
		"same process":               {true, false},
		"same process, without push": {true, true},
		"another process":            {false, false},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				var s driver.Store = store
				if tt.mute {
					s = mute{store}
				}
				a, b := newClient(t, s, nil), newClient(t, s, nil)
				if tt.sameProcess {
					b = a
				}
				const hold, readers = 100 * time.Millisecond, 8
				ctx, stop := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				var reads int
				var mu sync.Mutex
				for i := range readers {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * hold / readers)
						for ctx.Err() == nil {
							l, err := a.RWMutex("x").RLock(ctx)
							if err != nil {
								return
							}
							mu.Lock()
							reads++
							mu.Unlock()
							time.Sleep(hold)
							unlock(t, l)
						}
					})
				}
				time.Sleep(time.Second)
				for range 20 {
					asked := time.Now()
					l := wlock(t, b.RWMutex("x"))
					if d := time.Since(asked); d > hold+time.Millisecond {
						t.Errorf("the writer waited for %v, readers hold for %v", d, hold)
					}
					time.Sleep(hold / 2)
					mu.Lock()
					before := reads
					mu.Unlock()
					unlock(t, l)
					time.Sleep(hold / 2)
					mu.Lock()
					if n := reads - before; n < readers {
						t.Errorf("%d of %d readers were let in after the writer", n, readers)
					}
					mu.Unlock()
				}
				stop()
				wg.Wait()
			})
		})
	}
}

// A reader that comes after a writer waits behind it, in its process too; with
// Overtake it does not.
func TestReadersQueueBehindAWriter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		first := rlock(t, a.RWMutex("x"))
		writer := make(chan *pawl.RWLease, 1)
		go func() { writer <- wlock(t, b.RWMutex("x")) }()
		synctest.Wait()
		readers := make(chan *pawl.RWLease, 3)
		for range cap(readers) {
			go func() { readers <- rlock(t, a.RWMutex("x")) }()
			synctest.Wait()
		}
		if n := claims(t, store, "x"); n != 3 || len(readers) > 0 {
			t.Errorf("%d claims, %d readers passed the writer", n, len(readers))
		}
		_, err := a.RWMutex("x").TryRLock(t.Context())
		want(t, err, pawl.ErrHeld)
		var held *pawl.HeldError
		if !errors.As(err, &held) || held.Holder == nil || held.Holder.Units != 1 {
			t.Errorf("TryRLock names %+v", held)
		}
		overtaking := a.With(func(o *pawl.Options) { o.Overtake = true }).RWMutex("x")
		eager := []*pawl.RWLease{rlock(t, overtaking), rlock(t, overtaking)}
		if n := claims(t, store, "x"); n != 4 {
			t.Errorf("%d claims with those that overtake", n)
		}
		unlock(t, eager[0])
		unlock(t, eager[1])
		unlock(t, first)
		w := <-writer
		if len(readers) > 0 {
			t.Error("readers beside the writer")
		}
		unlock(t, w)
		for range cap(readers) {
			unlock(t, <-readers)
		}
	})
}

func TestTryRW(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, &pawl.Options{Label: "the first"}), newClient(t, store, nil)
		busy := func(what string, try func(context.Context) (*pawl.RWLease, error)) {
			t.Helper()
			_, err := try(t.Context())
			var held *pawl.HeldError
			if !errors.As(err, &held) || !errors.Is(err, pawl.ErrHeld) || held.Holder == nil || held.Holder.Owner.Label != "the first" {
				t.Errorf("%s: %v", what, err)
			}
		}
		w, err := a.RWMutex("x").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*pawl.Client{a, b} {
			busy("a reader under a writer", c.RWMutex("x").TryRLock)
			busy("a writer under a writer", c.RWMutex("x").TryLock)
		}
		unlock(t, w)
		r, err := a.RWMutex("x").TryRLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*pawl.Client{a, b} {
			busy("a writer under a reader", c.RWMutex("x").TryLock)
			other, err := c.RWMutex("x").TryRLock(t.Context())
			if err != nil {
				t.Errorf("a reader beside a reader: %v", err)
				continue
			}
			unlock(t, other)
		}
		unlock(t, r)
	})
}

func TestRWReentering(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		re := c.With(func(o *pawl.Options) { o.Reentrant = true })
		fails := func(what string, lock func(context.Context) (*pawl.RWLease, error), ctx context.Context) {
			t.Helper()
			_, err := lock(ctx)
			if !errors.Is(err, pawl.ErrDeadlock) {
				t.Errorf("%s: %v", what, err)
			}
		}
		again := func(what string, lock func(context.Context) (*pawl.RWLease, error), outer *pawl.RWLease) {
			t.Helper()
			l, err := lock(outer.Context(t.Context()))
			if err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			if l.Token() != outer.Token() {
				t.Errorf("%s: token %d in %d", what, l.Token(), outer.Token())
			}
			unlock(t, l)
		}
		r := rlock(t, c.RWMutex("x"))
		ctx := r.Context(t.Context())
		fails("RLock in RLock", c.RWMutex("x").RLock, ctx)
		fails("Lock in RLock", c.RWMutex("x").Lock, ctx)
		fails("Lock in RLock, re-entrant", re.RWMutex("x").Lock, ctx)
		_, err := re.RWMutex("x").TryLock(ctx)
		want(t, err, pawl.ErrHeld)
		again("TryRLock in RLock", c.RWMutex("x").TryRLock, r)
		// A writer waits meanwhile: the reader does not wait for it.
		writer := make(chan *pawl.RWLease, 1)
		go func() { writer <- wlock(t, newClient(t, store, nil).RWMutex("x")) }()
		synctest.Wait()
		again("RLock in RLock, re-entrant", re.RWMutex("x").RLock, r)
		if r.Err() != nil {
			t.Error("ended with the lease that re-entered")
		}
		unlock(t, r)
		unlock(t, <-writer)

		w := wlock(t, c.RWMutex("x"))
		ctx = w.Context(t.Context())
		fails("RLock in Lock", c.RWMutex("x").RLock, ctx)
		fails("Lock in Lock", c.RWMutex("x").Lock, ctx)
		again("RLock in Lock, re-entrant", re.RWMutex("x").RLock, w)
		again("Lock in Lock, re-entrant", re.RWMutex("x").Lock, w)
		// The names of other kinds of lock are no part of it.
		_, err = re.Mutex("x").Lock(ctx)
		var limit *pawl.MismatchError
		if !errors.As(err, &limit) {
			t.Errorf("a Mutex of that name: %v", err)
		}
		unlock(t, w)
	})
}

func TestRWDo(t *testing.T) {
	store := memstore.New()
	a, b := newClient(t, store, nil), newClient(t, store, nil)
	failed := errors.New("failed")
	err := a.RWMutex("x").RDo(t.Context(), func(ctx context.Context) error {
		_, err := b.RWMutex("x").TryLock(ctx)
		want(t, err, pawl.ErrHeld)
		unlock(t, rlock(t, b.RWMutex("x")))
		return failed
	})
	want(t, err, failed)
	err = a.RWMutex("x").Do(t.Context(), func(ctx context.Context) error {
		_, err := b.RWMutex("x").TryRLock(ctx)
		want(t, err, pawl.ErrHeld)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if n := claims(t, store, "x"); n != 0 {
		t.Errorf("%d claims are left", n)
	}
	want(t, a.RWMutex("").Do(t.Context(), nil), pawl.ErrInvalid)
	want(t, a.RWMutex("{").RDo(t.Context(), nil), pawl.ErrInvalid)
	if name := a.RWMutex("x").Name(); name != "x" {
		t.Error(name)
	}
}

// 8 readers and 2 writers on a value that a writer makes inconsistent for a
// moment.
func TestReadersSeeWholeValues(t *testing.T) {
	store := memstore.New()
	clients := []*pawl.Client{newClient(t, store, nil), newClient(t, store, nil)}
	var left, right int
	var last int64
	var wg sync.WaitGroup
	for i := range 8 {
		m := clients[i%2].RWMutex("value")
		wg.Go(func() {
			for range 300 {
				l := rlock(t, m)
				if left != right {
					t.Errorf("saw %d and %d", left, right)
				}
				if l.Token() <= last {
					t.Errorf("a reader's token %d after the writer's %d", l.Token(), last)
				}
				unlock(t, l)
			}
		})
	}
	for i := range 2 {
		m := clients[i].RWMutex("value")
		wg.Go(func() {
			for range 300 {
				l := wlock(t, m)
				left++
				if l.Token() <= last {
					t.Errorf("a writer's token %d after %d", l.Token(), last)
				}
				last = l.Token()
				right++
				unlock(t, l)
			}
		})
	}
	wg.Wait()
	if left != 600 || right != 600 {
		t.Errorf("%d and %d, want 600", left, right)
	}
}

// A reader's lease is left as it is.
func TestDowngradeOfAReader(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	c := newClient(t, f, nil)
	l, err := c.RWMutex("x").RLock(t.Context())
	want(t, err, nil)
	calls, token := f.Calls.Load(), l.Token()
	want(t, l.Downgrade(t.Context()), nil)
	if f.Calls.Load() != calls || l.Token() != token {
		t.Error("something was changed")
	}
	unlock(t, l)
}

// What runs under the lock finds the lease that Lock returned.
func TestRWLeaseFrom(t *testing.T) {
	m := newClient(t, memstore.New(), nil).RWMutex("x")
	for _, l := range []*pawl.RWLease{rlock(t, m), rlock(t, m)} {
		if got := pawl.LeaseFrom(l.Context(t.Context())); got != &l.Lease {
			t.Errorf("%p, want %p", got, &l.Lease)
		}
		unlock(t, l)
	}
}
