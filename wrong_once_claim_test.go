package pawl_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
)

// lateEnter makes the first Enter of a mutex fail, and come to the store two
// seconds later. The answer waits for that.
func lateEnter(f *faulty, name string) *sync.WaitGroup {
	var late sync.WaitGroup
	first := true
	f.set(func() {
		f.hook = func(op string) error {
			if op != "enter" || !first {
				return nil
			}
			first = false
			c := driver.Claim{Name: name, ID: f.last(), Units: 1, Limit: 1, TTL: pawl.DefaultTTL}
			late.Go(func() {
				time.Sleep(2 * time.Second)
				f.Store.Enter(context.Background(), c)
			})
			return errNetwork
		}
	})
	return &late
}

// A Lock that was refused for good left an earlier Enter of its to itself.
func TestLateEnterAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		l, err := other.Semaphore("x", 5).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		late := lateEnter(f, "x")
		_, err = c.Mutex("x").Lock(t.Context())
		want(t, err, pawl.ErrLimit)
		unlock(t, l)
		late.Wait()
		time.Sleep(5 * time.Second)
		if n := claims(t, store, "x"); n != 0 {
			t.Error("a claim that nobody waits for is held until its TTL has passed")
		}
	})
}

// A claim that was taken away came back by an earlier Enter of its own.
func TestLateEnterAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		c, operator := newClient(t, f, nil), newClient(t, store, nil)
		late := lateEnter(f, "x")
		l := lock(t, c.Mutex("x"))
		if _, err := operator.Release(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		<-l.Lost()
		late.Wait()
		time.Sleep(5 * time.Second)
		if n := claims(t, store, "x"); n != 0 {
			t.Error("the claim is there again, for nobody")
		}
	})
}

// A claim that was taken away before its client had heard of the grant was entered
// under a new id, and the old one came back by an earlier Enter of its own.
func TestLateEnterOfAnEarlierID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		first := lock(t, other.Mutex("x"))
		late := lateEnter(f, "x")
		done := make(chan *pawl.Lease)
		go func() {
			l, err := c.Mutex("x").Lock(context.Background())
			if err != nil {
				t.Error(err)
			}
			done <- l
		}()
		time.Sleep(time.Second) // it waits, by its second Enter
		f.set(func() { f.lag = 100 * time.Millisecond })
		unlock(t, first)
		if _, err := other.Release(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		l := <-done
		late.Wait()
		unlock(t, l)
		time.Sleep(5 * time.Second)
		if n := claims(t, store, "x"); n != 0 {
			t.Error("the claim is there again, for nobody")
		}
	})
}

// A context of a set that is over hid the lease that was taken under it.
func TestDeadlockUnderAnEndedSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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

// Resize answers what it never should.
type oddResize struct {
	driver.Store
	driver.Status
}

func (s oddResize) Resize(context.Context, driver.Ref, int64) (driver.Status, error) {
	return s.Status, nil
}

// The error of such an answer was "%!w(<nil>)".
func TestOddResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, st := range []driver.Status{{State: driver.Waiting}, {State: driver.Holding, Token: 1 << 62}} {
			c := newClient(t, oddResize{memstore.New(), st}, nil)
			l, err := c.RWMutex("x").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Downgrade(t.Context()); err == nil || !strings.Contains(err.Error(), st.State.String()) {
				t.Errorf("downgrade, answered with %+v: %v", st, err)
			}
			l.Unlock(t.Context())
		}
		c := newClient(t, oddResize{memstore.New(), driver.Status{State: driver.Holding}}, nil)
		l, err := c.RWMutex("x").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.TryUpgrade(t.Context()); err == nil || !strings.Contains(err.Error(), "token 0") {
			t.Errorf("upgrade: %v", err)
		}
		l.Unlock(t.Context())
	})
}

// A lease whose token was not known could be handed over, but not adopted: the
// lock stayed taken for a TTL.
func TestHandOverUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		l, err := c.RWMutex("x").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() {
			f.after = func(op string) error {
				if op == "resize" {
					return errNetwork
				}
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, l.TryUpgrade(ctx), errNetwork)
		if claim, err := l.HandOver(t.Context()); err == nil {
			_, err = other.RWMutex("x").Adopt(t.Context(), claim)
			t.Errorf("handed over; then: %v", err)
		}
		if err := l.Err(); err != nil {
			t.Fatalf("the lease is over: %v", err)
		}
		f.set(func() { f.after = nil })
		time.Sleep(10 * time.Second)
		claim, err := l.HandOver(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := other.RWMutex("x").Adopt(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, adopted)
	})
}

// MinHold kept those waiting who only wanted to hear that it was done, each for
// all of it, and those who would have tried again.
func TestOnceMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), &pawl.Options{MinHold: time.Hour})
		start := time.Now()
		want(t, c.Once("x", time.Minute).Do(t.Context(), func(context.Context) error { return errDeclined }), errDeclined)
		var callers sync.WaitGroup
		for i := range 5 {
			callers.Go(func() {
				err := c.Once("x", time.Minute).Do(t.Context(), func(context.Context) error {
					time.Sleep(time.Second)
					return nil
				})
				if i == 0 && err != nil {
					t.Error(err)
				} else if i > 0 {
					want(t, err, pawl.ErrDone)
				}
			})
			time.Sleep(time.Millisecond)
		}
		callers.Wait()
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("the last has heard of it after %v", d)
		}
	})
}
