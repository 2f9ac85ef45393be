package pawl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
)

// The tests of this file provoke errors that the documentation names and no other
// test does.

func TestCloseUnderAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := pawl.New(f, nil)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		lock(t, c.Mutex("stays"))
		f.set(func() { f.down = true })
		start := time.Now()
		err := c.Close(over)
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d != unlockPatience || err == nil || !strings.Contains(err.Error(), `"stays"`) {
			t.Errorf("%v, after %v", err, d)
		}
		// It has a moment, and if that is enough all is well.
		f = &faulty{Store: memstore.New()}
		c = pawl.New(f, nil)
		lock(t, c.Mutex("goes"))
		want(t, c.Close(over), nil)
		if claims(t, f.Store, "goes") != 0 {
			t.Error("a claim is left")
		}
	})
}

func TestAdoptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		c := newClient(t, f, nil)
		l := lock(t, newClient(t, store, nil).Mutex("x"))
		claim, err := l.HandOver(t.Context())
		want(t, err, nil)

		f.set(func() { f.down = true })
		start := time.Now()
		_, err = c.Mutex("x").Adopt(t.Context(), claim)
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d > 10*time.Second || errors.Is(err, pawl.ErrLost) {
			t.Errorf("%v, after %v", err, d)
		}
		f.set(func() { f.down = false })
		adopted, err := c.Mutex("x").Adopt(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Mutex("x").Adopt(t.Context(), claim)
		want(t, err, pawl.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second time: %v", err)
		}
		want(t, adopted.Err(), nil)

		for _, of := range []interface {
			Adopt(context.Context, string) (*pawl.Lease, error)
		}{c.Mutex("{"), c.RWMutex("{"), c.Semaphore("{", 2), c.Semaphore("x", 0)} {
			_, err := of.Adopt(t.Context(), claim)
			want(t, err, pawl.ErrInvalid)
		}

		// The client is closed in the middle of it.
		closing := pawl.New(f, nil)
		claim, err = adopted.HandOver(t.Context())
		want(t, err, nil)
		done := make(chan struct{})
		f.set(func() {
			f.hook = func(op string) error {
				if op == "renew" {
					go func() { defer close(done); closing.Close(context.Background()) }()
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		_, err = closing.Mutex("x").Adopt(t.Context(), claim)
		want(t, err, pawl.ErrClosed)
		<-done
		f.set(func() { f.hook = nil })
		_, err = closing.Mutex("x").Adopt(t.Context(), claim)
		want(t, err, pawl.ErrClosed)
	})
}

func TestHandOverErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClient(t, f, nil)
		_, err := lock(t, c.Mutex("out of reach")).HandOver(t.Context())
		want(t, err, nil)

		l := lock(t, c.Mutex("x"))
		f.set(func() { f.down = true })
		start := time.Now()
		_, err = l.HandOver(t.Context())
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("it took %v", d)
		}
		f.set(func() { f.down = false })
		want(t, l.Err(), nil) // what it was before

		// It ends at the same moment, in each way.
		for end, target := range map[string]error{"lost": pawl.ErrLost, "released": pawl.ErrReleased} {
			l := lock(t, c.Mutex(end))
			f.set(func() {
				f.after = func(op string) error {
					if op != "renew" {
						return nil
					}
					f.set(func() { f.after = nil })
					if end == "lost" {
						c.Release(context.Background(), end)
					} else {
						l.Unlock(context.Background())
					}
					synctest.Wait()
					return nil
				}
			})
			_, err := l.HandOver(t.Context())
			want(t, err, target)
			_, err = l.HandOver(t.Context())
			want(t, err, target)
			want(t, l.Extend(t.Context(), 0), target)
		}
		unlock(t, l)
		closing := pawl.New(f, nil)
		l = lock(t, closing.Mutex("y"))
		want(t, closing.Close(t.Context()), nil)
		_, err = l.HandOver(t.Context())
		want(t, err, pawl.ErrClosed)
		want(t, l.Extend(t.Context(), 0), pawl.ErrClosed)
	})
}

