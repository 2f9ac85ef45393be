package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A tenant is one grant of a claim to one caller; re-entrant leases of a lock share it.
// Like its claim it only takes events. Its fields that change are guarded by the line's
// mutex, except for the atomic ones.
type tenant struct {
	claim    *claim
	terms    *Terms
	ctx      context.Context // of the call that took it, for an observer; nil without one
	token    atomic.Int64    // written under the line's mutex
	acquired time.Time
	leases   int // not yet released

	maxHoldEnds time.Time // zero: never
	pressed     bool      // others want it, or did

	err      error     // why it is over; nil while it holds
	deadline time.Time // that it had, once it is over

	prev, next *tenant // others on the same claim, see holding.tenants
	set        *Grant  // that it is a part of
	signals    signals // err is there for those who do not hold the mutex
}

// serve makes the claim's next tenant, beside those that hold.
func (cl *claim) serve(terms *Terms, token int64, at instant) *tenant {
	h := cl.held()
	t := &cl.backing.tenant
	if t.claim != nil {
		t = new(tenant)
	}
	t.claim, t.leases = cl, 1
	t.token.Store(token)
	t.begin(terms, at)
	if other := h.tenants; other != nil && other.err == nil {
		t.next, other.prev = other, t
	}
	h.tenants = t
	return t
}

// begin starts MaxHold and MinHold.
func (t *tenant) begin(terms *Terms, at instant) {
	h := t.claim.held()
	t.terms, t.acquired = terms, at.now
	if terms.MaxHold > 0 {
		t.maxHoldEnds = at.now.Add(terms.MaxHold)
	}
	if terms.MinHold > 0 {
		h.minHoldEnds = later(h.minHoldEnds, at.now.Add(terms.MinHold))
	}
}

// only reports whether nobody else holds the tenant's claim.
func (t *tenant) only() bool { return t.prev == nil && t.next == nil }

// over says why the tenant is over; nil while it holds. It needs no mutex.
//
// Invariant: whatever reports that a lease holds asks this, or expire, which also ends
// the tenant.
func (t *tenant) over(at instant) error {
	if err := t.signals.over(); err != nil {
		return err
	}
	why := t.claim.belief.Load().over(at)
	if why == nil {
		why = t.heldTooLong(at)
	}
	if why == nil {
		return nil
	}
	return t.lostErr(why)
}

// expire ends the tenant if its time has passed, in case the renewer has not come
// to it yet, and returns why it is over.
func (t *tenant) expire(fx *effects, at instant) error {
	if t.err == nil && !t.claim.ranOut(fx, at) {
		t.checkMaxHold(fx, at)
	}
	return t.err
}

// expire ends the tenants of a claim that holds whose time has passed.
func (cl *claim) expire(fx *effects, at instant) {
	h := cl.held()
	if h == nil || cl.ranOut(fx, at) {
		return
	}
	for t := h.tenants; t != nil; {
		next := t.next
		t.checkMaxHold(fx, at)
		t = next
	}
}

// ranOut ends a claim that holds, with all its tenants, if its time has passed,
// and reports whether it had.
func (cl *claim) ranOut(fx *effects, at instant) bool {
	why := cl.belief.Load().over(at)
	if why != nil {
		cl.line.lose(fx, at, cl, why)
	}
	return why != nil
}

// checkMaxHold ends the tenant, of a claim that is good, if its own time has
// passed.
func (t *tenant) checkMaxHold(fx *effects, at instant) {
	why := t.heldTooLong(at)
	if why == nil {
		return
	}
	if t.only() {
		t.claim.line.lose(fx, at, t.claim, why)
		return
	}
	err := t.lostErr(why)
	t.tellLost(fx, at, err)
	t.part(fx, at, err)
}

// heldTooLong says whether the tenant's own time has passed.
func (t *tenant) heldTooLong(at instant) error {
	if t.maxHoldEnds.IsZero() || at.now.Before(t.maxHoldEnds) {
		return nil
	}
	return fmt.Errorf("MaxHold of %v has passed", t.terms.MaxHold)
}

// until is the deadline of the tenant.
func (t *tenant) until(at instant) time.Time {
	switch d := t.claim.until(at); {
	case t.err != nil:
		return t.deadline
	case !t.maxHoldEnds.IsZero() && t.maxHoldEnds.Before(d):
		return t.maxHoldEnds
	default:
		return d
	}
}

