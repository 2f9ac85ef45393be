package engine

import (
	"context"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// stalled returns an engine where nothing ends leases, as in a process that was
// paused.
func stalled(t *testing.T, store driver.Store) *Engine {
	e := newEngine(t, store)
	e.begun.Do(func() {})
	return e
}

// TestLateReplyRevivesNothing: the reply to a renewal comes after the lease has ended
// for who looked at its context.
func TestLateReplyRevivesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := stalled(t, memstore.New())
		g := acquire(t, e, mutex("x"), terms())
		ctx := g.Context(t.Context())
		cl := g.tenants[0].claim
		sent := e.instant()
		time.Sleep(ttl)
		if ctx.Err() == nil {
			t.Error("Err of its context is nil")
		}
		e.slowly(cl.line, func(fx *effects, at instant) {
			cl.renewed(fx, at, cl.id, answer{sent, driver.Status{State: driver.Holding, Token: g.SoleToken(), Deadline: at.now.Add(time.Minute)}, nil})
		})()
		want(t, g.Err(), ErrLost)
	})
}

// TestBeliefGoesByTheClock: nobody has told the holder yet that the time of its
// lease has passed. Whoever looks sees it.
func TestBeliefGoesByTheClock(t *testing.T) {
	for _, names := range [][]string{{"x"}, {"x", "y"}} {
		bubble.Test(t, func(t *testing.T) {
			g := acquireAll(t, stalled(t, memstore.New()), names...)
			ctx, done := g.Context(t.Context()), g.Context(context.Background())
			time.Sleep(time.Until(g.Deadline()) - time.Second) // the machine's sleep is measured by its own clocks
			want(t, ctx.Err(), nil)
			want(t, g.Err(), nil)
			time.Sleep(time.Second)
			if ctx.Err() == nil {
				t.Error("Err of its context is nil")
			}
			want(t, context.Cause(ctx), ErrLost)
			if !isClosed(done.Done()) {
				t.Error("Done of its context is open")
			}
			if !isClosed(g.Lost()) {
				t.Error("Lost is open")
			}
			want(t, g.Err(), ErrLost)
		})
	}
}

// TestReleaseLooksAtTheClockLast: the lease ends while Release waits to get at it.
func TestReleaseLooksAtTheClockLast(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	e := stalled(t, f)
	key := mutex("x")
	key.TTL = driver.MinTTL
	g := acquire(t, e, key, terms())
	f.Set(func() { f.Err = faultstore.ErrNetwork }) // so that the store does not tell
	l := g.tenants[0].claim.line
	l.mu.Lock()
	begun, released := make(chan struct{}), make(chan error, 1)
	go func() {
		close(begun)
		released <- g.Release(context.Background())
	}()
	<-begun
	time.Sleep(2 * driver.MinTTL)
	l.mu.Unlock()
	want(t, <-released, ErrLost)
	f.Set(func() { f.Err = nil })
}

// The deadline that a lease tells counts off what the machine has slept.
func TestDeadlineCountsSleep(t *testing.T) {
	e := stalled(t, memstore.New())
	g := acquire(t, e, mutex("x"), terms())
	tn := g.tenants[0]
	at := e.begin(tn.claim.line)
	defer tn.claim.line.mu.Unlock()
	before := tn.until(at)
	at.slept += ttl / 2
	if d := before.Sub(tn.until(at)); d != ttl/2 {
		t.Errorf("after %v of sleep the deadline is %v earlier", ttl/2, d)
	}
}
