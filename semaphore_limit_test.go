package pawl_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// A semaphore of one permit is no mutex: its limit cannot be raised beside one.
func TestSetLimitOfAMutex(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		err := b.Semaphore("x", 1).SetLimit(t.Context(), 2)
		want(t, err, pawl.ErrMismatch)
		if err == nil || !strings.Contains(err.Error(), "mutex") {
			t.Errorf("%v does not say why", err)
		}
		_, err = b.Mutex("x").TryLock(t.Context())
		want(t, err, pawl.ErrHeld)
		unlock(t, l)
	})
}

func TestSetLimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		old, wide := a.Semaphore("x", 3), b.Semaphore("x", 6)
		set := func(s *pawl.Semaphore, limit int64) {
			t.Helper()
			if err := s.SetLimit(t.Context(), limit); err != nil {
				t.Error(err)
			}
		}

		// More: who waits and fits is granted.
		held := acquire(t, old, 3)
		next := queued(t, old, 3)
		set(old, 6)
		if !granted(next) {
			t.Error("there are 6, and 3 are held")
		}
		unlock(t, held)
		unlock(t, <-next)
		unlock(t, acquire(t, wide, 6)) // as the new size
		_, err := old.Acquire(t.Context(), 4)
		want(t, err, pawl.ErrInvalid)
		_, err = a.Semaphore("x", 4).Acquire(t.Context(), 1)
		want(t, err, pawl.ErrMismatch)

		// It stays while nobody uses it.
		time.Sleep(24 * time.Hour)
		first, second := acquire(t, old, 3), acquire(t, old, 3)

		// Less: nobody loses permits.
		set(wide, 2)
		next = queued(t, old, 2)
		unlock(t, first)
		time.Sleep(time.Minute)
		if granted(next) || second.Err() != nil {
			t.Error("3 are held, there are 2")
		}
		unlock(t, second)
		if !granted(next) {
			t.Error("nobody holds")
		}
		unlock(t, <-next)
		_, err = old.Acquire(t.Context(), 3)
		want(t, err, pawl.ErrMismatch)
		var limit *pawl.MismatchError
		if !errors.As(err, &limit) || limit.Have != 2 || limit.Units != 3 {
			t.Errorf("%v does not name both", err)
		}

		// Back to what was declared.
		set(old, 3)
		if q, err := store.Inspect(t.Context(), "x"); err != nil || q.Declared != 0 {
			t.Errorf("%+v, %v", q, err)
		}
		_, err = a.Semaphore("x", 7).Acquire(t.Context(), 1)
		if err != nil {
			t.Errorf("nobody uses it: %v", err)
		}
	})
}

// A request that waits for more than there are now stands in nobody's way.
func TestSetLimitBelowAWaiter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := newClient(t, memstore.New(), nil).Semaphore("x", 5)
		held := acquire(t, s, 2)
		big := queued(t, s, 5)
		if err := s.SetLimit(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		small := acquire(t, s, 1)
		unlock(t, held)
		unlock(t, small)
		time.Sleep(time.Hour)
		if granted(big) {
			t.Error("5 of 3")
		}
		if err := s.SetLimit(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		if !granted(big) {
			t.Error("there are 5 again")
		}
		unlock(t, <-big)
	})
}
