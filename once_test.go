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

var errDeclined = errors.New("card declined")

// counter counts its runs.
type counter struct{ runs int }

func (c *counter) run(context.Context) error {
	c.runs++
	return nil
}

func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("it ran")
		return nil
	}
}

// leftovers checks that nothing is left of the key but what is on record until
// then.
func leftovers(t *testing.T, s driver.Store, key string, record bool) {
	t.Helper()
	if n := claims(t, s, key); n != 0 {
		t.Errorf("%d claims are left", n)
	}
	r, err := s.Load(t.Context(), key)
	if err != nil || (r.Version != 0) != record {
		t.Errorf("on record: %s, %v", r.Value, err)
	}
}

func TestOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a := newClient(t, store, &pawl.Options{Label: "till 7"})
		b := newClient(t, store, nil)
		var paid counter
		for range 2 {
			if err := a.Once("x", time.Hour).Do(t.Context(), paid.run); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour - time.Second)
			for _, c := range []*pawl.Client{a, b} {
				for _, do := range []func(context.Context, func(context.Context) error) error{
					c.Once("x", time.Hour).Do, c.Once("x", time.Hour).TryDo,
				} {
					err := do(t.Context(), never(t))
					want(t, err, pawl.ErrDone)
					for _, part := range []string{`"x"`, `"till 7"`, "for another 1s"} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("%v does not say %s", err, part)
						}
					}
				}
			}
			leftovers(t, store, "x", true)
			time.Sleep(time.Second + time.Millisecond)
			leftovers(t, store, "x", false)
		}
		if paid.runs != 2 {
			t.Errorf("%d runs in two periods", paid.runs)
		}
	})
}

// Who comes while it runs waits for what becomes of that, or is told.
func TestOnceWhileItRuns(t *testing.T) {
	for name, fails := range map[string]bool{"it succeeds": false, "it fails": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				clients := []*pawl.Client{newClient(t, store, &pawl.Options{Label: "till 7"}), newClient(t, store, nil)}
				var work sync.WaitGroup
				work.Go(func() {
					err := clients[0].Once("x", time.Hour).Do(t.Context(), func(context.Context) error {
						time.Sleep(time.Minute)
						if fails {
							return errDeclined
						}
						return nil
					})
					if fails != errors.Is(err, errDeclined) || !fails && err != nil {
						t.Errorf("the first: %v", err)
					}
				})
				time.Sleep(time.Second)
				begun := time.Now()
				var succeeded, done atomic.Int64
				for i := range 10 {
					c := clients[i%2].Once("x", time.Hour)
					err := c.TryDo(t.Context(), never(t))
					want(t, err, pawl.ErrHeld)
					var held *pawl.HeldError
					if errors.Is(err, pawl.ErrDone) || !errors.As(err, &held) || held.Holder == nil || held.Holder.Owner.Label != "till 7" {
						t.Errorf("%v", err)
					}
					work.Go(func() {
						switch err := c.Do(t.Context(), (&counter{}).run); {
						case err == nil:
							succeeded.Add(1)
						case errors.Is(err, pawl.ErrDone):
							done.Add(1)
						default:
							t.Error(err)
						}
						if d := time.Since(begun); d < 59*time.Second {
							t.Errorf("waited only %v", d)
						}
					})
				}
				work.Wait()
				runs := int64(0)
				if fails {
					runs = 1
				}
				if succeeded.Load() != runs || done.Load() != 10-runs {
					t.Errorf("%d ran it, %d were told that it was done", succeeded.Load(), done.Load())
				}
				leftovers(t, store, "x", true)
			})
		})
	}
}

