package pawl

import (
	"cmp"
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
	lost     error // what Unlock found to have ended it; guarded by the cohort's mutex
}

// tenure is one grant to one caller: what the re-entrant leases of a lock have
// in common. Its fields that change are guarded by the cohort's mutex.
type tenure struct {
	cl       *claim
	opts     *Options
	token    atomic.Int64 // written under the cohort's mutex
	acquired time.Time
	leases   int   // not yet unlocked
	err      error // why it is over; nil while it holds

	ctx context.Context // of the call that took it, for an Observer; nil without one

	maxHoldEnds time.Time // zero: never
	ended       time.Time // its deadline, once it is over

	lost     chan struct{}
	wanted   chan struct{} // see Wanted
	pressed  bool          // others want it, or did
	contexts endings
	ending   atomic.Pointer[error] // err, for those who do not hold the mutex

	prev, next *tenure // others on the same claim, see claim.tenure

	set *LeaseSet // that it is a part of
}

// Name of the lock.
func (l *Lease) Name() string { return l.t.cl.co.key.name }

// Token of the grant: greater than that of every earlier grant of the name.
// Send it along with each write to the protected resource, and let that refuse
// a token smaller than one it has seen. Readers of one [RWMutex] who share a
// claim have the same token; [Lease.TryUpgrade] draws a new one.
func (l *Lease) Token() int64 { return l.t.token.Load() }

// Claim names this lease for [Mutex.Adopt], [RWMutex.Adopt] or
// [Semaphore.Adopt] in another process. From then on it is shared with no more
// readers, and stays a reader's or a writer's as it is.
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

func (t *tenure) claim() string {
	// The claim's is the greater one after a TryUpgrade that was undone.
	text := t.cl.id + "." + strconv.FormatInt(max(t.token.Load(), t.cl.token), 10)
	switch key := &t.cl.co.key; {
	case t.cl.reads():
		text += readerMark
	case key.kind == driver.KindSemaphore:
		text += permitMark + strconv.FormatInt(t.cl.units, 10)
	}
	return text
}

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
	switch d := t.cl.until(); {
	case t.err != nil:
		return t.ended
	case !t.maxHoldEnds.IsZero() && t.maxHoldEnds.Before(d):
		return t.maxHoldEnds
	default:
		return d
	}
}

// Err returns nil while the lease holds; after that ErrLost, also if it was
// unlocked since, ErrReleased, or ErrClosed if the client was closed. It goes by
// the clock, not by when this process was told.
func (l *Lease) Err() error {
	if !l.released.Load() && l.over(time.Now()) == nil {
		return nil
	}
	t := l.t
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	if l.released.Load() {
		return cmp.Or(l.lost, l.releasedErr())
	}
	t.checkExpired(time.Now())
	return t.err
}

// Lost returns a channel that is closed when the lease ends before it is
// unlocked.
func (l *Lease) Lost() <-chan struct{} {
	t := l.t
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	t.checkExpired(time.Now())
	if t.lost == nil {
		t.lost = make(chan struct{})
		if t.err != nil && t.err != ErrReleased {
			close(t.lost)
		}
	}
	return t.lost
}

// Context returns a context that ends with parent and with the lease: when it
// is lost (context.Cause is ErrLost and says why) or unlocked (ErrReleased). Its
// Err and Done go by the clock: they say so as soon as the lease's time has passed,
// also if the process was paused until a moment ago. Contexts derived from it
// follow as soon as the client runs.
//
// Locking the same name with it re-enters or is ErrDeadlock; see
// [Options].Reentrant.
func (l *Lease) Context(parent context.Context) context.Context {
	return l.t.contexts.context(parent, l)
}

// over is of hold.
func (l *Lease) over(now time.Time) error {
	return l.t.over(now, l.t.cl.co.core.keeper.sleptBy(now))
}

func (l *Lease) last() time.Time { return l.t.maxHoldEnds }

func (l *Lease) part(core *core, name string) *tenure {
	if co := l.t.cl.co; co.core != core || co.key.name != name {
		return nil
	}
	return l.t
}

// Extend renews the lease now, to last for ttl after the request at the least;
// 0 means the TTL it has. It never makes a lease shorter, nor longer than
// [Options].MaxHold allows; a lease that is renewed by itself is renewed for
// that TTL from now on. From 100 ms to 7 days.
//
// ErrLost: it has ended, or the engine knows it no longer. ErrReleased, ErrClosed:
// it was given up. ErrInvalid: ttl is not allowed. Another error: the engine has not
// replied within ten seconds, a TTL, or ctx; the lease lives until its Deadline.
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
	r := cl.ref()
	co.mu.Unlock()
	whole, cancel := bound(ctx, min(replyPatience, r.TTL, max(0, time.Until(t.cl.until()))))
	defer cancel()
	for failures := 0; ; failures++ {
		one, cancel := bound(whole, min(patienceAfter(failures), r.TTL/4))
		co.mu.Lock()
		cl.ends = later(cl.ends, time.Now().Add(r.TTL))
		co.mu.Unlock()
		sent, slept, st, err := cl.renew(one, r)
		again := one.Err() != nil && whole.Err() == nil
		cancel()
		co.mu.Lock()
		t.checkExpired(time.Now())
		switch {
		case t.err != nil:
			defer co.mu.Unlock()
			return t.err
		case err == nil:
			defer co.mu.Unlock()
			cl.renewed(sent, slept, st, nil)
			return t.err
		}
		co.mu.Unlock()
		if !again || driver.IsPermanent(err) {
			return fmt.Errorf("extend %q: %w", co.key.name, err)
		}
	}
}

