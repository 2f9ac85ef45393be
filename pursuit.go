package pawl

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// pursue starts the goroutine that sees a claim through to its grant, or, when
// it is abandoned, to its leave. It ends with that.
func (co *cohort) pursue(cl *claim, pause time.Duration) {
	ctx, cancel := context.WithCancel(co.core.ctx)
	cl.stop, cl.pursued, cl.nudge = cancel, true, make(chan struct{}, 1)
	started := co.core.spawn(func() {
		defer cancel()
		cl.run(ctx, pause)
	})
	if !started { // the client is closed
		cancel()
		cl.pursued = false
		co.fail(ErrClosed)
		co.drop(cl)
		cl.end()
	}
}

// run is the pursuit.
func (cl *claim) run(ctx context.Context, pause time.Duration) {
	co := cl.co
	for {
		switch {
		case pause > 0:
			sleep(ctx, pause)
		case pause == asBackoffSays:
			cl.rest(ctx)
		}
		co.mu.Lock()
		state, id := cl.state, cl.id
		if state == holding || state == over {
			cl.pursued = false
			abandoned := cl.left != nil
			co.mu.Unlock()
			if abandoned {
				cl.leaveBehind()
			}
			return
		}
		var (
			st    driver.Status
			err   error
			sent  time.Time
			slept time.Duration
		)
		if state == entering {
			try := co.onlyTried()
			co.mu.Unlock()
			sent, slept, st, err = cl.enter(ctx, try)
		} else {
			wctx, cancel := context.WithCancel(ctx)
			cl.wake = cancel
			co.mu.Unlock()
			st, err = co.core.store.Wait(wctx, driver.Ref{Name: co.key.name, ID: id})
			cancel()
		}
		co.mu.Lock()
		if trouble := cl.trouble; trouble != nil {
			// The engine does not reply to renewals: Wait, which is woken by
			// messages, may not even notice.
			cl.trouble = nil
			if state == waiting && st.State != driver.Holding {
				err = trouble
			}
		}
		pause = cl.take(state, id, sent, slept, st, err)
		co.mu.Unlock()
	}
}

// take takes over what the store replied to Enter or Wait while the claim was
// in that state and had that id, and returns how long to wait before the next
// request.
func (cl *claim) take(state claimState, id string, sent time.Time, slept time.Duration, st driver.Status, err error) (pause time.Duration) {
	co := cl.co
	if cl.state != state || cl.id != id {
		return 0 // the keeper was faster, or the claim was abandoned
	}
	if err == nil && state == entering && st.State == driver.Gone {
		err = errors.New("the engine forgot the claim at once")
	}
	if err != nil {
		return cl.stumble(err)
	}
	if !st.Deadline.IsZero() {
		cl.renewedAt(sent, slept, st)
	}
	for e := co.waiters.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		w.failures, w.retry = 0, time.Time{}
	}
	switch st.State {
	case driver.Holding:
		co.granted(cl, st)
		if cl.state == waiting { // see granted
			return cl.span() / 50
		}
	case driver.Waiting:
		cl.queued(st)
	case driver.Refused:
		cl.blocker, cl.blocked = st.Blocker, time.Now()
		co.refuse()
		co.drop(cl)
		cl.refused()
		co.plan()
	default:
		cl.startOver()
	}
	return 0
}

// queued notes that the claim stands in the store's queue.
func (cl *claim) queued(st driver.Status) {
	co := cl.co
	if cl.state == entering && co.key.kind == driver.KindRW {
		co.core.rival(co)
	}
	if w := co.front(); w != nil && (cl.state == entering || st.Ahead != cl.ahead || co.engine != nil) {
		co.tell(w.opts, Event{Kind: Waiting, Context: w.ctx, Claim: cl.id, Ahead: st.Ahead, Blocker: st.Blocker})
	}
	co.engine = nil
	cl.state, cl.ahead, cl.blocker, cl.blocked = waiting, st.Ahead, st.Blocker, time.Now()
	co.core.keeper.watch(cl)
	co.refuse()
	co.trim()
}

// asBackoffSays is a pause that those who wait decide on.
const asBackoffSays time.Duration = -1

// stumble deals with an error of the engine, and returns how long to wait before
// the next attempt. Who only tries gets the error, unless the request just went
// without a reply.
func (cl *claim) stumble(err error) (pause time.Duration) {
	co := cl.co
	if driver.IsPermanent(err) {
		co.fail(err)
		if cl.state == entering {
			co.drop(cl)
			cl.refused()
		}
		co.trim()
		return 0
	}
	co.engine = err
	now := time.Now()
	for i, w := range co.all() {
		if w.asking || now.Before(w.retry) {
			continue // it was another's attempt
		}
		w.failures++
		switch {
		case w.try && (w.single || !cl.silent || now.Sub(w.asked) >= replyPatience):
			co.serve(w, nil, fmt.Errorf("lock %q: %w", co.key.name, err))
			continue
		case !w.try:
			co.consult(w, w.failures, err)
		}
		if i == 0 {
			co.tell(w.opts, Event{Kind: Retrying, Context: w.ctx, Claim: cl.id, Attempt: w.failures, Err: err})
		}
	}
	co.trim()
	return asBackoffSays
}

