package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// signals tell those who hold something that it has ended, or that others want it.
// They are set off by effects: no mutex of a line is held.
type signals struct {
	mu       sync.Mutex // taken after every other one, and held for a moment only
	lost     chan struct{}
	wanted   chan struct{}
	pressed  bool
	contexts map[<-chan struct{}]*ending // one for each channel by which their parents end
	err      atomic.Pointer[error]       // why it is over
}

// ending is a context that ends with the first parent it was made for, and with what
// is held.
type ending struct {
	context.Context
	cancel context.CancelCauseFunc
}

// end makes err, which never changes from now on, the reason why it is over, unless
// there is one, and reports whether it did. closeLost and endContexts tell of it.
func (s *signals) end(err *error) bool { return s.err.CompareAndSwap(nil, err) }

// over returns why it is over, if end has noted that; else nil.
func (s *signals) over() error {
	if err := s.err.Load(); err != nil {
		return *err
	}
	return nil
}

// lostChan is closed when it ends before it is released.
func (s *signals) lostChan() <-chan struct{} {
	s.mu.Lock()
	if s.lost == nil {
		s.lost = make(chan struct{})
	}
	s.mu.Unlock()
	s.closeLost()
	return s.lost
}

// closeLost closes the channel if it has ended before it was released.
func (s *signals) closeLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.over(); s.lost == nil || err == nil || err == ErrReleased {
		return
	}
	select {
	case <-s.lost:
	default:
		close(s.lost)
	}
}

// press notes that others want it.
func (s *signals) press() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pressed || s.over() != nil {
		return
	}
	if s.pressed = true; s.wanted != nil {
		close(s.wanted)
	}
}

// wantedChan is closed when others want it. first: nobody has asked for it before.
func (s *signals) wantedChan() (c <-chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted == nil {
		first = true
		s.wanted = make(chan struct{})
		if s.pressed {
			close(s.wanted)
		}
	}
	return s.wanted, first
}

// endContexts cancels the contexts. It takes as long as they have children, and calls
// methods of their parents, so no mutex is held, and the renewer does not do it.
func (s *signals) endContexts(err error) {
	s.mu.Lock()
	all := s.contexts
	s.contexts = nil
	s.mu.Unlock()
	for _, c := range all {
		c.cancel(err)
	}
}

// endReleased cancels the contexts of what was released.
func (s *signals) endReleased() {
	if s.over() == ErrReleased {
		s.endContexts(ErrReleased)
	}
}

// hasContexts reports whether there are contexts to end.
func (s *signals) hasContexts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.contexts) > 0
}

// ending returns a context that ends with parent or by endContexts. Parents that end
// by one channel share it, so that they do not pile up with one that lives long.
func (s *signals) ending(parent context.Context) *ending {
	done := parent.Done()
	s.mu.Lock()
	end := s.contexts[done]
	s.mu.Unlock()
	if end != nil {
		return end
	}
	ctx, cancel := context.WithCancelCause(parent)
	end = &ending{ctx, cancel}
	s.mu.Lock()
	if other := s.contexts[done]; other != nil { // made at the same time
		s.mu.Unlock()
		cancel(nil)
		return other
	}
	if s.contexts == nil {
		s.contexts = make(map[<-chan struct{}]*ending)
	}
	s.contexts[done] = end
	s.mu.Unlock()
	if done != nil {
		context.AfterFunc(ctx, func() { s.forget(done, end) })
	}
	return end
}

func (s *signals) forget(done <-chan struct{}, end *ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contexts[done] == end {
		delete(s.contexts, done)
	}
}

// A grantContext ends with its parent and with the grant.
//
// Err, and Done when it is called, ask the clock: timers fire late in a process
// that was paused, or is busy, and the grant is over all the same. They take no
// mutex of a line, for package context may call them from anywhere.
type grantContext struct {
	*ending
	parent context.Context
	of     *Grant
}

// Context returns a context that ends with parent and with the grant.
func (g *Grant) Context(parent context.Context) context.Context {
	if c, ok := parent.(*grantContext); ok && c.of == g {
		return c
	}
	c := &grantContext{g.signals.ending(parent), parent, g}
	c.Err() // it may be over already, after all others were told
	return c
}

func (c *grantContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if err := c.of.over(c.of.engine.instant()); err != nil {
		c.cancel(err)
	}
	return c.Context.Err()
}

func (c *grantContext) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}

// Deadline is the parent's, or the end of MaxHold if that comes first. It is not
// the grant's, which moves with each renewal: what is derived from a context has
// no timer for a later deadline than that one's.
func (c *grantContext) Deadline() (time.Time, bool) {
	d, ok := c.parent.Deadline()
	if last := c.of.tenants[0].maxHoldEnds; !last.IsZero() && (!ok || last.Before(d)) {
		return last, true
	}
	return d, ok
}

type grantKey struct{}

func (c *grantContext) Value(key any) any {
	if key == (grantKey{}) {
		return c
	}
	if v := c.Context.Value(key); v == any(c.Context) {
		return v // package context asks what children are to end with
	}
	return c.parent.Value(key)
}

func contextOf(ctx context.Context) *grantContext {
	c, _ := ctx.Value(grantKey{}).(*grantContext)
	return c
}

// GrantOf returns the grant that ctx belongs to, the innermost of several, or nil.
func GrantOf(ctx context.Context) *Grant {
	if c := contextOf(ctx); c != nil {
		return c.of
	}
	return nil
}

// heldBy returns the tenant of that lock that ctx belongs to and that has not ended, or
// nil. One of another kind does not count: the store refuses the other kind.
func (e *Engine) heldBy(ctx context.Context, key *Key) *tenant {
	for c := contextOf(ctx); c != nil; c = contextOf(c.parent) {
		if c.of.engine != e {
			continue
		}
		for _, t := range c.of.tenants {
			if k := &t.claim.line.key; k.Name == key.Name && k.Kind == key.Kind && t.over(e.instant()) == nil {
				return t
			}
		}
	}
	return nil
}
