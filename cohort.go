package pawl

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// cohortKey is what goroutines must have in common to share a claim.
type cohortKey struct {
	name         string
	units, limit int64
	ttl          time.Duration
	noRenewal    bool
	overtake     bool
	label        string
	adopted      string // the id of an adopted claim, which is not shared
}

// A cohort is the goroutines of this process that want the same lock. They
// queue up here and put one claim into the store; on Unlock the lock passes to
// the next of them without I/O. When others wait in the store, no more than
// those who were here by then have their turn before the claim leaves, and the
// next claim is entered before, so that processes take turns too.
//
// This is lock cohorting: Dice, Marathe, Shavit, "Lock Cohorting: A General
// Technique for Designing NUMA Locks", PPoPP 2012.
type cohort struct {
	core  *core
	key   cohortKey
	users int // guarded by core.mu: calls under way, and tenures

	mu      sync.Mutex
	waiters list.List // of *waiter, first come first
	claim   *claim    // pursued or holding; nil if nobody wants the lock
	next    *claim    // pursued while claim still holds
	closed  bool
	engine  error // the last failure of the engine while it was waited for
	events  []told
}

type told struct {
	opts *Options
	Event
}

// waiter is a goroutine in acquire.
type waiter struct {
	opts  *Options
	at    *list.Element
	ready chan struct{} // closed once tenure or err is set

	tenure *tenure
	err    error
}

// maxTurn bounds how many local waiters a claim serves once others wait in
// the store.
const maxTurn = 128

// unlock releases co.mu and then tells observers what happened meanwhile.
func (co *cohort) unlock() {
	events := co.events
	co.events = nil
	co.mu.Unlock()
	for _, e := range events {
		e.opts.tell(e.Event)
	}
}

func (co *cohort) tell(o *Options, e Event) {
	if o.Observer != nil {
		e.Name = co.key.name
		co.events = append(co.events, told{o, e})
	}
}

func (co *cohort) acquire(ctx context.Context, opts *Options, try bool) (*tenure, error) {
	co.mu.Lock()
	if co.closed {
		co.unlock()
		return nil, fmt.Errorf("lock %q: %w", co.key.name, ErrClosed)
	}
	if co.claim == nil {
		cl := co.newClaim(driver.NewID())
		co.claim = cl
		co.unlock()
		return co.first(ctx, cl, opts, try)
	}
	if try {
		err := co.heldHere()
		co.unlock()
		return nil, err
	}
	w := co.enqueue(opts, false)
	co.plan()
	co.unlock()
	return co.await(ctx, w)
}

// first enters a claim from the caller's own goroutine: the way of a lock that
// nobody else wants.
func (co *cohort) first(ctx context.Context, cl *claim, opts *Options, try bool) (*tenure, error) {
	sent, slept, st, err := cl.enter(ctx, try)
	co.mu.Lock()
	if err == nil && st.State == driver.Holding && !co.closed {
		cl.renewedAt(sent, slept, st)
		t := co.grant(cl, opts, st)
		co.plan()
		co.unlock()
		return t, nil
	}
	if !co.closed && (err == nil && st.State == driver.Waiting ||
		err != nil && !try && ctx.Err() == nil && !driver.IsPermanent(err)) {
		w := co.enqueue(opts, true)
		if err == nil {
			co.queued(cl, sent, slept, st)
			co.pursue(cl, 0, 0)
		} else if pause := cl.stumble(1, err); cl.state != over {
			co.pursue(cl, 1, pause)
		}
		co.unlock()
		return co.await(ctx, w)
	}
	// The caller goes. Others may have queued up behind this claim; they get
	// one of their own, for this one may be anything by now.
	co.drop(cl)
	left := closedChan
	switch {
	case err == nil && st.State == driver.Refused:
		cl.end() // it never was in the store
		err = &HeldError{co.key.name, st.Blocker}
	case driver.IsPermanent(err):
		cl.end()
		err = fmt.Errorf("lock %q: %w", co.key.name, err)
	default:
		left = cl.abandon()
		switch {
		case co.closed:
			err = fmt.Errorf("lock %q: %w", co.key.name, ErrClosed)
		case err == nil:
			err = fmt.Errorf("lock %q: the engine answered %v to a new claim", co.key.name, st.State)
		case ctx.Err() != nil:
			err = &waitError{co.key.name, context.Cause(ctx), noAnswer(err)}
		default:
			err = fmt.Errorf("lock %q: %w", co.key.name, err)
		}
	}
	co.plan()
	co.unlock()
	awaitLeft(left)
	return nil, err
}

