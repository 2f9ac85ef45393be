package pawl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// A claim is one claim in the store, as its client sees it. Several tenures
// may follow each other on one claim.
//
// All fields are guarded by the cohort's mutex unless they say otherwise.
type claim struct {
	co      *cohort
	id      string // changes only while waiting, see startOver
	mark    string // of an adopted claim: what makes it this client's
	ttl     time.Duration
	state   claimState
	pursued bool        // a goroutine is after it
	plain   atomic.Bool // once it holds, only Extend renews it; written under the cohort's mutex

	// What the store said last.
	deadline atomic.Pointer[deadline] // written under the cohort's mutex
	first    deadline                 // the first one, which spares an allocation
	life     time.Duration            // what the store gave the claim by that, by the local clock
	ahead    int
	blocker  *driver.Entry
	blocked  time.Time // when that was told

	// ends is when the store has forgotten the claim at the latest, as far as
	// requests were sent for it, with a reply or without.
	ends time.Time

	// Renewal, by the keeper.
	renewAt  time.Time
	exact    bool // not before renewAt: the reply would be the same
	soon     int  // dates in a row that were to come at once
	renewing bool
	failures int  // of renewals in a row
	hurried  bool // renew as soon as possible, to see what became of it
	fresh    bool // a plain lease that waited, not renewed since its grant

	// For the keeper, guarded by its mutex.
	due   time.Time
	slack time.Duration // how much earlier it may look
	index int           // in its heap, from 1

	// While it holds.
	tenure       *tenure   // the latest; where readers share the claim, a list from here on
	units        int64     // it has for certain
	token, spare int64     // of the grant
	since        time.Time // when the grant was known
	wanted       bool      // others wait in the store
	turn         int       // local waiters to serve before it leaves for them
	shown        bool      // Claim was called: another process may adopt it
	minHoldEnds  time.Time // the name stays taken until then
	resizing     bool      // a change of its units is not settled, see resize.go
	grows        bool      // TryUpgrade was called: such a request may come late
	lateGrowth   growth    // the last of those that got no reply
	handOver     int64     // see driver.Ref

	// While it is pursued.
	unanswered bool               // an Enter may still be on its way to the store
	entries    int                // Enters in a row that failed, for who sends the next one
	silent     bool               // the last one got no reply in time
	nudge      chan struct{}      // there may be a reason to make the next attempt earlier
	stop       context.CancelFunc // ends the pursuit
	wake       context.CancelFunc // ends the Wait under way
	trouble    error              // of a renewal, which the pursuit has not dealt with yet
	left       chan struct{}      // made when it is abandoned, closed once the store has heard of that

	telling sync.WaitGroup // its holders that it was lost
}

type claimState uint8

const (
	entering claimState = iota // on its way into the queue
	waiting                    // in the queue
	holding                    // granted
	over                       // given up, released, or lost
)

const (
	// replyPatience bounds how long a request is waited for that was sent in vain
	// some times, or that is not sent again.
	replyPatience = retry.Longest
	// unlockPatience bounds how long Unlock waits for an engine that does not
	// reply; trying goes on in the background.
	unlockPatience = retry.Cleanup
	// leavePatience is how long a Lock that gives up waits for its claim to
	// leave.
	leavePatience = 200 * time.Millisecond
	// heartbeat bounds how long a waiting claim goes without a renewal,
	// whatever its TTL: it may have been granted, and the message been lost.
	heartbeat = 5 * time.Second
	// recheckPause is the least time between two renewals of a waiting claim that
	// look whether something has run out.
	recheckPause = 5 * time.Millisecond
)

func (co *cohort) newClaim(id string) *claim {
	cl := co.makeClaim(id)
	co.core.register(cl)
	return cl
}

// makeClaim makes a claim that nobody is told about yet.
func (co *cohort) makeClaim(id string) *claim {
	cl := &claim{co: co, id: id, ttl: co.key.ttl, units: co.key.units}
	cl.plain.Store(co.key.noRenewal)
	return cl
}

// enter sends the claim to the store. Whoever calls it is the only one to do
// anything with the claim meanwhile.
func (cl *claim) enter(ctx context.Context, try bool) (sent time.Time, slept time.Duration, st driver.Status, err error) {
	core := cl.co.core
	// A reply that takes longer than the TTL is worth nothing.
	ctx, cancel := bound(ctx, min(patienceAfter(cl.entries), cl.ttl))
	defer cancel()
	sent = time.Now()
	slept = core.keeper.sleptBy(sent)
	st, err = core.store.Enter(ctx, cl.request(try))
	cl.requested(sent, err)
	if cl.entries++; err == nil {
		cl.entries = 0
	}
	cl.silent = err != nil && ctx.Err() != nil
	return sent, slept, st, err
}

