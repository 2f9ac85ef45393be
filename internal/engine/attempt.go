package engine

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/internal/retry"
)

// attempt is the goroutine that sends a claim's requests, as claim.next says, until the
// claim holds or is given up.
type attempt struct {
	look chan struct{} // the next request may be wanted earlier

	mu      sync.Mutex
	stopped bool
	cancel  context.CancelFunc // of all its requests
	woken   context.CancelFunc // of the Wait that is under way, or the next one
}

func newAttempt() *attempt { return &attempt{look: make(chan struct{}, 1)} }

// begin returns the context of its requests.
func (a *attempt) begin(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel = cancel; a.stopped {
		cancel()
	}
	return ctx
}

// forWait returns the context of the next Wait: what wakes the attempt from now on
// ends it.
func (a *attempt) forWait(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.woken != nil {
		a.woken()
	}
	a.woken = cancel
	return ctx
}

// stop cancels the request that is under way.
func (a *attempt) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped = true; a.cancel != nil {
		a.cancel()
	}
}

// wake ends a Wait or a rest, for the claim's state is another now.
func (a *attempt) wake() {
	a.mu.Lock()
	if a.woken != nil {
		a.woken()
	}
	a.mu.Unlock()
	a.nudge()
}

// nudge ends a rest, if it has become too long.
func (a *attempt) nudge() {
	select {
	case a.look <- struct{}{}:
	default:
	}
}

// rest waits until then.
func (a *attempt) rest(ctx context.Context, until time.Time) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
	case <-a.look:
	case <-ctx.Done():
	}
}

// runAttempt starts the attempt.
func (e *Engine) runAttempt(cl *claim, a *attempt) {
	ctx := a.begin(e.ctx)
	if !e.spawn(func() { defer a.stop(); e.attempt(ctx, cl, a) }) {
		a.stop() // the engine is closed, and so is the line
	}
}

func (e *Engine) attempt(ctx context.Context, cl *claim, a *attempt) {
	for {
		waiting := a.forWait(ctx)
		var fx effects
		s := cl.next(&fx, e.begin(cl.line))
		e.commit(cl.line, &fx)
		switch s.kind {
		case stepEnd:
			return
		case stepRest:
			a.rest(ctx, s.until)
		case stepEnter:
			ans, silent := e.enter(ctx, &s)
			e.entered(cl, s.claim.ID, ans, silent, ctx, nil)
		case stepWait:
			var ans answer
			ans.status, ans.err = e.store.Wait(waiting, s.ref)
			fx = effects{}
			at := e.begin(cl.line)
			cl.waited(&fx, at, s.ref.ID, ans, waiting.Err() != nil && ctx.Err() == nil)
			e.commit(cl.line, &fx)
		}
	}
}

// enter sends a claim.
func (e *Engine) enter(ctx context.Context, s *step) (a answer, silent bool) {
	ctx, cancel := retry.WithTimeout(ctx, s.most)
	defer cancel()
	a = answer{sent: e.instant()}
	a.status, a.err = e.store.Enter(ctx, s.claim)
	return a, a.err != nil && ctx.Err() != nil
}

// enterFirst sends a claim from the goroutine of its caller.
func (e *Engine) enterFirst(ctx context.Context, cl *claim, s step, c *caller) (left <-chan struct{}) {
	a, silent := e.enter(ctx, &s)
	return e.entered(cl, s.claim.ID, a, silent, ctx, c)
}

// entered hands on the reply to an Enter that a caller has sent under ctx; c is nil if
// an attempt has.
func (e *Engine) entered(cl *claim, id string, a answer, silent bool, ctx context.Context, c *caller) (left <-chan struct{}) {
	var end ended
	if c != nil {
		if end.err = ctx.Err(); end.err != nil {
			end.cause = context.Cause(ctx)
		} else {
			c = nil
		}
	}
	var fx effects
	at := e.begin(cl.line)
	left = cl.entered(&fx, at, id, a, silent, c, end)
	e.commit(cl.line, &fx)
	return left
}

// consult asks a caller's Backoff about a failure. That is the user's code: it is
// called by a goroutine of its own, and delays no other caller's attempts.
func (e *Engine) consult(cl *claim, c *caller, failures int, err error) {
	e.spawn(func() {
		pause, again := c.terms.Backoff(failures, err)
		var fx effects
		at := e.begin(cl.line)
		cl.line.consulted(&fx, at, c, failures, pause, again, err)
		e.commit(cl.line, &fx)
	})
}