func TestOnceFails(t *testing.T) {
	store := memstore.New()
	once := newClient(t, store, nil).Once("x", time.Hour)
	want(t, once.Do(t.Context(), func(context.Context) error { return errDeclined }), errDeclined)
	leftovers(t, store, "x", false)
	func() {
		defer func() {
			if recover() != "oops" {
				t.Error("the panic is gone")
			}
		}()
		once.Do(t.Context(), func(context.Context) error { panic("oops") })
	}()
	leftovers(t, store, "x", false)
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		once.Do(t.Context(), func(context.Context) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-exited
	leftovers(t, store, "x", false)
	var paid counter
	if err := once.TryDo(t.Context(), paid.run); err != nil || paid.runs != 1 {
		t.Errorf("after failures: %v", err)
	}
}

func TestOnceContext(t *testing.T) {
	store := memstore.New()
	c := newClient(t, store, &pawl.Options{Reentrant: true})
	once := c.Once("x", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := once.Do(ctx, func(inner context.Context) error {
		lease := pawl.LeaseFrom(inner)
		q, err := store.Inspect(inner, "x")
		if lease == nil || err != nil || lease.Token() != q.Claims[0].Token || lease.Name() != "x" {
			t.Errorf("lease %v, %+v, %v", lease, q, err)
		}
		want(t, once.Do(inner, never(t)), pawl.ErrDeadlock)
		want(t, once.TryDo(inner, never(t)), pawl.ErrHeld)
		cancel()
		if inner.Err() == nil {
			t.Error("the context lives on")
		}
		return nil // it was too late to stop
	}); err != nil {
		t.Error(err)
	}
	leftovers(t, store, "x", true)
	if pawl.LeaseFrom(ctx) != nil {
		t.Error("a lease of nobody")
	}
}

func TestOnceErrors(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	c := newClient(t, f, nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		once *pawl.Once
		ctx  context.Context
		err  error
	}{
		{c.Once("", time.Hour), t.Context(), pawl.ErrInvalid},
		{c.Once("x", 0), t.Context(), pawl.ErrInvalid},
		{c.Once("x", time.Millisecond), t.Context(), pawl.ErrInvalid},
		{c.Once("x", 200*time.Hour), t.Context(), pawl.ErrInvalid},
		{c.With(func(o *pawl.Options) { o.TTL = 1 }).Once("x", time.Hour), t.Context(), pawl.ErrInvalid},
		{c.Once("x", time.Hour), over, context.Canceled},
	} {
		want(t, tt.once.Do(tt.ctx, never(t)), tt.err)
		want(t, tt.once.TryDo(tt.ctx, never(t)), tt.err)
	}
	if n := f.Calls.Load(); n != 0 {
		t.Errorf("%d calls reached the store", n)
	}

	if _, err := f.Store.CompareAndSwap(t.Context(), driver.Record{Name: "other", Value: []byte(`{"kind":"latch","format":1,"data":{}}`)}); err != nil {
		t.Fatal(err)
	}
	err := c.Once("other", time.Hour).Do(t.Context(), never(t))
	want(t, err, pawl.ErrMismatch)
	if !strings.Contains(err.Error(), "latch") {
		t.Error(err)
	}

	f.Set(func() {
		f.Hook = func(op string) error {
			if op == "swap" {
				return driver.ErrUnsupported
			}
			return nil
		}
	})
	want(t, c.Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrUnsupported)
	f.Set(func() { f.Hook = nil })
	leftovers(t, f.Store, "x", false)

	closed := pawl.New(f, nil)
	if err := closed.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want(t, closed.Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrClosed)
}

func TestOnceWithoutAnEngine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New(), Err: faultstore.ErrNetwork}
		once := newClient(t, f, nil).Once("x", time.Hour)
		want(t, once.TryDo(t.Context(), never(t)), faultstore.ErrNetwork)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := once.Do(ctx, never(t))
		want(t, err, faultstore.ErrNetwork)
		want(t, err, context.DeadlineExceeded)
		f.Set(func() { f.Err, f.Down = nil, true })
		start := time.Now()
		want(t, once.TryDo(t.Context(), never(t)), context.DeadlineExceeded)
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("TryDo took %v", d)
		}
		time.AfterFunc(time.Minute, func() { f.Set(func() { f.Down = false }) })
		var paid counter
		if err := once.Do(t.Context(), paid.run); err != nil || paid.runs != 1 {
			t.Errorf("the engine came back: %v", err)
		}
	})
}