func TestOptionsNotAllowed(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	for _, o := range []pawl.Options{
		{TTL: -1}, {MinHold: -1}, {MinHold: driver.MaxTTL + 1}, {MaxHold: -1}, {Label: "a\nb"}, {Label: "\xff"},
	} {
		err := c.With(o).Mutex("x").Do(t.Context(), never(t))
		want(t, err, pawl.ErrInvalid)
		_, err = c.With(o).With(pawl.Options{TTL: time.Second}).Inspect(t.Context(), "x")
		want(t, err, pawl.ErrInvalid)
	}
}

// A reader's lease is left as it is.
func TestDowngradeOfAReader(t *testing.T) {
	f := &faulty{Store: memstore.New()}
	c := newClient(t, f, nil)
	l, err := c.RWMutex("x").RLock(t.Context())
	want(t, err, nil)
	calls, token := f.calls.Load(), l.Token()
	want(t, l.Downgrade(t.Context()), nil)
	if f.calls.Load() != calls || l.Token() != token {
		t.Error("something was changed")
	}
	unlock(t, l)
}

func TestLeaseSetEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c := pawl.New(store, nil)
		s := lockAll(t, c, "a", "b")
		other := newClient(t, store, nil)
		l := lock(t, other.Mutex("d"))
		waits := in(func() error {
			_, err := c.LockAll(context.Background(), "c", "d")
			return err
		})
		synctest.Wait()
		want(t, c.Close(t.Context()), nil)
		want(t, settled(t, waits, "LockAll while the client is closed"), pawl.ErrClosed)
		want(t, s.Err(), pawl.ErrClosed)
		want(t, s.Extend(t.Context(), 0), pawl.ErrClosed)
		want(t, s.Unlock(t.Context()), pawl.ErrClosed)
		want(t, s.Unlock(t.Context()), pawl.ErrReleased)
		_, err := c.TryLockAll(t.Context(), "a")
		want(t, err, pawl.ErrClosed)
		isHeld(t, other, "a b c", false)

		s = lockAll(t, other, "a", "b")
		want(t, s.Extend(t.Context(), time.Millisecond), pawl.ErrInvalid)
		want(t, s.Unlock(t.Context()), nil)
		want(t, s.Extend(t.Context(), 0), pawl.ErrReleased)
		want(t, s.Unlock(t.Context()), pawl.ErrReleased)
		unlock(t, l)
	})
}

// The time is up while a part is lost again and again: the error says both.
func TestLockAllTimeUpAfterALoss(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, nil), newClient(t, store, nil)
		l := lock(t, other.Mutex("b"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := in(func() error {
			_, err := c.LockAll(ctx, "a", "b")
			return err
		})
		for ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			other.Release(t.Context(), "a")
		}
		err := <-done
		want(t, err, context.DeadlineExceeded)
		if _, ok := errors.AsType[*pawl.WaitError](err); !ok {
			t.Errorf("the error is %v", err)
		}
		isHeld(t, other, "a", false)
		unlock(t, l)
	})
}

// Between the look and the run somebody uses the key for something else.
func TestOnceMismatchMeanwhile(t *testing.T) {
	f := &faulty{Store: memstore.New()}
	c := newClient(t, f, nil)
	f.set(func() {
		f.hook = func(op string) error {
			if op == "enter" {
				f.Store.CompareAndSwap(context.Background(), driver.Record{Name: "x", Value: []byte(`{"kind":"latch","format":1,"data":{}}`)})
			}
			return nil
		}
	})
	want(t, c.Once("x", time.Hour).Do(t.Context(), never(t)), pawl.ErrMismatch)
	leftovers(t, f.Store, "x", true)
}

func TestNames(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	for _, name := range []string{c.Mutex("x").Name(), c.RWMutex("x").Name(), c.Semaphore("x", 1).Name(), c.Election("x").Name(),
		c.Latch("x", 1).Name(), c.Barrier("x", 1).Name(), c.Once("x", 1).Key()} {
		if name != "x" {
			t.Errorf("the name is %q", name)
		}
	}
}
