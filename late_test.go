package pawl_test

import (
	"context"
	"sync"
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

// lateEnter makes the first Enter of a mutex fail, and come to the store two
// seconds later. The reply waits for that.
func lateEnter(f *faultstore.Store, name string) *sync.WaitGroup {
	var late sync.WaitGroup
	first := true
	f.Set(func() {
		f.Hook = func(op string) error {
			if op != "enter" || !first {
				return nil
			}
			first = false
			c := driver.Claim{Name: name, ID: f.Last(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: pawl.DefaultTTL}
			late.Go(func() {
				time.Sleep(2 * time.Second)
				f.Store.Enter(context.Background(), c)
			})
			return faultstore.ErrNetwork
		}
	})
	return &late
}

// A Lock that was refused for good left an earlier Enter of its to itself.
func TestLateEnterAfterRefusal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		l, err := other.Semaphore("x", 5).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		late := lateEnter(f, "x")
		_, err = c.Mutex("x").Lock(t.Context())
		want(t, err, pawl.ErrMismatch)
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
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c, operator := newClient(t, f, nil), newClient(t, store, nil)
		late := lateEnter(f, "x")
		l := lock(t, c.Mutex("x"))
		if _, err := operator.ForceRelease(t.Context(), "x"); err != nil {
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
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		first := lock(t, other.Mutex("x"))
		late := lateEnter(f, "x")
		f.Set(func() { f.Lag = 100 * time.Millisecond })
		done := make(chan *pawl.Lease)
		go func() {
			l, err := c.Mutex("x").Lock(context.Background())
			if err != nil {
				t.Error(err)
			}
			done <- l
		}()
		time.Sleep(time.Second) // it waits, by its second Enter
		unlock(t, first)
		if _, err := other.ForceRelease(t.Context(), "x"); err != nil {
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

// An engine that returns Gone to every Enter is asked without a pause.
type goneEnter struct {
	driver.Store
	n atomic.Int64
}

func (g *goneEnter) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if g.n.Add(1) == 1 {
		return driver.Status{}, faultstore.ErrNetwork
	}
	return driver.Status{State: driver.Gone}, nil
}

func TestGoneLoop(t *testing.T) {
	g := &goneEnter{Store: memstore.New()}
	c := newClient(t, g, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := c.Mutex("x").Lock(ctx)
	if n := g.n.Load(); n > 100 {
		t.Errorf("%d Enters in 0.3 s; %v", n, err)
	}
}

// The background Leave after Unlock hangs on one swallowed request.
func TestBackgroundLeaveHangs(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		a := newClient(t, f, &pawl.Options{TTL: 10 * time.Minute})
		l := lock(t, a.Mutex("x"))
		f.Set(func() { f.Down = true })
		unlock(t, l)
		time.Sleep(time.Second)
		f.Set(func() { f.Down = false })
		time.Sleep(5 * time.Minute)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("5 min after the engine came back (away for 3 s) the claim is there; %d leaves were sent", len(f.Leaves))
		}
	})
}

// A next claim without waiters is forgotten, and Close leaves it in the store.
func TestOrphanNext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := pawl.New(store, nil), newClient(t, store, nil)
		held := lock(t, a.Mutex("x"))
		turn := make(chan *pawl.Lease)
		go func() { turn <- lock(t, a.Mutex("x")) }() // there before b: served in this turn
		synctest.Wait()
		var bl *pawl.Lease
		bgot := make(chan struct{})
		go func() { bl = lock(t, b.Mutex("x")); close(bgot) }()
		synctest.Wait() // wanted, turn = 1
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() { a.Mutex("x").Lock(ctx); close(gone) }() // one more: next is entered
		synctest.Wait()
		cancel() // and goes
		<-gone
		t.Logf("%d claims: a holds, b waits, a's next", claims(t, store, "x"))
		time.Sleep(time.Second)
		unlock(t, held)
		l := <-turn
		time.Sleep(time.Second)
		unlock(t, l)
		<-bgot
		time.Sleep(time.Minute)
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("b holds, nobody at a wants the lock: %d claims a minute later", n)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("after a.Close: %d claims", n)
		}
		unlock(t, bl)
	})
}

// Close stops the background release of an earlier Unlock and says nil.
func TestCloseStopsBackgroundLeave(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := pawl.New(f, nil)
		l := lock(t, c.Mutex("x"))
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		unlock(t, l)
		time.AfterFunc(time.Second, func() { f.Set(func() { f.Err = nil }) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := c.Close(ctx)
		time.Sleep(2 * time.Second)
		if n := claims(t, store, "x"); n != 0 && err == nil {
			t.Errorf("Close had 10 s, the engine came back after 1 s: Close says %v, %d claim stays", err, n)
		}
	})
}
