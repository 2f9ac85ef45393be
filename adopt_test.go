package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// delayed holds a store's renewals back, while on, until they are let go.
type delayed struct {
	driver.Store
	on   atomic.Bool
	hold chan struct{} // closed to let them go
	sent chan struct{} // gets a value for each
	done chan struct{} // likewise, when it has been carried out
}

func (d *delayed) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if !d.on.Load() {
		d.Store.Renew(ctx, rs, report)
		return
	}
	d.sent <- struct{}{}
	<-d.hold
	d.Store.Renew(context.WithoutCancel(ctx), rs, report)
	d.done <- struct{}{}
}

// A renewal of who has handed a lock over, that arrives when another has adopted
// it, takes nothing from that one: neither its claim, nor the notices about it.
func TestAdoptBesideLateRenewal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		slow := &delayed{Store: store, hold: make(chan struct{}), sent: make(chan struct{}, 100), done: make(chan struct{}, 100)}
		a, b := newClient(t, slow, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		handle := l.Handle()
		slow.on.Store(true)
		<-slow.sent // the renewer's
		adopted, err := b.Mutex("x").Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		ends := adopted.Deadline()
		close(slow.hold)
		<-slow.done
		synctest.Wait()
		want(t, l.Err(), pawl.ErrLost)
		want(t, l.Unlock(t.Context()), pawl.ErrLost)
		if !adopted.Deadline().Equal(ends) {
			t.Errorf("its deadline moved by %v", adopted.Deadline().Sub(ends))
		}
		_, err = newClient(t, store, nil).Mutex("x").TryLock(t.Context())
		want(t, err, pawl.ErrHeld)
		time.Sleep(time.Hour)
		want(t, adopted.Err(), nil)
		unlock(t, adopted)
	})
}

// Of two who adopt one lease, one gets it, and the other is told who has it.
func TestTwoAdopters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		handle, err := lock(t, newClient(t, store, nil).Mutex("x")).HandOver(t.Context())
		want(t, err, nil)
		first, err := newClient(t, store, &pawl.Options{Label: "the first"}).Mutex("x").Adopt(t.Context(), handle)
		want(t, err, nil)
		second := newClient(t, store, nil)
		for range 2 {
			_, err = second.Mutex("x").Adopt(t.Context(), handle)
			want(t, err, pawl.ErrHeld)
			if held := new(pawl.HeldError); !errors.As(err, &held) || held.Holder == nil || held.Holder.Owner.Label != "the first" {
				t.Errorf("%v does not say who has it", err)
			}
			time.Sleep(time.Minute)
		}
		want(t, first.Err(), nil)
		next, err := first.HandOver(t.Context())
		want(t, err, nil)
		_, err = second.Mutex("x").Adopt(t.Context(), handle) // of the hand-over before
		want(t, err, pawl.ErrHeld)
		third, err := second.Mutex("x").Adopt(t.Context(), next)
		want(t, err, nil)
		if third.Token() <= first.Token() {
			t.Errorf("token %d after %d", third.Token(), first.Token())
		}
		unlock(t, third)
	})
}

// An Adopt whose reply is lost is repeated; what was adopted in vain is not
// lost by that.
func TestAdoptAgainAfterLostReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		l := lock(t, newClient(t, store, nil).Mutex("x"))
		handle, err := l.HandOver(t.Context())
		want(t, err, nil)
		f.Set(func() {
			f.After = func(op string) error {
				if op == "adopt" {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		for range 2 {
			_, err = c.Mutex("x").Adopt(t.Context(), handle)
			want(t, err, faultstore.ErrNetwork)
		}
		_, err = newClient(t, store, nil).Mutex("x").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrHeld) // it is that client's by now
		f.Set(func() { f.After = nil })
		adopted, err := c.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, nil)
		time.Sleep(time.Hour)
		want(t, adopted.Err(), nil)
		unlock(t, adopted)

		// The same client may adopt the name again, under another mark.
		l = lock(t, newClient(t, store, nil).Mutex("x"))
		handle, err = l.HandOver(t.Context())
		want(t, err, nil)
		adopted, err = c.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, nil)
		unlock(t, adopted)
	})
}

// A token that cannot have been handed over adopts nothing, and leaves the tokens
// that follow as they are.
func TestAdoptForgedToken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		l := lock(t, a.Mutex("x"))
		id := l.Handle()[:26]
		for _, token := range []int64{1, l.Token() - 1, l.Token() + 1<<20, math.MaxInt64} {
			_, err := b.Mutex("x").Adopt(t.Context(), fmt.Sprintf("%s.%d", id, token))
			want(t, err, pawl.ErrHeld)
		}
		want(t, l.Err(), nil)
		last := l.Token()
		unlock(t, l)
		for range 3 {
			l := lock(t, b.Mutex("x"))
			if l.Token() <= last || l.Token() > last+1<<30 {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			unlock(t, l)
		}
	})
}

// A semaphore that is left with one permit for a while lets no mutex in, whether
// the mutex comes before or after there are more again.
func TestMutexBesideSemaphoreWithOnePermit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		s := a.Semaphore("x", 2)
		permit := acquire(t, s, 1)
		want(t, s.SetLimit(t.Context(), 1), nil)
		unlock(t, permit)
		_, err := b.Mutex("x").TryLock(t.Context())
		want(t, err, pawl.ErrMismatch)
		want(t, s.SetLimit(t.Context(), 2), nil)
		m := lock(t, b.Mutex("x")) // the name is free again, and a mutex from here on
		_, err = s.TryAcquire(t.Context(), 1)
		want(t, err, pawl.ErrMismatch)
		want(t, s.SetLimit(t.Context(), 3), pawl.ErrMismatch)
		_, err = a.Mutex("x").TryLock(t.Context())
		want(t, err, pawl.ErrHeld)
		unlock(t, m)
	})
}

