package engine

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A line is the callers of this process that want the same lock. They wait here in
// order and put one claim into the store; on release the lock passes to the next
// caller without I/O. When others begin to wait in the store, the claim serves only
// as many callers as are here by then, and leaves. The next claim is entered before that,
// so that processes take turns.
//
// Readers share a claim: each has a tenant of its own on it, so that MaxHold, contexts
// and errors are its own; the claim leaves the store with the last of them. Later
// readers join it, until somebody waits in the store: then they wait for the line's
// next claim, which stands behind that one in the queue. So a line of readers may
// have several claims that hold.
//
// The algorithm is that of Dice, Marathe, Shavit, "Lock Cohorting: A General
// Technique for Designing NUMA Locks", PPoPP 2012.
//
// Like a claim, a line only takes events and notes effects.
type line struct {
	mu    sync.Mutex // locked by the engine around each event
	users int        // guarded by the registry: calls under way, tenants

	key   Key
	owner driver.Owner

	callers callers  // first come first
	claim   *claim   // pending or holding; nil if nobody wants the lock
	next    *claim   // pending while claim still holds
	older   []*claim // of readers: they hold beside claim, and nobody joins them
	closed  bool
	rivals  time.Time // when others were last known to wait in the store
	trouble error     // the last failure of the store, while the lock is waited for

	first claim // see newClaim: most lines have one
}

const (
	// maxTurn bounds how many local callers a claim serves once others wait in
	// the store.
	maxTurn = 128
	// rivalry is for how long after others were last seen they are taken to want the
	// lock: a notice takes time, and meanwhile a claim could serve hundreds.
	rivalry = 10 * time.Millisecond
)

// add adds a caller. If it is the first, add returns the claim, which the caller
// enters from its own goroutine: so a lock that nobody else wants needs no other.
func (l *line) add(fx *effects, at instant, c *caller) (first *claim, err error) {
	if l.closed {
		return nil, fmt.Errorf("lock %q: %w", l.key.Name, driver.ErrClosed)
	}
	l.callers.push(c)
	c.since = at.now
	switch {
	case l.admit(fx, at):
	case l.claim == nil:
		l.claim = l.newClaim(fx)
		l.claim.request.byCaller = true
		return l.claim, nil
	case c.try && l.busy():
		l.refuse(fx, at)
		l.trim(fx, at)
	default:
		l.plan(fx, at)
		l.hasten(fx) // the pauses of others are not for this one
		if !c.waits {
			break
		}
		c.ready = make(chan struct{})
		if c.terms.Observe != nil {
			fx.tell(c.terms, Event{
				Kind: EventWaiting, Context: c.ctx, Name: l.key.Name, Local: true, Ahead: l.callers.n - 1, Blocker: l.holder(at),
			})
		}
	}
	return nil, nil
}

// ended is how a context has ended: its error and its cause.
type ended struct{ err, cause error }

// giveUp ends a caller's waiting, whose context has ended, unless it was served at the
// same moment. left is closed once the store has heard of that.
func (l *line) giveUp(fx *effects, at instant, c *caller, ctx ended) (left <-chan struct{}) {
	if !c.waits {
		return closedChan
	}
	err := &WaitError{Name: l.key.Name, Cause: ctx.cause, Context: ctx.err, Engine: l.trouble, Holder: l.holder(at)}
	if err.Engine == nil && l.claim != nil {
		if _, enters := l.claim.state.(*entering); enters {
			err.Engine = noReply(ctx.err)
		}
	}
	l.serve(fx, at, c, nil, err)
	return l.trim(fx, at)
}

// consulted notes what the caller's Backoff has returned for a failure.
func (l *line) consulted(fx *effects, at instant, c *caller, failures int, pause time.Duration, again bool, err error) {
	c.consulting = false
	switch {
	case !c.waits || c.failures != failures: // it was served, or the store has replied since
	case again:
		c.retry = at.now.Add(pause)
	default:
		l.serve(fx, at, c, nil, fmt.Errorf("lock %q: gave up after %d attempts: %w", l.key.Name, failures, err))
		l.trim(fx, at)
	}
	l.hasten(fx)
}

// close ends all waiting and all leases of the line, and returns the departures of
// the claims that held.
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
			d := cl.depart(at, used)
			l.dismiss(fx, at, cl, fmt.Errorf("lock %q: %w", l.key.Name, driver.ErrClosed))
			fx.add(effect{kind: fxRetire, departure: d})
			held = append(held, d)
		case cl.pending():
			l.drop(fx, cl)
			cl.abandon(fx, at)
		}
	}
	return held
}

