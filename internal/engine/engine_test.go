package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

const ttl = 15 * time.Second

func newEngine(t *testing.T, store driver.Store) *Engine {
	t.Helper()
	e := New(store, driver.Owner{Host: "test"})
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func mutex(name string) Key {
	return Key{Name: name, Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: ttl}
}

func reader(name string) Key {
	return Key{Name: name, Kind: driver.KindRW, Units: 1, Limit: 10, TTL: ttl}
}

func terms() *Terms {
	return &Terms{Backoff: func(int, error) (time.Duration, bool) { return time.Millisecond, true }}
}

func acquire(t *testing.T, e *Engine, key Key, terms *Terms) *Grant {
	t.Helper()
	g := new(Grant)
	if err := e.Acquire(t.Context(), key, terms, false, g); err != nil {
		t.Fatal(err)
	}
	return g
}

func acquireAll(t *testing.T, e *Engine, names ...string) *Grant {
	t.Helper()
	var keys []Key
	for _, name := range names {
		keys = append(keys, mutex(name))
	}
	var g *Grant
	if err := e.AcquireAll(t.Context(), keys, terms(), false, func() *Grant { g = new(Grant); return g }); err != nil {
		t.Fatal(err)
	}
	return g
}

func want(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v, want %v", err, target)
	}
}

// slowly applies an event to the line as a goroutine does that is not let run again
// until it has unlocked the line: what needs no order is carried out by later.
func (e *Engine) slowly(l *line, event func(fx *effects, at instant)) (later func()) {
	var fx effects
	event(&fx, e.begin(l))
	e.keepOrder(l, &fx)
	return func() { e.perform(&fx) }
}

// A claim does not leave before all who held it were told, also those that it had lost
// before, and whose goroutine has not come to it.
func TestToldBeforeItLeaves(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		e := stalled(t, f)
		first := acquire(t, e, reader("x"), &Terms{MaxHold: time.Second})
		acquire(t, e, reader("x"), terms())
		ctx := first.Context(t.Context())
		cl := first.tenants[0].claim
		time.Sleep(2 * time.Second)
		later := e.slowly(cl.line, cl.expire)
		if cl.held() == nil || first.tenants[0].err == nil {
			t.Fatal("one of them was to be over")
		}
		e.slowly(cl.line, func(fx *effects, at instant) { cl.line.lose(fx, at, cl, errors.New("test")) })()
		synctest.Wait()
		f.Set(func() {
			if len(f.Leaves) > 0 {
				t.Error("it has left, and one was not told")
			}
		})
		later()
		synctest.Wait()
		if !isClosed(ctx.Done()) {
			t.Error("it was not told")
		}
		f.Set(func() {
			if len(f.Leaves) == 0 {
				t.Error("it has not left")
			}
		})
	})
}

// Who has seen by Err that a lease is over sees Lost closed.
func TestLostIsClosedOnceErrTells(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEngine(t, memstore.New())
		for _, asked := range []bool{false, true} {
			g := acquire(t, e, mutex("x"), terms())
			if asked && isClosed(g.Lost()) {
				t.Fatal("it is not lost yet")
			}
			cl := g.tenants[0].claim
			later := e.slowly(cl.line, func(fx *effects, at instant) { cl.line.lose(fx, at, cl, errors.New("test")) })
			want(t, g.Err(), ErrLost)
			if !isClosed(g.Lost()) {
				t.Error("Lost is open")
			}
			later()
		}
	})
}

// A part of several was lost a moment before the release: what everybody is told is
// that, also if the goroutine that is to tell it comes late.
func TestReleaseOfWhatWasJustLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEngine(t, memstore.New())
		g := acquireAll(t, e, "a", "b")
		ctx, lost := g.Context(t.Context()), g.Lost()
		cl := g.tenants[1].claim
		later := e.slowly(cl.line, func(fx *effects, at instant) { cl.line.lose(fx, at, cl, errors.New("test")) })
		want(t, g.Release(t.Context()), ErrLost)
		want(t, g.Err(), ErrLost)
		want(t, context.Cause(ctx), ErrLost)
		if !isClosed(lost) {
			t.Error("Lost is open")
		}
		later()
		want(t, g.Release(t.Context()), ErrReleased)
	})
}

