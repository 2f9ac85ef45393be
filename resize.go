package pawl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Downgrade makes a writer's lease of an [RWMutex] a reader's, without a gap:
// no other writer holds in between, and readers who wait are let in at once.
// The token stays. A reader's lease is left as it is.
//
// ErrInvalid: the lease is none of an RWMutex, was re-entered (the other leases
// count on being alone), or has been given to another process ([Lease.Claim],
// [RWMutex.Adopt]). ErrLost, ErrReleased, ErrClosed: the lease is over. Any
// other error: the engine has not replied within ten seconds, a TTL, or ctx.
// The lease is a reader's all the same; other readers may have to wait until
// the engine has heard of it, which is seen to in the background.
func (l *Lease) Downgrade(ctx context.Context) error {
	t, cl, co := l.t, l.t.cl, l.t.cl.co
	over := ctx.Err()
	co.mu.Lock()
	defer co.mu.Unlock()
	if err := cmp.Or(l.resizable(), over); err != nil {
		return fmt.Errorf("downgrade %q: %w", co.key.name, err)
	}
	if cl.reads() {
		return nil
	}
	if t.leases > 1 {
		return fmt.Errorf("downgrade %q: %w: it was re-entered, %d leases hold it", co.key.name, ErrInvalid, t.leases)
	}
	// Invariant: a claim that may have been made smaller is never passed on to
	// another writer, and nobody here takes it for more than a reader's.
	units, spare := cl.units, cl.spare
	cl.units, cl.spare = 1, 0
	used, st, unsure, err := cl.resize(ctx, 1)
	t.checkExpired(time.Now())
	switch {
	case t.err != nil:
		err = t.err
	case err == nil && st.State == driver.Holding && st.Token <= used:
		cl.resizing = false
		return nil
	case err == nil && st.State == driver.Gone:
		co.gone(cl)
		err = t.err
	case driver.IsPermanent(err) && !unsure:
		cl.units, cl.spare, cl.resizing = units, spare, false
	default:
		err = refusal(st, err)
		cl.shrink()
	}
	return fmt.Errorf("downgrade %q: %w", co.key.name, err)
}

// TryUpgrade makes a reader's lease of an [RWMutex] a writer's, if it is the
// only one that holds the lock, in all processes; writers who wait are passed.
// It gets a new token, which [Lease.Token] returns from then on. A writer's
// lease is left as it is.
//
// It does not wait for other readers: two who did would wait for each other. If
// there are others, the error is a *[HeldError], which matches ErrHeld and says
// who; release the lease then, call [RWMutex.Lock], and look again at what was
// read. Whatever the error, the lease is the reader's that it was, unless it is
// over.
//
// Other errors: ErrInvalid: the lease is none of an RWMutex, or has been given
// to another process. ErrLost, ErrReleased, ErrClosed: the lease is over. Any
// other: the engine has not replied within ten seconds, a TTL, or ctx. It may
// take the lease for a writer's then, and keep other readers waiting, until it
// has heard that it is not, which is seen to in the background.
func (l *Lease) TryUpgrade(ctx context.Context) error {
	t, cl, co := l.t, l.t.cl, l.t.cl.co
	over := ctx.Err()
	co.mu.Lock()
	defer co.mu.Unlock()
	if err := cmp.Or(l.resizable(), over); err != nil {
		return fmt.Errorf("upgrade %q: %w", co.key.name, err)
	}
	if !cl.reads() {
		return nil
	}
	if !t.only() {
		return &HeldError{co.key.name, cl.entry()}
	}
	cl.grows = true
	used, st, unsure, err := cl.resize(ctx, co.key.limit)
	if unsure || err != nil && !driver.IsPermanent(err) {
		cl.lateGrowth = growth{used, time.Now().Add(cl.ttl)}
	}
	t.checkExpired(time.Now())
	switch {
	case t.err != nil:
		err = t.err
	case err == nil && st.State == driver.Holding && st.Token > used:
		cl.resizing, cl.units, cl.spare = false, co.key.limit, 0
		cl.token = st.Token
		t.token.Store(st.Token)
		return nil
	case err == nil && st.State == driver.Refused:
		cl.resizing = false
		return &HeldError{co.key.name, st.Blocker}
	case err == nil && st.State == driver.Gone:
		co.gone(cl)
		err = t.err
	case driver.IsPermanent(err) && !unsure:
		cl.resizing = false
	default:
		err = refusal(st, err)
		cl.shrink()
	}
	return fmt.Errorf("upgrade %q: %w", co.key.name, err)
}

