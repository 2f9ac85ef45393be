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
func (co *cohort) pursue(cl *claim, attempt int, pause time.Duration) {
	ctx, cancel := context.WithCancel(co.core.ctx)
	cl.stop, cl.pursued = cancel, true
	started := co.core.spawn(func() {
		defer cancel()
		cl.run(ctx, attempt, pause)
	})
	if !started {
		cancel()
		cl.pursued = false
		co.fail(ErrClosed)
		cl.end()
		co.drop(cl)
	}
}

// run is the pursuit; attempt counts the failures in a row so far, and pause
// is how long to wait after them.
func (cl *claim) run(ctx context.Context, attempt int, pause time.Duration) {
	co := cl.co
	for {
		if pause > 0 {
			sleep(ctx, pause)
		}
		co.mu.Lock()
		state, id := cl.state, cl.id
		if state == holding || state == over {
			cl.pursued = false
			leave := cl.left != nil
			co.unlock()
			if leave {
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
			co.unlock()
			sent, slept, st, err = cl.enter(ctx, false)
		} else {
			wctx, cancel := context.WithCancel(ctx)
			cl.wake = cancel
			co.unlock()
			st, err = co.core.store.Wait(wctx, driver.Ref{Name: co.key.name, ID: id, TTL: cl.ttl})
			cancel()
		}
		co.mu.Lock()
		switch {
		case cl.state != state || cl.id != id:
			// The keeper was faster, or the claim was abandoned.
			attempt, pause = 0, 0
		case err != nil:
			attempt++
			pause = cl.stumble(attempt, err)
		default:
			attempt = 0
			pause = cl.learn(sent, slept, st)
		}
		co.unlock()
	}
}

// stumble deals with an error of the engine, and answers how long to wait
// before the next attempt.
func (cl *claim) stumble(attempt int, err error) (pause time.Duration) {
	co := cl.co
	if driver.IsPermanent(err) {
		co.fail(err)
	} else {
		pause = co.failed(cl, attempt, err)
	}
	if co.waiters.Len() == 0 {
		co.drop(cl)
		cl.abandon()
	}
	return pause
}

// learn takes over what the store answered to a claim that is entering or
// waiting.
func (cl *claim) learn(sent time.Time, slept time.Duration, st driver.Status) (pause time.Duration) {
	co := cl.co
	if !st.Deadline.IsZero() {
		cl.renewedAt(sent, slept, st)
	}
	switch {
	case st.State == driver.Holding && cl.remaining(time.Now(), co.core.keeper.sleptLately()) < cl.ttl/4:
		// The grant may be an old one, of a claim that has run out since, if
		// this process was paused: renewing it tells.
		co.queued(cl, sent, slept, driver.Status{State: driver.Waiting, Ahead: cl.ahead, Deadline: st.Deadline})
		cl.hurried, cl.renewAt = true, time.Now()
		co.core.keeper.watch(cl)
		return cl.ttl / 50
	case st.State == driver.Holding:
		co.granted(cl, st)
	case st.State == driver.Waiting:
		co.queued(cl, sent, slept, st)
	default:
		cl.again()
	}
	return 0
}

// again makes a claim of one that the store no longer knows: it has run out,
// or the engine has lost its data. It gets a new id, for a late message about
// the old one must not pass for news of this.
func (cl *claim) again() {
	cl.co.core.unregister(cl)
	cl.co.core.keeper.remove(cl)
	cl.id, cl.state, cl.ahead = driver.NewID(), entering, -1
	cl.unanswered, cl.hurried, cl.renewing, cl.wanted = false, false, false, false
	cl.co.core.register(cl)
	if cl.wake != nil {
		cl.wake()
	}
}

// renewed takes over the answer to a renewal.
func (cl *claim) renewed(ttl time.Duration, sent time.Time, slept time.Duration, st driver.Status, err error) {
	co := cl.co
	if cl.state != waiting && cl.state != holding {
		return
	}
	if ttl > cl.ttl {
		st.Deadline = time.Time{} // it has been shortened since
	}
	switch {
	case err != nil:
		cl.failing = err
		if cl.state == waiting {
			co.engine = err
		}
		cl.renewAt = time.Now().Add(min(max(cl.ttl/30, 5*time.Millisecond), time.Second))
	case st.State == driver.Gone && cl.state == holding:
		co.lose(cl, errors.New("the engine no longer knows the claim"))
		return
	case st.State == driver.Gone:
		cl.again()
		return
	default:
		cl.renewedAt(sent, slept, st)
		switch {
		case st.State == driver.Holding && cl.state == waiting:
			co.granted(cl, st)
		case st.State == driver.Holding:
			// An answer may be older than a notice: it does not take that back.
			cl.want(cl.wanted || st.Behind > 0)
			co.plan()
		case cl.state == waiting:
			co.queued(cl, sent, slept, st)
		}
	}
	if cl.hurried {
		cl.renewAt = time.Now()
	}
	co.core.keeper.watch(cl)
}

// checkExpired ends the tenure if its time has passed.
func (cl *claim) checkExpired(now time.Time, slept time.Duration) {
	t := cl.tenure
	switch {
	case cl.remaining(now, slept) <= 0:
		why := errors.New("it was not renewed in time")
		switch {
		case cl.failing != nil:
			why = fmt.Errorf("%w: %w", why, cl.failing)
		case cl.co.key.noRenewal:
			why = errors.New("its TTL has passed")
		}
		cl.co.lose(cl, why)
	case !t.limit.IsZero() && !now.Before(t.limit):
		cl.stuck = true
		cl.co.lose(cl, fmt.Errorf("MaxHold of %v has passed", t.opts.MaxHold))
	}
}

func jitter(d time.Duration) time.Duration { return rand.N(d + 1) }
