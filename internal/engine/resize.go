package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// resizing is the state of a claim's changes of units.
type resizing struct {
	underWay bool   // a change is not settled
	grows    bool   // TryUpgrade was called: such a request may come late
	late     growth // the last of those that got no reply
}

// growth is a request of TryUpgrade that got no reply, and may be
// carried out later.
type growth struct {
	used int64 // the token it speaks of
	ends time.Time
}

// mayGrow reports whether such a request may still make the claim larger: it arrives
// at most a TTL late, and changes nothing if the claim has a greater token by then than
// the request names.
func (r *resizing) mayGrow(at instant, token int64) bool {
	return token <= r.late.used && at.now.Before(r.late.ends)
}

// outgrown reports whether the claim's token is greater than known because a
// request of TryUpgrade, which was given up, has reached the store late. The
// claim is brought back then.
func (cl *claim) outgrown(fx *effects) bool {
	r := &cl.held().resizing
	if !r.grows || !cl.reads() {
		return false
	}
	if !r.underWay {
		cl.shrinkSoon(fx)
	}
	return true
}

// shrinkSoon brings the claim back to a reader's units, in the background, when it is
// not known which the store gives it.
func (cl *claim) shrinkSoon(fx *effects) {
	cl.held().resizing.underWay = true
	fx.add(effect{kind: fxShrink, claim: cl})
}

// resize asks the store for other units. It names the token used: a request with a
// smaller token than the claim's changes nothing, so a late one does not undo a later
// change.
type resize struct {
	ref   driver.Ref
	units int64
}

// resized is the reply to a resize.
type resized struct {
	status driver.Status
	err    error
	unsure bool // requests went unanswered before
}

// refused reports whether the store has refused, and nothing sent before may still come.
func (r *resized) refused() bool { return driver.IsPermanent(r.err) && !r.unsure }

// why returns why the units were not changed.
func (r *resized) why() error {
	if r.err == nil {
		return fmt.Errorf("the engine says that the claim is %v, token %d", r.status.State, r.status.Token)
	}
	return r.err
}

// resizable returns why the units of the tenant's claim may not be changed, or nil.
func (t *tenant) resizable(fx *effects, at instant) error {
	if err := t.expire(fx, at); err != nil {
		return err
	}
	h := t.claim.held()
	switch {
	case t.claim.line.key.Kind != driver.KindRW:
		return fmt.Errorf("%w: it is no lease of an RWMutex", driver.ErrInvalid)
	case h.shown:
		return fmt.Errorf("%w: another process may have adopted the lease", driver.ErrInvalid)
	case h.resizing.underWay:
		return errUnsettled
	}
	return nil
}

// toUnits prepares a request for other units.
func (cl *claim) toUnits(fx *effects, at instant, units int64) resize {
	h := cl.held()
	r := cl.ref()
	r.Used = max(r.Used, h.token)
	h.resizing.underWay = true
	cl.line.plan(fx, at)
	return resize{r, units}
}

// downgrading begins to make a writer's tenant a reader's. It returns nil if it is one.
//
// Invariant: a claim that may have been made smaller is never passed on to
// another writer, and nobody here takes it for more than a reader's.
func (t *tenant) downgrading(fx *effects, at instant, over error) (*resize, error) {
	if err := cmp.Or(t.resizable(fx, at), over); err != nil {
		return nil, err
	}
	if t.claim.reads() {
		return nil, nil
	}
	if t.leases > 1 {
		return nil, fmt.Errorf("%w: it was re-entered, %d leases hold it", driver.ErrInvalid, t.leases)
	}
	h := t.claim.held()
	h.units, h.spare = 1, 0
	r := t.claim.toUnits(fx, at, 1)
	return &r, nil
}

// downgraded takes the reply. spare is what the writer had.
func (t *tenant) downgraded(fx *effects, at instant, asked *resize, spare int64, r resized) error {
	if t.expire(fx, at) != nil {
		return t.err
	}
	cl, h, st := t.claim, t.claim.held(), &r.status
	switch {
	case r.err == nil && st.State == driver.Holding && st.Token <= asked.ref.Used:
		h.resizing.underWay = false
		return nil
	case r.err == nil && st.State == driver.Gone:
		cl.line.lose(fx, at, cl, errGone)
		return t.err
	case r.refused():
		h.units, h.spare, h.resizing.underWay = cl.line.key.Limit, spare, false
		return r.err
	}
	cl.shrinkSoon(fx)
	return r.why()
}

// upgrading begins to make a reader's tenant a writer's. It returns nil if it is one.
func (t *tenant) upgrading(fx *effects, at instant, over error) (*resize, error) {
	if err := cmp.Or(t.resizable(fx, at), over); err != nil {
		return nil, err
	}
	cl := t.claim
	if !cl.reads() {
		return nil, nil
	}
	if !t.only() {
		return nil, &HeldError{cl.line.key.Name, cl.entry(at)}
	}
	cl.held().resizing.grows = true
	r := cl.toUnits(fx, at, cl.line.key.Limit)
	return &r, nil
}

