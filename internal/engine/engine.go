// Package engine takes claims in a store for the callers of one process, keeps
// them, and ends them.
//
// Who wants the same lock stands in a line, which puts one claim into the store, and
// its successor when others wait there. Lines, claims and tenants are pure: their methods take an event, with the
// time of it, and note effects (effects.go). The engine's part is always the same:
// lock the line, apply the event, carry out those effects whose order counts, unlock, carry
// out the others. So no code of the user's, and no request, runs under a mutex.
//
// Mutexes are locked in this order: line.mu, registry.mu, renewer.mu, observers.mu;
// Grant.mu and signals.mu after all others.
package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// Engine is what the synchronizers of a client share.
type Engine struct {
	store driver.Store
	owner driver.Owner

	background
	registry
	renewer   *renewer
	retirer   retirer
	observers observers
	adoptions adoptions

	end      sync.Once
	closeErr error // what Close returns
}

// New makes an engine. It does no I/O, and starts nothing.
func New(store driver.Store, owner driver.Owner) *Engine {
	e := &Engine{store: store, owner: owner, renewer: newRenewer()}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.observers.spawn = e.spawn
	e.adoptions.all = make(map[adoptee]adoption)
	e.registry = registry{
		lines:      make(map[Key]*line),
		rivals:     make(map[string][]*line),
		claims:     make(map[string]*claim),
		departures: make(map[*departure]struct{}),
		drained:    make(chan struct{}),
	}
	return e
}

// background is the engine's goroutines.
type background struct {
	ctx    context.Context // ends, with cause ErrClosed, when Close has done what it can
	cancel context.CancelCauseFunc
	begun  sync.Once

	runMu   sync.Mutex
	running sync.WaitGroup
}

// spawn runs f in a goroutine that Close waits for; false if it is too late.
func (b *background) spawn(f func()) bool {
	b.runMu.Lock()
	defer b.runMu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.running.Go(f)
	return true
}

// Go runs f in a goroutine that Close waits for; false if it is too late.
func (e *Engine) Go(f func()) bool { return e.spawn(f) }

// Context ends, with cause ErrClosed, when the engine is closed.
func (e *Engine) Context() context.Context { return e.ctx }

// Tell runs f after what observers are told by then.
func (e *Engine) Tell(f func()) { e.observers.run(f) }

// start starts the renewer and the listener, with the first lock.
func (e *Engine) start() {
	e.begun.Do(func() {
		e.spawn(func() { e.renew(e.ctx) })
		e.spawn(e.listen)
	})
}

// instant is now.
func (e *Engine) instant() instant { return e.renewer.at(time.Now()) }

// begin locks the line for an event, which [Engine.commit] ends.
func (e *Engine) begin(l *line) instant {
	l.mu.Lock()
	return e.instant() // not before: the mutex may have kept it waiting
}

// Acquire waits until the lock of that key is granted, into g, or ctx ends. With try
// it waits for nobody.
func (e *Engine) Acquire(ctx context.Context, key Key, terms *Terms, try bool, g *Grant) error {
	t, err := e.acquire(ctx, key, terms, try)
	if err != nil {
		return err
	}
	g.of(e, t)
	return nil
}

// Reenter makes g one more grant of the lock of that key, if ctx belongs to one that
// holds, and if that is allowed; else ErrDeadlock. It returns false if there is no
// such grant.
func (e *Engine) Reenter(ctx context.Context, key Key, allowed bool, g *Grant) (bool, error) {
	t := e.heldBy(ctx, &key)
	if t == nil {
		return false, nil
	}
	var fx effects
	at := e.begin(t.claim.line)
	ok, err := t.reenter(&fx, at, key.Units, allowed)
	e.commit(t.claim.line, &fx)
	if !ok || err != nil {
		return false, err
	}
	g.of(e, t)
	return true, nil
}

// Holds returns ErrDeadlock if ctx belongs to a grant of the lock of that key that
// holds.
func (e *Engine) Holds(ctx context.Context, key Key) error {
	_, err := e.Reenter(ctx, key, false, nil)
	return err
}

func (e *Engine) acquire(ctx context.Context, key Key, terms *Terms, try bool) (*tenant, error) {
	e.start()
	l, err := e.join(key)
	if err != nil {
		return nil, err
	}
	c := &caller{terms: terms, ctx: ctx, try: try}
	first, s, err := e.add(l, c)
	if err != nil {
		e.leaveLine(l)
		return nil, err
	}
	entered := closedChan
	if first != nil {
		entered = e.enterFirst(ctx, first, s, c)
	}
	t, left, err := e.outcome(ctx, l, c)
	if err != nil {
		awaitLeft(entered, left)
		e.leaveLine(l)
	}
	return t, err
}

