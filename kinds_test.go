package pawl_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// A name that is used for one kind is refused for the others, and they change
// nothing.
func TestOneKindPerName(t *testing.T) {
	begin := map[string]func(t *testing.T, c *pawl.Client) (end func()){
		"latch": func(t *testing.T, c *pawl.Client) func() {
			countDown(t, c.Latch("x", 2), "a", 1)
			return func() { countDown(t, c.Latch("x", 2), "b", 0) }
		},
		"barrier": func(t *testing.T, c *pawl.Client) func() {
			a := arrive(t.Context(), c.Barrier("x", 2))
			return func() {
				arrive(t.Context(), c.Barrier("x", 2))
				want(t, settled(t, a.done, "Wait"), nil)
			}
		},
		"election": func(t *testing.T, c *pawl.Client) func() {
			campaign(t, c.Election("x"), "a")
			return func() {
				if l := leader(t, c.Election("x")); string(l.Value) != "a" {
					t.Errorf("the leader is %+v", l)
				}
			}
		},
		"once": func(t *testing.T, c *pawl.Client) func() {
			want(t, c.Once("x", time.Hour).Do(t.Context(), func(context.Context) error { return nil }), nil)
			return func() { want(t, c.Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrDone) }
		},
	}
	use := map[string]func(ctx context.Context, c *pawl.Client) error{
		"latch":   func(ctx context.Context, c *pawl.Client) error { return c.Latch("x", 2).Wait(ctx) },
		"barrier": func(ctx context.Context, c *pawl.Client) error { _, err := c.Barrier("x", 2).Wait(ctx); return err },
		"election": func(ctx context.Context, c *pawl.Client) error {
			_, err := c.Election("x").Campaign(ctx, nil)
			return err
		},
		"once": func(ctx context.Context, c *pawl.Client) error {
			return c.Once("x", time.Hour).Do(ctx, func(context.Context) error { return errors.New("it runs") })
		},
	}
	for used, begin := range begin {
		t.Run(used, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				c := newClient(t, store, nil)
				end := begin(t, c)
				synctest.Wait()
				record, err := store.Load(t.Context(), "x")
				want(t, err, nil)
				held := claims(t, store, "x")
				for kind, use := range use {
					if kind == used {
						continue
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					if err := use(ctx, c); !errors.Is(err, pawl.ErrMismatch) {
						t.Errorf("as a %s: %v", kind, err)
					}
					cancel()
				}
				if now, err := store.Load(t.Context(), "x"); err != nil || now.Version != record.Version {
					t.Errorf("%+v became %+v, %v", record, now, err)
				}
				if n := claims(t, store, "x"); n != held {
					t.Errorf("%d claims, %d before", n, held)
				}
				end()
			})
		})
	}
}

// Calls whose contexts end leave no goroutine behind, whether the engine replies
// or not, long before the client is closed.
func TestNoGoroutinesLeft(t *testing.T) {
	block := map[string]func(ctx context.Context, c *pawl.Client) error{
		"latch": func(ctx context.Context, c *pawl.Client) error { return c.Latch("latch", 2).Wait(ctx) },
		"barrier": func(ctx context.Context, c *pawl.Client) error {
			_, err := c.Barrier("barrier", 500).Wait(ctx)
			return err
		},
		"campaign": func(ctx context.Context, c *pawl.Client) error {
			_, err := c.Election("x").Campaign(ctx, nil)
			return err
		},
		"observe": func(ctx context.Context, c *pawl.Client) error { return <-observe(ctx, c.Election("x")).done },
		"once":    func(ctx context.Context, c *pawl.Client) error { return c.Once("once", time.Hour).Do(ctx, nil) },
		"semaphore": func(ctx context.Context, c *pawl.Client) error {
			_, err := c.Semaphore("sem", 2).Acquire(ctx, 2)
			return err
		},
		"mutex": func(ctx context.Context, c *pawl.Client) error { _, err := c.Mutex("once").Lock(ctx); return err },
	}
	for what, block := range block {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := &faultstore.Store{Store: memstore.New()}
				others := newClient(t, f.Store, nil)
				campaign(t, others.Election("x"), "a")
				lock(t, others.Mutex("once"))
				acquire(t, others.Semaphore("sem", 2), 1)
				c := newClient(t, f, nil)
				unlock(t, lock(t, c.Mutex("start")))
				synctest.Wait()
				before := runtime.NumGoroutine()
				for _, away := range []string{"never", "later", "from the start"} {
					f.Set(func() { f.Down = away == "from the start" })
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					var calls []<-chan error
					for range 20 {
						calls = append(calls, in(func() error { return block(ctx, c) }))
					}
					time.Sleep(time.Second)
					f.Set(func() { f.Down = away != "never" })
					for _, call := range calls {
						if err := <-call; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, pawl.ErrBroken) {
							t.Error(err)
						}
					}
					cancel()
					f.Set(func() { f.Down = false })
					time.Sleep(2 * time.Minute) // requests without a reply are repeated for a TTL
					synctest.Wait()
					if n := runtime.NumGoroutine(); n > before+5 { // some may be about to end
						t.Errorf("%d goroutines, %d before; engine away %s", n, before, away)
					}
					if _, err := f.Store.CompareAndSwap(t.Context(), driver.Record{Name: "barrier"}); err != nil && !errors.Is(err, driver.ErrConflict) {
						t.Error(err)
					}
				}
			})
		})
	}
}