// part ends a tenant, whose claim others hold too, with err. It returns false if the
// tenant is the only one.
func (t *tenant) part(fx *effects, at instant, err error) bool {
	if t.only() {
		return false
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		t.claim.held().tenants = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	t.finish(fx, at, err)
	return true
}

// finish ends the tenant with err.
func (t *tenant) finish(fx *effects, at instant, err error) {
	if t.err != nil {
		return
	}
	t.deadline = t.until(at)
	t.err = err
	t.signals.end(&t.err)
	fx.add(effect{kind: fxEnded, tenant: t, set: t.set, err: err})
}

// release ends one lease of the tenant. If that was the last, and the claim passes to
// nobody here, release returns the claim's departure, which the caller carries out. It
// returns an error if the tenant was over before.
func (t *tenant) release(fx *effects, at instant, ctx context.Context) (*departure, error) {
	l, cl := t.claim.line, t.claim
	t.expire(fx, at)
	if t.leases--; t.err != nil || t.leases > 0 {
		return nil, t.err
	}
	used := t.token.Load()
	t.tellReleased(fx, at, ctx, used, nil)
	if t.part(fx, at, ErrReleased) || l.pass(fx, at, t) {
		return nil, nil
	}
	d := cl.depart(at, used)
	l.dismiss(fx, at, cl, ErrReleased)
	return d, nil
}

// reenter counts one more lease of the tenant, if the tenant has that many units and
// re-entering is allowed; otherwise it returns ErrDeadlock. It returns false if the
// tenant is over.
func (t *tenant) reenter(fx *effects, at instant, units int64, allowed bool) (bool, error) {
	switch {
	case t.expire(fx, at) != nil || t.leases == 0:
		return false, nil
	case units > t.claim.held().units:
		return false, fmt.Errorf("%w, as a reader: RWLease.TryUpgrade may make it a writer", ErrDeadlock)
	case !allowed:
		return false, ErrDeadlock
	}
	t.leases++
	return true, nil
}

// show notes that another process may adopt the claim: it must not pass to another
// tenant, which an adopter could not tell from this one.
func (t *tenant) show(fx *effects, at instant) {
	if t.err == nil {
		t.claim.held().shown = true
		t.claim.line.plan(fx, at)
	}
}

// press notes that others want what the tenant holds.
func (t *tenant) press(fx *effects) {
	if t.pressed || t.err != nil {
		return
	}
	t.pressed = true
	fx.add(effect{kind: fxPressed, tenant: t, set: t.set})
}

// press notes for all tenants of the claim that others want it.
func (cl *claim) press(fx *effects) {
	for t := cl.held().tenants; t != nil; t = t.next {
		t.press(fx)
	}
}

func (t *tenant) lostErr(why error) error {
	return fmt.Errorf("lock %q, token %d: %w: %w", t.claim.line.key.Name, t.token.Load(), ErrLost, why)
}

func (t *tenant) tellLost(fx *effects, at instant, err error) {
	fx.tell(t.terms, Event{
		Kind: EventLost, Context: t.ctx, Name: t.claim.line.key.Name, Claim: t.claim.id, Token: t.token.Load(), Held: at.now.Sub(t.acquired), Err: err,
	})
}

func (t *tenant) tellReleased(fx *effects, at instant, ctx context.Context, token int64, err error) {
	if t.terms.Observe == nil {
		return // before the Event is made: it is large
	}
	fx.tell(t.terms, Event{
		Kind: EventReleased, Context: ctx, Name: t.claim.line.key.Name, Claim: t.claim.id, Token: token, Held: at.now.Sub(t.acquired), Err: err,
	})
}

// extending prepares a renewal for Extend; 0 means the TTL it has.
func (t *tenant) extending(fx *effects, at instant, ttl time.Duration) (driver.Ref, error) {
	if err := t.expire(fx, at); err != nil {
		return driver.Ref{}, err
	}
	cl := t.claim
	if ttl != 0 {
		cl.ttl = ttl
		cl.line.plan(fx, at) // the claim will not be passed on
	}
	return cl.ref(), nil
}

// extended takes the reply to that, and returns why the tenant is over.
func (t *tenant) extended(fx *effects, at instant, a answer) error {
	t.claim.request.extending--
	if t.expire(fx, at) == nil && a.err == nil {
		t.claim.learned(fx, at, a)
	}
	return t.err
}

// cannotHandOver returns why the tenant cannot be handed over.
func (t *tenant) cannotHandOver(fx *effects, at instant) error {
	name := t.claim.line.key.Name
	if err := t.expire(fx, at); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	h := t.claim.held()
	r := &h.resizing
	switch left := h.minHoldEnds.Sub(at.now); {
	case t.leases > 1:
		return fmt.Errorf("hand over %q: %w: it was re-entered, %d leases hold it", name, driver.ErrInvalid, t.leases)
	case r.underWay: // its token and units are not certain: it could not be adopted
		return fmt.Errorf("hand over %q: %w", name, errUnsettled)
	case r.mayGrow(at, h.token): // and what was handed over would be another's no more
		return fmt.Errorf("hand over %q: a TryUpgrade got no reply, and may reach the engine within %v still: try again then, or after another TryUpgrade and Downgrade, or unlock",
			name, r.late.ends.Sub(at.now).Round(time.Millisecond))
	case left > 0: // whoever adopts it may not know of that
		return fmt.Errorf("hand over %q: %w: MinHold is over in %v only", name, driver.ErrInvalid, left.Round(time.Millisecond))
	case !t.only():
		return fmt.Errorf("hand over %q: %w: other readers of this process share its claim", name, driver.ErrInvalid)
	}
	return nil
}

// offer begins to hand the tenant over: the store keeps the claim from now on, with
// the next renewal.
func (t *tenant) offer(fx *effects, at instant) error {
	if err := t.cannotHandOver(fx, at); err != nil {
		return err
	}
	h := t.claim.held()
	if h.handOver%2 == 1 {
		return fmt.Errorf("hand over %q: %w: another HandOver is under way", t.claim.line.key.Name, driver.ErrInvalid)
	}
	h.handOver++
	return nil
}

// takeBack tells the store that the claim is not handed over, of which it may
// have been told.
func (t *tenant) takeBack(fx *effects, at instant) {
	if h := t.claim.held(); h != nil {
		h.handOver++
		t.claim.hurry(fx, at)
	}
}

// handOver ends a tenant that can be handed over. Its claim stays in the store.
func (t *tenant) handOver(fx *effects, at instant, ctx context.Context) {
	cl := t.claim
	t.tellReleased(fx, at, ctx, t.token.Load(), nil)
	if cl.request.unanswered {
		d := cl.depart(at, 0)
		d.handed = &handed{look: cl.ref(), token: cl.held().token}
		d.handed.look.TTL = driver.MinTTL // it must not make it longer
		fx.add(effect{kind: fxGuard, departure: d})
	}
	cl.line.dismiss(fx, at, cl, ErrReleased)
}