// adopt makes a tenure for a claim that another client entered.
func (co *cohort) adopt(ctx context.Context, token int64, opts *Options) (*tenure, error) {
	co.mu.Lock()
	if co.claim != nil {
		co.unlock()
		return nil, fmt.Errorf("adopt %q: this client has adopted claim %s already", co.key.name, co.key.adopted)
	}
	cl := co.newClaim(co.key.adopted)
	co.claim = cl
	co.unlock()

	sent, slept, st, err := cl.renew(ctx, cl.ref())
	co.mu.Lock()
	defer co.unlock()
	switch {
	case err != nil:
		err = fmt.Errorf("adopt %q: %w", co.key.name, err)
	case co.closed:
		err = fmt.Errorf("adopt %q: %w", co.key.name, ErrClosed)
	case st.State != driver.Holding || st.Token > token:
		err = fmt.Errorf("adopt %q: %w: claim %s is %v now", co.key.name, ErrLost, cl.id, st.State)
	default:
		cl.renewedAt(sent, slept, st)
		st.Token, st.Spare = token, 0
		return co.grant(cl, opts, st), nil
	}
	co.drop(cl)
	cl.end()
	return nil, err
}

func (co *cohort) enqueue(opts *Options, front bool) *waiter {
	w := &waiter{opts: opts, ready: make(chan struct{})}
	if front {
		w.at = co.waiters.PushFront(w)
	} else {
		w.at = co.waiters.PushBack(w)
	}
	return w
}

func (co *cohort) await(ctx context.Context, w *waiter) (*tenure, error) {
	select {
	case <-w.ready:
		return w.tenure, w.err
	case <-ctx.Done():
	}
	co.mu.Lock()
	select {
	case <-w.ready: // served at the same moment
		co.unlock()
		return w.tenure, w.err
	default:
	}
	co.waiters.Remove(w.at)
	err := &waitError{co.key.name, context.Cause(ctx), co.engine}
	if co.claim != nil && co.claim.state == entering && co.engine == nil {
		err.engine = noAnswer(err.cause)
	}
	var left []<-chan struct{}
	if co.waiters.Len() == 0 {
		for _, cl := range []*claim{co.next, co.claim} {
			if cl != nil && cl.pursued && cl.state != holding {
				co.drop(cl)
				left = append(left, cl.abandon())
			}
		}
	}
	co.unlock()
	for _, l := range left {
		awaitLeft(l)
	}
	return nil, err
}

// plan sees to it that a claim is on its way for waiters whom the present one
// will not serve.
func (co *cohort) plan() {
	n := co.waiters.Len()
	if n == 0 || co.closed {
		return
	}
	switch cl := co.claim; {
	case cl == nil:
		co.claim = co.newClaim(driver.NewID())
		co.pursue(co.claim, 0, 0)
	case cl.state == holding && co.next == nil && n > cl.room():
		co.next = co.newClaim(driver.NewID())
		co.pursue(co.next, 0, 0)
	}
}

// drop forgets the claim, and lets the next one take its place.
func (co *cohort) drop(cl *claim) {
	switch cl {
	case co.claim:
		co.claim, co.next = co.next, nil
	case co.next:
		co.next = nil
	}
	co.core.keeper.remove(cl)
}

// granted hands a claim that has just been granted to the first waiter.
func (co *cohort) granted(cl *claim, st driver.Status) {
	if cl == co.next {
		// The engine would not have granted it while the present claim holds.
		co.lose(co.claim, errors.New("the engine gave the lock to the next claim"))
	}
	if cl.wake != nil {
		cl.wake()
	}
	co.engine = nil
	front := co.waiters.Front()
	if front == nil {
		co.drop(cl)
		cl.abandon()
		return
	}
	w := co.waiters.Remove(front).(*waiter)
	w.tenure = co.grant(cl, w.opts, st)
	close(w.ready)
	co.plan()
}

// grant makes the tenure for a claim whose status st says that it holds.
func (co *cohort) grant(cl *claim, opts *Options, st driver.Status) *tenure {
	if cl.state == waiting && co.key.noRenewal {
		// Its time has run while it waited: begin anew, once.
		cl.hurried, cl.fresh, cl.renewAt = true, true, time.Now()
	}
	cl.state = holding
	cl.token, cl.spare = st.Token, st.Spare
	cl.since = time.Now()
	wanted := cl.wanted || st.Behind > 0
	cl.wanted = false
	cl.want(wanted)
	t := cl.serve(opts, st.Token, cl.since)
	co.core.keeper.watch(cl)
	return t
}

