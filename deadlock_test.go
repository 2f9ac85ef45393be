package pawl_test

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// A context of a set that is over hid the lease that was taken under it.
func TestDeadlockUnderAnEndedSet(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), nil)
		s, err := c.LockAll(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		ended := context.WithoutCancel(s.Context(t.Context()))
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		l, err := c.Mutex("a").Lock(ended)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(l.Context(ended), time.Minute)
		defer cancel()
		_, err = c.Mutex("a").Lock(ctx)
		want(t, err, pawl.ErrDeadlock)
		unlock(t, l)
	})
}

// The same with leases of an RWMutex, of which a process may have several.
func TestDeadlockUnderAnEndedLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newClient(t, memstore.New(), nil).RWMutex("x")
		outer, err := m.RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		inner, err := m.TryRLock(outer.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		ctx := inner.Context(outer.Context(t.Context()))
		unlock(t, inner)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err = m.Lock(ctx)
		want(t, err, pawl.ErrDeadlock)
		unlock(t, outer)
	})
}

// ErrDeadlock by a lease that is over.
func TestDeadlockWithReleasedLease(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	l := lock(t, c.Mutex("x"))
	ctx := context.WithoutCancel(l.Context(t.Context()))
	unlock(t, l)
	l, err := c.Mutex("x").Lock(ctx)
	if err != nil {
		t.Fatalf("nobody holds: %v", err)
	}
	unlock(t, l)
}