// rivalSeen notes that another line of the name waits in the store now. Otherwise
// readers could go on joining each other past a writer of their own process, where
// the store does not push.
func (l *line) rivalSeen(fx *effects, at instant) {
	for _, cl := range append(slices.Clone(l.older), l.claim) {
		if cl == nil {
			continue
		}
		switch cl.state.(type) {
		case *holding:
			cl.rivalSeen(fx, at)
		case *entering:
			cl.wanted = true // the reply may be from before
		}
	}
	l.plan(fx, at)
}

// newClaim makes a claim for the callers.
func (l *line) newClaim(fx *effects) *claim {
	cl := newClaim(l, driver.NewID())
	fx.add(effect{kind: fxRegister, claim: cl, id: cl.id})
	return cl
}

// serve ends a caller's waiting.
func (l *line) serve(fx *effects, at instant, c *caller, t *tenant, err error) {
	l.callers.remove(c)
	c.tenant, c.err = t, err
	switch {
	case c.terms.Observe == nil:
	case t != nil:
		t.ctx = c.ctx
		fx.tell(c.terms, Event{
			Kind: EventAcquired, Context: c.ctx, Name: l.key.Name, Claim: t.claim.id, Token: t.token.Load(), Waited: t.acquired.Sub(c.since),
		})
	case !c.inSet:
		fx.tell(c.terms, Event{
			Kind: EventGaveUp, Context: c.ctx, Name: l.key.Name, Waited: at.now.Sub(c.since), Blocker: blockerOf(err), Err: err,
		})
	}
	if c.ready != nil {
		fx.add(effect{kind: fxServed, caller: c})
	}
}

// fail gives err to all callers.
func (l *line) fail(fx *effects, at instant, err error) {
	for _, c := range l.callers.all() {
		l.serve(fx, at, c, nil, fmt.Errorf("lock %q: %w", l.key.Name, err))
	}
}

// refuse ends the calls that only try: they would have to wait.
func (l *line) refuse(fx *effects, at instant) {
	for _, c := range l.callers.all() {
		if c.try {
			l.serve(fx, at, c, nil, &HeldError{l.key.Name, l.holder(at)})
		}
	}
}

// firstTry returns the first caller that only tries, or nil.
func (l *line) firstTry() *caller {
	for c := l.callers.first; c != nil; c = c.next {
		if c.try {
			return c
		}
	}
	return nil
}

// onlyTried reports whether all callers only try.
func (l *line) onlyTried() bool {
	for c := l.callers.first; c != nil; c = c.next {
		if !c.try {
			return false
		}
	}
	return true
}

// forgive forgets the failures of the store, which has replied.
func (l *line) forgive() {
	for c := l.callers.first; c != nil; c = c.next {
		c.failures, c.retry = 0, time.Time{}
	}
}

// retry returns the earliest time at which a caller wants the next attempt. While all
// of them are asking their Backoffs, that is not known.
func (l *line) retry(at instant) time.Time {
	first := at.now.Add(time.Hour)
	for c := l.callers.first; c != nil; c = c.next {
		if !c.consulting && c.retry.Before(first) {
			first = c.retry
		}
	}
	return first
}

// hasten makes the attempts look whether a caller wants the next request earlier.
func (l *line) hasten(fx *effects) {
	for _, cl := range []*claim{l.claim, l.next} {
		if cl != nil && cl.request.attempt != nil {
			fx.add(effect{kind: fxNudge, attempt: cl.request.attempt})
		}
	}
}

// busy reports whether a new caller would have to wait, as far as is known.
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

// holder returns a holder that is in the way, or nil if none is known.
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

// plan enters another claim if the present one will not serve all callers.
func (l *line) plan(fx *effects, at instant) {
	n := l.callers.n
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
		l.claim.startAttempt(fx)
	case holds && l.next == nil && n > cl.room():
		l.next = l.newClaim(fx)
		l.next.startAttempt(fx)
	}
}

// trim abandons the claims that no caller waits for any longer, and returns a channel
// that is closed once the store was told of one.
//
// Invariant: a claim that does not hold has a caller. Whatever removes a caller calls
// trim.
func (l *line) trim(fx *effects, at instant) (left <-chan struct{}) {
	left = closedChan
	if l.callers.n > 0 {
		return left
	}
	for _, cl := range []*claim{l.next, l.claim} {
		if cl != nil && cl.pending() {
			l.drop(fx, cl)
			left = cl.abandon(fx, at).heard
		}
	}
	return left
}

// drop removes the claim from the line; the next one takes its place.
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
