package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// arrival is a call of Wait in a goroutine.
type arrival struct {
	index int
	done  <-chan error
}

func arrive(ctx context.Context, b *pawl.Barrier) *arrival {
	a := new(arrival)
	a.done = in(func() (err error) { a.index, err = b.Wait(ctx); return err })
	return a
}

func waiting(t *testing.T, b *pawl.Barrier, want int) {
	t.Helper()
	if n, err := b.Waiting(t.Context()); err != nil || n != want {
		t.Errorf("%d parties wait, %v; want %d", n, err, want)
	}
}

func broken(t *testing.T, b *pawl.Barrier, why string) {
	t.Helper()
	_, err := b.Waiting(t.Context())
	want(t, err, pawl.ErrBroken)
	_, err = b.Wait(t.Context())
	want(t, err, pawl.ErrBroken)
	if !strings.Contains(fmt.Sprint(err), why) {
		t.Errorf("%v does not say %s", err, why)
	}
}

// barriers returns handles of one barrier on clients of their own.
func barriers(t *testing.T, store driver.Store, parties, n int) (bs []*pawl.Barrier) {
	for range n {
		bs = append(bs, newClient(t, store, nil).Barrier("x", parties))
	}
	return bs
}

func TestBarrierTrips(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		bs := barriers(t, store, 3, 3)
		for range 5 {
			var as []*arrival
			for i, b := range bs {
				as = append(as, arrive(t.Context(), b))
				synctest.Wait()
				if i < 2 {
					waiting(t, b, i+1)
					if n := claims(t, store, "x"); n != i+1 {
						t.Errorf("%d claims for %d parties that wait", n, i+1)
					}
					time.Sleep(time.Duration(i) * time.Hour)
					pending(t, as[0].done, "Wait of the first")
				}
			}
			for i, a := range as {
				want(t, settled(t, a.done, "Wait"), nil)
				if a.index != 2-i {
					t.Errorf("party %d has index %d", i, a.index)
				}
			}
			waiting(t, bs[0], 0)
			if n := claims(t, store, "x"); n != 0 {
				t.Errorf("%d claims left", n)
			}
		}
		if bs[0].Name() != "x" {
			t.Errorf("its name is %q", bs[0].Name())
		}
		time.Sleep(25 * time.Hour)
		if r, err := store.Load(t.Context(), "x"); err != nil || r.Version != 0 {
			t.Errorf("left behind: %+v, %v", r, err)
		}
	})
}

// Parties may wait for longer than the record lives, whatever the options of their locks.
func TestBarrierForADay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		hours := newClient(t, store, &pawl.Options{NoRenewal: true, MaxHold: time.Hour, MinHold: time.Minute})
		a := arrive(t.Context(), hours.Barrier("x", 2))
		time.Sleep(25 * time.Hour)
		pending(t, a.done, "Wait for a day")
		b := arrive(t.Context(), newClient(t, store, nil).Barrier("x", 2))
		want(t, settled(t, a.done, "Wait"), nil)
		want(t, settled(t, b.done, "Wait"), nil)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims left", n)
		}
	})
}

func TestBarrierOfOne(t *testing.T) {
	b := newClient(t, memstore.New(), nil).Barrier("x", 1)
	ran := 0
	for _, b := range []*pawl.Barrier{b, b, b.WithAction(func(context.Context) error { ran++; return nil })} {
		if index, err := b.Wait(t.Context()); err != nil || index != 0 {
			t.Errorf("Wait returns %d, %v", index, err)
		}
	}
	if ran != 1 {
		t.Errorf("the action ran %d times", ran)
	}
}

// More calls than parties belong to the next generations, also within one
// process.
func TestBarrierOfMoreThanItsParties(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		b := barriers(t, memstore.New(), 4, 1)[0]
		var as []*arrival
		for range 11 {
			as = append(as, arrive(t.Context(), b))
			synctest.Wait()
		}
		for i, a := range as[:8] {
			want(t, settled(t, a.done, "Wait"), nil)
			if a.index != 3-i%4 {
				t.Errorf("call %d has index %d", i, a.index)
			}
		}
		waiting(t, b, 3)
		as = append(as, arrive(t.Context(), b))
		for _, a := range as[8:] {
			want(t, settled(t, a.done, "Wait"), nil)
		}
	})
}

