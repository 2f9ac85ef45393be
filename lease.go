package pawl

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Lease is a lock that is held. Any goroutine may use it.
type Lease struct {
	t        *tenure
	released atomic.Bool
}

// tenure is one grant to one caller: what the re-entrant leases of a lock have
// in common. Its fields that change are guarded by the cohort's mutex.
type tenure struct {
	cl       *claim
	opts     *Options
	token    int64
	acquired time.Time
	leases   int   // not yet unlocked
	err      error // why it is over; nil while it holds

	maxHoldEnds time.Time // zero: never
	ended       time.Time // its deadline, once it is over

	lost     chan struct{}
	contexts map[*leaseContext]struct{} // alive
}

// Name of the lock.
func (l *Lease) Name() string { return l.t.cl.co.key.name }

// Token of the grant: greater than that of every earlier grant of the name.
// Send it along with each write to the protected resource, and let that refuse
// a token smaller than one it has seen.
func (l *Lease) Token() int64 { return l.t.token }

// Claim names this lease for [Mutex.Adopt] in another process.
func (l *Lease) Claim() string {
	// From now on the claim must not pass to another tenure, which an adopter
	// could not tell from this one.
	l.t.cl.co.mu.Lock()
	defer l.t.cl.co.mu.Unlock()
	l.t.show()
	return l.t.claim()
}

func (t *tenure) show() {
	if t.err == nil {
		t.cl.shown = true
		t.cl.co.plan()
	}
}

func (t *tenure) claim() string { return t.cl.id + "." + strconv.FormatInt(t.token, 10) }

// Deadline is when the lease ends unless it is renewed before: by the local
// monotonic clock, earlier than the engine's by a margin for clocks that do
// not run equally fast. It moves with every renewal, until the lease is over.
func (l *Lease) Deadline() time.Time {
	co := l.t.cl.co
	co.mu.Lock()
	defer co.mu.Unlock()
	return l.t.deadline()
}

func (t *tenure) deadline() time.Time {
	switch d := t.cl.deadline; {
	case t.err != nil:
		return t.ended
	case !t.maxHoldEnds.IsZero() && t.maxHoldEnds.Before(d):
		return t.maxHoldEnds
	default:
		return d
	}
}

// linger is how long the name has to stay taken if it is released now.
func (t *tenure) linger(now time.Time) time.Duration {
	return max(0, t.opts.MinHold-now.Sub(t.acquired))
}

// Err answers nil while the lease holds; after that ErrLost, ErrReleased, or
// ErrClosed if the client was closed.
func (l *Lease) Err() error {
	if l.released.Load() {
		return l.releasedErr()
	}
	t := l.t
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	t.checkExpired(time.Now())
	return t.err
}

// Lost answers a channel that is closed when the lease ends before it is
// unlocked.
func (l *Lease) Lost() <-chan struct{} {
	t := l.t
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	if t.lost == nil {
		t.lost = make(chan struct{})
		if t.err != nil && t.err != ErrReleased {
			close(t.lost)
		}
	}
	return t.lost
}

// Context answers a context that ends with parent and with the lease: when it
// is lost (context.Cause is ErrLost and says why) or unlocked (ErrReleased).
// Locking the same name with it re-enters or is ErrDeadlock; see
// [Options].Reentrant.
func (l *Lease) Context(parent context.Context) context.Context {
	t := l.t
	ctx, cancel := context.WithCancelCause(parent)
	c := &leaseContext{ctx, t, cancel}
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	if t.err != nil {
		cancel(t.err)
		return c
	}
	if t.contexts == nil {
		t.contexts = make(map[*leaseContext]struct{})
	}
	t.contexts[c] = struct{}{}
	if parent.Done() != nil {
		context.AfterFunc(ctx, c.forget)
	}
	return c
}

// leaseContext remembers the lease it belongs to.
type leaseContext struct {
	context.Context
	t      *tenure
	cancel context.CancelCauseFunc
}

// forget keeps contexts that ended with their parents from piling up.
func (c *leaseContext) forget() {
	c.t.cl.co.mu.Lock()
	defer c.t.cl.co.mu.Unlock()
	delete(c.t.contexts, c)
}

type leaseKey struct{}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// held answers the tenure of that lock that ctx belongs to, or nil.
func held(ctx context.Context, core *core, name string) *tenure {
	for {
		c, ok := ctx.Value(leaseKey{}).(*leaseContext)
		if !ok {
			return nil
		}
		if co := c.t.cl.co; co.core == core && co.key.name == name {
			return c.t
		}
		ctx = c.Context
	}
}

// Extend renews the lease now, to last for ttl after the request at the least;
// 0 means the TTL it has. It never makes a lease shorter, nor longer than
// [Options].MaxHold allows; a lease that is renewed by itself is renewed for
// that TTL from now on. From 100 ms to 7 days.
//
// ErrLost: it has ended, or the engine knows it no longer. Another error: the
// engine has not answered within ten seconds, a TTL, or ctx; the lease lives
// until its Deadline.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl != 0 {
		if err := driver.CheckTTL(ttl); err != nil {
			return fmt.Errorf("extend %q: %w", l.Name(), err)
		}
	}
	if err := l.Err(); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	return l.t.extend(ctx, ttl)
}