// consult asks a waiter's Backoff about a failure. That is the user's code: it is
// called by a goroutine of its own, and delays no other waiter's attempts.
func (co *cohort) consult(w *waiter, attempt int, err error) {
	w.asking = co.core.spawn(func() {
		pause, again := w.opts.Backoff(attempt, err)
		co.mu.Lock()
		defer co.mu.Unlock()
		w.asking = false
		switch {
		case w.at == nil || w.failures != attempt: // it was served, or the engine has replied since
		case again:
			w.retry = time.Now().Add(pause)
		default:
			co.serve(w, nil, fmt.Errorf("lock %q: gave up after %d attempts: %w", co.key.name, attempt, err))
			co.trim()
		}
		co.hasten()
	})
}

// hasten lets the pursuits look whether somebody wants an attempt earlier.
func (co *cohort) hasten() {
	for _, cl := range []*claim{co.claim, co.next} {
		if cl != nil && cl.pursued {
			cl.look()
		}
	}
}

// look ends a rest of the pursuit, if it has become too long.
func (cl *claim) look() {
	select {
	case cl.nudge <- struct{}{}:
	default:
	}
}

// rouse ends the Wait that is under way, or the rest, for the claim's state is
// another now.
func (cl *claim) rouse() {
	if cl.wake != nil {
		cl.wake()
	}
	if cl.pursued {
		cl.look()
	}
}

// rest waits until the most eager of those who wait wants the next attempt, as its
// own Backoff says; who has just come wants it at once.
func (cl *claim) rest(ctx context.Context) {
	for ctx.Err() == nil {
		pause := time.Hour
		cl.co.mu.Lock()
		if cl.state == holding || cl.state == over {
			pause = 0
		}
		for e := cl.co.waiters.Front(); e != nil; e = e.Next() {
			if w := e.Value.(*waiter); !w.asking {
				pause = min(pause, time.Until(w.retry))
			}
		}
		cl.co.mu.Unlock()
		if pause <= 0 {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-cl.nudge:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// startOver makes a new claim of one that the store no longer knows: it has
// run out, or the engine has lost its data. It gets a new id, for a late
// message about the old one must not pass for news of this.
func (cl *claim) startOver() {
	if cl.unanswered { // an Enter may still come, and would enter the old one again
		old := &claim{co: cl.co, id: cl.id, ttl: cl.ttl, ends: cl.ends, state: over, unanswered: true}
		old.leaveSoon(0, 0)
	}
	cl.co.core.unregister(cl)
	cl.co.core.keeper.remove(cl)
	cl.id, cl.state = driver.NewID(), entering
	cl.unanswered, cl.hurried, cl.renewing, cl.wanted, cl.trouble = false, false, false, false, nil
	cl.co.core.register(cl)
	cl.rouse()
}

// renewed takes over the reply to a renewal that was sent at that time.
func (cl *claim) renewed(sent time.Time, slept time.Duration, st driver.Status, err error) {
	co := cl.co
	if cl.state != waiting && cl.state != holding {
		return
	}
	if now := time.Now(); cl.state == holding && cl.ranOut(now, co.core.keeper.sleptBy(now)) {
		return // a lease that was over for who looked does not come back
	}
	switch {
	case err != nil:
		d := cl.believed()
		d.failing = err
		cl.deadline.Store(&d)
		cl.failures++
		if cl.state == waiting {
			co.engine, cl.trouble = err, err
			cl.rouse()
		} else {
			co.tell(cl.tenure.opts, Event{Kind: Retrying, Context: cl.tenure.ctx, Claim: cl.id, Token: cl.tenure.token.Load(), Attempt: cl.failures, Err: err})
		}
		cl.hurried = cl.hurried || cl.fresh
		cl.renewAt = time.Now().Add(min(max(cl.span()/30, 5*time.Millisecond), time.Second))
		co.core.keeper.watch(cl)
		return
	case st.State == driver.Gone && cl.state == waiting:
		cl.startOver()
		return
	case st.State == driver.Gone:
		co.gone(cl)
		return
	case cl.state == holding && sent.After(cl.since) && (st.State != driver.Holding || st.Token > cl.token && !cl.outgrown(st)):
		co.lose(cl, errors.New("the engine has gone back to an older state"))
		return
	}
	cl.renewedAt(sent, slept, st)
	cl.fresh, cl.trouble = false, nil
	if cl.hurried {
		cl.renewAt = time.Now()
	}
	switch {
	case cl.state == holding:
		// A reply may be older than a notice: it does not take that back.
		if st.Behind > 0 {
			cl.rivalled()
		}
		co.plan()
		co.core.keeper.watch(cl)
	case st.State == driver.Holding:
		co.granted(cl, st)
	default:
		cl.queued(st)
	}
}

// checkExpired ends the tenures whose time has passed.
func (cl *claim) checkExpired(now time.Time, slept time.Duration) {
	if cl.ranOut(now, slept) {
		return
	}
	for t := cl.tenure; t != nil; {
		next := t.next
		t.checkMaxHold(now)
		t = next
	}
}

// ranOut ends a claim that holds, with all its tenures, if its time has passed,
// and reports whether it had.
func (cl *claim) ranOut(now time.Time, slept time.Duration) bool {
	why := cl.expired(now, slept)
	if why != nil {
		cl.co.lose(cl, why)
	}
	return why != nil
}

func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }
