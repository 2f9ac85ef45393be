package pawl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// LockAll takes the mutexes of several names, all of them or none, and waits
// until it can or ctx ends. They are the locks of [Client.Mutex]. From 1 to 1,000
// names are allowed, in any order; one that is there twice counts once.
//
// Calls with overlapping names neither block each other for ever nor starve one
// another. While it waits for one name a call may hold those of its names that
// come before that in the order of bytes. So two who hold a lock each and then
// call LockAll for the other's wait for each other until a context ends: take all
// names in one call. With a context of a lease of one of the names it is
// ErrDeadlock, whether or not Options.Reentrant is set.
//
// Where the engine can (memory, a folder, Redis), names that are free are taken in
// one step; else one after the other.
//
// Errors are those of [Mutex.Lock]; a *[WaitError] and a *[MismatchError] say
// which name it was. ErrInvalid: no name, too many, or one that is not allowed.
// Whatever the error, nothing stays behind.
func (c *Client) LockAll(ctx context.Context, names ...string) (*LeaseSet, error) {
	g, err := c.gathering(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, k := range g.keys {
		if t := held(ctx, c.core, k.kind, k.name); t != nil {
			if _, err := t.reenter(1, false); err != nil {
				return nil, fmt.Errorf("lock %q: %w", k.name, err)
			}
		}
	}
	for attempt := 1; ; attempt++ {
		s, err := g.run(ctx, g.wait)
		if !errors.Is(err, errPartLost) {
			return s, err
		}
		// An operator took what it held already, or the engine was away too long.
		pause, _ := restart(attempt, err)
		if !sleep(ctx, pause) {
			return nil, &WaitError{Name: g.keys[0].name, Cause: context.Cause(ctx), Engine: err, ctx: ctx.Err()}
		}
	}
}

// TryLockAll takes the mutexes of several names, see [Client.LockAll], if all of
// them are free, without waiting for others. If not, the error is a
// *[HeldError], which matches ErrHeld and says who holds one of them. An engine
// that cannot be reached is another error, after ten seconds at the most, or ten
// for each name where they are taken one after the other. If one is lost before
// the last is there, that is ErrLost, and none is held.
func (c *Client) TryLockAll(ctx context.Context, names ...string) (*LeaseSet, error) {
	g, err := c.gathering(ctx, names)
	if err != nil {
		return nil, err
	}
	return g.run(ctx, g.try)
}

// maxSet bounds the names of a LeaseSet.
const maxSet = 1000

var (
	// errPartLost: what a call of LockAll held already was lost.
	errPartLost = errors.New("a part was lost while the rest was waited for")
	restart     = ExponentialBackoff(50*time.Millisecond, 2*time.Second)
)

// gathering is an attempt of a call of LockAll.
type gathering struct {
	client *Client
	store  driver.AllEnterer // nil: names are taken one after the other
	keys   []cohortKey       // in the order of names
	opts   *Options          // of the leases until all are there

	set      *LeaseSet
	ctx      context.Context // ends with the caller's, or when a part is lost
	waited   bool            // some parts are older than others
	trying   bool            // nothing is tried again
	failures int             // of EnterAll in a row
}

// gathering checks everything that can be checked before any I/O.
func (c *Client) gathering(ctx context.Context, names []string) (*gathering, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) < 1 || len(names) > maxSet {
		return nil, fmt.Errorf("lock all: %w number of names, %d: allowed are 1 to %d", ErrInvalid, len(names), maxSet)
	}
	g := &gathering{client: c, keys: make([]cohortKey, len(names))}
	for i, name := range names {
		k, err := c.key(ctx, driver.KindMutex, name, 1, 1)
		if err != nil {
			return nil, err
		}
		k.noRenewal = false // see complete
		g.keys[i] = k
	}
	opts := c.opts
	opts.MinHold, opts.MaxHold = 0, 0 // see complete
	g.opts = &opts
	g.store, _ = c.core.store.(driver.AllEnterer)
	return g, nil
}

// run gathers the locks by f.
func (g *gathering) run(ctx context.Context, f func() error) (*LeaseSet, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.ctx, g.waited = waiting, false
	g.set = newLeaseSet(g.client.core, cancel)
	err := f()
	if err == nil {
		err = g.set.complete(&g.client.opts, g.waited)
	}
	if err == nil {
		return g.set, nil
	}
	return nil, g.set.abandon(ctx, err)
}

// left are the locks that are still to be taken.
func (g *gathering) left() []cohortKey { return g.keys[len(g.set.members):] }

