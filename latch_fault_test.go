package pawl_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// TestLatchBehindABadNetwork lets 100 parties count down, each several times
// until it gets a reply, over a network that loses, repeats and delays.
func TestLatchBehindABadNetwork(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { badLatch(t, seed) })
		})
	}
}

func badLatch(t *testing.T, seed uint64) {
	const parties = 100
	store := memstore.New()
	exact := newClient(t, store, nil).Latch("x", parties)
	var nets []*faultstore.Store
	net := func(i int) *pawl.Latch {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		f := &faultstore.Store{Store: store, Rand: r, Rate: 0.3, Delay: 50 * time.Millisecond}
		nets = append(nets, f)
		return newClient(t, f, nil).Latch("x", parties)
	}
	var waiters []<-chan error
	for i := range 5 {
		l := net(1000 + i)
		waiters = append(waiters, in(func() error { return l.Wait(t.Context()) }))
	}
	var counts, all sync.WaitGroup
	for i := range parties - 1 {
		l := net(i)
		counts.Add(1)
		all.Go(func() {
			defer counts.Done()
			for range 3 { // a process that is started again
				for {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					_, err := l.CountDown(ctx, fmt.Sprint("party ", i))
					cancel()
					if err == nil {
						break
					}
				}
			}
		})
	}
	counts.Wait()
	for _, f := range nets {
		f.Settle() // what was repeated by the network has no effect
	}
	count(t, exact, 1)
	time.Sleep(time.Hour)
	for _, w := range waiters {
		pending(t, w, "Wait for a latch at 1")
	}
	last := net(parties)
	for {
		if left, err := last.CountDown(t.Context(), "the last"); err == nil {
			if left != 0 {
				t.Errorf("%d left", left)
			}
			break
		}
	}
	for _, w := range waiters {
		want(t, <-w, nil)
	}
	for _, f := range nets {
		f.Settle()
	}
}

// A CountDown that would have created the latch comes when that has been opened
// and deleted: it counts nobody in the next one.
func TestLatchLateCreation(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		slow := &slowSwap{Store: store, release: make(chan struct{})}
		far, near := newClient(t, slow, nil).Latch("x", 2), newClient(t, store, nil).Latch("x", 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := far.CountDown(ctx, "a")
		want(t, err, context.DeadlineExceeded)
		countDown(t, near, "a", 1)
		countDown(t, near, "b", 0)
		want(t, near.Delete(t.Context()), nil)
		close(slow.release)
		synctest.Wait()
		count(t, near, 2)
		done := in(func() error { return near.Wait(t.Context()) })
		countDown(t, near, "b", 1)
		pending(t, done, "Wait for a latch at 1")
		countDown(t, near, "a", 0)
		want(t, settled(t, done, "Wait"), nil)
	})
}

// The engine is away for hours: who waits or counts rides it out.
func TestLatchOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		var retried int
		f := &faultstore.Store{Store: store}
		far := newClient(t, f, &pawl.Options{Observer: func(e pawl.Event) {
			if e.Kind != pawl.EventRetrying || e.Name != "x" || e.Attempt == 0 || e.Err == nil {
				t.Errorf("told of %+v", e)
			}
			retried++
		}}).Latch("x", 2)
		near := newClient(t, store, nil).Latch("x", 2)
		wait := in(func() error { return far.Wait(t.Context()) })
		synctest.Wait()
		f.Set(func() { f.Down = true })
		counted := in(func() error { _, err := far.CountDown(t.Context(), "a"); return err })
		countDown(t, near, "b", 1)
		time.Sleep(3 * time.Hour)
		f.Set(func() { f.Down, f.Err = false, faultstore.ErrNetwork })
		time.Sleep(3 * time.Hour)
		pending(t, wait, "Wait")
		pending(t, counted, "CountDown")
		f.Set(func() { f.Err = nil })
		want(t, <-counted, nil)
		want(t, <-wait, nil)
		if retried < 100 {
			t.Errorf("observers heard of %d attempts", retried)
		}
	})
}

// A Backoff counts the failures in a row: what fails now and then is ridden out.
func TestLatchFailsNowAndThen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		loads := 0
		f := &faultstore.Store{Store: memstore.New(), Hook: func(op string) error {
			if op == "load" {
				if loads++; loads%3 != 0 {
					return faultstore.ErrNetwork
				}
			}
			return nil
		}}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(3, pawl.ConstantBackoff(time.Second))})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := c.Latch("x", 1).Wait(ctx)
		want(t, err, context.DeadlineExceeded)
		if loads < 100 {
			t.Errorf("%d loads in an hour, %v", loads, err)
		}
	})
}