// HandOver gives the lease up without releasing it, and returns what
// [Mutex.Adopt], or that of another kind of lock, needs in the process that takes
// it over within the TTL. The lease ends here: its contexts are cancelled with
// cause ErrReleased. A lock that was re-entered cannot be handed over
// (ErrInvalid), nor a reader's that shares its claim with others of the process,
// nor one whose MinHold is not over: only Unlock here sees to that. After an error
// the lease is what it was before.
//
// Other errors are those of [Lease.Extend], and that the engine has not replied
// to a Downgrade or TryUpgrade of the lease yet, or that a TryUpgrade got no reply
// less than a TTL ago: try again, or unlock.
func (l *Lease) HandOver(ctx context.Context) (claim string, err error) {
	t, co := l.t, l.t.cl.co
	co.mu.Lock()
	err = l.cannotHandOver()
	if over := t.cl.handOver%2 == 1; err == nil && over {
		err = fmt.Errorf("hand over %q: %w: another HandOver is under way", co.key.name, ErrInvalid)
	}
	if err == nil {
		t.cl.handOver++
	}
	co.mu.Unlock()
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			t.cl.takeBack()
		}
	}()
	if err := t.extend(ctx, 0); err != nil {
		return "", fmt.Errorf("hand over: %w", err)
	}
	defer func() {
		if err == nil {
			t.contexts.end(ErrReleased)
		}
	}()
	co.mu.Lock()
	defer co.mu.Unlock()
	if err := l.cannotHandOver(); err != nil {
		return "", err
	}
	if l.released.Swap(true) {
		return "", l.releasedErr()
	}
	co.tell(t.opts, Event{Kind: Released, Context: ctx, Claim: t.cl.id, Token: t.token.Load(), Held: time.Since(t.acquired)})
	co.dismiss(t.cl, ErrReleased)
	t.cl.guard()
	return t.claim(), nil
}

// takeBack tells the engine that the claim is not handed over, of which it may
// have been told.
func (cl *claim) takeBack() {
	cl.co.mu.Lock()
	defer cl.co.mu.Unlock()
	cl.handOver++
	cl.hurry()
}

// cannotHandOver returns why the lease cannot be handed over. The cohort is
// locked.
func (l *Lease) cannotHandOver() error {
	t, name, now := l.t, l.t.cl.co.key.name, time.Now()
	t.checkExpired(now)
	switch {
	case t.err != nil:
		return fmt.Errorf("hand over: %w", t.err)
	case l.released.Load():
		return l.releasedErr()
	case t.leases > 1:
		return fmt.Errorf("hand over %q: %w: it was re-entered, %d leases hold it", name, ErrInvalid, t.leases)
	case t.cl.resizing: // its token and units are not certain: it could not be adopted
		return fmt.Errorf("hand over %q: %w", name, errUnsettled)
	case t.cl.mayGrow(now): // and what was handed over would be another's no more
		return fmt.Errorf("hand over %q: a TryUpgrade got no reply, and may reach the engine within %v still: try again then, or after another TryUpgrade and Downgrade, or unlock",
			name, t.cl.lateGrowth.ends.Sub(now).Round(time.Millisecond))
	case t.cl.linger(now) > 0: // whoever adopts it may not know of that
		return fmt.Errorf("hand over %q: %w: MinHold is over in %v only", name, ErrInvalid, t.cl.linger(now).Round(time.Millisecond))
	case !t.only():
		return fmt.Errorf("hand over %q: %w: other readers of this process share its claim", name, ErrInvalid)
	}
	return nil
}

