package pawl_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// withheld holds a request back: its caller gets an error, and it arrives when it
// is let go.
type withheld struct {
	driver.Store
	enter, resize bool // the next one of these
	late          []func()
}

func (s *withheld) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if s.enter {
		s.enter = false
		s.late = append(s.late, func() { s.Store.Enter(context.Background(), c) })
		return driver.Status{}, faultstore.ErrNetwork
	}
	return s.Store.Enter(ctx, c)
}

func (s *withheld) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	if s.resize {
		s.resize = false
		s.late = append(s.late, func() { s.Store.Resize(context.Background(), r, units) })
		<-ctx.Done()
		return driver.Status{}, faultstore.ErrNetwork
	}
	return s.Store.Resize(ctx, r, units)
}

func (s *withheld) arrive() {
	for _, f := range s.late {
		f()
	}
	s.late = nil
}

// A request of TryUpgrade that was given up could arrive when the reader's lease had
// been handed over: it was a writer's then, and nobody could adopt it.
func TestHandOverWithUpgradeUnderWay(t *testing.T) {
	for name, settle := range map[string]func(t *testing.T, l *pawl.RWLease){
		"in time": nil,
		"late":    func(*testing.T, *pawl.RWLease) { time.Sleep(pawl.DefaultTTL) },
		"outgrown": func(t *testing.T, l *pawl.RWLease) {
			want(t, l.TryUpgrade(t.Context()), nil)
			want(t, l.Downgrade(t.Context()), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				s := &withheld{Store: store}
				a, b := newClient(t, s, nil), newClient(t, store, nil)
				l := rlock(t, a.RWMutex("x"))
				s.resize = true
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
				defer cancel()
				want(t, l.TryUpgrade(ctx), faultstore.ErrNetwork)
				time.Sleep(2 * time.Second) // it is a reader's again
				if settle != nil {
					settle(t, l)
				}
				handle, err := l.HandOver(t.Context())
				if settle == nil {
					if err == nil {
						t.Error("handed over, though it may still become a writer's")
					} else {
						t.Log(err)
						want(t, l.Err(), nil)
						unlock(t, l)
						return
					}
				}
				want(t, err, nil)
				if name != "late" { // it arrives by then, or never
					s.arrive()
				}
				adopted, err := b.RWMutex("x").Adopt(t.Context(), handle)
				if err != nil {
					t.Fatalf("what was handed over cannot be adopted: %v", err)
				}
				r, err := newClient(t, store, nil).RWMutex("x").TryRLock(t.Context())
				want(t, err, nil)
				unlock(t, r)
				unlock(t, adopted)
			})
		})
	}
}

// An Enter that got no reply arrives when the lock was handed over, or
// adopted, or adopted and released: nobody loses the lock by that, and it is not
// taken for a TTL by nobody.
func TestLateEnterAfterHandOver(t *testing.T) {
	for _, pause := range []time.Duration{0, time.Second} { // between the steps
		bubble.Test(t, func(t *testing.T) {
			store := memstore.New()
			s := &withheld{Store: store, enter: true}
			a, b := newClient(t, s, nil), newClient(t, store, nil)
			l := lock(t, a.Mutex("x"))
			handle, err := l.HandOver(t.Context())
			want(t, err, nil)
			again := s.late[0]
			again()
			time.Sleep(pause)
			l, err = b.Mutex("x").Adopt(t.Context(), handle)
			want(t, err, nil)
			again()
			time.Sleep(pause)
			want(t, l.Extend(t.Context(), 0), nil)
			unlock(t, l)
			s.arrive()
			if claims(t, store, "x") != 1 {
				t.Fatal("the Enter did not come late")
			}
			begun := time.Now()
			unlock(t, lock(t, b.Mutex("x")))
			if d := time.Since(begun); d > pawl.DefaultTTL/3 {
				t.Errorf("the next one waited for %v for nobody", d)
			}
		})
	}
}

// What is handed over and not adopted stays for its TTL, and no longer, though its
// last owner looks after a late Enter.
func TestHandedOverAfterLateEnterEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		s := &withheld{Store: store, enter: true}
		a, b := newClient(t, s, nil), newClient(t, store, nil)
		_, err := lock(t, a.Mutex("x")).HandOver(t.Context())
		want(t, err, nil)
		begun := time.Now()
		unlock(t, lock(t, b.Mutex("x")))
		if d := time.Since(begun); d < pawl.DefaultTTL-time.Second || d > pawl.DefaultTTL+time.Second {
			t.Errorf("it was free after %v", d)
		}
	})
}

// The name stays taken until MinHold is over, whoever unlocks it: what the adopter
// does not know of is not handed over.
func TestHandOverWithinMinHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, &pawl.Options{MinHold: time.Minute}), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		time.Sleep(time.Minute - time.Millisecond)
		if _, err := l.HandOver(t.Context()); !errors.Is(err, pawl.ErrInvalid) || l.Err() != nil {
			t.Fatalf("handed over with MinHold: %v", err)
		}
		time.Sleep(time.Millisecond)
		handle, err := l.HandOver(t.Context())
		want(t, err, nil)
		l, err = b.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, nil)
		unlock(t, l)
		unlock(t, lock(t, b.Mutex("x")))
	})
}

// After SetLimit there are handles that declare the old limit and ones that declare
// the new one: those of a semaphore that was declared with one permit hand over to
// the others, and they to those.
func TestHandOverAmongDeclaredLimits(t *testing.T) {
	for _, from := range []int64{1, 3} {
		bubble.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, b := newClient(t, store, nil), newClient(t, store, nil)
			want(t, a.Semaphore("x", 1).SetLimit(t.Context(), 3), nil)
			l, err := a.Semaphore("x", from).Acquire(t.Context(), 1)
			want(t, err, nil)
			handle, err := l.HandOver(t.Context())
			want(t, err, nil)
			l, err = b.Semaphore("x", 4-from).Adopt(t.Context(), handle)
			if err != nil {
				t.Fatalf("from one that declares %d to one that declares %d: %v", from, 4-from, err)
			}
			unlock(t, l)
		})
	}
}

// What its context holds of that name is no mutex: it is not re-entered, and does
// not let go. The engine says which kind it is.
func TestOtherKindUnderContext(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	permit, err := c.Semaphore("permit", 1).Acquire(t.Context(), 1)
	want(t, err, nil)
	leader, err := c.Election("election").Campaign(t.Context(), nil)
	want(t, err, nil)
	defer leader.Resign(t.Context())
	mutex := lock(t, c.Mutex("mutex"))
	for name, ctx := range map[string]context.Context{
		"permit": permit.Context(t.Context()), "election": leader.Context(t.Context()),
	} {
		_, err = c.LockAll(ctx, name)
		want(t, err, pawl.ErrMismatch)
		_, err = c.LockAll(ctx, "also", name)
		want(t, err, pawl.ErrMismatch)
		_, err = c.Mutex(name).Lock(ctx)
		want(t, err, pawl.ErrMismatch)
	}
	_, err = c.Election("mutex").Campaign(mutex.Context(t.Context()), nil)
	want(t, err, pawl.ErrMismatch)
	_, err = c.LockAll(mutex.Context(t.Context()), "mutex")
	want(t, err, pawl.ErrDeadlock)
	unlock(t, mutex)
	unlock(t, permit)
}
