package pawl

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A leaseContext ends with its parent and with what was held when it was made.
//
// Err, and Done when it is called, ask the clock: timers fire late in a process
// that was paused, or is busy, and the lease is over all the same. They take no
// mutex of a cohort, for package context may call them from anywhere.
type leaseContext struct {
	*ending
	parent context.Context
	of     hold
}

// hold is a Lease or a LeaseSet.
type hold interface {
	// over says why it is over at that time, or is nil while it holds.
	over(now time.Time) error
	// last is when MaxHold ends it; zero: never.
	last() time.Time
	// part is the lease of that lock which it is or has, or nil.
	part(core *core, name string) *tenure
}

func (c *leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if err := c.of.over(time.Now()); err != nil {
		c.cancel(err)
	}
	return c.Context.Err()
}

func (c *leaseContext) Done() <-chan struct{} {
	c.Err()
	return c.Context.Done()
}

// Deadline is the parent's, or the end of MaxHold if that comes first. It is not
// the lease's, which moves with each renewal: what is derived from a context has
// no timer for a later deadline than that one's.
func (c *leaseContext) Deadline() (time.Time, bool) {
	d, ok := c.parent.Deadline()
	if last := c.of.last(); !last.IsZero() && (!ok || last.Before(d)) {
		return last, true
	}
	return d, ok
}

type leaseKey struct{}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	if v := c.Context.Value(key); v == any(c.Context) {
		return v // package context asks what children are to end with
	}
	return c.parent.Value(key)
}

// LeaseFrom returns the lease that ctx belongs to, the innermost of several:
// that of [Lease.Context], and so of what Do runs. nil if there is none; those of
// a [LeaseSet] are not found.
func LeaseFrom(ctx context.Context) *Lease {
	for c := leaseContextOf(ctx); c != nil; c = leaseContextOf(c.parent) {
		if l, ok := c.of.(*Lease); ok {
			return l
		}
	}
	return nil
}

func leaseContextOf(ctx context.Context) *leaseContext {
	c, _ := ctx.Value(leaseKey{}).(*leaseContext)
	return c
}

// held returns the tenure of that lock that ctx belongs to and that has not
// ended, or nil. One of another kind is no such lock: the engine tells that it is
// in the way.
func held(ctx context.Context, core *core, kind driver.Kind, name string) *tenure {
	for c := leaseContextOf(ctx); c != nil; c = leaseContextOf(c.parent) {
		if t := c.of.part(core, name); t != nil && t.cl.co.key.kind == kind && t.holds() {
			return t
		}
	}
	return nil
}

// endings are what the contexts of a lease end by: one for each channel by which
// their parents end, so that they do not pile up with a parent that lives long.
type endings struct {
	mu  sync.Mutex // taken after every other one, and held for a moment only
	all map[<-chan struct{}]*ending
}

// ending ends with the first parent it was made for, and with the lease.
type ending struct {
	context.Context
	cancel context.CancelCauseFunc
}

// context makes a context of what is held. No mutex is held: package context
// calls methods of parent, which may be the user's.
func (e *endings) context(parent context.Context, of hold) context.Context {
	if c, ok := parent.(*leaseContext); ok && c.of == of {
		return c
	}
	c := &leaseContext{parent: parent, of: of}
	c.ending = e.get(parent.Done())
	if c.ending == nil {
		c.ending = e.add(parent)
	}
	c.Err() // it may be over already, and everybody else have been told
	return c
}

func (e *endings) get(done <-chan struct{}) *ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[done]
}

func (e *endings) add(parent context.Context) *ending {
	done := parent.Done()
	ctx, cancel := context.WithCancelCause(parent)
	e.mu.Lock()
	if other := e.all[done]; other != nil { // made at the same time
		e.mu.Unlock()
		cancel(nil)
		return other
	}
	if e.all == nil {
		e.all = make(map[<-chan struct{}]*ending)
	}
	end := &ending{ctx, cancel}
	e.all[done] = end
	e.mu.Unlock()
	if done != nil {
		context.AfterFunc(ctx, func() { e.forget(done, end) })
	}
	return end
}

func (e *endings) forget(done <-chan struct{}, end *ending) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all[done] == end {
		delete(e.all, done)
	}
}

// used reports whether there is anything to end.
func (e *endings) used() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all) > 0
}

// end cancels the contexts. It takes as long as they have children, and calls
// methods of their parents, so no mutex is held, and the keeper does not do it.
func (e *endings) end(err error) {
	e.mu.Lock()
	all := e.all
	e.all = nil
	e.mu.Unlock()
	for _, c := range all {
		c.cancel(err)
	}
}
