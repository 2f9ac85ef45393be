package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// AcquireAll acquires the locks of several keys, which are in the order of their
// names, all of them or none, into the last grant that fresh has returned: an earlier
// one, which was given up, may be in use for a while. With try it waits for nobody.
func (e *Engine) AcquireAll(ctx context.Context, keys []Key, terms *Terms, try bool, fresh func() *Grant) error {
	if len(keys) == 1 {
		return e.Acquire(ctx, keys[0], terms, try, fresh())
	}
	for attempt := 1; ; attempt++ {
		err := e.gather(ctx, fresh(), keys, terms, try)
		if err == nil {
			return nil
		}
		if try || !errors.Is(err, errPartLost) {
			return err
		}
		// An operator took what it held already, or the store was away too long.
		if !retry.Sleep(ctx, restart(attempt)) {
			return &WaitError{Name: keys[0].Name, Cause: context.Cause(ctx), Context: ctx.Err(), Engine: err}
		}
	}
}

func restart(attempt int) time.Duration {
	d := min(50*time.Millisecond<<min(attempt-1, 6), 2*time.Second)
	return d/2 + retry.Jitter(d/2)
}

// gathering is an attempt of AcquireAll.
type gathering struct {
	engine *Engine
	store  driver.AllEnterer // nil: names are taken one after the other
	keys   []Key
	terms  *Terms // of the tenants until all are there
	plain  bool

	grant    *Grant          // not complete
	ctx      context.Context // ends with the caller's, or when a part is lost
	waited   bool            // some parts are older than others
	trying   bool            // nothing is tried again
	failures int             // of EnterAll in a row
}

func (e *Engine) gather(ctx context.Context, grant *Grant, keys []Key, terms *Terms, try bool) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := &gathering{engine: e, ctx: waiting, trying: try, plain: keys[0].NoRenewal, keys: make([]Key, len(keys))}
	for i, k := range keys {
		k.NoRenewal = false // see complete
		g.keys[i] = k
	}
	until := *terms
	until.MinHold, until.MaxHold = 0, 0 // see complete
	g.terms = &until
	g.store, _ = e.store.(driver.AllEnterer)
	grant.engine, grant.set = e, &set{gathering: cancel}
	grant.signals = &grant.set.signals
	g.grant = grant
	var err error
	if try {
		err = g.try()
	} else {
		err = g.wait()
	}
	if err == nil {
		err = g.complete(terms)
	}
	if err != nil {
		return g.abandon(ctx, err)
	}
	return nil
}

// left are the locks that are still to be taken.
func (g *gathering) left() []Key { return g.keys[len(g.grant.tenants):] }

