package pawl

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A claim is one claim in the store, as its client sees it. Several tenures
// may follow each other on one claim.
//
// All fields are guarded by the cohort's mutex unless they say otherwise.
type claim struct {
	co      *cohort
	id      string // changes only while entering
	ttl     time.Duration
	state   claimState
	pursued bool // a goroutine is after it

	// What the store said last.
	deadline time.Time     // see expired
	slept    time.Duration // keeper.sleptLately when the request was sent that set deadline
	sent     time.Time     // when the last request was sent that made or renewed it
	ahead    int
	blocker  *driver.Entry

	// Renewal, by the keeper.
	renewAt  time.Time
	renewing bool
	failing  error // the last renewal's error
	hurried  bool  // renew as soon as possible, to see what became of it
	fresh    bool  // granted while it waited, not renewed since

	// For the keeper, guarded by its mutex.
	due   time.Time
	slack time.Duration // how much earlier it may look
	index int           // in its heap, from 1

	// While it holds.
	tenure       *tenure   // the latest
	token, spare int64     // of the grant
	since        time.Time // when the grant was known
	wanted       bool      // others wait in the store
	turn         int       // local waiters to serve before it leaves for them
	stuck        bool      // lost by MaxHold: it is still in the store

	// While it is pursued.
	unanswered bool               // an Enter may still be on its way to the store
	stop       context.CancelFunc // ends the pursuit
	wake       context.CancelFunc // ends the Wait under way
	left       chan struct{}      // made when it is given up, closed once the store has heard of that
}

type claimState uint8

const (
	entering claimState = iota // on its way into the queue
	waiting                    // in the queue
	holding                    // granted
	over                       // given up, released, or lost
)

// unlockPatience bounds how long Unlock waits for an engine that does not
// answer; trying goes on in the background.
const unlockPatience = 2 * time.Second

// answerPatience bounds how long a request is waited for before it is sent
// again.
const answerPatience = 10 * time.Second

// heartbeat bounds how long a waiting claim goes without a renewal, whatever
// its TTL: it may have been granted, and the message been lost.
const heartbeat = 5 * time.Second

// leavePatience is how long a Lock that gives up waits for its claim to leave.
const leavePatience = 200 * time.Millisecond

func (co *cohort) newClaim(id string) *claim {
	cl := &claim{co: co, id: id, ttl: co.key.ttl}
	co.core.register(cl)
	return cl
}

// enter sends the claim to the store. Whoever calls it is the only one to do
// anything with the claim meanwhile.
func (cl *claim) enter(ctx context.Context, try bool) (sent time.Time, slept time.Duration, st driver.Status, err error) {
	co := cl.co
	owner := co.core.owner
	owner.Label = co.key.label
	// An answer that takes longer than the TTL is worth nothing.
	ctx, cancel := co.core.answer.bound(ctx, cl.ttl)
	defer cancel()
	slept, sent = co.core.keeper.sleptLately(), time.Now()
	st, err = co.core.store.Enter(ctx, driver.Claim{
		Name: co.key.name, ID: cl.id, Units: co.key.units, Limit: co.key.limit,
		TTL: cl.ttl, Overtake: co.key.overtake, Try: try, Owner: owner,
	})
	if err != nil && !driver.IsPermanent(err) {
		cl.unanswered = true
	}
	cl.sent = sent
	return sent, slept, st, err
}

// renew renews the claim alone, outside the keeper's rounds.
func (cl *claim) renew(ctx context.Context, r driver.Ref) (sent time.Time, slept time.Duration, st driver.Status, err error) {
	err = errors.New("the store did not report")
	slept, sent = cl.co.core.keeper.sleptLately(), time.Now()
	cl.co.core.store.Renew(ctx, []driver.Ref{r}, func(_ int, s driver.Status, e error) { st, err = s, e })
	return sent, slept, st, err
}

// ref is the claim for the store, with the highest token used.
func (cl *claim) ref() driver.Ref {
	r := driver.Ref{Name: cl.co.key.name, ID: cl.id, TTL: cl.ttl}
	if cl.tenure != nil {
		r.Used = cl.tenure.token
	}
	return r
}

