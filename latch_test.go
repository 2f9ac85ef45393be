package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
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

func countDown(t *testing.T, l *pawl.Latch, party string, left int64) {
	t.Helper()
	if n, err := l.CountDown(t.Context(), party); err != nil || n != left {
		t.Errorf("counted down %q: %d left, %v; want %d", party, n, err, left)
	}
}

func count(t *testing.T, l *pawl.Latch, left int64) {
	t.Helper()
	if n, err := l.Count(t.Context()); err != nil || n != left {
		t.Errorf("count is %d, %v; want %d", n, err, left)
	}
}

// in runs f in a goroutine, and returns where its error will be.
func in(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// pending checks that nothing has come yet.
func pending(t *testing.T, done <-chan error, what string) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("%s is over: %v", what, err)
	default:
	}
}

// settled checks that something is over at this moment, and returns its error.
func settled(t *testing.T, done <-chan error, what string) error {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		return err
	default:
		t.Fatalf("%s is not over", what)
		return nil
	}
}

func TestLatchOpensAtZero(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil).Latch("x", 3), newClient(t, store, nil).Latch("x", 3)
		count(t, a, 3)
		if r, err := store.Load(t.Context(), "x"); err != nil || r.Version != 0 {
			t.Errorf("Count has made %+v, %v", r, err)
		}
		done := in(func() error { return b.Wait(t.Context()) })
		countDown(t, a, "one", 2)
		countDown(t, b, "one", 2)
		countDown(t, a, "", 1)
		pending(t, done, "Wait for a latch at 1")
		count(t, b, 1)
		countDown(t, b, "one", 1)
		pending(t, done, "Wait for a latch at 1")
		countDown(t, b, "", 0)
		want(t, settled(t, done, "Wait"), nil)
		countDown(t, a, "one", 0)
		countDown(t, a, "more", 0)
		count(t, a, 0)
		want(t, a.Wait(t.Context()), nil)
		time.Sleep(23 * time.Hour)
		want(t, a.Wait(t.Context()), nil)
	})
}

func TestLatchOfNone(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	l := c.Latch("x", 0)
	want(t, l.Wait(t.Context()), nil)
	countDown(t, l, "", 0)
	count(t, l, 0)
	countDown(t, c.Latch("y", 1), "", 0)
	if l.Name() != "x" {
		t.Errorf("its name is %q", l.Name())
	}
}

// Hundreds of parties at once do not write in each other's way for long.
func TestLatchOfManyAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const parties, delay = 300, 2 * time.Millisecond
		f := &faultstore.Store{Store: memstore.New(), Rand: rand.New(rand.NewPCG(1, 2)), Delay: delay}
		c := newClient(t, f, nil)
		began := time.Now()
		var all sync.WaitGroup
		for range parties {
			all.Go(func() {
				if _, err := c.Latch("x", parties).CountDown(t.Context(), ""); err != nil {
					t.Error(err)
				}
			})
		}
		want(t, c.Latch("x", parties).Wait(t.Context()), nil)
		took, calls := time.Since(began), f.Calls.Load()
		all.Wait()
		// At best, one per round trip, which is 2 ms in the mean.
		if took > parties*10*delay || calls > 40*parties {
			t.Errorf("it took %v and %d calls", took, calls)
		}
		t.Logf("%v, %d calls", took, calls)
	})
}

// A latch is there while somebody waits, and for its expiry after that.
func TestLatchExpiry(t *testing.T) {
	for expiry, times := range map[time.Duration]time.Duration{24 * time.Hour: 2, time.Minute: 10} {
		bubble.Test(t, func(t *testing.T) {
			store := memstore.New()
			var opts []pawl.LatchOption
			if expiry != 24*time.Hour {
				opts = append(opts, pawl.Expiring(expiry))
			}
			l := newClient(t, store, nil).Latch("x", 2, opts...)
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), times*expiry)
			defer cancel()
			waiters := []<-chan error{in(func() error { return l.Wait(ctx) }), in(func() error { return l.Wait(ctx) })}
			time.Sleep(times*expiry - expiry/4)
			countDown(t, l, "a", 1) // it is still that latch
			count(t, l, 1)
			for _, w := range waiters {
				want(t, <-w, context.DeadlineExceeded)
			}
			if d := time.Since(begun); d != times*expiry {
				t.Errorf("Wait took %v", d)
			}
			time.Sleep(expiry / 2)
			count(t, l, 1)
			time.Sleep(expiry)
			count(t, l, 2)
			if r, err := store.Load(t.Context(), "x"); err != nil || r.Version != 0 {
				t.Errorf("left behind: %+v, %v", r, err)
			}
		})
	}
}

