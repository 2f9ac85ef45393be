package engine

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// A claim is one claim in the store, as its client sees it. Its methods take an
// event with the time of it, and note what is to be done: they lock nothing, wait for
// nothing, and call nobody. Only they, and those of its line and tenants, write
// its fields. The line's mutex is held, except for belief.
type claim struct {
	line *line
	id   string // changes only while waiting, see startOver
	mark string // of an adopted claim: what makes it this client's
	ttl  time.Duration

	state   state
	wanted  bool // others are known to wait in the store for what it holds, or will
	blocker sighting

	belief atomic.Pointer[belief]
	term   term
	date   date // the renewer's

	request request
	rest    rest
	telling sync.WaitGroup // its holders that it was lost
	backing backing
}

// backing is what a claim points to, which so needs no allocation of its own.
type backing struct {
	belief    belief // the first one
	tenant    tenant // the first one
	entering  entering
	holding   holding
	departure departure // see depart
}

// state is one of *entering, *waiting, *holding, abandoned and gone. What only makes
// sense in one of them is a field of that one.
//
//	entering ──► waiting ──► holding ──► gone
//	 │  │  ▲────────┘ │ startOver        ▲
//	 │  └──────────── │ ─► holding       │
//	 └────────────────┴─► abandoned ─────┘ what goes on for the claim is ended first
type state interface{ String() string }

// entering: on its way into the queue.
type entering struct {
	tries  int  // in a row that failed, for who sends the next one
	silent bool // the last one got no reply in time
}

// waiting: in the queue.
type waiting struct {
	ahead   int
	trouble error // of a renewal, which the attempt has not dealt with yet
}

// holding: granted. Several tenants may follow each other on one claim, or share
// it.
type holding struct {
	tenants      *tenant // the latest; a list where readers share the claim
	units        int64   // it has for certain
	token, spare int64   // of the grant
	since        time.Time
	turn         int       // local callers to serve before it leaves for others
	fresh        bool      // a plain lease that waited, not renewed since its grant
	shown        bool      // another process may adopt it
	minHoldEnds  time.Time // the name stays taken until then
	handOver     int64     // see driver.Ref
	resizing     resizing
}

// abandoned: given up, while a request for it is under way. It leaves after that.
type abandoned struct{}

// gone: released, lost, or given up. Nothing that comes in changes it; retire.go says
// which Leave is sent for it.
type gone struct{}

func (*entering) String() string { return "entering" }
func (*waiting) String() string  { return "waiting" }
func (*holding) String() string  { return "holding" }
func (abandoned) String() string { return "abandoned" }
func (gone) String() string      { return "gone" }

// request is what was sent for a claim.
type request struct {
	attempt    *attempt  // the goroutine that is after it; nil: none
	byCaller   bool      // an Enter, EnterAll or Adopt is under way from a caller's own goroutine
	unanswered bool      // an Enter may still be on its way to the store
	extending  int       // requests of Extend that are under way
	ends       time.Time // when the store has forgotten the claim at the latest
}

// rest is how long an attempt waits before its next request.
type rest struct {
	failed bool      // the last one: the callers' Backoffs say
	until  time.Time // and not before that
}

// sighting is who stands in the way, as told at that time.
type sighting struct {
	entry *driver.Entry
	at    time.Time
}

// now is the entry as it is by now, unless something has happened since.
func (s sighting) now(at instant) *driver.Entry {
	if s.entry == nil {
		return nil
	}
	b, since := *s.entry, at.now.Sub(s.at)
	b.Age += since
	b.Held += since
	b.TTL = max(0, b.TTL-since)
	return &b
}

// newClaim makes a claim that nobody is told about yet. The line's first one is a part
// of the line.
func newClaim(l *line, id string) *claim {
	cl := &l.first
	if cl.line != nil {
		cl = new(claim)
	}
	cl.line, cl.id, cl.ttl = l, id, l.key.TTL
	cl.state = &cl.backing.entering
	cl.backing.belief.plain = l.key.NoRenewal
	cl.belief.Store(&cl.backing.belief)
	return cl
}

