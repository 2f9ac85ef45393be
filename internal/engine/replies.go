package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// What the store says of a claim, and what that does to it. Pure, as the claim.

// entered takes over the reply to an Enter of the claim with that id. leaves, if not
// nil, is the caller that has sent it, whose context has ended: without a reply it gives
// up. left is as that of giveUp.
func (cl *claim) entered(fx *effects, at instant, id string, a answer, silent bool, leaves *caller, ctx ended) (left <-chan struct{}) {
	l := cl.line
	left = closedChan
	if id == cl.id {
		cl.request.byCaller = false
		cl.sentUntil(a.sent.now.Add(cl.ttl))
		if a.err != nil && !driver.IsPermanent(a.err) {
			cl.request.unanswered = true
		}
	}
	switch s := cl.state.(type) {
	case *entering:
		if id != cl.id {
			return left
		}
		if s.tries++; a.err == nil {
			s.tries = 0
		}
		s.silent = silent
		switch {
		case a.err != nil && leaves != nil:
			l.trouble = noReply(a.err)
			left = l.giveUp(fx, at, leaves, ctx) // for others, if there are, it is tried again
		case a.err == nil && a.status.State == driver.Gone:
			cl.stumble(fx, at, errors.New("the engine forgot the claim at once"))
		default:
			cl.take(fx, at, a)
		}
		l.trim(fx, at)
		if cl.pending() && cl.request.attempt == nil {
			cl.startAttempt(fx)
		}
	case abandoned:
		cl.backing.departure.updated(cl)
		if cl.request.attempt == nil {
			cl.state = gone{}
			fx.add(effect{kind: fxRetire, departure: &cl.backing.departure})
		}
	}
	return left
}

// waited takes over the reply to a Wait of the claim with that id.
func (cl *claim) waited(fx *effects, at instant, id string, a answer, woken bool) {
	w, ok := cl.state.(*waiting)
	if !ok || id != cl.id {
		return // a renewal was faster, or it was given up
	}
	// The store does not reply to renewals: Wait, which is woken by messages, may
	// not even notice.
	trouble := w.trouble
	w.trouble = nil
	if trouble != nil && a.status.State != driver.Holding {
		a.err = trouble
	}
	if woken && trouble == nil && a.err != nil {
		return
	}
	cl.take(fx, at, a)
}

// take takes over what the store replied to Enter or Wait.
func (cl *claim) take(fx *effects, at instant, a answer) {
	l, st := cl.line, &a.status
	if a.err != nil {
		cl.stumble(fx, at, a.err)
		return
	}
	if !st.Deadline.IsZero() {
		cl.extended(a)
	}
	l.forgive()
	switch st.State {
	case driver.Holding:
		l.granted(fx, at, cl, st)
	case driver.Waiting:
		cl.queued(fx, at, st)
	case driver.Refused:
		cl.blocker = sighting{st.Blocker, at.now}
		l.refuse(fx, at)
		l.drop(fx, cl)
		cl.refused(fx, at)
		l.plan(fx, at)
	default:
		cl.startOver(fx, at)
	}
}

// queued notes that the claim stands in the store's queue.
func (cl *claim) queued(fx *effects, at instant, st *driver.Status) {
	l := cl.line
	w, before := cl.state.(*waiting)
	if !before {
		w = &waiting{}
		cl.state = w
		if l.key.Kind == driver.KindRW {
			fx.add(effect{kind: fxRivals, claim: cl})
		}
	}
	if c := l.callers.first; c != nil && (!before || st.Ahead != w.ahead || l.trouble != nil) {
		fx.tell(c.terms, Event{Kind: EventWaiting, Context: c.ctx, Name: l.key.Name, Claim: cl.id, Ahead: st.Ahead, Blocker: st.Blocker})
	}
	l.trouble = nil
	w.ahead, cl.blocker = st.Ahead, sighting{st.Blocker, at.now}
	fx.date(cl)
	l.refuse(fx, at)
	l.trim(fx, at)
}

// stumble deals with an error of the store. Who only tries gets the error, unless
// the request just went without a reply.
func (cl *claim) stumble(fx *effects, at instant, err error) {
	l := cl.line
	s, enters := cl.state.(*entering)
	if driver.IsPermanent(err) {
		l.fail(fx, at, err)
		if enters {
			l.drop(fx, cl)
			cl.refused(fx, at)
		}
		l.trim(fx, at)
		return
	}
	l.trouble = err
	cl.rest.failed = true
	for i, c := range l.callers.all() {
		if c.consulting || at.now.Before(c.retry) {
			continue // it was another's attempt
		}
		c.failures++
		switch {
		case c.try && (c.inSet || !enters || !s.silent || at.now.Sub(c.since) >= retry.Longest):
			l.serve(fx, at, c, nil, fmt.Errorf("lock %q: %w", l.key.Name, err))
			continue
		case !c.try:
			c.consulting = true
			fx.add(effect{kind: fxConsult, claim: cl, caller: c, failures: c.failures, err: err})
		}
		if i == 0 {
			fx.tell(c.terms, Event{Kind: EventRetrying, Context: c.ctx, Name: l.key.Name, Claim: cl.id, Attempt: c.failures, Err: err})
		}
	}
	l.trim(fx, at)
}

