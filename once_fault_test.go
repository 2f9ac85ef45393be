package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/internal/simtest"
	"github.com/pawl-go/pawl/memstore"
)

// The first write begins the run, the second one tells of its success. Each
// request or reply may be lost: it is run once.
func TestOnceLostMessages(t *testing.T) {
	lost := func() error { return faultstore.ErrNetwork }
	silent := func() error {
		time.Sleep(10 * time.Second)
		return context.DeadlineExceeded
	}
	for name, tt := range map[string]struct {
		n             int
		before, after func() error
	}{
		"begin, request":                  {1, lost, nil},
		"begin, reply":                    {1, nil, lost},
		"begin, reply, nothing is said":   {1, nil, silent},
		"success, request":                {2, lost, nil},
		"success, reply":                  {2, nil, lost},
		"success, reply, nothing is said": {2, nil, silent},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faultstore.Store{Store: store}
				once := newClient(t, f, nil).Once("x", time.Hour)
				f.Swaps(tt.n, tt.before, tt.after)
				var paid counter
				if err := once.Do(t.Context(), paid.run); err != nil || paid.runs != 1 {
					t.Errorf("%d runs, %v", paid.runs, err)
				}
				want(t, newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrDone)
				leftovers(t, store, "x", true)
			})
		})
	}
}

// stranded runs it on a client that loses the engine meanwhile, and returns
// what Do returns. restore is called when the run ends.
func stranded(t *testing.T, f *faultstore.Store, c *pawl.Client, for_ time.Duration, restore bool) chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- c.Once("x", time.Hour).Do(t.Context(), func(ctx context.Context) error {
			f.Set(func() { f.Down = true })
			time.Sleep(for_)
			want(t, context.Cause(ctx), pawl.ErrLost)
			if restore {
				f.Set(func() { f.Down = false })
			}
			return nil
		})
	}()
	synctest.Wait()
	return ended
}

// The lease was lost while it ran, but nobody has begun since: it was done, once.
func TestOnceLeaseLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		if err := <-stranded(t, f, newClient(t, f, nil), time.Minute, true); err != nil {
			t.Error(err)
		}
		want(t, newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrDone)
	})
}

// It was lost before it had begun: nothing has happened, so Do begins again.
func TestOnceLostBeforeItBegan(t *testing.T) {
	for name, try := range map[string]bool{"Do": false, "TryDo": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faultstore.Store{Store: store}
				once := newClient(t, f, nil).Once("x", time.Hour)
				f.Swaps(1, nil, func() error {
					_, err := store.Break(t.Context(), "x")
					time.Sleep(time.Second)
					return err
				})
				if try {
					err := once.TryDo(t.Context(), never(t))
					if err == nil || errors.Is(err, pawl.ErrLost) || errors.Is(err, pawl.ErrDone) {
						t.Errorf("nothing was begun: %v", err)
					}
					return
				}
				var paid counter
				if err := once.Do(t.Context(), func(ctx context.Context) error {
					if ctx.Err() != nil {
						t.Error("it begins under a lease that is over")
					}
					return paid.run(ctx)
				}); err != nil || paid.runs != 1 {
					t.Errorf("%d runs, %v", paid.runs, err)
				}
			})
		})
	}
}

// It was lost, and another has begun since. Only that one's success counts,
// whether it comes first or last.
func TestOnceUsurped(t *testing.T) {
	for name, takes := range map[string]time.Duration{"the other is quick": time.Second, "the other is slow": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faultstore.Store{Store: store}
				ended := stranded(t, f, newClient(t, f, nil), time.Minute, true)
				other := newClient(t, store, &pawl.Options{Label: "till 8"})
				done := make(chan error, 1)
				go func() {
					done <- other.Once("x", time.Hour).Do(t.Context(), func(context.Context) error {
						time.Sleep(takes)
						return nil
					})
				}()
				err := <-ended
				want(t, err, pawl.ErrLost)
				if errors.Is(err, pawl.ErrDone) || errors.Is(err, pawl.ErrUnknown) {
					t.Error(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				want(t, newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrDone)
			})
		})
	}
}

