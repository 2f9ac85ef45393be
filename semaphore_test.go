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

func acquire(t *testing.T, s *pawl.Semaphore, n int64) *pawl.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// queued acquires in the background, and returns once it has its place.
func queued(t *testing.T, s *pawl.Semaphore, n int64) chan *pawl.Lease {
	t.Helper()
	got := make(chan *pawl.Lease, 1)
	go func() {
		l, err := s.Acquire(t.Context(), n)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	synctest.Wait()
	return got
}

func granted(got chan *pawl.Lease) bool {
	synctest.Wait()
	return len(got) == 1
}

func TestSemaphore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		var most, inside atomic.Int64
		var work sync.WaitGroup
		for range 3 {
			c := newClient(t, store, nil)
			for i := range 20 {
				s := c.Semaphore("x", 5)
				n := int64(1 + i%3)
				work.Go(func() {
					for range 20 {
						l := acquire(t, s, n)
						if now := inside.Add(n); now > 5 {
							t.Errorf("%d permits of 5", now)
						} else if now > most.Load() {
							most.Store(now)
						}
						time.Sleep(10 * time.Millisecond)
						inside.Add(-n)
						unlock(t, l)
					}
				})
			}
		}
		work.Wait()
		if most.Load() < 5 {
			t.Errorf("never more than %d permits of 5 in use", most.Load())
		}
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	})
}

func TestTryAcquire(t *testing.T) {
	store := memstore.New()
	a, b := newClient(t, store, &pawl.Options{Label: "the first"}), newClient(t, store, nil)
	l := acquire(t, a.Semaphore("x", 5), 4)
	for _, c := range []*pawl.Client{a, b} {
		_, err := c.Semaphore("x", 5).TryAcquire(t.Context(), 2)
		want(t, err, pawl.ErrHeld)
		var held *pawl.HeldError
		if !errors.As(err, &held) || held.Holder == nil || held.Holder.Owner.Label != "the first" || held.Holder.Units != 4 {
			t.Errorf("%v does not say who", err)
		}
	}
	if n := claims(t, store, "x"); n != 1 {
		t.Errorf("%d claims after refused tries", n)
	}
	one, err := b.Semaphore("x", 5).TryAcquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if one.Token() <= l.Token() {
		t.Errorf("token %d after %d", one.Token(), l.Token())
	}
	unlock(t, l)
	unlock(t, one)

	f := &faultstore.Store{Store: store, Err: faultstore.ErrNetwork}
	_, err = newClient(t, f, nil).Semaphore("x", 5).TryAcquire(t.Context(), 1)
	want(t, err, faultstore.ErrNetwork)
	if errors.Is(err, pawl.ErrHeld) {
		t.Errorf("%v says busy", err)
	}
	f.Set(func() { f.Err = nil })
}

// Who asks for many is not starved by those who ask for few, unless these
// overtake.
func TestSemaphoreIsFair(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		held := acquire(t, a.Semaphore("x", 5), 3)
		big := queued(t, a.Semaphore("x", 5), 4)
		small := queued(t, b.Semaphore("x", 5), 1)
		local := queued(t, a.Semaphore("x", 5), 1)
		_, err := b.Semaphore("x", 5).TryAcquire(t.Context(), 1)
		want(t, err, pawl.ErrHeld)
		over := acquire(t, b.With(func(o *pawl.Options) { o.Overtake = true }).Semaphore("x", 5), 1)
		time.Sleep(time.Hour)
		if granted(big) || granted(small) || granted(local) {
			t.Error("granted out of turn")
		}
		unlock(t, held)
		if !granted(big) || granted(small) || granted(local) {
			t.Error("4 of 5 are free, 4 are wanted first")
		}
		unlock(t, over)
		if !granted(small) || granted(local) {
			t.Error("not granted in order of arrival")
		}
		unlock(t, <-big)
		if !granted(local) {
			t.Error("4 of 5 are free, 1 is wanted")
		}
		unlock(t, <-local)
		unlock(t, <-small)
	})
}

// Processes are served in the order in which their goroutines came.
func TestSemaphoreOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil).Semaphore("x", 2), newClient(t, store, nil).Semaphore("x", 2)
		held := acquire(t, a, 2)
		var waiting []chan *pawl.Lease
		for range 3 {
			waiting = append(waiting, queued(t, a, 1), queued(t, b, 1))
		}
		unlock(t, held)
		for i, got := range waiting {
			if !granted(got) || i+2 < len(waiting) && granted(waiting[i+2]) {
				t.Fatalf("request %d is not served in turn", i)
			}
			unlock(t, <-got)
		}
	})
}

