package engine

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A line is the callers of this process that want the same lock. They
// queue up here and put one claim into the store; on release the lock passes to
// the next of them without I/O. When others wait in the store, no more than
// those who were here by then have their turn before the claim leaves, and the
// next claim is entered before, so that processes take turns too.
//
// Readers share a claim: each has a tenant of its own on it, so that MaxHold, contexts
// and errors are its own; the claim leaves the store with the last of them. Who
// comes later joins them, until somebody waits in the store: then it waits for the
// line's next claim, which stands behind that one in the queue. So a line of
// readers may have several claims that hold.
//
// This is lock cohorting: Dice, Marathe, Shavit, "Lock Cohorting: A General
// Technique for Designing NUMA Locks", PPoPP 2012.
//
// Like a claim it only takes events and notes effects.
type line struct {
	mu    sync.Mutex // locked by the engine around each event
	users int        // guarded by the registry: calls under way, tenants

	key   Key
	owner driver.Owner

	callers list.List // of *caller, first come first
	claim   *claim    // pending or holding; nil if nobody wants the lock
	next    *claim    // pending while claim still holds
	older   []*claim  // readers', hold beside claim, and take nobody more
	closed  bool
	rivals  time.Time // when others were last known to wait in the store
	trouble error     // the last failure of the store, while the lock is waited for
}

// caller is a goroutine in Acquire.
type caller struct {
	terms *Terms
	ctx   context.Context // for the observer
	asked time.Time
	try   bool          // goes as soon as it would have to wait
	inSet bool          // one of an EnterAll: goes with the first error, too, and its call tells observers
	place *list.Element // nil once it is served
	ready chan struct{} // made by those who wait, closed when served

	// The store, as this one sees it.
	failures int       // in a row
	asking   bool      // its Backoff is being asked
	retry    time.Time // when that wants the next attempt; zero: at once

	tenant *tenant
	err    error
}

const (
	// maxTurn bounds how many local callers a claim serves once others wait in
	// the store.
	maxTurn = 128
	// rivalry is how long others are taken to want the lock after they were
	// last seen: a notice takes its time, and in that time a claim could serve
	// hundreds.
	rivalry = 10 * time.Millisecond
)

// ask adds a caller. If it is the first, it returns the claim for the caller to
// enter from its own goroutine: the way of a lock that nobody else wants.
func (l *line) ask(fx *effects, at instant, c *caller) (first *claim, err error) {
	if l.closed {
		return nil, fmt.Errorf("lock %q: %w", l.key.Name, driver.ErrClosed)
	}
	c.place = l.callers.PushBack(c)
	switch {
	case l.admit(fx, at):
	case l.claim == nil:
		l.claim = l.newClaim(fx)
		l.claim.request.byCaller = true
		return l.claim, nil
	case c.try && l.busy():
		l.refuse(fx, at)
	default:
		l.plan(fx, at)
		l.hasten(fx) // a pause that others want is none of this one's
		if c.place != nil && c.terms.Observe != nil {
			fx.tell(c.terms, Event{
				Kind: EventWaiting, Context: c.ctx, Name: l.key.Name, Local: true, Ahead: l.callers.Len() - 1, Blocker: l.holder(at),
			})
		}
	}
	return nil, nil
}

// giveUp ends a caller's waiting, whose context has ended with that error and
// cause, unless it was served at the same moment. left is closed once the store has
// heard of that.
func (l *line) giveUp(fx *effects, at instant, c *caller, ctxErr, cause error) (left <-chan struct{}) {
	if c.place == nil {
		return closedChan
	}
	err := &WaitError{Name: l.key.Name, Cause: cause, Context: ctxErr, Engine: l.trouble, Holder: l.holder(at)}
	if err.Engine == nil && l.claim != nil {
		if _, enters := l.claim.state.(*entering); enters {
			err.Engine = noReply(ctxErr)
		}
	}
	l.serve(fx, at, c, nil, err)
	return l.trim(fx, at)
}

// answered takes over what the caller's Backoff said about a failure.
func (l *line) answered(fx *effects, at instant, c *caller, failures int, pause time.Duration, again bool, err error) {
	c.asking = false
	switch {
	case c.place == nil || c.failures != failures: // it was served, or the store has replied since
	case again:
		c.retry = at.now.Add(pause)
	default:
		l.serve(fx, at, c, nil, fmt.Errorf("lock %q: gave up after %d attempts: %w", l.key.Name, failures, err))
		l.trim(fx, at)
	}
	l.hasten(fx)
}

// close ends all waiting and all leases here, and returns the departures of what was
// held.
func (l *line) close(fx *effects, at instant) (held []*departure) {
	l.closed = true
	l.fail(fx, at, driver.ErrClosed)
	for _, cl := range append([]*claim{l.next, l.claim}, l.older...) {
		switch {
		case cl == nil:
		case cl.held() != nil:
			used := cl.held().tenants.token.Load()
			for t := cl.held().tenants; t != nil; t = t.next {
				t.tellReleased(fx, at, t.ctx, used, driver.ErrClosed)
			}
			d := cl.depart(used)
			l.dismiss(fx, at, cl, fmt.Errorf("lock %q: %w", l.key.Name, driver.ErrClosed))
			fx.add(effect{kind: fxRetire, departure: d})
			held = append(held, d)
		case cl.pending():
			l.drop(fx, cl)
			cl.abandon(fx)
		}
	}
	return held
}

// rivalled is told that another line of the name waits in the store now: readers must
// not go on joining each other past a writer of their own process, where no store
// tells them.
func (l *line) rivalled(fx *effects, at instant) {
	for _, cl := range append(slices.Clone(l.older), l.claim) {
		if cl == nil {
			continue
		}
		switch cl.state.(type) {
		case *holding:
			cl.rivalled(fx, at)
		case *entering:
			cl.wanted = true // the reply may be from before
		}
	}
	l.plan(fx, at)
}