// A run that fails because its lease was lost says both.
func TestOnceFailsAndLost(t *testing.T) {
	store := memstore.New()
	c := newClient(t, store, nil)
	err := c.Once("x", time.Hour).Do(t.Context(), func(ctx context.Context) error {
		c.ForceRelease(ctx, "x")
		<-ctx.Done()
		return errDeclined
	})
	want(t, err, errDeclined)
	want(t, err, pawl.ErrLost)
	var paid counter
	if err := c.Once("x", time.Hour).Do(t.Context(), paid.run); err != nil || paid.runs != 1 {
		t.Errorf("the next: %v", err)
	}
}

// The news of a success is under way until another has begun: it comes too late.
func TestOnceLateSuccess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		f.Swaps(2, func() error {
			f.Set(func() { f.Down = true })
			time.Sleep(time.Minute)
			f.Set(func() { f.Down = false })
			return nil
		}, nil)
		ended := make(chan error, 1)
		go func() { ended <- c.Once("x", time.Hour).Do(t.Context(), func(context.Context) error { return nil }) }()
		synctest.Wait()
		began := make(chan struct{})
		other := make(chan error, 1)
		go func() {
			other <- newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), func(context.Context) error {
				close(began)
				time.Sleep(5 * time.Minute)
				return errDeclined
			})
		}()
		<-began
		want(t, <-ended, pawl.ErrLost)
		want(t, <-other, errDeclined)
		var paid counter
		if err := newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), paid.run); err != nil || paid.runs != 1 {
			t.Errorf("nobody has succeeded: %v", err)
		}
	})
}

// The engine is gone for good when it has succeeded: that is neither a success
// nor a failure.
func TestOnceUnknown(t *testing.T) {
	for name, tt := range map[string]struct {
		n             int
		before, after func() error
		record        bool
	}{
		"not written": {2, func() error { return faultstore.ErrNetwork }, nil, false},
		"written":     {2, nil, func() error { return faultstore.ErrNetwork }, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faultstore.Store{Store: store}
				c := newClient(t, f, nil)
				cut := func(hook func() error) func() error {
					if hook == nil {
						return nil
					}
					return func() error {
						f.Set(func() { f.Down = true })
						return hook()
					}
				}
				f.Swaps(tt.n, cut(tt.before), cut(tt.after))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				err := c.Once("x", time.Hour).Do(ctx, func(context.Context) error { return nil })
				want(t, err, pawl.ErrUnknown)
				want(t, err, context.DeadlineExceeded)
				if errors.Is(err, pawl.ErrLost) || errors.Is(err, pawl.ErrDone) {
					t.Error(err)
				}
				if d := time.Since(start); d < time.Minute || d > 90*time.Second {
					t.Errorf("it took %v", d)
				}
				f.Set(func() { f.Down = false })
				time.Sleep(time.Minute)
				var paid counter
				err = newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), paid.run)
				if tt.record {
					want(t, err, pawl.ErrDone)
				} else if err != nil || paid.runs != 1 {
					t.Error(err)
				}
			})
		})
	}
}

// The reply was lost, and the period is over when the engine can be asked again.
func TestOnceUnknownAfterThePeriod(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		f.Swaps(2, nil, func() error {
			time.Sleep(10 * time.Second)
			return context.DeadlineExceeded
		})
		err := newClient(t, f, nil).Once("x", time.Second).Do(t.Context(), func(context.Context) error { return nil })
		want(t, err, pawl.ErrUnknown)
	})
}

// A process that dies while it runs holds the others up for its TTL.
func TestOnceCrash(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		dead := pawl.New(f, nil)
		dies := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- dead.Once("x", time.Hour).Do(t.Context(), func(ctx context.Context) error {
				f.Set(func() { f.Down = true })
				<-dies
				return errDeclined
			})
		}()
		synctest.Wait()
		start := time.Now()
		var paid counter
		if err := newClient(t, store, nil).Once("x", time.Hour).Do(t.Context(), paid.run); err != nil || paid.runs != 1 {
			t.Error(err)
		}
		if d := time.Since(start); d > pawl.DefaultTTL+time.Second {
			t.Errorf("it took %v", d)
		}
		close(dies)
		<-ended
		f.Set(func() { f.Down = false })
		dead.Close(t.Context())
	})
}

// Who is refused looks again: the holder may only look, too.
func TestOnceTryBesideALook(t *testing.T) {
	store := memstore.New()
	f := &faultstore.Store{Store: store}
	a, b := newClient(t, f, nil), newClient(t, store, nil)
	f.Set(func() {
		f.Hook = func(op string) error {
			if op != "enter" {
				return nil
			}
			// Another comes first, does it, and a third one holds the lock to look.
			f.Hook = nil
			if err := b.Once("x", time.Hour).Do(t.Context(), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
			_, err := store.Enter(t.Context(), driver.Claim{Name: "x", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute})
			return err
		}
	})
	err := a.Once("x", time.Hour).TryDo(t.Context(), never(t))
	want(t, err, pawl.ErrDone)
	if errors.Is(err, pawl.ErrHeld) {
		t.Error(err)
	}
}

// TestOnceSimulation: many clients want the same things done, behind a network
// that loses, delays and repeats messages.
func TestOnceSimulation(t *testing.T) {
	for seed := range simtest.Seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { simulateOnce(t, seed) })
		})
	}
}

func simulateOnce(t *testing.T, seed uint64) {
	const (
		clients = 8
		users   = 3 // goroutines of each client
		keys    = 20
		period  = 24 * time.Hour // longer than it all takes
	)
	store := memstore.New()
	var (
		mu        sync.Mutex
		succeeded = make(map[string]int) // nil
		denied    = make(map[string]int) // ErrDone
		unknown   = make(map[string]int)
		lost      int
		running   = make(map[string]*pawl.Lease)
	)
	var work sync.WaitGroup
	var nets []*faultstore.Store
	var all []*pawl.Client
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	for i := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		f := &faultstore.Store{Store: store, Rand: r, Rate: 0.1, Delay: 200 * time.Millisecond}
		c := pawl.New(f, &pawl.Options{TTL: 3 * time.Second})
		nets, all = append(nets, f), append(all, c)
		for u := range users {
			r := rand.New(rand.NewPCG(seed, uint64(1000+i*users+u)))
			work.Go(func() {
				for ctx.Err() == nil {
					key := fmt.Sprint("payment ", r.IntN(keys))
					do := c.Once(key, period).Do
					if r.IntN(2) == 0 {
						do = c.Once(key, period).TryDo
					}
					tctx, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(time.Minute))))
					err := do(tctx, func(ctx context.Context) error {
						l := pawl.LeaseFrom(ctx)
						mu.Lock()
						if other := running[key]; other != nil && other.Err() == nil && l.Err() == nil {
							t.Errorf("%s: runs twice at once", key)
						}
						if succeeded[key] > 0 {
							t.Errorf("%s: runs after it has succeeded", key)
						}
						running[key] = l
						mu.Unlock()
						d := time.Duration(r.Int64N(int64(4 * time.Second)))
						if r.IntN(2) == 0 {
							d = 20 * time.Second // also if the lease ends meanwhile
						}
						time.Sleep(d)
						if r.IntN(10) > 0 {
							return errDeclined
						}
						return nil
					})
					cancel()
					mu.Lock()
					switch {
					case err == nil:
						succeeded[key]++
					case errors.Is(err, pawl.ErrDone):
						denied[key]++
					case errors.Is(err, pawl.ErrUnknown):
						unknown[key]++
					case errors.Is(err, pawl.ErrLost) && !errors.Is(err, errDeclined):
						lost++
					}
					mu.Unlock()
					time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
				}
			})
		}
		work.Go(func() { f.Outages(ctx, rand.New(rand.NewPCG(seed, uint64(5000+i))), time.Minute) })
	}
	work.Wait()
	simtest.Settle(t, store, nets, all)
	total := 0
	for i := range keys {
		key := fmt.Sprint("payment ", i)
		total += succeeded[key]
		switch {
		case succeeded[key] > 1:
			t.Errorf("%s: done %d times", key, succeeded[key])
		case succeeded[key]+unknown[key] == 0 && denied[key] > 0:
			t.Errorf("%s: nobody has done it, %d were told that it is done", key, denied[key])
		}
	}
	if total < keys/2 {
		t.Errorf("%d of %d are done", total, keys)
	}
	t.Logf("%d done, %d unknown, %d lost", total, len(unknown), lost)
}