// wait takes all locks.
//
// Invariant: while it waits for a name it holds none that comes after that in
// the order of names. So of those who wait for each other, the one with the last
// name waits for somebody who does not wait: there is no circle. It stands in
// that name's queue like everybody else and keeps what it has: so each of its
// waits ends after those who came before it in one queue, and it waits no more
// often than it has names. To let go of all while one is busy would be in the
// way of fewer, but may go on for ever: among busy names there is always one.
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
		// That one is waited for; or the engine, if it did not reply.
		if left := g.left(); len(left) > 0 {
			g.waited = true
			if err := g.enter(left[0], false); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitError makes of who was in the way when the context ended the error of a call
// that waits.
func (g *gathering) waitError(err error) error {
	h, ok := errors.AsType[*HeldError](err)
	if !ok {
		return err
	}
	return &WaitError{Name: h.Name, Cause: context.Cause(g.ctx), Holder: h.Holder, ctx: g.ctx.Err()}
}

// try takes all locks if they are free.
func (g *gathering) try() error {
	g.trying = true
	if g.store != nil {
		asked := time.Now()
		if _, err := g.enterAll(g.keys); err != nil {
			e := Event{Kind: GaveUp, Context: g.ctx, Name: g.keys[0].name, Waited: time.Since(asked), Blocker: blockerOf(err), Err: err}
			if h, ok := errors.AsType[*HeldError](err); ok {
				e.Name = h.Name
			}
			g.client.core.tell(g.opts, e)
			return err
		}
	}
	for len(g.left()) > 0 {
		g.waited = true
		if err := g.enter(g.left()[0], true); err != nil {
			return err
		}
	}
	return nil
}

// enter takes one lock.
func (g *gathering) enter(key cohortKey, try bool) error {
	key.own = driver.NewID() // a shared claim would be held for others, too
	l, err := g.client.core.acquire(key, g.opts, func(co *cohort) (*tenure, error) {
		return co.acquire(g.ctx, g.opts, try)
	})
	if err == nil {
		g.set.add(l)
	}
	return err
}

// entry is a claim of an EnterAll.
type entry struct {
	co *cohort
	w  *waiter
	cl *claim
}

// enterAll takes locks in one step, all or none. If some are busy, the error is a
// *HeldError, and busy is the first of them. Where the engine turns out to be
// unable to, none is taken, and g.store is nil from then on.
func (g *gathering) enterAll(keys []cohortKey) (busy int, err error) {
	core := g.client.core
	core.start()
	entries, err := g.enlist(keys)
	var sts []driver.Status
	sent := time.Now()
	slept := core.keeper.sleptBy(sent)
	if err == nil {
		claims := make([]driver.Claim, len(entries))
		for i, e := range entries {
			claims[i] = e.cl.request(true)
		}
		patience := replyPatience
		if !g.trying {
			patience = patienceAfter(g.failures)
		}
		ctx, cancel := bound(g.ctx, min(patience, keys[0].ttl))
		sts, err = g.store.EnterAll(ctx, claims)
		cancel()
		if g.failures++; err == nil {
			g.failures = 0
		}
		if err == nil && len(sts) != len(claims) {
			err = errUnreported
		}
	}
	for i, e := range entries {
		var st driver.Status
		if err == nil {
			st = sts[i]
		}
		e.cl.requested(sent, err)
		e.co.settle(g.ctx, e.cl, sent, slept, st, err)
	}
	busy, failure := g.collect(entries)
	switch {
	case errors.Is(err, ErrUnsupported):
		g.store = nil
		return 0, nil
	case failure == nil:
		return 0, err
	}
	return busy, failure
}

// enlist makes a first claim for each lock.
func (g *gathering) enlist(keys []cohortKey) (entries []entry, err error) {
	asked := time.Now()
	for _, key := range keys {
		key.own = driver.NewID()
		e := entry{w: &waiter{opts: g.opts, ctx: g.ctx, asked: asked, try: true, single: true}}
		if e.co, err = g.client.core.cohort(key); err != nil {
			return entries, err
		}
		if e.cl, err = e.co.enlist(e.w); err != nil {
			g.client.core.release(e.co)
			return entries, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// collect takes the locks into the set, if all of them were granted, and else
// returns the first that was not because somebody is in the way.
func (g *gathering) collect(entries []entry) (busy int, err error) {
	var leases []*Lease
	var left []<-chan struct{}
	known := false
	for i, e := range entries {
		t, gone, failure := e.co.outcome(g.ctx, e.w)
		if failure == nil {
			leases = append(leases, &Lease{t: t})
			continue
		}
		left = append(left, gone)
		g.client.core.release(e.co)
		h, held := errors.AsType[*HeldError](failure)
		blocked := held && h.Holder != nil
		if err == nil || blocked && !known {
			busy, err, known = i, failure, blocked
		}
	}
	awaitLeft(left...)
	if err != nil {
		letGo(leases) // the engine has granted a part
		return busy, err
	}
	for _, l := range leases {
		g.set.add(l)
	}
	return 0, nil
}
