package pawl_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// slowContext is a context whose methods take as long as somebody wants.
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

// TestContextsDelayNobody: ending the context of one lease takes long. The others
// of the client are told in time all the same.
func TestContextsDelayNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), &pawl.Options{NoRenewal: true})
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := &slowContext{Context: parent}
		a, err := c.LockAll(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		b := lock(t, c.Mutex("b"))
		a.Context(s)
		b.Context(s)
		time.Sleep(time.Second)
		l := lock(t, c.Mutex("c"))
		ended := l.Context(t.Context()).Done()
		gate := make(chan struct{})
		s.gate.Store(&gate)
		time.Sleep(time.Until(l.Deadline()) + time.Millisecond)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("its lease is over, and its context is not")
		}
		want(t, b.Err(), pawl.ErrLost)
		want(t, a.Err(), pawl.ErrLost)
		close(gate)
	})
}

type valueKey struct{}

// payload is a value that is not so small that others share its memory.
type payload [8]int

// kept returns how many of the values somebody keeps, once the caller does not.
func kept(values []weak.Pointer[payload]) (n int) {
	runtime.GC()
	for _, v := range values {
		if v.Value() != nil {
			n++
		}
	}
	return n
}

// TestContextsOfOneParent: however many contexts are made of a parent that lives
// long, the lease keeps one. Each has the values of its own parent.
func TestContextsOfOneParent(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	l := lock(t, c.Mutex("x"))
	app, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, parent := range []context.Context{app, context.Background()} {
		first := l.Context(parent)
		before := runtime.NumGoroutine()
		var values []weak.Pointer[payload]
		for i := range 1000 {
			value := &payload{i}
			values = append(values, weak.Make(value))
			ctx := l.Context(context.WithValue(parent, valueKey{}, value))
			if got := ctx.Value(valueKey{}); got != value {
				t.Fatalf("value %v, want %v", got, value)
			}
			if pawl.LeaseFrom(ctx) != l {
				t.Fatal("it does not belong to the lease")
			}
			child, cancel := context.WithCancel(ctx)
			cancel()
			if ctx.Err() != nil || child.Err() == nil {
				t.Fatal("a child was to end, and not its parent")
			}
		}
		if n := kept(values); n > 10 {
			t.Errorf("the lease keeps %d contexts", n)
		}
		if n := runtime.NumGoroutine(); n > before+10 {
			t.Errorf("%d goroutines more", n-before)
		}
		if ctx := l.Context(first); ctx != first {
			t.Error("a context of the lease was made into another one")
		}
	}
	ctx := l.Context(context.WithValue(app, valueKey{}, 1))
	child, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	if d, _ := child.Deadline(); time.Until(d) < 50*time.Minute {
		t.Errorf("a context with an hour's time has a deadline in %v: the lease is renewed", time.Until(d))
	}
	unlock(t, l)
	for _, ctx := range []context.Context{ctx, child, l.Context(app)} {
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), pawl.ErrReleased) {
			t.Errorf("after Unlock: %v, %v", ctx.Err(), context.Cause(ctx))
		}
	}
}

// TestContextWithMaxHold: the time that is left is known, so it is the deadline.
func TestContextWithMaxHold(t *testing.T) {
	c := newClient(t, memstore.New(), &pawl.Options{MaxHold: time.Hour})
	l := lock(t, c.Mutex("x"))
	d, ok := l.Context(t.Context()).Deadline()
	if left := time.Until(d); !ok || left < 50*time.Minute || left > time.Hour {
		t.Errorf("deadline in %v", left)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if d, _ := l.Context(short).Deadline(); time.Until(d) > time.Minute {
		t.Errorf("deadline in %v, the parent's is in a minute", time.Until(d))
	}
	unlock(t, l)
}

// TestErrOfLostAndUnlocked: what ended a lease stays what ended it.
func TestErrOfLostAndUnlocked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), &pawl.Options{NoRenewal: true})
		l := lock(t, c.Mutex("x"))
		s, err := c.LockAll(t.Context(), "y", "z")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want(t, l.Unlock(t.Context()), pawl.ErrLost)
		want(t, l.Err(), pawl.ErrLost)
		want(t, s.Unlock(t.Context()), pawl.ErrLost)
		want(t, s.Err(), pawl.ErrLost)
		want(t, l.Unlock(t.Context()), pawl.ErrReleased)
		want(t, s.Unlock(t.Context()), pawl.ErrReleased)

		// The engine says so with the last request.
		r := lock(t, c.Mutex("r"))
		if _, err := c.ForceRelease(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		want(t, r.Unlock(t.Context()), pawl.ErrLost)
		want(t, r.Err(), pawl.ErrLost)
	})
}