// add makes c a caller of the line. If it is to enter a claim itself, it gets the
// claim, and what to send.
func (e *Engine) add(l *line, c *caller) (first *claim, s step, err error) {
	var fx effects
	at := e.begin(l)
	first, err = l.add(&fx, at, c)
	if first != nil {
		s = step{kind: stepEnter, claim: first.toEnter(c.try), most: first.timeout(at)}
	}
	e.commit(l, &fx)
	return first, s, err
}

// outcome returns what the caller was served, or gives it up when ctx ends. left
// is closed once the store has heard of that.
func (e *Engine) outcome(ctx context.Context, l *line, c *caller) (t *tenant, left <-chan struct{}, err error) {
	if c.ready == nil {
		l.mu.Lock()
		if !c.waits {
			l.mu.Unlock()
			return c.tenant, closedChan, c.err
		}
		c.ready = make(chan struct{})
		l.mu.Unlock()
	}
	select {
	case <-c.ready:
		return c.tenant, closedChan, c.err
	case <-ctx.Done():
	}
	end := ended{ctx.Err(), context.Cause(ctx)}
	var fx effects
	at := e.begin(l)
	left = l.giveUp(&fx, at, c, end)
	e.commit(l, &fx)
	return c.tenant, left, c.err
}

// listen hands the store's notices to the claims they concern. What the store
// takes for permanent, such as a missing permission, may be mended while the
// engine runs: it is tried again more slowly. Until then renewals find what
// notices would have told.
func (e *Engine) listen() {
	for attempt := 1; ; attempt++ {
		begun := time.Now()
		err := e.store.Listen(e.ctx, e.notice)
		if e.ctx.Err() != nil || errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrClosed) {
			return
		}
		if time.Since(begun) > time.Minute {
			attempt = 1
		}
		first, most := 50*time.Millisecond, 2*time.Second
		if driver.IsPermanent(err) {
			first, most = time.Second, 15*time.Second
		}
		d := min(first<<min(attempt-1, 6), most)
		if !retry.Sleep(e.ctx, d/2+retry.Jitter(d/2)) {
			return
		}
	}
}

func (e *Engine) notice(n driver.Notice) {
	if n.ID == "" {
		e.hurryAll()
		return
	}
	cl := e.claimOf(n.ID)
	if cl == nil {
		return
	}
	var fx effects
	cl.noticed(&fx, e.begin(cl.line), &n)
	e.commit(cl.line, &fx)
}

// tellRivals tells the other lines that this process has of an RWMutex that one of
// its claims waits in the store now.
func (e *Engine) tellRivals(l *line) {
	others := e.rivalsOf(l)
	if len(others) == 0 {
		return
	}
	e.spawn(func() {
		for _, o := range others {
			var fx effects
			o.rivalSeen(&fx, e.begin(o))
			e.commit(o, &fx)
		}
	})
}

// Close ends all waiting and all grants with ErrClosed, stops what the engine
// started, and returns what it could not release before ctx ended. Under a context
// that is over already it takes two seconds at the most, and what Observers and
// Backoffs take.
func (e *Engine) Close(ctx context.Context) error {
	e.end.Do(func() { e.closeErr = e.close(ctx) })
	return e.closeErr
}

func (e *Engine) close(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), retry.Cleanup)
		defer cancel()
	}
	// Nothing is given back before all are closed: what one line leaves, the store
	// could grant to another one, whose caller would get a grant that ends at once.
	var held []*departure
	lines := e.closeLines()
	all := make([]effects, len(lines))
	for i, l := range lines {
		at := e.begin(l)
		held = append(held, l.close(&all[i], at)...)
		e.keepOrder(l, &all[i])
	}
	for i := range all {
		e.perform(&all[i])
	}
	// Calls under way see that the engine is closed and go, and claims
	// that were given up before may still be on their way out.
	var errs []error
	select {
	case <-e.drained:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("close: these names were not released yet: %q: %w", e.names(), context.Cause(ctx)))
	}
	e.runMu.Lock()
	e.cancel(driver.ErrClosed)
	e.runMu.Unlock()
	e.running.Wait()
	for _, d := range held {
		if d.err != nil {
			errs = append(errs, d.err)
		}
	}
	return errors.Join(errs...)
}

// names are what Close has not released.
func (e *Engine) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := make(map[string]bool)
	for d := range e.departures {
		names[d.ref.Name] = true
	}
	for key := range e.lines {
		names[key.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