// Unlock releases the lease and reports whether it held to this moment: nil,
// or ErrLost if it had ended before (roll back, or compensate). A lease that
// was unlocked before is ErrReleased, one of a closed client ErrClosed;
// unlocking twice does no harm.
//
// It works under a cancelled context too. While the engine cannot be reached
// it waits for about two seconds at the most, returns nil if the lease was
// still good, and goes on trying in the background until the claim has run
// out.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.released.Swap(true) {
		return l.releasedErr()
	}
	t, cl, co := l.t, l.t.cl, l.t.cl.co
	co.mu.Lock()
	now := time.Now() // not before: the mutex may have kept it waiting
	t.checkExpired(now)
	if t.leases--; t.err != nil || t.leases > 0 {
		defer co.mu.Unlock()
		l.lost = t.err
		return t.err
	}
	token := t.token.Load()
	co.tell(t.opts, Event{Kind: Released, Context: ctx, Claim: cl.id, Token: token, Held: now.Sub(t.acquired)})
	linger := cl.linger(now)
	if cl.part(t, ErrReleased) || linger == 0 && co.pass(t, now) {
		co.mu.Unlock()
		t.contexts.end(ErrReleased)
		return nil
	}
	co.dismiss(cl, ErrReleased)
	co.mu.Unlock()
	t.contexts.end(ErrReleased)

	ctx, cancel := bound(context.WithoutCancel(ctx), min(unlockPatience, cl.ttl))
	defer cancel()
	known, err := cl.leave(ctx, token, linger)
	if err != nil || cl.unanswered {
		co.mu.Lock()
		if err != nil {
			co.tell(t.opts, Event{Kind: Retrying, Context: t.ctx, Claim: cl.id, Token: token, Attempt: 1, Err: err})
		}
		cl.leaveSoon(token, linger)
		co.mu.Unlock()
	}
	if !known {
		err := fmt.Errorf("unlock %q, token %d: %w: the engine no longer knew the claim", co.key.name, token, ErrLost)
		co.mu.Lock()
		l.lost = err
		co.mu.Unlock()
		return err
	}
	return nil
}

func (l *Lease) releasedErr() error {
	return fmt.Errorf("lock %q, token %d: %w", l.Name(), l.Token(), ErrReleased)
}

// holds tells whether the tenure has not ended.
func (t *tenure) holds() bool {
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	t.checkExpired(time.Now())
	return t.err == nil && t.leases > 0
}

// over says why the tenure is over at that time; nil while it holds. It needs no
// mutex.
//
// Invariant: whatever says that a lease holds goes by this, or, under the mutex,
// by checkExpired, which is the same and tells everybody.
func (t *tenure) over(now time.Time, slept time.Duration) error {
	if err := t.ending.Load(); err != nil {
		return *err
	}
	why := t.cl.expired(now, slept)
	if why == nil {
		why = t.heldTooLong(now)
	}
	if why == nil {
		return nil
	}
	return t.lostErr(why)
}

// reenter returns one more lease of the tenure, if it holds that many units and
// it is allowed; ErrDeadlock if it holds, but that may not be; or nothing.
func (t *tenure) reenter(units int64, allowed bool) (*Lease, error) {
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	t.checkExpired(time.Now())
	switch {
	case t.err != nil || t.leases == 0:
		return nil, nil
	case units > t.cl.units:
		return nil, fmt.Errorf("%w, as a reader: Lease.TryUpgrade may make it a writer", ErrDeadlock)
	case !allowed:
		return nil, ErrDeadlock
	}
	t.leases++
	return &Lease{t: t}, nil
}

// checkExpired ends the tenure if its time has passed, in case the keeper has
// not come to it yet.
func (t *tenure) checkExpired(now time.Time) {
	if cl := t.cl; t.err == nil && !cl.ranOut(now, cl.co.core.keeper.sleptBy(now)) {
		t.checkMaxHold(now)
	}
}

// checkMaxHold ends the tenure, of a claim that is good, if its own time has
// passed.
func (t *tenure) checkMaxHold(now time.Time) {
	cl, why := t.cl, t.heldTooLong(now)
	if why == nil {
		return
	}
	if t.only() {
		cl.co.lose(cl, why)
		return
	}
	err := t.lostErr(why)
	t.tellLost(err)
	cl.part(t, err)
}

// heldTooLong says whether the tenure's own time has passed.
func (t *tenure) heldTooLong(now time.Time) error {
	if t.maxHoldEnds.IsZero() || now.Before(t.maxHoldEnds) {
		return nil
	}
	return fmt.Errorf("MaxHold of %v has passed", t.opts.MaxHold)
}

func (t *tenure) lostErr(why error) error {
	return fmt.Errorf("lock %q, token %d: %w: %w", t.cl.co.key.name, t.token.Load(), ErrLost, why)
}

func (t *tenure) tellLost(err error) {
	t.cl.co.tell(t.opts, Event{Kind: Lost, Context: t.ctx, Claim: t.cl.id, Token: t.token.Load(), Held: time.Since(t.acquired), Err: err})
}

// tellLost runs f, which tells holders that the claim was lost, in a goroutine of
// its own. The claim stays in the store until they were told.
func (cl *claim) tellLost(f func()) {
	cl.telling.Add(1)
	if !cl.co.core.spawn(func() { defer cl.telling.Done(); f() }) {
		cl.telling.Done() // the client is closed, and nothing held
	}
}

// finish ends the tenure with err. Its contexts end after the mutex is unlocked:
// who releases it sees to that, and all other ends have a goroutine for it.
func (t *tenure) finish(err error) {
	if t.err != nil {
		return
	}
	t.ended = t.deadline()
	t.err = err
	t.ending.Store(&t.err)
	if t.lost != nil && err != ErrReleased {
		close(t.lost)
	}
	if err != ErrReleased && t.contexts.used() {
		t.cl.tellLost(func() { t.contexts.end(err) })
	}
	if t.set != nil {
		t.set.ended(t, err)
	}
	t.cl.co.core.release(t.cl.co)
}