// newClaim makes the claim that those who wait want.
func (l *line) newClaim(fx *effects) *claim {
	cl := newClaim(l, driver.NewID())
	fx.add(effect{kind: fxRegister, claim: cl, id: cl.id})
	return cl
}

// serve ends a caller's waiting.
func (l *line) serve(fx *effects, at instant, c *caller, t *tenant, err error) {
	l.callers.Remove(c.place)
	c.place, c.tenant, c.err = nil, t, err
	switch {
	case c.terms.Observe == nil:
	case t != nil:
		t.ctx = c.ctx
		fx.tell(c.terms, Event{
			Kind: EventAcquired, Context: c.ctx, Name: l.key.Name, Claim: t.claim.id, Token: t.token.Load(), Waited: t.acquired.Sub(c.asked),
		})
	case !c.inSet:
		fx.tell(c.terms, Event{
			Kind: EventGaveUp, Context: c.ctx, Name: l.key.Name, Waited: at.now.Sub(c.asked), Blocker: blockerOf(err), Err: err,
		})
	}
	if c.ready != nil {
		fx.add(effect{kind: fxServed, caller: c})
	}
}

func (l *line) front() *caller {
	if p := l.callers.Front(); p != nil {
		return p.Value.(*caller)
	}
	return nil
}

// all returns the callers, first come first.
func (l *line) all() []*caller {
	cs := make([]*caller, 0, l.callers.Len())
	for p := l.callers.Front(); p != nil; p = p.Next() {
		cs = append(cs, p.Value.(*caller))
	}
	return cs
}

// fail gives err to all callers.
func (l *line) fail(fx *effects, at instant, err error) {
	for _, c := range l.all() {
		l.serve(fx, at, c, nil, fmt.Errorf("lock %q: %w", l.key.Name, err))
	}
}

// refuse tells those who only try that they would have to wait.
func (l *line) refuse(fx *effects, at instant) {
	for _, c := range l.all() {
		if c.try {
			l.serve(fx, at, c, nil, &HeldError{l.key.Name, l.holder(at)})
		}
	}
}

// onlyTried reports whether nobody here would wait for a claim.
func (l *line) onlyTried() bool {
	for p := l.callers.Front(); p != nil; p = p.Next() {
		if !p.Value.(*caller).try {
			return false
		}
	}
	return true
}

// forgive forgets the failures of the store, which has replied.
func (l *line) forgive() {
	for p := l.callers.Front(); p != nil; p = p.Next() {
		c := p.Value.(*caller)
		c.failures, c.retry = 0, time.Time{}
	}
}

// retry returns when the most eager of the callers wants the next attempt. While
// all are asking their Backoffs, that is not known.
func (l *line) retry(at instant) time.Time {
	first := at.now.Add(time.Hour)
	for p := l.callers.Front(); p != nil; p = p.Next() {
		if c := p.Value.(*caller); !c.asking && c.retry.Before(first) {
			first = c.retry
		}
	}
	return first
}

// hasten lets the attempts look whether somebody wants the next one earlier.
func (l *line) hasten(fx *effects) {
	for _, cl := range []*claim{l.claim, l.next} {
		if cl != nil && cl.request.attempt != nil {
			fx.add(effect{kind: fxNudge, attempt: cl.request.attempt})
		}
	}
}

// busy reports whether who comes now would have to wait, as far as is known.
func (l *line) busy() bool {
	if l.key.shared() && l.claim.held() != nil {
		if l.next == nil {
			return false
		}
		_, waits := l.next.state.(*waiting)
		return waits
	}
	_, enters := l.claim.state.(*entering)
	return !enters
}

// holder is who is in the way, as far as known; nil if it is not.
func (l *line) holder(at instant) *driver.Entry {
	cl := l.claim
	switch {
	case cl == nil:
		return nil
	case cl.held() == nil:
		return cl.blocker.now(at)
	case l.next != nil && l.next.blocker.entry != nil && l.key.shared():
		return l.next.blocker.now(at)
	}
	return cl.entry(at)
}

// plan sees to it that a claim is on its way for callers whom the present one
// will not serve.
func (l *line) plan(fx *effects, at instant) {
	n := l.callers.Len()
	if n == 0 || l.closed {
		return
	}
	cl := l.claim
	holds := cl != nil && cl.held() != nil
	if holds {
		cl.press(fx)
	}
	switch {
	case cl == nil:
		l.claim = l.newClaim(fx)
		l.claim.pursue(fx)
	case holds && l.next == nil && n > cl.room():
		l.next = l.newClaim(fx)
		l.next.pursue(fx)
	}
}

// trim abandons the claims that nobody here waits for any longer, and returns
// a channel that is closed once the store has heard of one.
//
// Invariant: a claim that does not hold has a caller. Who takes the last
// caller away calls trim.
func (l *line) trim(fx *effects, at instant) (left <-chan struct{}) {
	left = closedChan
	if l.callers.Len() > 0 {
		return left
	}
	for _, cl := range []*claim{l.next, l.claim} {
		if cl != nil && cl.pending() {
			l.drop(fx, cl)
			left = cl.abandon(fx).heard
		}
	}
	return left
}

// drop forgets the claim, and lets the next one take its place.
func (l *line) drop(fx *effects, cl *claim) {
	switch cl {
	case l.claim:
		l.claim, l.next = l.next, nil
	case l.next:
		l.next = nil
	default:
		l.older = slices.DeleteFunc(l.older, func(c *claim) bool { return c == cl })
	}
	fx.undate(cl)
}

var closedChan = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
