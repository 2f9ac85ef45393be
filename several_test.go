package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// MaxHold and MinHold count from the grant of the last.
func TestLockAllHoldTimes(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c := newClient(t, store, &pawl.Options{MaxHold: time.Minute, MinHold: 30 * time.Second})
		other := newClient(t, store, nil)
		b := lock(t, other.Mutex("b"))
		done := make(chan *pawl.Lease)
		go func() { done <- lockAll(t, c, "a", "b") }()
		time.Sleep(time.Hour)
		unlock(t, b)
		s := <-done
		granted := time.Now()
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(29*time.Second - time.Since(granted))
		isHeld(t, other, "a b", true)
		time.Sleep(2 * time.Second)
		isHeld(t, other, "a b", false)

		s = lockAll(t, c, "a", "b")
		granted = time.Now()
		if d := s.Deadline().Sub(granted); d > time.Minute {
			t.Errorf("the deadline is in %v", d)
		}
		<-s.Lost()
		if d := time.Since(granted); d != time.Minute {
			t.Errorf("lost after %v", d)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		isHeld(t, other, "a b", false)
		want(t, s.Unlock(t.Context()), pawl.ErrLost)
		isHeld(t, other, "a b", false)
	})
}

// A plain set lasts for a TTL from when it is complete.
func TestLockAllNoRenewal(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, &pawl.Options{NoRenewal: true, TTL: 10 * time.Second}), newClient(t, store, nil)
		b := lock(t, other.Mutex("b"))
		done := make(chan *pawl.Lease)
		go func() { done <- lockAll(t, c, "a", "b", "c") }()
		time.Sleep(time.Hour + 3*time.Second)
		if q, err := store.Inspect(t.Context(), "a"); err != nil || len(q.Claims) != 1 || q.Claims[0].Held < time.Hour {
			t.Errorf("what it has was not kept: %+v, %v", q, err)
		}
		unlock(t, b)
		s := <-done
		time.Sleep(time.Second)
		if d := time.Until(s.Deadline()); d < 8*time.Second || d > 10*time.Second {
			t.Errorf("the deadline is in %v", d)
		}
		if err := s.Extend(t.Context(), 20*time.Second); err != nil {
			t.Error(err)
		}
		if d := time.Until(s.Deadline()); d < 19*time.Second || d > 20*time.Second {
			t.Errorf("extended, the deadline is in %v", d)
		}
		time.Sleep(18 * time.Second)
		if err := s.Err(); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		want(t, s.Err(), pawl.ErrLost)
		isHeld(t, other, "a b c", false)
		want(t, s.Unlock(t.Context()), pawl.ErrLost)
	})
}

func TestLockAllInItsContext(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c := newClient(t, store, nil)
		s := lockAll(t, c, "a", "b")
		ctx := s.Context(t.Context())
		for _, names := range [][]string{{"b"}, {"c", "a"}} {
			_, err := c.LockAll(ctx, names...)
			want(t, err, pawl.ErrDeadlock)
		}
		_, err := c.TryLockAll(ctx, "a", "c")
		want(t, err, pawl.ErrHeld)
		_, err = c.Mutex("a").Lock(ctx)
		want(t, err, pawl.ErrDeadlock)
		inner := lockAll(t, c, "c")
		_, err = c.Mutex("a").Lock(inner.Context(ctx))
		want(t, err, pawl.ErrDeadlock)
		if err := inner.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		l := lock(t, c.Mutex("c"))
		_, err = c.LockAll(l.Context(ctx), "c", "d")
		want(t, err, pawl.ErrDeadlock)
		unlock(t, l)

		again, err := c.With(func(o *pawl.Options) { o.Reentrant = true }).Mutex("b").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() != s.TokenOf("b") {
			t.Errorf("token %d in the set, %d again", s.TokenOf("b"), again.Token())
		}
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		isHeld(t, c, "a", false)
		isHeld(t, c, "b", true)
		unlock(t, again)
		isHeld(t, c, "b", false)
	})
}

func TestLockAllErrors(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c := newClient(t, store, nil)
		many := make([]string, 1001)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for what, names := range map[string][]string{"none": nil, "empty": {"a", ""}, "brace": {"{", "a"}, "many": many} {
			for _, f := range []func(context.Context, ...string) (*pawl.Lease, error){c.LockAll, c.TryLockAll} {
				if _, err := f(t.Context(), names...); !errors.Is(err, pawl.ErrInvalid) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.LockAll(over, "a")
		want(t, err, context.Canceled)
		_, err = c.With(func(o *pawl.Options) { o.TTL = time.Millisecond }).LockAll(t.Context(), "a")
		want(t, err, pawl.ErrInvalid)

		permit, err := c.Semaphore("pool", 5).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, names := range [][]string{{"a", "pool", "z"}, {"pool"}} {
			for _, f := range []func(context.Context, ...string) (*pawl.Lease, error){c.LockAll, c.TryLockAll} {
				_, err = f(t.Context(), names...)
				want(t, err, pawl.ErrMismatch)
			}
		}
		unlock(t, permit)
		isHeld(t, c, "a z", false)

		closed := pawl.New(store, nil)
		s := lockAll(t, closed, "a", "b")
		ctx := s.Context(t.Context())
		waits := make(chan error)
		go func() {
			_, err := closed.LockAll(t.Context(), "0", "a", "z")
			waits <- err
		}()
		time.Sleep(time.Second)
		if err := closed.Close(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, <-waits, pawl.ErrClosed)
		want(t, context.Cause(ctx), pawl.ErrClosed)
		want(t, s.Err(), pawl.ErrClosed)
		want(t, s.Unlock(t.Context()), pawl.ErrClosed)
		_, err = closed.LockAll(t.Context(), "c", "d")
		want(t, err, pawl.ErrClosed)
		isHeld(t, c, "0 a b c d z", false)
	})
}

func TestSeveralEnd(t *testing.T) {
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
