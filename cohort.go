package pawl

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// cohortKey is what goroutines must have in common to share a claim.
type cohortKey struct {
	name         string
	units, limit int64
	ttl          time.Duration
	kind         driver.Kind
	noRenewal    bool
	overtake     bool
	label        string
	own          string // the id of a claim that is not shared: an adopted one, a semaphore's, one of a set
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
	users int // guarded by core.mu: calls under way, tenures, claims taking leave

	mu      sync.Mutex
	waiters list.List // of *waiter, first come first
	claim   *claim    // pursued or holding; nil if nobody wants the lock
	next    *claim    // pursued while claim still holds
	older   []*claim  // readers', hold beside claim, and take nobody more
	closed  bool
	rivals  time.Time // when others were last known to wait in the store
	engine  error     // the last failure of the engine, while the lock is waited for
}

// waiter is a goroutine in acquire.
type waiter struct {
	opts   *Options
	ctx    context.Context // for the Observer
	asked  time.Time
	try    bool          // goes as soon as it would have to wait
	at     *list.Element // nil once it is served
	ready  chan struct{} // made by those who wait, closed when served
	single bool          // goes with the first error, too

	// The engine, as this one sees it.
	failures int       // in a row
	asking   bool      // Backoff is being asked
	retry    time.Time // when Backoff wants the next attempt; zero: at once

	tenure *tenure
	err    error
}

const (
	// maxTurn bounds how many local waiters a claim serves once others wait in
	// the store.
	maxTurn = 128
	// rivalry is how long others are taken to want the lock after they were
	// last seen: a notice takes its time, and in that time a claim could serve
	// hundreds.
	rivalry = 10 * time.Millisecond
)

func (co *cohort) acquire(ctx context.Context, opts *Options, try bool) (*tenure, error) {
	w := &waiter{opts: opts, ctx: ctx, asked: time.Now(), try: try}
	cl, err := co.enlist(w)
	if err != nil {
		return nil, err
	}
	if cl != nil {
		sent, slept, st, err := cl.enter(ctx, try)
		co.settle(ctx, cl, sent, slept, st, err)
	}
	return co.await(ctx, w)
}

// enlist makes w a waiter. It returns the claim, if w is the first, for the
// caller to enter from its own goroutine: the way of a lock that nobody else
// wants.
func (co *cohort) enlist(w *waiter) (first *claim, err error) {
	co.mu.Lock()
	defer co.mu.Unlock()
	if co.closed {
		return nil, fmt.Errorf("lock %q: %w", co.key.name, ErrClosed)
	}
	w.at = co.waiters.PushBack(w)
	switch {
	case co.admit():
	case co.claim == nil:
		co.claim = co.newClaim(driver.NewID())
		return co.claim, nil
	case w.try && co.busy():
		co.refuse()
	default:
		co.plan()
		co.hasten() // a pause that others want is none of this one's
		if w.at != nil && w.opts.Observer != nil {
			co.tell(w.opts, Event{Kind: Waiting, Context: w.ctx, Local: true, Ahead: co.waiters.Len() - 1, Blocker: co.holder()})
		}
	}
	return nil, nil
}

// settle takes over what the store replied to the entering of a first claim. If
// that does not settle it, the claim is pursued.
func (co *cohort) settle(ctx context.Context, cl *claim, sent time.Time, slept time.Duration, st driver.Status, err error) {
	gone := ctx.Err() != nil
	co.mu.Lock()
	defer co.mu.Unlock()
	var pause time.Duration
	if err != nil && gone {
		co.engine = noReply(err) // the caller goes; for the others it is tried again
	} else {
		pause = cl.take(entering, cl.id, sent, slept, st, err)
	}
	co.trim()
	if cl.state == entering || cl.state == waiting {
		co.pursue(cl, pause)
	}
}

func (co *cohort) await(ctx context.Context, w *waiter) (*tenure, error) {
	t, left, err := co.outcome(ctx, w)
	awaitLeft(left)
	return t, err
}