func (t *tenure) extend(ctx context.Context, ttl time.Duration) error {
	cl, co := t.cl, t.cl.co
	co.mu.Lock()
	if t.err != nil {
		defer co.mu.Unlock()
		return fmt.Errorf("extend: %w", t.err)
	}
	if ttl != 0 {
		cl.ttl = ttl
		co.plan() // the claim will not be passed on
	}
	cl.ends = later(cl.ends, time.Now().Add(cl.ttl))
	r := cl.ref()
	co.mu.Unlock()
	sent, slept, st, err := cl.renew(ctx, r)
	if err != nil {
		return fmt.Errorf("extend %q: %w", co.key.name, err)
	}
	co.mu.Lock()
	defer co.mu.Unlock()
	if t.err == nil {
		cl.renewed(sent, slept, st, nil)
	}
	return t.err
}

// HandOver gives the lease up without releasing it, and answers what
// [Mutex.Adopt] needs in the process that takes it over within the TTL. The
// lease ends here: its contexts are cancelled with cause ErrReleased. A lock
// that was re-entered cannot be handed over (ErrInvalid).
func (l *Lease) HandOver(ctx context.Context) (claim string, err error) {
	if err := l.Extend(ctx, 0); err != nil {
		return "", fmt.Errorf("hand over: %w", err)
	}
	t, co := l.t, l.t.cl.co
	co.mu.Lock()
	defer co.mu.Unlock()
	switch {
	case t.err != nil:
		return "", fmt.Errorf("hand over: %w", t.err)
	case t.leases > 1:
		return "", fmt.Errorf("hand over %q: %w: it was re-entered, %d leases hold it", co.key.name, ErrInvalid, t.leases)
	case l.released.Swap(true):
		return "", l.releasedErr()
	}
	co.tell(t.opts, Event{Kind: Released, Claim: t.cl.id, Token: t.token, Held: time.Since(t.acquired)})
	co.dismiss(t, ErrReleased)
	return t.claim(), nil
}

// Unlock releases the lease and answers whether it held to this moment: nil,
// or ErrLost if it had ended before (roll back, or compensate). A lease that
// was unlocked before is ErrReleased, one of a closed client ErrClosed;
// unlocking twice does no harm.
//
// It works under a cancelled context too. While the engine cannot be reached
// it waits for about two seconds at the most, answers nil if the lease was
// still good, and goes on trying in the background until the claim has run
// out.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.released.Swap(true) {
		return l.releasedErr()
	}
	t, cl, co := l.t, l.t.cl, l.t.cl.co
	now := time.Now()
	co.mu.Lock()
	t.checkExpired(now)
	if t.leases--; t.err != nil || t.leases > 0 {
		defer co.mu.Unlock()
		if cl.stuck && t.leases == 0 {
			cl.leaveSoon(t.token, 0)
		}
		return t.err
	}
	co.tell(t.opts, Event{Kind: Released, Claim: cl.id, Token: t.token, Held: now.Sub(t.acquired)})
	linger := t.linger(now)
	if linger == 0 && co.pass(t, now) {
		co.mu.Unlock()
		return nil
	}
	co.dismiss(t, ErrReleased)
	co.mu.Unlock()

	ctx, cancel := co.core.unlock.bound(context.WithoutCancel(ctx), cl.ttl)
	defer cancel()
	known, err := cl.leave(ctx, t.token, linger)
	if err != nil || cl.unanswered {
		co.mu.Lock()
		if err != nil {
			co.tell(t.opts, Event{Kind: Retrying, Claim: cl.id, Token: t.token, Attempt: 1, Err: err})
		}
		cl.leaveSoon(t.token, linger)
		co.mu.Unlock()
	}
	if !known {
		return fmt.Errorf("unlock %q, token %d: %w: the engine no longer knew the claim", co.key.name, t.token, ErrLost)
	}
	return nil
}

func (l *Lease) releasedErr() error {
	return fmt.Errorf("lock %q, token %d: %w", l.Name(), l.t.token, ErrReleased)
}

// reenter tells whether the tenure holds, and answers one more lease of it if
// that is allowed.
func (t *tenure) reenter(allowed bool) (l *Lease, alive bool) {
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	t.checkExpired(time.Now())
	if t.err != nil || t.leases == 0 {
		return nil, false
	}
	if !allowed {
		return nil, true
	}
	t.leases++
	return &Lease{t: t}, true
}

// checkExpired ends the tenure if its time has passed, in case the keeper has
// not come to it yet.
func (t *tenure) checkExpired(now time.Time) {
	if t.err == nil {
		t.cl.checkExpired(now, t.cl.co.core.keeper.sleptBy(now))
	}
}

// finish ends the tenure with err.
func (t *tenure) finish(err error) {
	if t.err != nil {
		return
	}
	t.ended = t.deadline()
	t.err = err
	if t.lost != nil && err != ErrReleased {
		close(t.lost)
	}
	for c := range t.contexts {
		c.cancel(err)
	}
	t.cl.co.core.release(t.cl.co)
}
