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

// TestGivingUpWhileCutOff: the Enter is on its way when the caller gives up,
// and arrives after the Leave.
func TestGivingUpWhileCutOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		var late sync.WaitGroup
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "enter" {
					id := f.Last()
					late.Go(func() {
						time.Sleep(3 * time.Second)
						store.Enter(context.Background(), driver.Claim{Name: "x", ID: id, Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: pawl.DefaultTTL})
					})
					time.Sleep(2 * time.Second)
					return context.DeadlineExceeded
				}
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lock(ctx)
		want(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), "no reply") {
			t.Errorf("%v: reads as if the lock was busy", err)
		}
		late.Wait()
		time.Sleep(5 * time.Second)
		if n := claims(t, store, "x"); n != 0 {
			t.Error("the late claim stays until its TTL has passed")
		}
	})
}

func TestEngineAwayIsNotBusy(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New(), Err: faultstore.ErrNetwork}
		var retries atomic.Int64
		c := newClient(t, f, &pawl.Options{Observer: func(e pawl.Event) {
			if e.Kind == pawl.EventRetrying && errors.Is(e.Err, faultstore.ErrNetwork) {
				retries.Add(1)
			}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lock(ctx)
		want(t, err, context.DeadlineExceeded)
		want(t, err, faultstore.ErrNetwork)
		if n := retries.Load(); n < 5 {
			t.Errorf("%d retries in 10 s", n)
		}
		_, err = c.Mutex("x").TryLock(t.Context())
		want(t, err, faultstore.ErrNetwork)
		if errors.Is(err, pawl.ErrHeld) {
			t.Errorf("%v says busy", err)
		}

		// It comes back while somebody waits.
		go func() {
			time.Sleep(5 * time.Second)
			f.Set(func() { f.Err = nil })
		}()
		unlock(t, lock(t, c.Mutex("x")))
	})
}

func TestPermanentErrorsReturnAtOnce(t *testing.T) {
	password := errors.New("WRONGPASS")
	f := &faultstore.Store{Store: memstore.New(), Err: driver.Permanent(password)}
	c := newClient(t, f, nil)
	_, err := c.Mutex("x").Lock(t.Context())
	want(t, err, password)
	f.Set(func() { f.Err = nil })

	l := lock(t, c.Mutex("x"))
	_, err = f.Store.Enter(t.Context(), driver.Claim{Name: "x", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: 1, Limit: 3, TTL: time.Second})
	var limit *pawl.MismatchError
	if !errors.As(err, &limit) {
		t.Errorf("other limit: %v", err)
	}
	unlock(t, l)
}

func TestBackoffLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New(), Err: faultstore.ErrNetwork}
		var seen []int
		b := pawl.LimitBackoff(4, func(attempt int, err error) (time.Duration, bool) {
			seen = append(seen, attempt)
			if !errors.Is(err, faultstore.ErrNetwork) {
				t.Errorf("backoff saw %v", err)
			}
			return pawl.ConstantBackoff(time.Second)(attempt, err)
		})
		c := newClient(t, f, &pawl.Options{Backoff: b})
		start := time.Now()
		_, err := c.Mutex("x").Lock(t.Context())
		want(t, err, faultstore.ErrNetwork)
		if d := time.Since(start); d != 3*time.Second || len(seen) != 3 {
			t.Errorf("gave up after %v, attempts %v", d, seen)
		}
		for range 100 {
			d, ok := pawl.ExponentialBackoff(time.Second, 8*time.Second)(3, nil)
			if !ok || d < 2*time.Second || d > 4*time.Second {
				t.Fatalf("third exponential wait: %v", d)
			}
		}
	})
}

// TestOldNews: the news of a grant comes when the claim has run out already,
// as after a pause of the process. The waiter must not believe that it holds.
func TestOldNews(t *testing.T) {
	for name, heal := range map[string]time.Duration{
		"still cut off":     time.Hour,
		"connection healed": 50 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faultstore.Store{Store: store, Lag: time.Minute}
				a, b, c := newClient(t, store, nil), newClient(t, f, nil), newClient(t, store, nil)
				held := lock(t, a.Mutex("x"))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				got := make(chan *pawl.Lease, 1)
				go func() {
					l, _ := b.Mutex("x").Lock(ctx)
					got <- l
				}()
				synctest.Wait()
				f.Set(func() { f.Down = true })
				unlock(t, held) // b is granted, and does not know
				next := lock(t, c.Mutex("x"))
				defer time.AfterFunc(heal, func() { f.Set(func() { f.Down = false }) }).Stop()
				if l := <-got; l != nil {
					t.Errorf("b believes that it holds, with token %d; c holds with %d", l.Token(), next.Token())
				}
				unlock(t, next)
				f.Set(func() { f.Down, f.Lag = false, 0 })
			})
		})
	}
}

// TestLostWakeUp: the message of a grant is lost; the heartbeat finds it soon,
// however long the TTL.
func TestLostWakeUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store, Lag: time.Hour}
		a, b := newClient(t, store, nil), newClient(t, f, &pawl.Options{TTL: 24 * time.Hour})
		held := lock(t, a.Mutex("x"))
		time.AfterFunc(time.Minute, func() { unlock(t, held) })
		start := time.Now()
		l := lock(t, b.Mutex("x"))
		if d := time.Since(start); d > time.Minute+6*time.Second {
			t.Errorf("it took %v", d)
		}
		unlock(t, l)
	})
}

// TestEngineDiesUnderAWaiter: a waiter that stands in the queue already is told
// when the engine goes, as one is that comes then.
func TestEngineDiesUnderAWaiter(t *testing.T) {
	for name, fail := range map[string]func(*faultstore.Store){
		"refuses": func(f *faultstore.Store) { f.RenewErr = faultstore.ErrNetwork },
		"silent":  func(f *faultstore.Store) { f.Down = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faultstore.Store{Store: store}
				var retries atomic.Int64
				other := newClient(t, store, nil)
				c := pawl.New(f, &pawl.Options{
					Backoff: pawl.LimitBackoff(3, pawl.ConstantBackoff(100*time.Millisecond)),
					Observer: func(e pawl.Event) {
						if e.Kind == pawl.EventRetrying {
							retries.Add(1)
						}
					},
				})
				l := lock(t, other.Mutex("x"))
				time.AfterFunc(10*time.Second, func() { f.Set(func() { fail(f) }) })
				start := time.Now()
				_, err := c.Mutex("x").Lock(context.Background())
				if err == nil || !strings.Contains(err.Error(), "gave up after 3 attempts") {
					t.Errorf("Lock returns %v", err)
				}
				if d := time.Since(start); d > time.Minute {
					t.Errorf("after %v", d)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				c.Close(ctx)
				if n := retries.Load(); n != 3 {
					t.Errorf("%d failures were observed", n)
				}
				unlock(t, l)
			})
		})
	}
}