// While several are given back, the reason why they were lost is not forgotten.
func TestErrDuringRelease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		e := newEngine(t, f)
		g := acquireAll(t, e, "a", "b")
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "leave" {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		cl := g.tenants[1].claim
		e.slowly(cl.line, func(fx *effects, at instant) { cl.line.lose(fx, at, cl, errors.New("test")) })()
		released := make(chan error)
		go func() { released <- g.Release(t.Context()) }()
		synctest.Wait()
		want(t, g.Err(), ErrLost)
		want(t, <-released, ErrLost)
	})
}

// The claim of a lease whose Enter may come again was broken: the error of the release
// names the token.
func TestReleaseOfWhatTheStoreForgot(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		e := newEngine(t, f)
		lost := faultstore.ErrNetwork
		f.Set(func() {
			f.After = func(op string) (err error) {
				if op == "enter" {
					err, lost = lost, nil
				}
				return err
			}
		})
		g := acquire(t, e, mutex("x"), terms())
		token := g.SoleToken()
		cl := g.tenants[0].claim
		if !cl.request.unanswered {
			t.Fatal("an Enter was to go without a reply")
		}
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "leave" {
					_, _ = store.Break(context.Background(), "x")
				}
				return nil
			}
		})
		err := g.Release(t.Context())
		want(t, err, ErrLost)
		if text := err.Error(); token == 0 || !strings.Contains(text, fmt.Sprint(token)) {
			t.Errorf("%q does not name the token, %d", text, token)
		}
		time.Sleep(time.Second)
	})
}

// slowContext is a context whose Done takes as long as somebody wants.
type slowContext struct {
	context.Context
	gate atomic.Pointer[chan struct{}]
}

func (s *slowContext) Done() <-chan struct{} {
	if gate := s.gate.Load(); gate != nil {
		<-*gate
	}
	return s.Context.Done()
}

// To end the contexts of a lease takes long: who releases it waits for that, and the
// next caller does not.
func TestContextsDelayNotTheNext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEngine(t, memstore.New())
		g := acquire(t, e, mutex("x"), terms())
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &slowContext{Context: parent}
		ctx := g.Context(s)
		time.Sleep(time.Second) // tokens rise with the time: then it can be passed on
		next, released := make(chan error, 1), make(chan error, 1)
		go func() { next <- e.Acquire(t.Context(), mutex("x"), terms(), false, new(Grant)) }()
		synctest.Wait()
		gate := make(chan struct{})
		s.gate.Store(&gate)
		go func() { released <- g.Release(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-next:
			want(t, err, nil)
		default:
			t.Error("the next caller waits for the contexts of the one before")
		}
		close(gate)
		want(t, <-released, nil)
		want(t, context.Cause(ctx), ErrReleased)
	})
}

// When Release returns, the contexts have ended, also if it is of several names that
// are one.
func TestReleaseEndsContexts(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		bubble.Test(t, func(t *testing.T) {
			e := newEngine(t, memstore.New())
			g := acquireAll(t, e, names...)
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &slowContext{Context: parent}
			child, cancel := context.WithCancel(g.Context(s))
			defer cancel()
			gate, released := make(chan struct{}), make(chan error, 1)
			s.gate.Store(&gate)
			go func() { released <- g.Release(context.Background()) }()
			synctest.Wait()
			if len(released) > 0 {
				t.Errorf("%q: Release has returned before the contexts have ended", names)
			}
			close(gate)
			want(t, <-released, nil)
			if !isClosed(child.Done()) {
				t.Errorf("%q: the context goes on", names)
			}
		})
	}
}
