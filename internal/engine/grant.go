package engine

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// Grant is what a caller holds: a lock, or several that are held together, so that
// if one of them is lost, all are.
type Grant struct {
	// User is whatever the engine's user keeps with it.
	User any

	engine   *Engine
	tenants  []*tenant // in the order of names; more than one only if of a set
	signals  *signals  // of the tenant, or of the set
	released atomic.Bool

	mu   sync.Mutex // taken after a line's
	lost error      // what Release found to have ended it
	set  *set       // of a grant of several
	one  [1]*tenant // spares an allocation
}

// of makes g the grant of a tenant.
func (g *Grant) of(e *Engine, t *tenant) {
	g.engine, g.signals = e, &t.signals
	g.one[0] = t
	g.tenants = g.one[:]
}

// Names of the locks, in order.
func (g *Grant) Names() []string {
	names := make([]string, len(g.tenants))
	for i, t := range g.tenants {
		names[i] = t.claim.line.key.Name
	}
	return names
}

// Name of the first lock.
func (g *Grant) Name() string { return g.Key().Name }

// Token of the grant of that name; 0: there is none.
func (g *Grant) Token(name string) int64 {
	for _, t := range g.tenants {
		if t.claim.line.key.Name == name {
			return t.token.Load()
		}
	}
	return 0
}

// SoleToken is the token of a grant of one name, and 0 of several.
func (g *Grant) SoleToken() int64 {
	if len(g.tenants) > 1 {
		return 0
	}
	return g.tenants[0].token.Load()
}

// Key of the lock; of several, the first.
func (g *Grant) Key() *Key { return &g.tenants[0].claim.line.key }

// ID of the claim in the store; of several, the first.
func (g *Grant) ID() string { return g.tenants[0].claim.id }

// over returns why the grant is over, or nil while it holds. It needs no mutex.
func (g *Grant) over(at instant) error {
	if err := g.signals.over(); err != nil {
		return err
	}
	for _, t := range g.tenants {
		if err := t.over(at); err != nil {
			return err
		}
	}
	return nil
}

// Err returns nil while the grant holds, and then why it is over. It goes by the
// clock, not by when this process was told.
func (g *Grant) Err() error {
	if g.released.Load() {
		g.mu.Lock()
		defer g.mu.Unlock()
		return cmp.Or(g.lost, g.releasedErr())
	}
	return g.expire()
}

// expire ends the grant if its time has passed, and returns why it is over.
func (g *Grant) expire() error {
	if g.over(g.engine.instant()) == nil {
		return nil
	}
	var first error
	for _, t := range g.tenants {
		l := t.claim.line
		var fx effects
		err := t.expire(&fx, g.engine.begin(l))
		g.engine.commit(l, &fx)
		if first == nil || first == ErrReleased {
			first = err
		}
	}
	return cmp.Or(g.signals.over(), first)
}

func (g *Grant) releasedErr() error {
	if len(g.tenants) > 1 {
		return fmt.Errorf("lock all of %q: %w", g.Names(), ErrReleased)
	}
	return fmt.Errorf("lock %q, token %d: %w", g.Name(), g.tenants[0].token.Load(), ErrReleased)
}

// Deadline is when the grant ends unless it is renewed before.
func (g *Grant) Deadline() time.Time {
	var first time.Time
	for i, t := range g.tenants {
		d := t.until(g.engine.begin(t.claim.line))
		t.claim.line.mu.Unlock()
		if i == 0 || d.Before(first) {
			first = d
		}
	}
	return first
}

// Lost returns a channel that is closed when the grant ends before it is released.
func (g *Grant) Lost() <-chan struct{} {
	g.expire()
	return g.signals.lostChan()
}

// Wanted returns a channel that is closed when others want what is held.
func (g *Grant) Wanted() <-chan struct{} {
	c, first := g.signals.wantedChan()
	if !first {
		return c
	}
	for _, t := range g.tenants {
		l := t.claim.line
		var fx effects
		at := g.engine.begin(l)
		if t.err == nil && !t.pressed && t.claim.wanted {
			t.claim.hurry(&fx, at) // so it was in the turn of another lease, or a moment ago: see whether it is
		}
		g.engine.commit(l, &fx)
	}
	return c
}

// Handle is what Adopt needs to know of a claim.
type Handle struct {
	ID    string
	Token int64
	Units int64
}

// Handle returns what another process needs to adopt the claim, which is passed on to
// nobody here from now on. It returns false for several names.
func (g *Grant) Handle() (Handle, bool) {
	if len(g.tenants) > 1 {
		return Handle{}, false
	}
	t := g.tenants[0]
	l := t.claim.line
	var fx effects
	at := g.engine.begin(l)
	defer g.engine.commit(l, &fx)
	t.show(&fx, at)
	return t.handle(), true
}

func (t *tenant) handle() Handle {
	h := Handle{t.claim.id, t.token.Load(), t.claim.line.key.Units}
	if s := t.claim.held(); s != nil {
		// The claim's is the greater one after a TryUpgrade that was undone.
		h.Token, h.Units = max(h.Token, s.token), s.units
	}
	return h
}

// Extend renews the grant now, to last for ttl after the request at the least; 0
// means the TTL it has.
func (g *Grant) Extend(ctx context.Context, ttl time.Duration) error {
	if err := g.Err(); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	err := each(g.tenants, func(t *tenant) error { return g.engine.extend(ctx, t, ttl) })
	if len(g.tenants) > 1 && err != nil {
		if over := g.Err(); over != nil {
			return fmt.Errorf("extend: %w", over) // the others were released for that
		}
	}
	return err
}