// upgraded takes the reply.
func (t *tenant) upgraded(fx *effects, at instant, asked *resize, r resized) error {
	cl, st := t.claim, &r.status
	if h := cl.held(); h != nil && (r.unsure || r.err != nil && !driver.IsPermanent(r.err)) {
		h.resizing.late = growth{asked.ref.Used, at.now.Add(cl.ttl)}
	}
	if t.expire(fx, at) != nil {
		return t.err
	}
	h := cl.held()
	switch {
	case r.err == nil && st.State == driver.Holding && st.Token > asked.ref.Used:
		h.resizing.underWay, h.units, h.spare, h.token = false, cl.line.key.Limit, 0, st.Token
		t.token.Store(st.Token)
		return nil
	case r.err == nil && st.State == driver.Refused:
		h.resizing.underWay = false
		return &HeldError{cl.line.key.Name, st.Blocker}
	case r.err == nil && st.State == driver.Gone:
		cl.line.lose(fx, at, cl, errGone)
		return t.err
	case r.refused():
		h.resizing.underWay = false
		return r.err
	}
	cl.shrinkSoon(fx)
	return r.why()
}

// shrunk takes the reply to a request that brings the claim back, and returns the next
// request, or nil if it is done.
func (cl *claim) shrunk(fx *effects, at instant, asked *resize, r resized) *resize {
	h, st := cl.held(), &r.status
	switch {
	case h == nil:
		return nil
	case r.err != nil:
	case st.State != driver.Holding:
		cl.line.lose(fx, at, cl, errGone)
		return nil
	case st.Token > asked.ref.Used:
		h.token = st.Token // it has grown: the next request speaks of that
	default:
		h.resizing.underWay = false
		return nil
	}
	next := cl.toUnits(fx, at, 1)
	return &next
}

// Downgrade makes a writer's grant a reader's, without a gap. A reader's is left as
// it is. The grant is a reader's all the same after an error of the store.
func (g *Grant) Downgrade(ctx context.Context) error {
	t, err := g.alone()
	if err != nil {
		return err
	}
	over := ctx.Err() // not under the mutex: it may be the user's
	var fx effects
	at := g.engine.begin(t.claim.line)
	var spare int64
	if h := t.claim.held(); h != nil {
		spare = h.spare
	}
	asked, err := t.downgrading(&fx, at, over)
	g.engine.commit(t.claim.line, &fx)
	if asked == nil || err != nil {
		return err
	}
	r := g.engine.resize(ctx, t.claim, asked)
	fx = effects{}
	at = g.engine.begin(t.claim.line)
	defer g.engine.commit(t.claim.line, &fx)
	return t.downgraded(&fx, at, asked, spare, r)
}

// TryUpgrade makes a reader's grant a writer's, if it is the only one that holds the
// lock, in all processes. A writer's is left as it is.
func (g *Grant) TryUpgrade(ctx context.Context) error {
	t, err := g.alone()
	if err != nil {
		return err
	}
	over := ctx.Err()
	var fx effects
	at := g.engine.begin(t.claim.line)
	asked, err := t.upgrading(&fx, at, over)
	g.engine.commit(t.claim.line, &fx)
	if asked == nil || err != nil {
		return err
	}
	r := g.engine.resize(ctx, t.claim, asked)
	fx = effects{}
	at = g.engine.begin(t.claim.line)
	defer g.engine.commit(t.claim.line, &fx)
	return t.upgraded(&fx, at, asked, r)
}

// resize asks the store to give the claim other units, until it replies, for
// as long as a reply is waited for, or ctx lives, or the claim holds.
func (e *Engine) resize(ctx context.Context, cl *claim, asked *resize) (r resized) {
	ttl := asked.ref.TTL
	ctx, cancel := retry.WithTimeout(ctx, min(retry.Longest, ttl))
	defer cancel()
	pause := 10 * time.Millisecond
	for attempt := 1; ; attempt++ {
		try, done := retry.WithTimeout(ctx, min(retry.Cleanup, ttl/4))
		r.status, r.err = e.store.Resize(try, asked.ref, asked.units)
		done()
		if r.err == nil || driver.IsPermanent(r.err) {
			return r
		}
		if !retry.Sleep(ctx, pause) {
			r.err = fmt.Errorf("%w: %w", context.Cause(ctx), r.err)
			return r
		}
		var fx effects
		e.begin(cl.line)
		h := cl.held()
		if h != nil {
			t := h.tenants
			fx.tell(t.terms, Event{Kind: EventRetrying, Context: t.ctx, Name: cl.line.key.Name, Claim: cl.id, Token: t.token.Load(), Attempt: attempt, Err: r.err})
		}
		e.commit(cl.line, &fx)
		if h == nil {
			return r
		}
		r.unsure = true
		pause = min(2*pause, ttl/8, time.Second)
	}
}

// permanentPause is how long shrink waits after an error that is permanent: it may be
// mended while the claim holds.
const permanentPause = time.Second

// shrink brings a claim back to a reader's units, for as long as it holds.
func (e *Engine) shrink(cl *claim) {
	var asked *resize
	var fx effects
	at := e.begin(cl.line)
	if cl.held() != nil {
		r := cl.toUnits(&fx, at, 1)
		asked = &r
	}
	e.commit(cl.line, &fx)
	for asked != nil {
		r := e.resize(e.ctx, cl, asked)
		if driver.IsPermanent(r.err) {
			retry.Sleep(e.ctx, permanentPause)
		}
		if e.ctx.Err() != nil {
			return
		}
		var fx effects
		at := e.begin(cl.line)
		asked = cl.shrunk(&fx, at, asked, r)
		e.commit(cl.line, &fx)
	}
}

// errNotAlone: several names cannot be handed over or resized together.
var errNotAlone = errors.New("the lease is one of several names")

// alone returns the tenant of a grant of one name that was not released.
func (g *Grant) alone() (*tenant, error) {
	switch {
	case len(g.tenants) > 1:
		return nil, fmt.Errorf("%w: %w", driver.ErrInvalid, errNotAlone)
	case g.released.Load():
		return nil, ErrReleased
	}
	return g.tenants[0], nil
}