// renewedAt takes over the deadline from the answer to a request.
func (cl *claim) renewedAt(sent time.Time, slept time.Duration, st driver.Status) {
	if st.Deadline.After(cl.deadline) {
		cl.deadline, cl.slept, cl.sent = st.Deadline, slept, sent
	}
	cl.failing = nil
	period := cl.ttl / 3
	if st.State == driver.Waiting {
		period = min(period, heartbeat)
	}
	cl.renewAt = sent.Add(period - jitter(period/7))
	if st.State == driver.Waiting && !st.Recheck.IsZero() && st.Recheck.Before(cl.renewAt) {
		cl.renewAt = st.Recheck
	}
}

// remaining answers how long the claim is good for.
//
// Invariant: no tenure is given, passed on or called protected unless this is
// above zero, and the deadline is earlier than the store's by its own margin:
// the holder stops believing before the store may grant the name to another.
// The monotonic clock stands still while the machine sleeps, the store's does
// not: that time is counted off.
func (cl *claim) remaining(now time.Time, slept time.Duration) time.Duration {
	return cl.deadline.Sub(now) - max(0, slept-cl.slept)
}

// serve makes the claim's next tenure.
func (cl *claim) serve(opts *Options, token int64, now time.Time) *tenure {
	t := &tenure{cl: cl, opts: opts, token: token, acquired: now, leases: 1}
	if opts.MaxHold > 0 {
		t.limit = now.Add(opts.MaxHold)
	}
	cl.tenure = t
	return t
}

// want notes whether others wait in the store for what this claim holds.
func (cl *claim) want(wanted bool) {
	if wanted && !cl.wanted {
		cl.turn = min(cl.co.waiters.Len(), maxTurn)
	}
	cl.wanted = wanted
}

// room is how many local waiters the claim will still serve.
func (cl *claim) room() int {
	switch {
	case cl.spare == 0 || cl.co.key.noRenewal || cl.tenure.opts.MinHold > 0:
		return 0
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

// abandon gives up a claim that does not hold, as far as is known, and answers
// a channel that is closed when the store has heard of it.
func (cl *claim) abandon() <-chan struct{} {
	cl.end()
	cl.left = make(chan struct{})
	if cl.pursued {
		cl.stop() // the pursuit takes leave
	} else if !cl.co.core.spawn(cl.leaveBehind) {
		close(cl.left)
	}
	return cl.left
}

// leaveBehind tells the store that the claim is given up, until it has
// answered or the claim has run out by itself. An Enter that was never
// answered may reach the store after the Leave: so that is repeated.
func (cl *claim) leaveBehind() {
	core := cl.co.core
	told := false
	defer func() {
		if !told {
			close(cl.left)
		}
	}()
	end := cl.sent.Add(cl.ttl)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, cl.ttl/4) {
		ctx, cancel := context.WithTimeout(core.ctx, unlockPatience)
		_, err := core.store.Leave(ctx, driver.Ref{Name: cl.co.key.name, ID: cl.id})
		cancel()
		if err == nil && !told {
			told = true
			close(cl.left)
		}
		if err == nil && !cl.unanswered || driver.IsPermanent(err) || time.Now().After(end) || !sleep(core.ctx, pause) {
			return
		}
	}
}

// awaitLeft waits a moment for a claim to leave.
func awaitLeft(left <-chan struct{}) {
	select {
	case <-left:
		return
	default:
	}
	t := time.NewTimer(leavePatience)
	defer t.Stop()
	select {
	case <-left:
	case <-t.C:
	}
}

var closedChan = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// leave releases a claim that held, until the store has answered or ctx ends,
// and answers whether the store still knew it.
func (cl *claim) leave(ctx context.Context, used int64, linger time.Duration) (known bool, err error) {
	core, name := cl.co.core, cl.co.key.name
	r := driver.Ref{Name: name, ID: cl.id, TTL: cl.ttl, Used: used, Linger: linger}
	for attempt := 1; ; attempt++ {
		was, err := core.store.Leave(ctx, r)
		if err == nil {
			// A repeat that finds nothing: the first one did it, its answer was
			// lost.
			return was == driver.Holding || attempt > 1, nil
		}
		if driver.IsPermanent(err) || !sleep(ctx, 10*time.Millisecond<<min(attempt, 6)) {
			return true, fmt.Errorf("release %q: %w", name, err)
		}
	}
}

// leaveSoon does the same in the background, until the claim has run out.
// The cohort's mutex is held.
func (cl *claim) leaveSoon(used int64, linger time.Duration) {
	core, end := cl.co.core, cl.sent.Add(cl.ttl)
	core.spawn(func() {
		ctx, cancel := context.WithDeadline(core.ctx, end)
		defer cancel()
		cl.leave(ctx, used, linger)
	})
}