// request is the claim for the store.
func (cl *claim) request(try bool) driver.Claim {
	key := &cl.co.key
	owner := cl.co.core.owner
	owner.Label = key.label
	return driver.Claim{
		Name: key.name, ID: cl.id, Kind: key.kind, Units: key.units, Limit: key.limit,
		TTL: cl.ttl, Overtake: key.overtake, Try: try, Owner: owner,
	}
}

// adopt asks the store for the claim, whose token was handed over.
func (cl *claim) adopt(ctx context.Context, token int64) (sent time.Time, slept time.Duration, st driver.Status, err error) {
	core, key := cl.co.core, &cl.co.key
	ctx, cancel := bound(ctx, min(replyPatience, cl.ttl))
	defer cancel()
	owner := core.owner
	owner.Label = key.label
	sent = time.Now()
	slept = core.keeper.sleptBy(sent)
	st, err = core.store.Adopt(ctx, driver.Adoption{
		Name: key.name, ID: cl.id, Kind: key.kind, Units: key.units, Token: token, Mark: cl.mark, TTL: cl.ttl, Owner: owner,
	})
	return sent, slept, st, err
}

// requested notes that the claim was sent to the store.
func (cl *claim) requested(sent time.Time, err error) {
	if err != nil && !driver.IsPermanent(err) {
		cl.unanswered = true
	}
	cl.ends = later(cl.ends, sent.Add(cl.ttl))
}

// renew renews the claim alone, outside the keeper's rounds.
func (cl *claim) renew(ctx context.Context, r driver.Ref) (sent time.Time, slept time.Duration, st driver.Status, err error) {
	err = errUnreported
	sent = time.Now()
	slept = cl.co.core.keeper.sleptBy(sent)
	cl.co.core.store.Renew(ctx, []driver.Ref{r}, func(_ int, s driver.Status, e error) { st, err = s, e })
	return sent, slept, st, err
}

var errUnreported = errors.New("the store did not report")

// ref is the claim for the store, with the highest token used.
func (cl *claim) ref() driver.Ref {
	r := driver.Ref{Name: cl.co.key.name, ID: cl.id, Mark: cl.mark, TTL: cl.ttl, HandOver: cl.handOver}
	if cl.tenure != nil {
		r.Used = cl.tenure.token.Load()
	}
	return r
}

// renewedAt takes over the deadline from the reply to a request.
func (cl *claim) renewedAt(sent time.Time, slept time.Duration, st driver.Status) {
	d := cl.believed()
	d.failing, cl.failures = nil, 0
	if st.Deadline.After(d.at) {
		d.at, d.slept = st.Deadline, slept
	}
	if cl.deadline.Load() == nil {
		cl.first = d
		cl.deadline.Store(&cl.first)
	} else {
		next := d
		cl.deadline.Store(&next)
	}
	if !st.Deadline.IsZero() {
		cl.life = st.Deadline.Sub(sent)
	}
	period := cl.span() / 3
	if st.State == driver.Waiting {
		period = min(period, heartbeat)
	}
	cl.renewAt, cl.exact = sent.Add(period-jitter(period/7)), false
	if st.State == driver.Waiting && !st.Recheck.IsZero() {
		if st.Ahead != cl.ahead {
			cl.soon = 0
		}
		cl.recheck(sent, st.Recheck)
	}
}

// recheck has a waiting claim renewed at that date, by which something may have
// run out that stands in its way.
//
// A renewal that comes a little too early is told the same date again. So it is
// not sent along with others before its date, and not at once after the last one:
// the pause doubles, up to a point, for as long as the dates bring nothing.
func (cl *claim) recheck(sent, date time.Time) {
	if next := sent.Add(recheckPause << min(cl.soon, 6)); date.Before(next) {
		date = next
		cl.soon++
	} else {
		cl.soon = 0
	}
	if date.Before(cl.renewAt) {
		cl.renewAt, cl.exact = date, true
	}
}

// span is how long the claim lasts after a renewal: its TTL, unless the engine
// has given it clearly less.
func (cl *claim) span() time.Duration {
	if cl.life > 0 && cl.life < cl.ttl-cl.ttl/10 {
		return cl.life
	}
	return cl.ttl
}

// deadline is until when a claim that holds is believed in. It is never changed.
type deadline struct {
	at      time.Time
	slept   time.Duration // the machine's sleep that was known when the request was sent that set at
	failing error         // of the last renewal, if it failed
}

// left returns how long the claim is good for.
//
// Invariant: no tenure is given, passed on or called protected unless this is
// above zero, and the deadline is earlier than the store's by its own margin:
// the holder stops believing before the store may grant the name to another.
// The monotonic clock stands still while the machine sleeps, the store's does
// not: that time is counted off.
func (d *deadline) left(now time.Time, slept time.Duration) time.Duration {
	return d.at.Sub(now) - max(0, slept-d.slept)
}