// A request for all of it gets its turn among many for little; if those overtake,
// they pass it.
func TestSemaphoreStarvation(t *testing.T) {
	for name, overtake := range map[string]bool{"in turn": false, "overtaken": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				ctx, cancel := context.WithCancel(t.Context())
				var work sync.WaitGroup
				for range 2 {
					c := newClient(t, store, &pawl.Options{Overtake: overtake})
					for range 10 {
						work.Go(func() {
							for ctx.Err() == nil {
								if l, err := c.Semaphore("x", 5).Acquire(ctx, 1); err == nil {
									time.Sleep(100 * time.Millisecond)
									unlock(t, l)
								}
							}
						})
					}
				}
				c := newClient(t, store, nil)
				time.Sleep(time.Second)
				asked := time.Now()
				minute, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				l, err := c.Semaphore("x", 5).Acquire(minute, 5)
				if overtake {
					want(t, err, context.DeadlineExceeded)
				} else if err != nil {
					t.Error(err)
				} else {
					if d := time.Since(asked); d > 600*time.Millisecond {
						t.Errorf("15 waited in front, for 100 ms and one of 5 each: it took %v", d)
					}
					unlock(t, l)
				}
				cancel()
				work.Wait()
			})
		})
	}
}

// Each Acquire has permits of its own, also under a context that has some.
func TestSemaphoreIsNotReentered(t *testing.T) {
	store := memstore.New()
	c := newClient(t, store, &pawl.Options{Reentrant: true})
	first := acquire(t, c.Semaphore("x", 2), 1)
	second, err := c.Semaphore("x", 2).Acquire(first.Context(t.Context()), 1)
	if err != nil {
		t.Fatal(err)
	}
	if second.Token() == first.Token() || claims(t, store, "x") != 2 {
		t.Errorf("tokens %d and %d", first.Token(), second.Token())
	}
	_, err = c.Mutex("x").TryLock(first.Context(t.Context()))
	want(t, err, pawl.ErrMismatch)
	unlock(t, first)
	if err := second.Err(); err != nil {
		t.Error(err)
	}
	unlock(t, second)
}

func TestSemaphoreGivingUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		l := acquire(t, c.Semaphore("x", 2), 2)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
		defer cancel()
		_, err := c.Semaphore("x", 2).Acquire(ctx, 1)
		want(t, err, context.DeadlineExceeded)
		var w *pawl.WaitError
		if !errors.As(err, &w) || w.Engine != nil || !strings.Contains(err.Error(), "too long") {
			t.Error(err)
		}
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("%d claims", n)
		}
		unlock(t, l)
	})
}

// The permits of a holder that died come back after its TTL, and a lease that
// lives is not disturbed.
func TestSemaphoreCrash(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		dead, b := newClient(t, f, nil), newClient(t, store, nil)
		gone := acquire(t, dead.Semaphore("x", 3), 2)
		kept := acquire(t, b.Semaphore("x", 3), 1)
		f.Set(func() { f.Down = true })
		start := time.Now()
		l := acquire(t, b.Semaphore("x", 3), 2)
		if d := time.Since(start); d > pawl.DefaultTTL+time.Second {
			t.Errorf("it took %v", d)
		}
		want(t, gone.Err(), pawl.ErrLost)
		if err := kept.Err(); err != nil {
			t.Error(err)
		}
		f.Set(func() { f.Down = false })
		want(t, gone.Unlock(t.Context()), pawl.ErrLost)
		unlock(t, l)
		unlock(t, kept)
	})
}

func TestSemaphoreDo(t *testing.T) {
	store := memstore.New()
	s := newClient(t, store, nil).Semaphore("x", 3)
	want(t, s.Do(t.Context(), 2, func(ctx context.Context) error {
		q, err := store.Inspect(ctx, "x")
		if err != nil || len(q.Claims) != 1 || q.Claims[0].Units != 2 || q.Limit != 3 {
			t.Errorf("%+v, %v", q, err)
		}
		return errDeclined
	}), errDeclined)
	want(t, s.Do(t.Context(), 4, never(t)), pawl.ErrInvalid)
	if n := claims(t, store, "x"); n != 0 {
		t.Errorf("%d claims", n)
	}
}