func TestBarrierTimeout(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		bs := barriers(t, store, 3, 3)
		a := arrive(t.Context(), bs[0])
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too long"))
		defer cancel()
		_, err := bs[1].Wait(ctx)
		want(t, err, context.DeadlineExceeded)
		var we *pawl.WaitError
		if !errors.As(err, &we) || we.Engine != nil || err.Error() != `wait for barrier "x": too long` {
			t.Errorf("the party that left: %v", err)
		}
		err = settled(t, a.done, "Wait of the other")
		want(t, err, pawl.ErrBroken)
		if !strings.Contains(err.Error(), "too long") {
			t.Errorf("%v does not say why", err)
		}
		broken(t, bs[2], "too long")

		want(t, bs[2].Reset(t.Context()), nil)
		waiting(t, bs[1], 0)
		var as []*arrival
		for _, b := range bs {
			as = append(as, arrive(t.Context(), b))
		}
		for _, a := range as {
			want(t, <-a.done, nil) // those that are outrun twice pause
		}
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims left", n)
		}
	})
}

func TestBarrierReset(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		bs := barriers(t, store, 2, 2)
		want(t, bs[0].Reset(t.Context()), nil)
		if r, err := store.Load(t.Context(), "x"); err != nil || r.Version != 0 {
			t.Errorf("Reset of nothing has made %+v, %v", r, err)
		}
		a := arrive(t.Context(), bs[0])
		synctest.Wait()
		want(t, bs[1].Reset(t.Context()), nil)
		err := settled(t, a.done, "Wait")
		want(t, err, pawl.ErrBroken)
		if !strings.Contains(err.Error(), "reset") {
			t.Errorf("%v does not say why", err)
		}
		a, b := arrive(t.Context(), bs[0]), arrive(t.Context(), bs[1])
		want(t, settled(t, a.done, "Wait"), nil)
		want(t, settled(t, b.done, "Wait"), nil)
	})
	// A Reset whose reply is lost does not break the generation after it.
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		b, far := barriers(t, f.Store, 2, 1)[0], newClient(t, f, nil).Barrier("x", 2)
		first := arrive(t.Context(), b)
		synctest.Wait()
		var next *arrival
		f.Set(func() {
			f.After = func(op string) error {
				if op != "swap" {
					return nil
				}
				f.Set(func() { f.After = nil })
				want(t, <-first.done, pawl.ErrBroken)
				next = arrive(t.Context(), b)
				time.Sleep(time.Second)
				return faultstore.ErrNetwork
			}
		})
		want(t, far.Reset(t.Context()), nil)
		pending(t, next.done, "Wait in the next generation")
		last := arrive(t.Context(), b)
		want(t, <-last.done, nil)
		want(t, <-next.done, nil)
	})
}

// Without an action each party writes once: nobody waits for the last one to
// write again.
func TestBarrierWrites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		writes := 0
		f := &faultstore.Store{Store: memstore.New(), Hook: func(op string) error {
			if op == "swap" {
				writes++
			}
			return nil
		}}
		bs := barriers(t, f, 3, 3)
		for _, b := range bs {
			defer func(a *arrival) { want(t, <-a.done, nil) }(arrive(t.Context(), b))
			synctest.Wait()
		}
		if writes != 3 {
			t.Errorf("%d writes for 3 parties", writes)
		}
	})
}

// Size tells an operator who does not know the number of parties.
func TestBarrierSize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(2, pawl.ConstantBackoff(time.Second))})
		size := func(want int) {
			t.Helper()
			if n, err := c.Barrier("x", 1).Size(t.Context()); n != want || err != nil {
				t.Errorf("size %d, %v, want %d", n, err, want)
			}
		}
		size(0)
		ctx, leave := context.WithCancel(t.Context())
		a := arrive(ctx, c.Barrier("x", 7))
		synctest.Wait()
		size(7)
		leave()
		want(t, <-a.done, context.Canceled)
		size(7) // though it is broken
		_, err := c.Barrier("x", 0).Size(t.Context())
		want(t, err, pawl.ErrInvalid)
		countDown(t, c.Latch("l", 2), "", 1)
		_, err = c.Barrier("l", 1).Size(t.Context())
		want(t, err, pawl.ErrMismatch)
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		_, err = c.Barrier("x", 7).Size(t.Context())
		want(t, err, faultstore.ErrNetwork)
	})
}

func TestBarrierErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(5, pawl.ConstantBackoff(time.Second))})
		each := func(b *pawl.Barrier, ctx context.Context, targets ...error) {
			t.Helper()
			_, err := b.Wait(ctx)
			_, err2 := b.Waiting(ctx)
			for i, err := range []error{err, err2, b.Reset(ctx)} {
				for _, target := range targets {
					if !errors.Is(err, target) {
						t.Errorf("%s: error is %v, want %v", []string{"Wait", "Waiting", "Reset"}[i], err, target)
					}
				}
			}
		}
		ctx := t.Context()
		for _, b := range []*pawl.Barrier{
			c.Barrier("", 1), c.Barrier("x", 0), c.Barrier("x", -1), c.Barrier("x", 1001), c.With(func(o *pawl.Options) { o.TTL = 1 }).Barrier("x", 1),
		} {
			each(b, ctx, pawl.ErrInvalid)
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		each(c.Barrier("x", 1), over, context.Canceled)
		if n := f.Calls.Load(); n != 0 {
			t.Errorf("%d calls of the store before the arguments were checked", n)
		}

		a := arrive(ctx, newClient(t, store, nil).Barrier("x", 7))
		synctest.Wait()
		each(c.Barrier("x", 8), ctx, pawl.ErrMismatch)
		_, err := c.Barrier("x", 8).Wait(ctx)
		if s := fmt.Sprint(err); !strings.Contains(s, "7") || !strings.Contains(s, "8") {
			t.Errorf("%v does not name both", err)
		}
		want(t, c.Latch("x", 7).Wait(ctx), pawl.ErrMismatch)
		_, err = c.Mutex("x").TryLock(ctx)
		want(t, err, pawl.ErrMismatch)
		pending(t, a.done, "Wait beside others who are wrong")

		countDown(t, c.Latch("l", 2), "", 1)
		each(c.Barrier("l", 2), ctx, pawl.ErrMismatch)
		l := lock(t, c.Mutex("m"))
		_, err = c.Barrier("m", 2).Wait(ctx)
		want(t, err, pawl.ErrMismatch)
		unlock(t, l)

		f.Set(func() { f.Err = faultstore.ErrNetwork })
		each(c.Barrier("x", 7), ctx, faultstore.ErrNetwork)
		f.Set(func() { f.Err = fmt.Errorf("records: %w", driver.ErrUnsupported) })
		each(c.Barrier("x", 7), ctx, pawl.ErrUnsupported)
		f.Set(func() { f.Err = nil })

		// The engine goes while a party waits, and its context ends before its
		// claim does.
		far := newClient(t, f, nil).Barrier("y", 2)
		short, cancelShort := context.WithTimeout(ctx, 12*time.Second)
		defer cancelShort()
		b := arrive(short, far)
		synctest.Wait()
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		err = <-b.done
		want(t, err, context.DeadlineExceeded)
		want(t, err, faultstore.ErrNetwork)
		f.Set(func() { f.Err = nil })

		closing := pawl.New(store, nil)
		b = arrive(ctx, closing.Barrier("z", 2))
		other := arrive(ctx, newClient(t, store, nil).Barrier("z", 3-1))
		_ = other
		synctest.Wait()
		want(t, <-b.done, nil)
		b = arrive(ctx, closing.Barrier("z", 2))
		synctest.Wait()
		want(t, closing.Close(ctx), nil)
		want(t, settled(t, b.done, "Wait while the client is closed"), pawl.ErrClosed)
		each(closing.Barrier("z", 2), ctx, pawl.ErrClosed)
		broken(t, c.Barrier("z", 2), "closed")
		want(t, c.Barrier("x", 7).Reset(ctx), nil)
		want(t, <-a.done, pawl.ErrBroken)
	})
}

const unlockTimeout = 2 * time.Second