// wait takes all locks.
//
// Invariant: while it waits for a name it holds none that comes after that in
// the order of names. So of those who wait for each other, the one with the last
// name waits for somebody who does not wait: there is no circle. It stands in
// that name's queue like any other and keeps what it has: so each of its waits
// ends after those who came before it in one queue, and it waits at most once per
// name. To release all while one is busy would block fewer others, but may go on for
// ever: among busy names there is always one.
func (g *gathering) wait() error {
	for len(g.left()) > 0 {
		// In one step all that is left, or what comes before the first that is
		// busy.
		for n := len(g.left()); n > 0 && g.store != nil; {
			busy, err := g.enterAll(g.left()[:n])
			if err != nil && (driver.IsPermanent(err) || g.ctx.Err() != nil) {
				return g.waitError(err)
			}
			if !errors.Is(err, ErrHeld) {
				break
			}
			n = busy
		}
		// That one is waited for; or the store, if it did not reply.
		if left := g.left(); len(left) > 0 {
			if err := g.enter(left[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitError returns the error of a call that waits, if somebody was in the way when the
// context ended.
func (g *gathering) waitError(err error) error {
	h, ok := errors.AsType[*HeldError](err)
	if !ok {
		return err
	}
	return &WaitError{Name: h.Name, Cause: context.Cause(g.ctx), Context: g.ctx.Err(), Holder: h.Holder}
}

// try takes all locks if they are free.
func (g *gathering) try() error {
	if g.store != nil {
		asked := time.Now()
		if _, err := g.enterAll(g.keys); err != nil {
			name := g.keys[0].Name
			if h, ok := errors.AsType[*HeldError](err); ok {
				name = h.Name
			}
			if g.terms.Observe != nil {
				g.engine.observers.tell(&event{Event{
					Kind: EventGaveUp, Context: g.ctx, Name: name, Waited: time.Since(asked), Blocker: blockerOf(err), Err: err,
				}, g.terms.Observe})
			}
			return err
		}
	}
	for len(g.left()) > 0 {
		if err := g.enter(g.left()[0]); err != nil {
			return err
		}
	}
	return nil
}

// enter takes one lock.
func (g *gathering) enter(key Key) error {
	g.waited = true
	t, err := g.engine.acquire(g.ctx, key.Alone(), g.terms, g.trying) // a shared claim would be held for others, too
	if err == nil {
		g.grant.add(t)
	}
	return err
}

// entry is a claim of an EnterAll.
type entry struct {
	line   *line
	caller *caller
	claim  *claim
	asked  driver.Claim
}

// enterAll takes locks in one step, all or none. If some are busy, the error is a
// *HeldError, and busy is the first of them. If the store turns out to be unable to,
// none is taken, and g.store is nil from then on.
func (g *gathering) enterAll(keys []Key) (busy int, err error) {
	e := g.engine
	e.start()
	entries, err := g.enlist(keys)
	var sts []driver.Status
	sent, silent := e.instant(), false
	if err == nil {
		claims := make([]driver.Claim, len(entries))
		for i, e := range entries {
			claims[i] = e.asked
		}
		timeout := retry.Longest
		if !g.trying {
			timeout = retry.Timeout(g.failures)
		}
		ctx, cancel := retry.WithTimeout(g.ctx, min(timeout, keys[0].TTL))
		sts, err = g.store.EnterAll(ctx, claims)
		silent = err != nil && ctx.Err() != nil
		cancel()
		if g.failures++; err == nil {
			g.failures = 0
		}
		if err == nil && len(sts) != len(claims) {
			err = errUnreported
		}
	}
	var left []<-chan struct{}
	for i, x := range entries {
		a := answer{sent: sent, err: err}
		if err == nil {
			a.status = sts[i]
		}
		left = append(left, e.entered(x.claim, x.asked.ID, a, silent, g.ctx, x.caller))
	}
	busy, failure := g.collect(entries, left)
	switch {
	case errors.Is(err, driver.ErrUnsupported):
		g.store = nil
		return 0, nil
	case failure == nil:
		return 0, err
	}
	return busy, failure
}

// enlist makes a first claim for each lock.
func (g *gathering) enlist(keys []Key) (entries []entry, err error) {
	for _, key := range keys {
		c := &caller{terms: g.terms, ctx: g.ctx, try: true, inSet: true}
		l, err := g.engine.join(key.Alone())
		if err != nil {
			return entries, err
		}
		cl, ask, err := g.engine.add(l, c)
		if err != nil {
			g.engine.leaveLine(l)
			return entries, err
		}
		entries = append(entries, entry{l, c, cl, ask.claim})
	}
	return entries, nil
}

// collect takes the locks into the grant, if all of them were granted, and else
// returns the first that was not because somebody is in the way.
// It waits a moment for those that have left.
func (g *gathering) collect(entries []entry, left []<-chan struct{}) (busy int, err error) {
	var ts []*tenant
	known := false
	for i, x := range entries {
		t, gone, failure := g.engine.outcome(g.ctx, x.line, x.caller)
		if failure == nil {
			ts = append(ts, t)
			continue
		}
		left = append(left, gone)
		g.engine.leaveLine(x.line)
		h, held := errors.AsType[*HeldError](failure)
		blocked := held && h.Holder != nil
		if err == nil || blocked && !known {
			busy, err, known = i, failure, blocked
		}
	}
	awaitLeft(left...)
	if err != nil {
		_ = each(ts, g.engine.letGo) // the store has granted a part
		return busy, err
	}
	for _, t := range ts {
		g.grant.add(t)
	}
	return 0, nil
}

// letGo releases a tenant that nobody uses, or is to use any longer.
func (e *Engine) letGo(t *tenant) error { return e.release(context.Background(), t) }

// complete completes the grant: from now on NoRenewal, MaxHold and MinHold apply to its
// tenants. Until then they are renewed, for they might not last until the last one is
// granted, and end when they are released, for they would stay taken if the attempt is
// given up. complete returns an error if one was lost already.
func (g *gathering) complete(terms *Terms) error {
	for _, t := range g.grant.tenants {
		var fx effects
		at := g.engine.begin(t.claim.line)
		t.complete(&fx, at, terms, g.plain, g.plain && g.waited)
		g.engine.commit(t.claim.line, &fx)
	}
	g.grant.mu.Lock()
	defer g.grant.mu.Unlock()
	g.grant.set.gathering = nil
	return g.grant.signals.over()
}

// complete applies the terms of the whole. fresh: part of the claim's time has passed
// while the others were waited for.
func (t *tenant) complete(fx *effects, at instant, terms *Terms, plain, fresh bool) {
	if t.err != nil {
		return
	}
	t.begin(terms, at)
	t.claim.setPlain(plain)
	if fresh {
		t.claim.held().fresh = true
		t.claim.hurry(fx, at)
	}
	fx.date(t.claim)
}

// abandon gives up what was gathered, because of err or since a part was lost,
// and returns why.
func (g *gathering) abandon(ctx context.Context, err error) error {
	grant := g.grant
	grant.mu.Lock()
	lost := grant.signals.over()
	grant.signals.end(&err)
	grant.set.gathering = nil
	grant.mu.Unlock()
	done := make(chan struct{})
	if g.engine.spawn(func() { defer close(done); grant.giveBack(context.Background()) }) {
		awaitLeft(done)
	}
	switch {
	case lost == nil || driver.IsPermanent(err):
		return err
	case errors.Is(lost, driver.ErrClosed):
		return lost
	case ctx.Err() != nil:
		return &WaitError{Name: grant.Name(), Cause: context.Cause(ctx), Context: ctx.Err(), Engine: lost}
	}
	return fmt.Errorf("%w: %w", errPartLost, lost)
}