// The client is closed while the engine is away: nothing goes on for ever, before
// the run or after it.
func TestOnceClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New(), Err: faultstore.ErrNetwork}
		c := pawl.New(f, nil)
		looks := in(func() error { return c.Once("x", time.Hour).Do(context.Background(), never(t)) })
		time.Sleep(time.Minute)
		pending(t, looks, "Do without an engine")
		c.Close(t.Context())
		want(t, settled(t, looks, "Do"), pawl.ErrClosed)

		f.Set(func() { f.Err = nil })
		c = pawl.New(f, nil)
		finishes := in(func() error {
			return c.Once("x", time.Hour).Do(context.Background(), func(context.Context) error {
				f.Set(func() { f.Err = faultstore.ErrNetwork })
				return nil
			})
		})
		time.Sleep(time.Minute)
		pending(t, finishes, "Do without an engine")
		c.Close(t.Context())
		time.Sleep(15 * time.Second)
		err := settled(t, finishes, "Do")
		want(t, err, pawl.ErrUnknown)
		want(t, err, pawl.ErrClosed)
	})
}

// The client is closed while it runs: that it succeeded is put on record all the
// same.
func TestOnceClosedWhileItRuns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := pawl.New(store, nil)
		done := in(func() error {
			return c.Once("x", time.Hour).Do(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				want(t, context.Cause(ctx), pawl.ErrClosed)
				return nil
			})
		})
		synctest.Wait()
		want(t, c.Close(t.Context()), nil)
		want(t, settled(t, done, "Do"), nil)
		want(t, newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrDone)
	})
}

// Its context ends when the run is on record, and before f is called.
func TestOnceOverBeforeItBegan(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	c := newClient(t, f, nil)
	ctx, cancel := context.WithCancel(t.Context())
	f.Set(func() {
		f.After = func(op string) error {
			if op == "swap" {
				cancel()
			}
			return nil
		}
	})
	err := c.Once("x", time.Hour).Do(ctx, never(t))
	want(t, err, context.Canceled)
	if !strings.Contains(err.Error(), `do once "x"`) {
		t.Errorf("%v does not say what was tried", err)
	}
	f.Set(func() { f.After = nil })
	var paid counter
	if err := c.Once("x", time.Hour).Do(t.Context(), paid.run); err != nil || paid.runs != 1 {
		t.Errorf("the next: %v", err)
	}
}

// The context ends while it runs, and it succeeds nevertheless: there is time to
// put that on record.
func TestOnceSucceedsAfterItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		f.Swaps(2, func() error { return faultstore.ErrNetwork }, nil)
		ctx, cancel := context.WithCancel(t.Context())
		want(t, newClient(t, f, nil).Once("x", time.Hour).Do(ctx, func(context.Context) error {
			cancel()
			return nil
		}), nil)
		want(t, newClient(t, f, nil).Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrDone)
	})
}

// MinHold kept those waiting who only wanted to hear that it was done, each for
// all of it, and those who would have tried again.
func TestOnceMinHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), &pawl.Options{MinHold: time.Hour})
		start := time.Now()
		want(t, c.Once("x", time.Minute).Do(t.Context(), func(context.Context) error { return errDeclined }), errDeclined)
		var callers sync.WaitGroup
		for i := range 5 {
			callers.Go(func() {
				err := c.Once("x", time.Minute).Do(t.Context(), func(context.Context) error {
					time.Sleep(time.Second)
					return nil
				})
				if i == 0 && err != nil {
					t.Error(err)
				} else if i > 0 {
					want(t, err, pawl.ErrDone)
				}
			})
			time.Sleep(time.Millisecond)
		}
		callers.Wait()
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("the last has heard of it after %v", d)
		}
	})
}

// Between the look and the run somebody uses the key for something else.
func TestOnceMismatchMeanwhile(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	c := newClient(t, f, nil)
	f.Set(func() {
		f.Hook = func(op string) error {
			if op == "enter" {
				f.Store.CompareAndSwap(context.Background(), driver.Record{Name: "x", Value: []byte(`{"kind":"latch","format":1,"data":{}}`)})
			}
			return nil
		}
	})
	want(t, c.Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrMismatch)
	leftovers(t, f.Store, "x", true)
}