var (
	errGone      = errors.New("the engine no longer knows the claim")
	errUnsettled = errors.New("the engine has not replied to the change before this yet")
)

// refusal is why a change of units came to nothing.
func refusal(st driver.Status, err error) error {
	if err == nil {
		err = fmt.Errorf("the engine says that the claim is %v, token %d", st.State, st.Token)
	}
	return err
}

// resizable says why the units of the lease's claim may not be changed.
func (l *Lease) resizable() error {
	t, cl := l.t, l.t.cl
	if l.released.Load() {
		return ErrReleased
	}
	t.checkExpired(time.Now())
	switch {
	case t.err != nil:
		return t.err
	case cl.co.key.kind != driver.KindRW:
		return fmt.Errorf("%w: it is no lease of an RWMutex", ErrInvalid)
	case cl.shown:
		return fmt.Errorf("%w: another process may have adopted the lease", ErrInvalid)
	case cl.resizing:
		return errUnsettled
	}
	return nil
}

// resize asks the store to give the claim that many units, until it replies, for
// as long as a reply is waited for, or ctx lives, or the claim holds. st is
// what it replied, to a request that spoke of the token used: a request whose
// token the claim has outgrown changes nothing, so none that comes late undoes
// what was agreed after it. unsure says that requests went unanswered before. The
// cohort's mutex is released meanwhile, and the claim marked as resizing.
func (cl *claim) resize(ctx context.Context, units int64) (used int64, st driver.Status, unsure bool, err error) {
	co := cl.co
	r, ttl := cl.ref(), cl.ttl
	r.Used = max(r.Used, cl.token)
	cl.resizing = true
	co.plan()
	co.mu.Unlock()
	ctx, cancel := bound(ctx, min(replyPatience, ttl)) // it may be the user's: no mutex is held
	pause := 10 * time.Millisecond
	for attempt := 1; ; attempt++ {
		try, done := bound(ctx, min(unlockPatience, ttl/4))
		st, err = co.core.store.Resize(try, r, units)
		done()
		again := err != nil && !driver.IsPermanent(err)
		if again && !sleep(ctx, pause) {
			again, err = false, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		co.mu.Lock()
		if again = again && cl.state == holding; again {
			co.tell(cl.tenure.opts, Event{Kind: Retrying, Context: cl.tenure.ctx, Claim: cl.id, Token: cl.tenure.token.Load(), Attempt: attempt, Err: err})
		}
		co.mu.Unlock()
		if !again {
			cancel()
			co.mu.Lock()
			return r.Used, st, unsure, err
		}
		unsure = true
		pause = min(2*pause, ttl/8, time.Second)
	}
}

// shrink brings a claim back to a reader's units, in the background, when it is
// not known which the store gives it: for as long as it holds.
func (cl *claim) shrink() {
	co := cl.co
	cl.resizing = true
	co.core.spawn(func() {
		co.mu.Lock()
		defer co.mu.Unlock()
		for cl.state == holding {
			used, st, _, err := cl.resize(co.core.ctx, 1)
			switch {
			case cl.state != holding || co.core.ctx.Err() != nil || driver.IsPermanent(err):
				return
			case err != nil:
			case st.State != driver.Holding:
				co.gone(cl)
			case st.Token > used:
				cl.token = st.Token // it has grown: the next request speaks of that
			default:
				cl.resizing = false
				return
			}
		}
	})
}

// growth is a request of TryUpgrade that got no reply, and may be
// carried out later.
type growth struct {
	used int64 // the token it speaks of
	ends time.Time
}

// mayGrow reports whether such a request may still make the claim larger: it is
// as late as a TTL at the most, and changes nothing if the claim has a greater
// token by now than the one it speaks of.
func (cl *claim) mayGrow(now time.Time) bool {
	return cl.token <= cl.lateGrowth.used && now.Before(cl.lateGrowth.ends)
}

// outgrown tells whether the claim's token is greater than known because a
// request of TryUpgrade, which was given up, has reached the store late. The
// claim is brought back then.
func (cl *claim) outgrown(st driver.Status) bool {
	if !cl.grows || !cl.reads() {
		return false
	}
	if !cl.resizing {
		cl.shrink()
	}
	return true
}
