package engine

import (
	"cmp"
	"context"
	"sync"
)

// What a grant of several locks has more than one of a single lock: it ends as a whole.

// set is what a grant of several locks needs.
type set struct {
	signals   signals
	gathering context.CancelCauseFunc // while it is not complete
	give      sync.Once               // its tenants are released once
	given     error                   // the result of that
	giving    chan struct{}           // closed when they were released after a loss; nil: none was lost
}

// add takes a tenant into a grant that is not complete.
func (g *Grant) add(t *tenant) {
	g.tenants = append(g.tenants, t)
	l := t.claim.line
	l.mu.Lock()
	t.set = g
	err, pressed := t.err, t.pressed
	l.mu.Unlock()
	if err != nil {
		g.partEnded(t, err)
	}
	if pressed {
		g.signals.press()
	}
}

// partEnded ends the grant because one of its tenants is over.
func (g *Grant) partEnded(t *tenant, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.signals.end(&err) {
		return
	}
	if stop := g.set.gathering; stop != nil {
		g.engine.spawn(func() { stop(errPartLost) }) // no mutex may be held
		return
	}
	g.signals.closeLost()
	g.engine.tellLost(t.claim, func() { g.signals.endContexts(err) })
	done := make(chan struct{})
	if g.engine.spawn(func() { defer close(done); t.claim.telling.Wait(); g.giveBack(context.Background()) }) {
		g.set.giving = done
	}
}

// giveBack releases all tenants, once.
func (g *Grant) giveBack(ctx context.Context) {
	g.set.give.Do(func() {
		g.set.given = each(g.tenants, func(t *tenant) error { return g.engine.release(ctx, t) })
	})
}

// releaseAll is Release for several.
func (g *Grant) releaseAll(ctx context.Context) error {
	found := cmp.Or(g.expire(), ErrReleased)
	g.mu.Lock()
	if g.released.Swap(true) {
		g.mu.Unlock()
		return g.releasedErr()
	}
	g.signals.end(&found)
	over := g.signals.over()
	if over != ErrReleased {
		g.lost = over
	}
	lost, giving := g.lost, g.set.giving
	g.mu.Unlock()
	g.signals.closeLost()
	g.signals.endContexts(over)
	if giving != nil {
		<-giving // the process may end after this; each takes no longer than a Release
	}
	g.giveBack(ctx)
	return g.keepLost(cmp.Or(lost, g.set.given))
}

// each runs f for all tenants, many at a time, and returns the first error in their
// order.
func each(ts []*tenant, f func(*tenant) error) error {
	if len(ts) == 1 {
		return f(ts[0])
	}
	const parallel = 64
	slot := make(chan struct{}, parallel)
	errs := make([]error, len(ts))
	var work sync.WaitGroup
	for i, t := range ts {
		slot <- struct{}{}
		work.Go(func() {
			defer func() { <-slot }()
			errs[i] = f(t)
		})
	}
	work.Wait()
	return cmp.Or(errs...)
}