func (e *Engine) extend(ctx context.Context, t *tenant, ttl time.Duration) error {
	l := t.claim.line
	var fx effects
	at := e.begin(l)
	r, err := t.extending(&fx, at, ttl)
	left := t.claim.left(at)
	e.commit(l, &fx)
	if err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	whole, cancel := retry.WithTimeout(ctx, min(retry.Longest, r.TTL, max(0, left)))
	defer cancel()
	for failures := 0; ; failures++ {
		one, cancel := retry.WithTimeout(whole, min(retry.Timeout(failures), r.TTL/4))
		t.claim.extends(e.begin(l), r.TTL)
		e.commit(l, new(effects))
		a := e.renewOne(one, r)
		again := one.Err() != nil && whole.Err() == nil
		cancel()
		var fx effects
		err := t.extended(&fx, e.begin(l), a)
		e.commit(l, &fx)
		if err != nil || a.err == nil {
			return err
		}
		if !again || driver.IsPermanent(a.err) {
			return fmt.Errorf("extend %q: %w", l.key.Name, a.err)
		}
	}
}

// HandOver gives the grant of one name up without releasing it. After an error it is
// what it was before.
func (g *Grant) HandOver(ctx context.Context) (h Handle, err error) {
	t, err := g.alone()
	if err == ErrReleased {
		return h, g.releasedErr()
	}
	if err != nil {
		return h, fmt.Errorf("hand over %q: %w", g.Names(), err)
	}
	e, l := g.engine, t.claim.line
	var fx effects
	err = t.offer(&fx, e.begin(l))
	e.commit(l, &fx)
	if err != nil {
		return h, err
	}
	defer func() {
		if err != nil {
			var fx effects
			t.takeBack(&fx, e.begin(l))
			e.commit(l, &fx)
		}
	}()
	if err := e.extend(ctx, t, 0); err != nil {
		return h, fmt.Errorf("hand over: %w", err)
	}
	defer t.signals.endReleased()
	fx = effects{}
	at := e.begin(l)
	defer e.commit(l, &fx)
	h = t.handle()
	if err := t.cannotHandOver(&fx, at); err != nil {
		return h, err
	}
	if g.released.Swap(true) {
		return h, g.releasedErr()
	}
	t.handOver(&fx, at, ctx)
	return h, nil
}

// Release gives the grant back and reports whether it held to this moment. While
// the store does not reply it waits for about two seconds at the most, and goes on
// trying in the background.
func (g *Grant) Release(ctx context.Context) error {
	if len(g.tenants) > 1 {
		return g.releaseAll(ctx)
	}
	if g.released.Swap(true) {
		return g.releasedErr()
	}
	return g.keepLost(g.engine.release(ctx, g.tenants[0]))
}

// keepLost keeps what ended the grant, for Err.
func (g *Grant) keepLost(err error) error {
	if err != nil {
		g.mu.Lock()
		g.lost = err
		g.mu.Unlock()
	}
	return err
}

// release gives back one lease of a tenant.
func (e *Engine) release(ctx context.Context, t *tenant) error {
	l := t.claim.line
	var fx effects
	at := e.begin(l) // not before: the mutex may have kept it waiting
	for range 1000 {
		if _, soon, _ := l.heir(at, t); !soon {
			break
		}
		at = e.instant() // a moment at the most, unless the clock stands still, as it does in tests
	}
	d, err := t.release(&fx, at, ctx)
	e.commit(l, &fx)
	t.signals.endReleased()
	if d == nil {
		return err
	}
	ctx, cancel := retry.Detached(ctx, min(retry.Cleanup, d.ttl))
	defer cancel()
	known, err := e.leave(ctx, d)
	if err != nil {
		var fx effects
		e.begin(l)
		fx.tell(t.terms, Event{Kind: EventRetrying, Context: t.ctx, Name: l.key.Name, Claim: d.ref.ID, Token: d.ref.Used, Attempt: 1, Err: err})
		fx.add(effect{kind: fxRetire, departure: d})
		e.commit(l, &fx)
	} else if d.again {
		e.spawn(func() { e.leaveAgain(d) })
	}
	if !known {
		return fmt.Errorf("unlock %q, token %d: %w: the engine no longer knew the claim", l.key.Name, d.ref.Used, ErrLost)
	}
	return nil
}

// ended tells those who held a tenant that it is over. Who releases it ends the
// contexts: that may take long, and others wait for what comes after this.
func (e *Engine) ended(t *tenant, set *Grant, err error) {
	if err != ErrReleased {
		defer t.claim.telling.Done()
		t.signals.closeLost()
		if t.signals.hasContexts() {
			e.tellLost(t.claim, func() { t.signals.endContexts(err) })
		}
	}
	if set != nil {
		set.partEnded(t, err)
	}
	e.leaveLine(t.claim.line)
}

// tellLost runs f, which tells holders that the claim was lost, in a goroutine of
// its own. The claim stays in the store until they were told.
func (e *Engine) tellLost(cl *claim, f func()) {
	cl.telling.Add(1)
	if !e.spawn(func() { defer cl.telling.Done(); f() }) {
		cl.telling.Done() // the engine is closed, and nothing held
	}
}
