package pawl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// A lease whose token was not known could be handed over, but not adopted: the
// lock stayed taken for a TTL.
func TestHandOverUnsettled(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		l, err := c.RWMutex("x").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.Set(func() {
			f.After = func(op string) error {
				if op == "resize" {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, l.TryUpgrade(ctx), faultstore.ErrNetwork)
		if handle, err := l.HandOver(t.Context()); err == nil {
			_, err = other.RWMutex("x").Adopt(t.Context(), handle)
			t.Errorf("handed over; then: %v", err)
		}
		if err := l.Err(); err != nil {
			t.Fatalf("the lease is over: %v", err)
		}
		f.Set(func() { f.After = nil })
		time.Sleep(10 * time.Second)
		handle, err := l.HandOver(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := other.RWMutex("x").Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, adopted)
	})
}

// HandOver of an inner lease ends the outer ones.
func TestHandOverInner(t *testing.T) {
	c := newClient(t, memstore.New(), &pawl.Options{Reentrant: true})
	outer := lock(t, c.Mutex("x"))
	inner, err := c.Mutex("x").Lock(outer.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = inner.HandOver(t.Context())
	want(t, err, pawl.ErrInvalid)
	unlock(t, inner)
	unlock(t, outer)
}

// Adopt of a lease that was unlocked, while its claim serves the next
// local lease.
func TestAdoptEndedLease(t *testing.T) {
	store := memstore.New()
	a, b := newClient(t, store, nil), newClient(t, store, nil)
	first := lock(t, a.Mutex("x"))
	handle := first.Handle()
	got := make(chan *pawl.Lease)
	go func() { got <- lock(t, a.Mutex("x")) }()
	time.Sleep(20 * time.Millisecond)
	unlock(t, first)
	second := <-got
	adopted, err := b.Mutex("x").Adopt(t.Context(), handle)
	if !errors.Is(err, pawl.ErrLost) {
		t.Errorf("adopted an unlocked lease: error %v", err)
	}
	if adopted != nil && second.Err() == nil && adopted.Err() == nil {
		t.Errorf("token %d is adopted beside and after token %d", adopted.Token(), second.Token())
	}
	// also after a proper hand-over of the second
	c2, _ := second.HandOver(t.Context())
	old, err := newClient(t, store, nil).Mutex("x").Adopt(t.Context(), handle)
	t.Logf("second handed over as %s; Adopt(first's %s): %v %v", c2, handle, old != nil, err)
}

func TestAdoptErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		l := lock(t, newClient(t, store, nil).Mutex("x"))
		handle, err := l.HandOver(t.Context())
		want(t, err, nil)

		f.Set(func() { f.Down = true })
		start := time.Now()
		_, err = c.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d > 10*time.Second || errors.Is(err, pawl.ErrLost) {
			t.Errorf("%v, after %v", err, d)
		}
		f.Set(func() { f.Down = false })
		adopted, err := c.Mutex("x").Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second time: %v", err)
		}
		want(t, adopted.Err(), nil)

		for _, adopt := range []func(context.Context, string) (*pawl.Lease, error){
			c.Mutex("{").Adopt, c.Semaphore("{", 2).Adopt, c.Semaphore("x", 0).Adopt,
		} {
			_, err := adopt(t.Context(), handle)
			want(t, err, pawl.ErrInvalid)
		}
		_, err = c.RWMutex("{").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrInvalid)

		// The client is closed in the middle of it.
		closing := pawl.New(f, nil)
		handle, err = adopted.HandOver(t.Context())
		want(t, err, nil)
		done := make(chan struct{})
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "adopt" {
					go func() { defer close(done); closing.Close(context.Background()) }()
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		_, err = closing.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrClosed)
		<-done
		f.Set(func() { f.Hook = nil })
		_, err = closing.Mutex("x").Adopt(t.Context(), handle)
		want(t, err, pawl.ErrClosed)
	})
}

func TestHandOverErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, f, nil)
		_, err := lock(t, c.Mutex("out of reach")).HandOver(t.Context())
		want(t, err, nil)

		l := lock(t, c.Mutex("x"))
		f.Set(func() { f.Down = true })
		start := time.Now()
		_, err = l.HandOver(t.Context())
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("it took %v", d)
		}
		f.Set(func() { f.Down = false })
		want(t, l.Err(), nil) // what it was before

		// It ends at the same moment, in each way.
		for end, target := range map[string]error{"lost": pawl.ErrLost, "released": pawl.ErrReleased} {
			l := lock(t, c.Mutex(end))
			f.Set(func() {
				f.After = func(op string) error {
					if op != "renew" {
						return nil
					}
					f.Set(func() { f.After = nil })
					if end == "lost" {
						c.ForceRelease(context.Background(), end)
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