func TestSemaphoreErrors(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	c := newClient(t, f, nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		s   *pawl.Semaphore
		ctx context.Context
		n   int64
		err error
	}{
		{c.Semaphore("x", 5), t.Context(), 0, pawl.ErrInvalid},
		{c.Semaphore("x", 5), t.Context(), -1, pawl.ErrInvalid},
		{c.Semaphore("x", 5), t.Context(), 6, pawl.ErrInvalid},
		{c.Semaphore("x", 0), t.Context(), 1, pawl.ErrInvalid},
		{c.Semaphore("x", 1<<30+1), t.Context(), 1, pawl.ErrInvalid},
		{c.Semaphore("x", driver.MaxLimit), t.Context(), 1, pawl.ErrInvalid}, // the limit of a RWMutex
		{c.Semaphore("{", 5), t.Context(), 1, pawl.ErrInvalid},
		{c.With(func(o *pawl.Options) { o.TTL = 1 }).Semaphore("x", 5), t.Context(), 1, pawl.ErrInvalid},
		{c.Semaphore("x", 5), over, 1, context.Canceled},
	} {
		_, err := tt.s.Acquire(tt.ctx, tt.n)
		want(t, err, tt.err)
		_, err = tt.s.TryAcquire(tt.ctx, tt.n)
		want(t, err, tt.err)
	}
	for _, tt := range []struct {
		s     *pawl.Semaphore
		limit int64
	}{{c.Semaphore("", 5), 1}, {c.Semaphore("x", 0), 1}, {c.Semaphore("x", 5), 0}, {c.Semaphore("x", 5), 1<<30 + 1}} {
		want(t, tt.s.SetLimit(t.Context(), tt.limit), pawl.ErrInvalid)
	}
	if n := f.Calls.Load(); n != 0 {
		t.Errorf("%d calls reached the store", n)
	}
	f.Set(func() { f.Err = faultstore.ErrNetwork })
	err := c.Semaphore("x", 5).SetLimit(t.Context(), 6)
	want(t, err, faultstore.ErrNetwork)
	if !strings.Contains(err.Error(), `"x" from 5 to 6`) {
		t.Error(err)
	}
	f.Set(func() { f.Err = nil })

	l := acquire(t, c.Semaphore("x", 5), 1)
	_, err = c.Semaphore("x", 7).Acquire(t.Context(), 1)
	want(t, err, pawl.ErrMismatch)
	var limit *pawl.MismatchError
	if !errors.As(err, &limit) || limit.Name != "x" || limit.Have != 5 || limit.Want != 7 {
		t.Errorf("%v does not name both", err)
	}
	_, err = c.Mutex("x").TryLock(t.Context())
	want(t, err, pawl.ErrMismatch)
	want(t, c.Semaphore("x", 7).SetLimit(t.Context(), 6), pawl.ErrMismatch)
	unlock(t, l)
	unlock(t, acquire(t, c.Semaphore("x", 7), 7)) // nobody uses it: so this is its size now
}

// Close ends those who wait and gives all permits back.
func TestSemaphoreClose(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		// More than Close gives back at once: who waits is not granted the first of
		// them meanwhile.
		const permits = 100
		store := memstore.New()
		c := pawl.New(store, nil)
		var held []*pawl.Lease
		for range permits {
			held = append(held, acquire(t, c.Semaphore("x", permits), 1))
		}
		ended := make(chan error)
		for range permits {
			go func() {
				_, err := c.Semaphore("x", permits).Acquire(t.Context(), 1)
				ended <- err
			}()
		}
		synctest.Wait()
		go c.Close(t.Context())
		for range permits {
			want(t, <-ended, pawl.ErrClosed)
		}
		synctest.Wait()
		for _, l := range held {
			want(t, l.Err(), pawl.ErrClosed)
		}
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
		_, err := c.Semaphore("x", permits).Acquire(t.Context(), 1)
		want(t, err, pawl.ErrClosed)
	})
}

// A lease is handed over with all its permits, and comes back with them.
func TestSemaphoreHandOver(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, limit := range []int64{1, 5} {
			store := memstore.New()
			a, b := newClient(t, store, nil).Semaphore("x", limit), newClient(t, store, nil).Semaphore("x", limit)
			n := (limit + 1) / 2
			l := acquire(t, a, n)
			handle, err := l.HandOver(t.Context())
			want(t, err, nil)
			adopted, err := b.Adopt(t.Context(), handle)
			if err != nil {
				t.Fatal(err)
			}
			if adopted.Token() <= l.Token() || adopted.Handle() == handle {
				t.Errorf("token %d, handle %s after %d, %s", adopted.Token(), adopted.Handle(), l.Token(), handle)
			}
			time.Sleep(time.Hour)
			want(t, adopted.Err(), nil)
			_, err = a.TryAcquire(t.Context(), limit-n+1)
			want(t, err, pawl.ErrHeld)
			unlock(t, adopted)
			unlock(t, acquire(t, a, limit))
			_, err = b.Adopt(t.Context(), handle)
			want(t, err, pawl.ErrLost)
		}
	})
}

// Permits do not pass for a mutex, nor a mutex for permits.
func TestAdoptAnotherKind(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	mutex, permits := lock(t, c.Mutex("m")).Handle(), acquire(t, c.Semaphore("s", 5), 2).Handle()
	_, err := c.Mutex("s").Adopt(t.Context(), permits)
	want(t, err, pawl.ErrInvalid)
	_, err = c.RWMutex("s").Adopt(t.Context(), permits)
	want(t, err, pawl.ErrInvalid)
	for _, handle := range []string{mutex, "", permits + "0", permits[:len(permits)-1] + "6", permits[:len(permits)-1] + "0", ".n2", "x.1.n2"} {
		_, err = c.Semaphore("s", 5).Adopt(t.Context(), handle)
		if handle == permits+"0" {
			handle = "20 of 5 permits"
		}
		if !errors.Is(err, pawl.ErrInvalid) {
			t.Errorf("%s: %v", handle, err)
		}
	}
}