// pass gives the claim that t holds to the next waiter, if there is one and
// the claim can be passed on: the hand-over without I/O.
func (co *cohort) pass(t *tenure, now time.Time) bool {
	cl, front := t.cl, co.waiters.Front()
	if front == nil || cl.room() == 0 || t.token-cl.token >= cl.spare {
		return false
	}
	token := t.token + 1
	// One token per microsecond at the most (driver.Status.Spare), with 5 %
	// for a clock here that is faster than the store's. That is a moment at the
	// most, unless the clock stands still, as it does in tests.
	for tries := 0; (token-cl.token)*1050 > int64(now.Sub(cl.since)); tries++ {
		if tries == 1000 {
			return false
		}
		now = time.Now()
	}
	w := co.waiters.Remove(front).(*waiter)
	if cl.wanted {
		cl.turn--
	}
	w.tenure = cl.serve(w.opts, token, now)
	if !w.tenure.limit.IsZero() || !t.limit.IsZero() {
		co.core.keeper.watch(cl)
	}
	close(w.ready)
	return true
}

// dismiss ends a tenure that was given up, and its claim.
func (co *cohort) dismiss(t *tenure) {
	t.cl.end()
	t.finish(ErrReleased)
	co.drop(t.cl)
	co.plan()
}

// lose ends the tenure of a claim whose lease is over, and the claim.
func (co *cohort) lose(cl *claim, why error) {
	t := cl.tenure
	err := fmt.Errorf("lock %q, token %d: %w: %w", co.key.name, t.token, ErrLost, why)
	cl.end()
	t.finish(err)
	co.tell(t.opts, Event{Kind: Lost, Claim: cl.id, Token: t.token, Held: time.Since(t.acquired), Err: err})
	co.drop(cl)
	co.plan()
}

// queued notes that the claim stands in the store's queue.
func (co *cohort) queued(cl *claim, sent time.Time, slept time.Duration, st driver.Status) {
	if cl.state == entering || st.Ahead != cl.ahead {
		if w := co.waiters.Front(); w != nil {
			co.tell(w.Value.(*waiter).opts, Event{Kind: Waiting, Claim: cl.id, Ahead: st.Ahead, Blocker: st.Blocker})
		}
	}
	co.engine = nil
	cl.state, cl.ahead = waiting, st.Ahead
	cl.blocker = st.Blocker
	if !st.Deadline.IsZero() {
		cl.renewedAt(sent, slept, st)
		co.core.keeper.watch(cl)
	}
}

// failed notes an error that trying again may mend, and answers how long to
// wait before that. A waiter whose Backoff gives up gets the error.
func (co *cohort) failed(cl *claim, attempt int, err error) (pause time.Duration) {
	co.engine = err
	for {
		front := co.waiters.Front()
		if front == nil {
			return 0
		}
		w := front.Value.(*waiter)
		co.tell(w.opts, Event{Kind: Retrying, Claim: cl.id, Attempt: attempt, Err: err})
		pause, ok := w.opts.Backoff(attempt, err)
		if ok {
			return pause
		}
		co.waiters.Remove(front)
		w.err = fmt.Errorf("lock %q: gave up after %d attempts: %w", co.key.name, attempt, err)
		close(w.ready)
	}
}

// fail answers err to all waiters.
func (co *cohort) fail(err error) {
	for front := co.waiters.Front(); front != nil; front = co.waiters.Front() {
		w := co.waiters.Remove(front).(*waiter)
		w.err = fmt.Errorf("lock %q: %w", co.key.name, err)
		close(w.ready)
	}
}

// heldHere is what TryLock answers when this process has the lock, or waits
// for it.
func (co *cohort) heldHere() error {
	e := &HeldError{co.key.name, co.claim.blocker}
	if cl := co.claim; cl.state == holding {
		owner := co.core.owner
		owner.Label = co.key.label
		t := cl.tenure
		e.Holder = &driver.Entry{
			ID: cl.id, State: driver.Holding, Units: co.key.units, Token: t.token, Owner: owner,
			Held: time.Since(t.acquired), TTL: time.Until(cl.deadline),
		}
	}
	return e
}

// close ends everybody's business here and answers how to take leave of the
// claims.
func (co *cohort) close() (leave []func(context.Context) error) {
	co.mu.Lock()
	defer co.unlock()
	co.closed = true
	co.fail(ErrClosed)
	for _, cl := range []*claim{co.next, co.claim} {
		switch {
		case cl == nil || cl.state == entering && !cl.pursued:
			continue // or else first is at it, and will see co.closed
		case cl.state == holding:
			t := cl.tenure
			cl.end()
			t.finish(fmt.Errorf("lock %q: %w", co.key.name, ErrClosed))
			leave = append(leave, func(ctx context.Context) error {
				_, err := cl.leave(ctx, t.token, 0)
				return err
			})
		default:
			left := cl.abandon()
			leave = append(leave, func(ctx context.Context) error {
				select {
				case <-left:
					return nil
				case <-ctx.Done():
					return fmt.Errorf("leave the queue of %q: %w", co.key.name, context.Cause(ctx))
				}
			})
		}
		co.drop(cl)
	}
	return leave
}

// noAnswer is the engine's part in an error of a caller who left before its
// request was answered.
func noAnswer(err error) error { return fmt.Errorf("no answer yet (%w)", err) }