// The longest expiry counts, and 0 is for ever.
func TestLatchExpiriesDiffer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), nil)
		short, long, ever := c.Latch("x", 9, pawl.Expiring(time.Minute)), c.Latch("x", 9, pawl.Expiring(time.Hour)), c.Latch("x", 9, pawl.Expiring(0))
		countDown(t, long, "a", 8)
		countDown(t, short, "b", 7)
		time.Sleep(59 * time.Minute)
		count(t, short, 7)
		time.Sleep(time.Minute)
		count(t, short, 9)
		countDown(t, short, "a", 8)
		countDown(t, ever, "b", 7)
		countDown(t, short, "c", 6)
		time.Sleep(1000 * time.Hour)
		count(t, long, 6)
		want(t, long.Delete(t.Context()), nil)
		count(t, long, 9)

		// Who waits and wants it longer sees to it at once.
		countDown(t, short, "a", 8)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, ever.Wait(ctx), context.DeadlineExceeded)
		time.Sleep(time.Hour)
		count(t, ever, 8)
	})
}

func TestLatchDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), nil)
		l := c.Latch("x", 1)
		want(t, l.Delete(t.Context()), nil)
		done := in(func() error { return l.Wait(t.Context()) })
		pending(t, done, "Wait")
		want(t, l.Delete(t.Context()), nil)
		want(t, settled(t, done, "Wait"), pawl.ErrBroken)

		// Deleted, begun anew and opened, while the one that waits is away.
		f := &faultstore.Store{Store: memstore.New()}
		far, near := newClient(t, f, nil).Latch("x", 1), newClient(t, f.Store, nil).Latch("x", 1)
		done = in(func() error { return far.Wait(t.Context()) })
		synctest.Wait()
		f.Set(func() { f.Down = true })
		time.Sleep(time.Minute)
		want(t, near.Delete(t.Context()), nil)
		countDown(t, near, "", 0)
		f.Set(func() { f.Down = false })
		want(t, <-done, pawl.ErrBroken)
	})
}

// A Delete whose reply is lost does not delete what was begun since.
func TestLatchDeletedOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		far, near := newClient(t, f, nil).Latch("x", 2), newClient(t, f.Store, nil).Latch("x", 2)
		countDown(t, near, "a", 1)
		f.Set(func() {
			f.After = func(op string) error {
				if op != "swap" {
					return nil
				}
				f.Set(func() { f.After = nil })
				countDown(t, near, "b", 1)
				return faultstore.ErrNetwork
			}
		})
		want(t, far.Delete(t.Context()), nil)
		count(t, near, 1)
	})
}

func TestLatchErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(5, pawl.ConstantBackoff(time.Second))})
		each := func(l *pawl.Latch, ctx context.Context, want func(what string, err error)) {
			t.Helper()
			_, err := l.CountDown(ctx, "p")
			want("CountDown", err)
			want("Wait", l.Wait(ctx))
			_, err = l.Count(ctx)
			want("Count", err)
			want("Delete", l.Delete(ctx))
		}
		is := func(targets ...error) func(string, error) {
			return func(what string, err error) {
				t.Helper()
				for _, target := range targets {
					if !errors.Is(err, target) {
						t.Errorf("%s: error is %v, want %v", what, err, target)
					}
				}
			}
		}
		ctx := t.Context()
		calls := f.Calls.Load()
		for _, l := range []*pawl.Latch{
			c.Latch("", 1), c.Latch("x", -1), c.Latch("x", 10_001),
			c.Latch("x", 1, pawl.Expiring(-1)), c.Latch("x", 1, pawl.Expiring(time.Millisecond)), c.Latch("x", 1, pawl.Expiring(driver.MaxTTL+1)),
			c.With(func(o *pawl.Options) { o.TTL = 1 }).Latch("x", 1), pawl.New(nil, nil).Latch("x", 1),
		} {
			each(l, ctx, is(pawl.ErrInvalid))
		}
		over, cancel := context.WithCancelCause(ctx)
		cancel(errors.New("no longer"))
		each(c.Latch("x", 1), over, func(what string, err error) {
			is(context.Canceled)(what, err)
			if !strings.Contains(err.Error(), "no longer") {
				t.Errorf("%s: %v does not name the cause", what, err)
			}
		})
		if n := f.Calls.Load() - calls; n != 0 {
			t.Errorf("%d calls of the store before the arguments were checked", n)
		}

		countDown(t, c.Latch("x", 7), "a", 6)
		each(c.Latch("x", 8), ctx, func(what string, err error) {
			is(pawl.ErrMismatch)(what, err)
			m, ok := errors.AsType[*pawl.MismatchError](err)
			if !ok || *m != (pawl.MismatchError{Name: "x", HaveKind: driver.KindLatch, WantKind: driver.KindLatch, Have: 7, Want: 8}) {
				t.Errorf("%s: %v does not name the latch and both counts", what, err)
			}
		})
		count(t, c.Latch("x", 7), 6)

		for value, part := range map[string]string{
			"no JSON": "not one of pawl's",
			`{}`:      "not one of pawl's",
			`{"kind":"barrier","format":1,"data":{}}`: "in use as barrier",
			`{"kind":"latch","format":2,"data":{}}`:   "format 2",
			`{"kind":"latch","format":1,"data":[]}`:   "damaged",
		} {
			r, err := store.CompareAndSwap(ctx, driver.Record{Name: driver.NewID(), Value: []byte(value)})
			if err != nil {
				t.Fatal(err)
			}
			each(c.Latch(r.Name, 1), ctx, func(what string, err error) {
				is(pawl.ErrMismatch)(what, err)
				if !strings.Contains(fmt.Sprint(err), part) {
					t.Errorf("%s: %v does not say %s", what, err, part)
				}
			})
			if now, err := store.Load(ctx, r.Name); err != nil || now.Version != r.Version {
				t.Errorf("%q became %+v, %v", value, now, err)
			}
		}

		wait, cancelWait := context.WithTimeout(ctx, time.Minute)
		defer cancelWait()
		err := c.Latch("x", 7).Wait(wait)
		is(context.DeadlineExceeded)("Wait", err)
		var we *pawl.WaitError
		if !errors.As(err, &we) || we.Engine != nil || we.Name != "x" || err.Error() != `wait for latch "x": context deadline exceeded` {
			t.Errorf("Wait: %v", err)
		}

		f.Set(func() { f.Err = faultstore.ErrNetwork })
		each(c.Latch("x", 7), ctx, func(what string, err error) {
			is(faultstore.ErrNetwork)(what, err)
			if !strings.Contains(fmt.Sprint(err), "gave up after 5 attempts") {
				t.Errorf("%s: %v", what, err)
			}
		})
		short, cancelShort := context.WithTimeout(ctx, 3*time.Second/2)
		defer cancelShort()
		err = c.Latch("x", 7).Wait(short)
		is(faultstore.ErrNetwork, context.DeadlineExceeded)("Wait without an engine", err)
		if !errors.As(err, &we) || we.Engine == nil || !strings.Contains(err.Error(), "while the engine failed") {
			t.Errorf("Wait without an engine: %v", err)
		}
		f.Set(func() { f.Err = fmt.Errorf("records: %w", driver.ErrUnsupported) })
		each(c.Latch("x", 7), ctx, func(what string, err error) {
			is(pawl.ErrUnsupported)(what, err)
			if strings.Contains(fmt.Sprint(err), "gave up") {
				t.Errorf("%s tried again: %v", what, err)
			}
		})
		f.Set(func() { f.Err, f.Down = nil, true })
		hung, cancelHung := context.WithTimeout(ctx, time.Second)
		defer cancelHung()
		_, err = c.Latch("x", 7).CountDown(hung, "")
		if !errors.As(err, &we) || we.Engine == nil {
			t.Errorf("CountDown without a reply: %v", err)
		}
		f.Set(func() { f.Down = false })

		closing := pawl.New(store, nil)
		done := in(func() error { return closing.Latch("x", 7).Wait(ctx) })
		synctest.Wait()
		want(t, closing.Close(ctx), nil)
		is(pawl.ErrClosed)("Wait while the client is closed", settled(t, done, "Wait"))
		each(closing.Latch("x", 7), ctx, is(pawl.ErrClosed))
	})
}

// Size tells an operator who does not know the count.
func TestLatchSize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(2, pawl.ConstantBackoff(time.Second))})
		size := func(want int64) {
			t.Helper()
			if n, err := c.Latch("x", 1).Size(t.Context()); n != want || err != nil {
				t.Errorf("size %d, %v, want %d", n, err, want)
			}
		}
		size(0)
		countDown(t, c.Latch("x", 7), "a", 6)
		size(7)
		want(t, c.Latch("x", 7).Delete(t.Context()), nil)
		size(0)
		_, err := c.Latch("x", -1).Size(t.Context())
		want(t, err, pawl.ErrInvalid)
		want(t, c.Once("x", time.Hour).Do(t.Context(), func(context.Context) error { return nil }), nil)
		_, err = c.Latch("x", 1).Size(t.Context())
		want(t, err, pawl.ErrMismatch)
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		_, err = c.Latch("x", 1).Size(t.Context())
		want(t, err, faultstore.ErrNetwork)
	})
}

// An engine whose records cannot expire keeps them until they are deleted.
func TestLatchWithoutExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, eternal{memstore.New()}, nil)
		l := c.Latch("x", 2)
		countDown(t, l, "a", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
		defer cancel()
		want(t, l.Wait(ctx), context.DeadlineExceeded)
		countDown(t, l, "b", 0)
		time.Sleep(100 * time.Hour)
		count(t, l, 0)
	})
}

// eternal cannot do records with a TTL.
type eternal struct{ driver.Store }

func (s eternal) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if r.TTL != 0 {
		return driver.Record{}, fmt.Errorf("a record's TTL: %w", driver.ErrUnsupported)
	}
	return s.Store.CompareAndSwap(ctx, r)
}