// held returns the state of a claim that holds, or nil.
func (cl *claim) held() *holding {
	h, _ := cl.state.(*holding)
	return h
}

// pending reports whether the claim is on its way into the queue or waits in it.
func (cl *claim) pending() bool {
	switch cl.state.(type) {
	case *entering, *waiting:
		return true
	}
	return false
}

// extends notes that a request of Extend is about to be sent.
func (cl *claim) extends(at instant, ttl time.Duration) {
	cl.request.extending++
	cl.sentUntil(at.now.Add(ttl))
}

// sentUntil notes that the store may know the claim until then.
func (cl *claim) sentUntil(ends time.Time) { cl.request.ends = later(cl.request.ends, ends) }

// toEnter is the claim for Enter.
func (cl *claim) toEnter(try bool) driver.Claim {
	l, key := cl.line, &cl.line.key
	return driver.Claim{
		Name: key.Name, ID: cl.id, Kind: key.Kind, Units: key.Units, Limit: key.Limit,
		TTL: cl.ttl, Overtake: key.Overtake, Try: try, Owner: l.owner,
	}
}

// ref is the claim for the other requests, with the highest token used.
func (cl *claim) ref() driver.Ref {
	r := driver.Ref{Name: cl.line.key.Name, ID: cl.id, Mark: cl.mark, TTL: cl.ttl}
	if h := cl.held(); h != nil {
		r.Used, r.HandOver = h.tenants.token.Load(), h.handOver
	}
	return r
}

// entry is the claim, which holds, as others see it.
func (cl *claim) entry(at instant) *driver.Entry {
	h := cl.held()
	return &driver.Entry{
		ID: cl.id, State: driver.Holding, Units: h.units, Token: h.tenants.token.Load(), Owner: cl.line.owner,
		Age: at.now.Sub(h.since), Held: at.now.Sub(h.tenants.acquired), TTL: cl.left(at),
	}
}

// step is what the claim's attempt does next.
type step struct {
	kind  stepKind
	until time.Time    // stepRest
	claim driver.Claim // stepEnter
	ref   driver.Ref   // stepWait
	most  time.Duration
}

type stepKind uint8

const (
	stepEnd stepKind = iota
	stepRest
	stepEnter
	stepWait
)

// next returns what the claim's attempt does next. After stepEnd it has none.
func (cl *claim) next(fx *effects, at instant) step {
	switch cl.state.(type) {
	case *entering:
		if until, rests := cl.resting(at); rests {
			return step{kind: stepRest, until: until}
		}
		return step{kind: stepEnter, claim: cl.toEnter(cl.line.onlyTried()), most: cl.timeout(at)}
	case *waiting:
		if until, rests := cl.resting(at); rests {
			return step{kind: stepRest, until: until}
		}
		return step{kind: stepWait, ref: driver.Ref{Name: cl.line.key.Name, ID: cl.id}}
	case abandoned:
		cl.state = gone{}
		fx.add(effect{kind: fxRetire, departure: &cl.backing.departure})
	}
	cl.request.attempt = nil
	return step{}
}

// timeout is how long an Enter is waited for. A reply that takes longer than the TTL
// is worth nothing; and who only tries waits for retry.Longest in all.
func (cl *claim) timeout(at instant) time.Duration {
	tries := 0
	if s, ok := cl.state.(*entering); ok {
		tries = s.tries
	}
	most := min(retry.Timeout(tries), cl.ttl)
	if c := cl.line.firstTry(); c != nil {
		most = min(most, max(retry.Longest-at.now.Sub(c.since), time.Millisecond))
	}
	return most
}

// resting returns until when the attempt is to wait: after a failure until the most
// eager of the callers wants the next request, as its own Backoff says; who has just
// come wants it at once.
func (cl *claim) resting(at instant) (until time.Time, rests bool) {
	until = cl.rest.until
	if cl.rest.failed {
		until = later(until, cl.line.retry(at))
	}
	if until.After(at.now) {
		return until, true
	}
	cl.rest = rest{}
	return until, false
}