// startOver makes a new claim of one that the store no longer knows: it has
// run out, or the store has lost its data. It gets a new id, for a late
// message about the old one must not pass for news of this, and stands at the end of
// the queue.
func (cl *claim) startOver(fx *effects, at instant) {
	if cl.request.unanswered { // an Enter may still come, and would enter the old one again
		old := *cl.depart(at, 0)
		fx.add(effect{kind: fxRetire, departure: &old})
	}
	fx.add(effect{kind: fxUnregister, claim: cl, id: cl.id})
	fx.undate(cl)
	cl.backing.entering = entering{}
	cl.id, cl.state = driver.NewID(), &cl.backing.entering
	cl.belief.Store(&belief{plain: cl.plain()})
	cl.wanted, cl.term, cl.request = false, term{}, request{attempt: cl.request.attempt}
	fx.add(effect{kind: fxRegister, claim: cl, id: cl.id})
	cl.rouse(fx)
}

// noticed takes over a notice about the claim with that id.
func (cl *claim) noticed(fx *effects, at instant, n *driver.Notice) {
	_, waits := cl.state.(*waiting)
	h := cl.held()
	switch {
	case cl.id != n.ID:
	case n.Kind == driver.Granted:
		switch {
		case !waits: // it holds already, or is not in the queue yet: the reply to Enter tells
		case cl.request.unanswered:
			// It may be news of what has run out since: a later Enter has entered the
			// claim again then. Renewing it tells.
			cl.hurry(fx, at)
		default:
			cl.line.granted(fx, at, cl, &n.Status)
		}
	case n.Kind == driver.Wanted && h != nil:
		cl.rivalSeen(fx, at)
		cl.line.plan(fx, at)
	case n.Kind == driver.Wanted:
		cl.wanted = true // it has overtaken the news of the grant
	default:
		cl.hurry(fx, at)
	}
}

// renewed takes over the reply to a renewal of the claim with that id.
func (cl *claim) renewed(fx *effects, at instant, id string, a answer) {
	if id == cl.id {
		cl.term.renewing = false
		cl.learned(fx, at, a)
	}
}

// learned takes over the reply to any renewal.
func (cl *claim) learned(fx *effects, at instant, a answer) {
	l, st := cl.line, &a.status
	switch s := cl.state.(type) {
	case *waiting:
		switch {
		case a.err != nil:
			l.trouble, s.trouble = a.err, a.err
			cl.rouse(fx)
			cl.renewalFailed(fx, at, a.err)
		case st.State == driver.Gone:
			cl.startOver(fx, at)
		default:
			s.trouble = nil
			cl.extendedOrHurried(a, at)
			if st.State == driver.Holding {
				l.granted(fx, at, cl, st)
			} else {
				cl.queued(fx, at, st)
			}
		}
	case *holding:
		if cl.ranOut(fx, at) {
			return // a lease that was over for who looked does not come back
		}
		switch {
		case a.err != nil: // a permanent one, too, is tried again for as long as the claim is good
			t := s.tenants
			cl.renewalFailed(fx, at, a.err)
			cl.term.hurried = cl.term.hurried || s.fresh
			fx.tell(t.terms, Event{Kind: EventRetrying, Context: t.ctx, Name: l.key.Name, Claim: cl.id, Token: t.token.Load(), Attempt: cl.term.failures, Err: a.err})
		case st.State == driver.Gone:
			l.lose(fx, at, cl, errGone)
		case a.sent.now.After(s.since) && (st.State != driver.Holding || st.Token > s.token && !cl.outgrown(fx)):
			l.lose(fx, at, cl, errors.New("the engine has gone back to an older state"))
		default:
			s.fresh = false
			cl.extendedOrHurried(a, at)
			// A reply may be older than a notice: it does not take that back.
			if st.Behind > 0 {
				cl.rivalSeen(fx, at)
			}
			l.plan(fx, at)
			fx.date(cl)
		}
	}
}

func (cl *claim) extendedOrHurried(a answer, at instant) {
	if cl.extended(a); cl.term.hurried {
		cl.term.renewAt = at.now
	}
}

func (cl *claim) renewalFailed(fx *effects, at instant, err error) {
	b := cl.believed()
	b.failing = err
	cl.belief.Store(&b)
	cl.term.failures++
	cl.term.renewAt = at.now.Add(min(max(cl.span()/30, 5*time.Millisecond), time.Second))
	fx.date(cl)
}

// refused ends a claim that the store has not taken. A request from before that
// got no reply may still reach it.
func (cl *claim) refused(fx *effects, at instant) {
	if cl.request.unanswered {
		cl.abandon(fx, at)
		return
	}
	cl.end(fx)
}