// slowAdopt delays an Adopt before it is carried out, as a slow engine does.
type slowAdopt struct {
	driver.Store
	d time.Duration
}

func (s *slowAdopt) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	time.Sleep(s.d)
	return s.Store.Adopt(ctx, a)
}

// Of those who adopt a lease through one client at the same time one gets it, also
// if they differ in their options.
func TestAdoptersOfOneClient(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		l, err := newClient(t, store, nil).Semaphore("x", 2).Acquire(t.Context(), 1)
		want(t, err, nil)
		handle, err := l.HandOver(t.Context())
		want(t, err, nil)
		b := newClient(t, &slowAdopt{store, 100 * time.Millisecond}, nil)
		handles := []*pawl.Client{
			b, b, b.With(func(o *pawl.Options) { o.Label = "another" }), b.With(func(o *pawl.Options) { o.TTL = time.Minute }), b.With(func(o *pawl.Options) { o.NoRenewal = true }),
		}
		got := make(chan *pawl.Lease)
		for _, c := range handles {
			go func() {
				l, err := c.Semaphore("x", 2).Adopt(t.Context(), handle)
				if err != nil && !errors.Is(err, pawl.ErrInvalid) && !errors.Is(err, pawl.ErrHeld) {
					t.Error(err)
				}
				got <- l
			}()
		}
		n := 0
		for range handles {
			if l := <-got; l != nil {
				n++
				want(t, l.Err(), nil)
				defer unlock(t, l)
			}
		}
		if n != 1 {
			t.Errorf("%d of %d have adopted one permit", n, len(handles))
		}
	})
}

// What was handed over once is not had by what it was called the time before, also
// where the same client has asked for it by both, and got no replies.
func TestAdoptHandedOverAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		a, b, c := newClient(t, store, nil), newClient(t, f, nil), newClient(t, store, nil)
		first, err := lock(t, a.Mutex("x")).HandOver(t.Context())
		want(t, err, nil)
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "adopt" {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		if _, err := b.Mutex("x").Adopt(t.Context(), first); err == nil {
			t.Fatal("the request is lost, and Adopt returns no error")
		}
		l, err := c.Mutex("x").Adopt(t.Context(), first)
		want(t, err, nil)
		second, err := l.HandOver(t.Context())
		want(t, err, nil)
		f.Set(func() { f.Hook, f.After = nil, f.Hook })
		if _, err := b.Mutex("x").Adopt(t.Context(), second); err == nil {
			t.Fatal("the reply is lost, and Adopt returns no error")
		}
		f.Set(func() { f.After = nil })
		if l, err := b.Mutex("x").Adopt(t.Context(), first); !errors.Is(err, pawl.ErrHeld) {
			t.Errorf("adopted by what it was handed over as before: %v, %v", l, err)
		}
		l, err = b.Mutex("x").Adopt(t.Context(), second)
		want(t, err, nil)
		unlock(t, l)
	})
}

// A claim lives as long as its adopter asks for: if that one releases it, or loses
// it, while the engine is away, the next one does not wait for what its former owner
// had given it.
func TestAdoptedForLess(t *testing.T) {
	for _, unlocks := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			store := memstore.New()
			f := &faultstore.Store{Store: store}
			a, b := newClient(t, store, &pawl.Options{TTL: time.Hour, NoRenewal: true}), newClient(t, f, nil)
			handle, err := lock(t, a.Mutex("x")).HandOver(t.Context())
			want(t, err, nil)
			l, err := b.Mutex("x").Adopt(t.Context(), handle)
			want(t, err, nil)
			f.Set(func() { f.Down = true })
			if unlocks {
				want(t, l.Unlock(t.Context()), nil)
			}
			time.Sleep(30 * time.Second)
			f.Set(func() { f.Down = false })
			begun := time.Now()
			unlock(t, lock(t, a.Mutex("x")))
			if d := time.Since(begun); d > time.Second {
				t.Errorf("unlocked %v: the next one waited for %v", unlocks, d)
			}
		})
	}
}

// An Adopt without a reply is repeated, whatever else the client has tried to
// adopt with that claim meanwhile.
func TestAdoptAgainAfterOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		handle, err := lock(t, newClient(t, store, nil).Mutex("x")).HandOver(t.Context())
		want(t, err, nil)
		f.Set(func() {
			f.After = func(op string) error {
				f.Set(func() { f.After = nil })
				return faultstore.ErrNetwork
			}
		})
		_, err = c.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, faultstore.ErrNetwork)
		_, err = c.RWMutex("x").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrMismatch)
		_, err = c.Mutex("y").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrLost)
		l, err := c.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, nil)
		unlock(t, l)
	})
}

// A lease that is adopted without a hand-over ends at once, whichever client
// adopts it.
func TestAdoptTellsFormerOwner(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a := newClient(t, store, nil)
		for _, c := range []*pawl.Client{newClient(t, store, nil), a} {
			l := lock(t, a.Mutex("x"))
			got, err := c.Mutex("x").Adopt(t.Context(), l.Handle())
			want(t, err, nil)
			time.Sleep(time.Second)
			want(t, l.Err(), pawl.ErrLost)
			unlock(t, got)
		}
	})
}