// rouse ends the Wait that is under way, or the rest, for the claim's state is
// another now.
func (cl *claim) rouse(fx *effects) {
	if a := cl.request.attempt; a != nil {
		fx.add(effect{kind: fxWake, attempt: a})
	}
}

// startAttempt has a goroutine see the claim through to its grant, or to its end.
func (cl *claim) startAttempt(fx *effects) {
	a := newAttempt()
	cl.request.attempt = a
	fx.add(effect{kind: fxAttempt, claim: cl, attempt: a})
}

// want notes whether others wait in the store for what this claim holds.
func (cl *claim) want(wanted bool) {
	if h := cl.held(); wanted && !cl.wanted {
		h.turn = min(cl.line.callers.n, maxTurn)
	}
	cl.wanted = wanted
}

// rivalSeen is want for news that others wait now.
func (cl *claim) rivalSeen(fx *effects, at instant) {
	cl.line.rivals = at.now
	cl.want(true)
	cl.press(fx)
}

// room is how many local callers the claim, which holds, will still serve.
func (cl *claim) room() int {
	h := cl.held()
	switch {
	case h.spare == 0 || cl.plain():
		return 0
	case h.tenants.terms.MinHold > 0:
		return 0 // nobody may follow before that is over, which the store sees to
	case h.shown || cl.ttl != cl.line.key.TTL:
		return 0 // somebody may adopt it; it was extended for one lease
	case cl.wanted:
		return h.turn
	}
	return math.MaxInt
}

// reads reports whether the claim, which holds, leaves room for readers.
func (cl *claim) reads() bool {
	return cl.line.key.Kind == driver.KindRW && cl.held().units < cl.line.key.Limit
}

// open reports whether readers may join those who hold the claim. Such that wait
// in the store are passed by those that overtake, no less than there.
func (cl *claim) open() bool {
	k, h := &cl.line.key, cl.held()
	return k.shared() && h != nil && h.units == k.Units && !h.resizing.underWay &&
		(!cl.wanted || k.Overtake) && !h.shown && cl.ttl == k.TTL
}

// end marks the claim as gone.
func (cl *claim) end(fx *effects) {
	cl.state = gone{}
	fx.add(effect{kind: fxUnregister, claim: cl, id: cl.id})
}

// abandon gives up a claim that does not hold, as far as is known.
func (cl *claim) abandon(fx *effects, at instant) *departure {
	d := cl.depart(at, 0)
	d.heard = make(chan struct{})
	cl.end(fx)
	if cl.request.attempt == nil && !cl.request.byCaller {
		fx.add(effect{kind: fxRetire, departure: d})
		return d
	}
	cl.state = abandoned{}
	fx.add(effect{kind: fxDepart, departure: d})
	if a := cl.request.attempt; a != nil {
		fx.add(effect{kind: fxStop, attempt: a})
	}
	return d
}

// depart is the leave of the claim, with the highest token used. A claim leaves once. A
// renewal under way may not have been sent yet, if this process was stopped: it counts
// from now.
func (cl *claim) depart(at instant, used int64) *departure {
	if cl.term.renewing || cl.request.extending > 0 {
		cl.sentUntil(at.now.Add(cl.ttl))
	}
	d := &cl.backing.departure
	*d = departure{
		ref:  driver.Ref{Name: cl.line.key.Name, ID: cl.id, Mark: cl.mark, Used: used},
		ttl:  cl.ttl,
		told: &cl.telling,
	}
	if h := cl.held(); h != nil {
		d.lingers = h.minHoldEnds
	}
	return d.updated(cl)
}

// updated is the departure with what is known of the claim's requests by now.
func (d *departure) updated(cl *claim) *departure {
	d.ends, d.again = cl.request.ends, cl.request.unanswered
	return d
}