// believed is a copy of the deadline.
func (cl *claim) believed() deadline {
	if d := cl.deadline.Load(); d != nil {
		return *d
	}
	return deadline{}
}

func (cl *claim) until() time.Time { return cl.believed().at }

// remaining returns how long the claim is good for; see deadline.
func (cl *claim) remaining(now time.Time, slept time.Duration) time.Duration {
	d := cl.believed()
	return d.left(now, slept)
}

// ample reports whether enough of the claim's time is left to give it to somebody
// new, who has done nothing yet: a third of it.
func (cl *claim) ample(now time.Time) bool {
	return cl.remaining(now, cl.co.core.keeper.sleptBy(now)) >= cl.span()/3
}

// expired says why the claim's time has passed at now; nil if it has not.
func (cl *claim) expired(now time.Time, slept time.Duration) error {
	d := cl.believed()
	switch {
	case d.left(now, slept) > 0:
		return nil
	case d.failing != nil:
		return fmt.Errorf("it was not renewed in time: %w", d.failing)
	case cl.plain.Load():
		return errors.New("its TTL has passed")
	}
	return errors.New("it was not renewed in time")
}

// hurry has the claim renewed as soon as possible, also if a renewal is under
// way that may know nothing yet.
func (cl *claim) hurry() {
	cl.hurried, cl.renewAt = true, time.Now()
	cl.co.core.keeper.watch(cl)
}

// serve makes the claim's next tenure, beside those that hold.
func (cl *claim) serve(opts *Options, token int64, now time.Time) *tenure {
	t := &tenure{cl: cl, leases: 1}
	t.token.Store(token)
	t.begin(opts, now)
	if other := cl.tenure; other != nil && other.err == nil {
		t.next, other.prev = other, t
	}
	cl.tenure = t
	return t
}

// begin lets the times run that options give a tenure.
func (t *tenure) begin(opts *Options, now time.Time) {
	t.opts, t.acquired = opts, now
	if opts.MaxHold > 0 {
		t.maxHoldEnds = now.Add(opts.MaxHold)
	}
	if opts.MinHold > 0 {
		t.cl.minHoldEnds = later(t.cl.minHoldEnds, now.Add(opts.MinHold))
	}
}

// linger is how long the name has to stay taken if it is released now.
func (cl *claim) linger(now time.Time) time.Duration { return max(0, cl.minHoldEnds.Sub(now)) }

// want notes whether others wait in the store for what this claim holds.
func (cl *claim) want(wanted bool) {
	if wanted && !cl.wanted {
		cl.turn = min(cl.co.waiters.Len(), maxTurn)
	}
	cl.wanted = wanted
}

// rivalled is want for news that others wait now.
func (cl *claim) rivalled() {
	cl.co.rivals = time.Now()
	cl.want(true)
	cl.press()
}

// room is how many local waiters the claim will still serve.
func (cl *claim) room() int {
	switch {
	case cl.spare == 0 || cl.plain.Load() || cl.tenure.opts.MinHold > 0:
		return 0
	case cl.shown || cl.ttl != cl.co.key.ttl:
		return 0 // somebody may adopt it; it was extended for one lease
	case cl.wanted:
		return cl.turn
	}
	return math.MaxInt
}

// end marks the claim as none of the cohort's any longer.
func (cl *claim) end() {
	cl.state = over
	cl.co.core.unregister(cl)
}

// refused ends a claim that the store has not taken. A request from before that
// got no reply may still reach it.
func (cl *claim) refused() {
	if cl.unanswered {
		cl.abandon()
		return
	}
	cl.end()
}

// abandon gives up a claim that does not hold, as far as is known, and returns
// a channel that is closed when the store has heard of it.
func (cl *claim) abandon() <-chan struct{} {
	cl.end()
	cl.left = make(chan struct{})
	cl.co.core.departing(cl)
	if cl.pursued {
		cl.stop() // the pursuit tells the store
	} else if !cl.co.core.spawn(cl.leaveBehind) {
		cl.departed()
	}
	return cl.left
}

// departed notes that the store has heard that the claim was abandoned, or
// will not.
func (cl *claim) departed() {
	close(cl.left)
	cl.co.core.departed(cl)
}

// leaveBehind tells the store that the claim was abandoned.
func (cl *claim) leaveBehind() {
	ctx, cancel := context.WithDeadline(cl.co.core.ctx, cl.ends)
	defer cancel()
	cl.leave(ctx, 0, 0)
	cl.departed()
	cl.leaveAgain(ctx, 0)
}