// outcome returns what the waiter was served, or gives it up when ctx ends. left
// is closed once the store has heard of that.
func (co *cohort) outcome(ctx context.Context, w *waiter) (t *tenure, left <-chan struct{}, err error) {
	co.mu.Lock()
	if w.at == nil {
		co.mu.Unlock()
		return w.tenure, closedChan, w.err
	}
	w.ready = make(chan struct{})
	co.mu.Unlock()
	select {
	case <-w.ready:
		return w.tenure, closedChan, w.err
	case <-ctx.Done():
	}
	over := &WaitError{Name: co.key.name, Cause: context.Cause(ctx), ctx: ctx.Err()}
	co.mu.Lock()
	defer co.mu.Unlock()
	if w.at == nil { // served at the same moment
		return w.tenure, closedChan, w.err
	}
	over.Engine = co.engine
	if co.claim != nil && co.claim.state == entering && co.engine == nil {
		over.Engine = noReply(over.ctx)
	}
	over.Holder = co.holder()
	co.serve(w, nil, over)
	return nil, co.trim(), over
}

// serve ends a waiter's waiting.
func (co *cohort) serve(w *waiter, t *tenure, err error) {
	co.waiters.Remove(w.at)
	w.at, w.tenure, w.err = nil, t, err
	switch {
	case w.opts.Observer == nil:
	case t != nil:
		t.ctx = w.ctx
		co.tell(w.opts, Event{Kind: Acquired, Context: w.ctx, Claim: t.cl.id, Token: t.token.Load(), Waited: t.acquired.Sub(w.asked)})
	case !w.single:
		co.tell(w.opts, Event{Kind: GaveUp, Context: w.ctx, Waited: time.Since(w.asked), Blocker: blockerOf(err), Err: err})
	}
	if w.ready != nil {
		close(w.ready)
	}
}

// adopt makes a tenure for a claim of another client, whose token was handed over.
func (co *cohort) adopt(ctx context.Context, token int64, opts *Options) (*tenure, error) {
	core, key := co.core, &co.key
	what := adoptee{key.name, key.own, key.kind, key.units, token}
	mark, ok := core.adopting(what)
	if !ok {
		return nil, fmt.Errorf("adopt %q: %w claim %s: this client is adopting it already", key.name, ErrInvalid, key.own)
	}
	replied := false
	defer func() { core.adopted(what, replied) }()
	co.mu.Lock()
	if co.claim != nil {
		co.mu.Unlock()
		return nil, fmt.Errorf("adopt %q: %w claim %s: this client has adopted it already", key.name, ErrInvalid, key.own)
	}
	cl := co.makeClaim(key.own)
	cl.mark = mark
	co.claim = cl
	cl.ends = time.Now().Add(cl.ttl)
	co.mu.Unlock()

	asked := time.Now()
	sent, slept, st, err := cl.adopt(ctx, token)
	_, mismatch := errors.AsType[*driver.MismatchError](err)
	replied = err == nil || mismatch
	co.mu.Lock()
	defer co.mu.Unlock()
	switch {
	case err != nil:
		err = fmt.Errorf("adopt %q: %w", key.name, err)
	case co.closed:
		err = fmt.Errorf("adopt %q: %w", key.name, ErrClosed)
	case st.State == driver.Refused:
		err = fmt.Errorf("adopt %q: it was adopted already, or changed since it was handed over: %w", key.name, &HeldError{key.name, st.Blocker})
	case st.State != driver.Holding:
		err = fmt.Errorf("adopt %q: %w: claim %s is %v now", key.name, ErrLost, cl.id, st.State)
	case !time.Now().Before(st.Deadline):
		err = fmt.Errorf("adopt %q: %w: the engine took too long to reply", key.name, ErrLost)
	default:
		core.register(cl)
		cl.renewedAt(sent, slept, st)
		t := co.grant(cl, opts, st)
		t.ctx = ctx
		co.tell(opts, Event{Kind: Acquired, Context: ctx, Claim: cl.id, Token: st.Token, Waited: t.acquired.Sub(asked)})
		return t, nil
	}
	co.drop(cl)
	cl.end()
	if st.State == driver.Holding { // it is this client's, and nobody here has it
		cl.leaveSoon(st.Token, 0)
	}
	return nil, err
}

