package engine

import (
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Which caller of a line holds next, and what ends that. Pure, as the line.

// granted gives a claim that holds, by the store's reply, to the first caller.
func (l *line) granted(fx *effects, at instant, cl *claim, st *driver.Status) {
	if !cl.ample(at) {
		// The reply may be old, and the claim may have run out since, if this process
		// was paused; or little of its time is left. A renewal shows which.
		if _, waits := cl.state.(*waiting); !waits {
			cl.state = &waiting{}
		}
		cl.rest.until = at.now.Add(cl.span() / 50)
		cl.hurry(fx, at)
		return
	}
	if cl == l.next || len(l.older) > 0 {
		l.makeWay(fx, at, cl)
	}
	cl.rouse(fx)
	l.trouble = nil
	c := l.callers.first
	if c == nil {
		l.trim(fx, at)
		return
	}
	l.grant(fx, at, cl, st, c.terms, c)
	if l.key.shared() {
		l.share(fx, at, cl)
	}
	l.refuse(fx, at)
	l.plan(fx, at)
}

// grant makes the tenant for a claim whose status st says that it holds, and serves c
// with it; c is nil if nobody has stood in the line for it.
func (l *line) grant(fx *effects, at instant, cl *claim, st *driver.Status, terms *Terms, c *caller) *tenant {
	cl.backing.holding = holding{units: l.key.Units, token: st.Token, spare: st.Spare, since: at.now}
	h := &cl.backing.holding
	w, waited := cl.state.(*waiting)
	if waited && cl.plain() {
		// Part of its time has passed while it waited: renew it, once.
		h.fresh = true
		cl.hurry(fx, at)
	}
	seen := cl.wanted || st.Behind > 0
	cl.state, cl.wanted = h, false
	t := cl.serve(terms, st.Token, at)
	if c != nil {
		l.serve(fx, at, c, t, nil)
	}
	// The claims that it stood behind are mostly entered again.
	cl.want(seen || (waited && w.ahead > 0 || at.now.Sub(l.rivals) < rivalry) && !l.key.shared())
	if seen {
		l.rivals = at.now
		t.press(fx)
	}
	fx.date(cl)
	return t
}

// makeWay puts a claim that was granted in the place of the present one, if it was
// the next.
//
// Invariant: claims of a line that hold at the same time fit beside each other. If the
// present one does not fit, the store no longer knows it.
func (l *line) makeWay(fx *effects, at instant, cl *claim) {
	for _, other := range append(slices.Clone(l.older), l.claim) {
		if h := other.held(); other != cl && h != nil && h.units+l.key.Units > l.key.Limit {
			l.lose(fx, at, other, errors.New("the engine gave the lock to the next claim"))
		}
	}
	if cl == l.next {
		l.older = append(l.older, l.claim)
		l.claim, l.next = cl, nil
	}
}

// admit lets the waiting readers join the present claim, and reports whether it did.
func (l *line) admit(fx *effects, at instant) bool {
	cl := l.claim
	if cl == nil || !cl.open() || l.callers.n == 0 || cl.ranOut(fx, at) || !cl.ample(at) {
		return false
	}
	l.share(fx, at, cl)
	l.trim(fx, at)
	return true
}

// share gives each caller a tenant on the claim.
func (l *line) share(fx *effects, at instant, cl *claim) {
	limited := false
	for c := l.callers.first; c != nil; c = l.callers.first {
		t := cl.serve(c.terms, cl.held().token, at)
		if cl.wanted {
			t.press(fx)
		}
		limited = limited || c.terms.MaxHold > 0
		l.serve(fx, at, c, t, nil)
	}
	if limited {
		fx.date(cl)
	}
}

// heir decides whether the claim that t holds passes to the first local caller when t is
// released, and with which token. soon: not now, but within a moment: its tokens rise by
// at most one per microsecond (driver.Status.Spare), less 5 % in case this clock is
// faster than the store's.
func (l *line) heir(at instant, t *tenant) (token int64, soon, ok bool) {
	cl := t.claim
	h := cl.held()
	if h == nil || l.callers.n == 0 {
		return 0, false, false
	}
	token = t.token.Load() + 1
	drawn := token - h.token
	switch {
	case cl.room() == 0, drawn > h.spare, !cl.ample(at):
		return 0, false, false
	case drawn*1050 > int64(at.now.Sub(h.since)):
		return 0, true, false
	}
	return token, false, true
}

// pass gives the claim that t holds to the next caller, if heir says so: the hand-over
// without I/O.
func (l *line) pass(fx *effects, at instant, t *tenant) bool {
	cl := t.claim
	h := cl.held()
	token, _, ok := l.heir(at, t)
	if !ok {
		return false
	}
	c := l.callers.first
	if cl.wanted {
		h.turn--
	}
	t.finish(fx, at, ErrReleased)
	next := cl.serve(c.terms, token, at)
	if !next.maxHoldEnds.IsZero() || !t.maxHoldEnds.IsZero() {
		fx.date(cl)
	}
	l.serve(fx, at, c, next, nil)
	l.plan(fx, at) // the next one may have terms by which it passes the claim on to nobody
	l.trim(fx, at)
	return true
}

// dismiss ends a claim that holds no longer, and its tenants.
func (l *line) dismiss(fx *effects, at instant, cl *claim, err error) {
	for t := cl.held().tenants; t != nil; {
		next := t.next
		t.prev, t.next = nil, nil
		t.finish(fx, at, err)
		t = next
	}
	cl.end(fx)
	l.drop(fx, cl)
	l.trim(fx, at)
	l.plan(fx, at)
}

// lose ends a claim that is lost. A Leave follows, for the store may still keep it for
// a TTL, if only replies to renewals were lost, or the lease has ended here. If the
// store no longer knows the claim, there is a Leave only if an Enter that is under way
// may enter it again.
func (l *line) lose(fx *effects, at instant, cl *claim, why error) {
	h := cl.held()
	err, used := h.tenants.lostErr(why), h.tenants.token.Load()
	for t := h.tenants; t != nil; t = t.next {
		t.tellLost(fx, at, err)
	}
	d := cl.depart(at, used)
	if why == errGone {
		d.ref.Used, d.lingers = 0, time.Time{}
	}
	l.dismiss(fx, at, cl, err)
	if why != errGone || d.again {
		fx.add(effect{kind: fxRetire, departure: d})
	}
}