// guard takes care of an Enter that never got a reply after the claim was handed
// over: it may reach the store when the one who has adopted the claim has released
// it, and would enter it again, for nobody.
//
// Invariant: the claim does not leave before the store has said that what was
// handed over is adopted or over. From then on nothing of this mark is anybody's.
func (cl *claim) guard() {
	if !cl.unanswered {
		return
	}
	core, token, ends := cl.co.core, cl.token, cl.ends
	r := cl.ref()
	r.TTL = driver.MinTTL // a look must not make it longer
	core.spawn(func() {
		ctx, cancel := context.WithDeadline(core.ctx, ends)
		defer cancel()
		for pause := 20 * time.Millisecond; sleep(ctx, pause); pause = min(2*pause, cl.ttl/4) {
			one, cancel := bound(ctx, min(unlockPatience, cl.ttl))
			_, _, st, err := cl.renew(one, r)
			cancel()
			if err == nil && (st.State != driver.Holding || st.Token != token) {
				cl.leave(ctx, 0, 0)
				cl.leaveAgain(ctx, 0)
			}
		}
	})
}

// leaveAgain takes care of an Enter that never got a reply, and may reach the
// store after the claim has left.
func (cl *claim) leaveAgain(ctx context.Context, linger time.Duration) {
	for pause := 20 * time.Millisecond; cl.unanswered && sleep(ctx, pause); pause = min(2*pause, cl.ttl/4) {
		cl.leave(ctx, 0, linger)
	}
}

// awaitLeft waits a moment for claims to leave.
func awaitLeft(left ...<-chan struct{}) {
	var late <-chan time.Time
	for _, l := range left {
		select {
		case <-l:
			continue
		default:
		}
		if late == nil {
			t := time.NewTimer(leavePatience)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-l:
		case <-late:
			return
		}
	}
}

// leave tells the store that the claim is given up, until it has replied, ctx
// ends or the claim has run out, and reports whether the store still knew it.
func (cl *claim) leave(ctx context.Context, used int64, linger time.Duration) (known bool, err error) {
	core, name := cl.co.core, cl.co.key.name
	r := driver.Ref{Name: name, ID: cl.id, Mark: cl.mark, Used: used, Linger: linger}
	for attempt := 1; ; attempt++ {
		try, cancel := bound(ctx, min(unlockPatience, cl.ttl))
		was, err := core.store.Leave(try, r)
		cancel()
		if err == nil {
			// A repeat that finds nothing: the first one did it, its reply was
			// lost.
			return was == driver.Holding || attempt > 1, nil
		}
		pause := 10 * time.Millisecond << min(attempt, 6)
		if driver.IsPermanent(err) || time.Until(cl.ends) < pause || !sleep(ctx, pause) {
			return true, fmt.Errorf("release %q: %w", name, err)
		}
	}
}

// retire removes a claim that was lost, after its holders were told: the store
// may keep it for a TTL still, if only the replies to its renewals were
// lost, or the time of its lease was up. Many may be lost at the same time, for the
// store does not reply: so a few goroutines do it.
func (cl *claim) retire(used int64) {
	core := cl.co.core
	core.departing(cl)
	core.retire(func() {
		cl.telling.Wait()
		ctx, cancel := context.WithDeadline(core.ctx, cl.ends)
		defer cancel()
		if ctx.Err() == nil {
			cl.leave(ctx, used, cl.linger(time.Now()))
		}
		core.departed(cl)
	})
}

// retired are claims that are to leave.
type retired struct {
	retiredMu sync.Mutex
	leaves    []func()
	retirers  int
}

// maxRetirers bounds the goroutines that remove lost claims.
const maxRetirers = 256

func (c *core) retire(leave func()) {
	c.retiredMu.Lock()
	defer c.retiredMu.Unlock()
	c.leaves = append(c.leaves, leave)
	if c.retirers < maxRetirers {
		c.retirers++
		if !c.spawn(c.retireAll) { // the client is closed
			c.retirers--
		}
	}
}

func (c *core) retireAll() {
	for {
		c.retiredMu.Lock()
		if len(c.leaves) == 0 {
			c.retirers--
			c.leaves = nil
			c.retiredMu.Unlock()
			return
		}
		leave := c.leaves[0]
		c.leaves = c.leaves[1:]
		c.retiredMu.Unlock()
		leave()
	}
}

// leaveSoon does the same in the background. The cohort's mutex is held.
func (cl *claim) leaveSoon(used int64, linger time.Duration) {
	core, ends := cl.co.core, cl.ends
	core.departing(cl)
	started := core.spawn(func() {
		ctx, cancel := context.WithDeadline(core.ctx, ends)
		defer cancel()
		cl.leave(ctx, used, linger)
		core.departed(cl)
		cl.leaveAgain(ctx, linger)
	})
	if !started {
		core.departed(cl)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