func (co *cohort) front() *waiter {
	if e := co.waiters.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

// all returns the waiters, first come first.
func (co *cohort) all() []*waiter {
	ws := make([]*waiter, 0, co.waiters.Len())
	for e := co.waiters.Front(); e != nil; e = e.Next() {
		ws = append(ws, e.Value.(*waiter))
	}
	return ws
}

// fail gives err to all waiters.
func (co *cohort) fail(err error) {
	for _, w := range co.all() {
		co.serve(w, nil, fmt.Errorf("lock %q: %w", co.key.name, err))
	}
}

// refuse tells those who only try that they would have to wait.
func (co *cohort) refuse() {
	for _, w := range co.all() {
		if w.try {
			co.serve(w, nil, co.held())
		}
	}
}

// held says who is in the way.
func (co *cohort) held() error { return &HeldError{co.key.name, co.holder()} }

// holder is who is in the way, as far as known; nil if it is not.
func (co *cohort) holder() *driver.Entry {
	cl := co.claim
	switch {
	case cl == nil:
		return nil
	case cl.state != holding:
		return cl.inTheWay()
	case co.next != nil && co.next.blocker != nil && co.key.shared():
		return co.next.inTheWay()
	}
	return cl.entry()
}

// inTheWay is the claim's blocker, as it is by now unless something has happened
// since it was told.
func (cl *claim) inTheWay() *driver.Entry {
	if cl.blocker == nil {
		return nil
	}
	b, since := *cl.blocker, time.Since(cl.blocked)
	b.Age += since
	b.Held += since
	b.TTL = max(0, b.TTL-since)
	return &b
}

// entry is the claim, which holds, as others see it.
func (cl *claim) entry() *driver.Entry {
	owner := cl.co.core.owner
	owner.Label = cl.co.key.label
	t := cl.tenure
	return &driver.Entry{
		ID: cl.id, State: driver.Holding, Units: cl.units, Token: t.token.Load(), Owner: owner,
		Age: time.Since(cl.since), Held: time.Since(t.acquired), TTL: time.Until(cl.until()),
	}
}

// plan sees to it that a claim is on its way for waiters whom the present one
// will not serve.
func (co *cohort) plan() {
	n := co.waiters.Len()
	if n == 0 || co.closed {
		return
	}
	cl := co.claim
	if cl != nil && cl.state == holding {
		cl.press()
	}
	switch {
	case cl == nil:
		co.claim = co.newClaim(driver.NewID())
		co.pursue(co.claim, 0)
	case cl.state == holding && co.next == nil && n > cl.room():
		co.next = co.newClaim(driver.NewID())
		co.pursue(co.next, 0)
	}
}

// trim abandons the claims that nobody here waits for any longer, and returns
// a channel that is closed once the store has heard of one.
//
// Invariant: a claim that does not hold has a waiter. Who takes the last
// waiter away calls trim.
func (co *cohort) trim() (left <-chan struct{}) {
	left = closedChan
	if co.waiters.Len() > 0 {
		return left
	}
	for _, cl := range []*claim{co.next, co.claim} {
		if cl != nil && cl.state != holding {
			co.drop(cl)
			left = cl.abandon()
		}
	}
	return left
}

// drop forgets the claim, and lets the next one take its place.
func (co *cohort) drop(cl *claim) {
	switch cl {
	case co.claim:
		co.claim, co.next = co.next, nil
	case co.next:
		co.next = nil
	default:
		co.older = slices.DeleteFunc(co.older, func(c *claim) bool { return c == cl })
	}
	co.core.keeper.remove(cl)
}

// granted hands a claim that holds to the first waiter.
func (co *cohort) granted(cl *claim, st driver.Status) {
	now := time.Now()
	if !cl.ample(now) {
		// The news may be old, and the claim have run out since, if this
		// process was paused; or it is nearly used up. Renewing it tells.
		cl.state = waiting
		cl.hurry()
		return
	}
	if cl == co.next || len(co.older) > 0 {
		co.makeWay(cl)
	}
	cl.rouse()
	co.engine = nil
	w := co.front()
	if w == nil {
		co.trim()
		return
	}
	co.serve(w, co.grant(cl, w.opts, st), nil)
	if co.key.shared() {
		co.share(cl)
	}
	co.refuse()
	co.plan()
}

// grant makes the tenure for a claim whose status st says that it holds.
func (co *cohort) grant(cl *claim, opts *Options, st driver.Status) *tenure {
	if cl.state == waiting && cl.plain.Load() {
		// Its time has run while it waited: begin anew, once.
		cl.fresh = true
		cl.hurry()
	}
	cl.state = holding
	cl.token, cl.spare = st.Token, st.Spare
	cl.since = time.Now()
	seen := cl.wanted || st.Behind > 0
	cl.wanted = false
	// Those that it stood behind will mostly come again.
	cl.want(seen || (cl.ahead > 0 || cl.since.Sub(co.rivals) < rivalry) && !co.key.shared())
	if seen {
		co.rivals = cl.since
	}
	t := cl.serve(opts, st.Token, cl.since)
	if seen {
		t.press()
	}
	co.core.keeper.watch(cl)
	return t
}

// pass gives the claim that t holds to the next waiter, if there is one and
// the claim can be passed on: the hand-over without I/O.
func (co *cohort) pass(t *tenure, now time.Time) bool {
	cl, w := t.cl, co.front()
	token := t.token.Load() + 1
	if w == nil || cl.room() == 0 || token-cl.token > cl.spare || !cl.ample(now) {
		return false
	}
	// One token per microsecond at the most (driver.Status.Spare), with 5 %
	// for a clock here that is faster than the store's. That is a moment at the
	// most, unless the clock stands still, as it does in tests.
	for tries := 0; (token-cl.token)*1050 > int64(now.Sub(cl.since)); tries++ {
		if tries == 1000 {
			return false
		}
		now = time.Now()
	}
	if cl.wanted {
		cl.turn--
	}
	t.finish(ErrReleased)
	next := cl.serve(w.opts, token, now)
	if !next.maxHoldEnds.IsZero() || !t.maxHoldEnds.IsZero() {
		co.core.keeper.watch(cl)
	}
	co.serve(w, next, nil)
	if co.waiters.Len() > 0 {
		next.press()
	}
	co.trim()
	return true
}

// dismiss ends a claim that holds no longer, and its tenures.
func (co *cohort) dismiss(cl *claim, err error) {
	cl.end()
	for t := cl.tenure; t != nil; {
		next := t.next
		t.prev, t.next = nil, nil
		t.finish(err)
		t = next
	}
	co.drop(cl)
	co.trim()
	co.plan()
}

// lose ends a claim that is lost.
func (co *cohort) lose(cl *claim, why error) {
	err, used := cl.tenure.lostErr(why), cl.tenure.token.Load()
	for t := cl.tenure; t != nil; t = t.next {
		t.tellLost(err)
	}
	co.dismiss(cl, err)
	if why != errGone {
		cl.retire(used)
	}
}

// gone ends a claim that holds, and that the store no longer knows. An Enter that
// got no reply may still reach it, and would enter the claim again, for nobody.
func (co *cohort) gone(cl *claim) {
	co.lose(cl, errGone)
	if cl.unanswered {
		cl.leaveSoon(0, 0)
	}
}

// close ends all waiting and all leases here, and returns what removes the claims.
func (co *cohort) close() (leave []func(context.Context) error) {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.closed = true
	co.fail(ErrClosed)
	for _, cl := range append([]*claim{co.next, co.claim}, co.older...) {
		switch {
		case cl == nil:
		case cl.state == holding:
			now, token := time.Now(), cl.tenure.token.Load()
			for t := cl.tenure; t != nil; t = t.next {
				co.tell(t.opts, Event{Kind: Released, Context: t.ctx, Claim: cl.id, Token: token, Held: now.Sub(t.acquired), Err: ErrClosed})
			}
			co.dismiss(cl, fmt.Errorf("lock %q: %w", co.key.name, ErrClosed))
			leave = append(leave, func(ctx context.Context) error {
				_, err := cl.leave(ctx, token, cl.linger(now))
				return err
			})
		case !cl.pursued:
			// An Enter of first is under way, which will see co.closed.
		default:
			co.drop(cl)
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
	}
	return leave
}

func (co *cohort) tell(o *Options, e Event) {
	e.Name = co.key.name
	co.core.tell(o, e)
}

// noReply is the engine's part in an error of a caller who left before its
// request got a reply.
func noReply(err error) error { return fmt.Errorf("no reply yet (%w)", err) }

var closedChan = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
