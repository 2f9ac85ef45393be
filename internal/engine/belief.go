package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// belief is until when a claim that holds is believed in. It is replaced as a
// whole, and never changed once the claim holds, so that reading it needs no mutex.
type belief struct {
	until   time.Time     // by the local monotonic clock
	slept   time.Duration // the machine's sleep that was known when the request was sent that set until
	failing error         // of the last renewal, if it failed
	plain   bool          // only Extend renews the claim
}

// left returns how long the claim is good for.
//
// Invariant: no lease is given, passed on or said to hold unless this is above
// zero, and until is earlier than the store's deadline by the margin of driver.Deadline:
// the holder stops believing before the store may grant the name to another. The monotonic
// clock stands still while the machine sleeps, the store's does not: that time is
// counted off.
func (b *belief) left(at instant) time.Duration {
	return b.until.Sub(at.now) - max(0, at.slept-b.slept)
}

// over returns why the claim's time has passed, or nil if it has not.
func (b *belief) over(at instant) error {
	switch {
	case b.left(at) > 0:
		return nil
	case b.failing != nil:
		return fmt.Errorf("it was not renewed in time: %w", b.failing)
	case b.plain:
		return errors.New("its TTL has passed")
	}
	return errors.New("it was not renewed in time")
}

// term is when a claim is renewed.
type term struct {
	life     time.Duration // what the last renewal gave, by the local clock
	renewAt  time.Time
	exact    bool // not before renewAt: the reply would be the same
	soon     int  // dates in a row that were to come at once
	renewing bool // a renewal is under way
	failures int  // of renewals in a row
	hurried  bool // to be renewed as soon as possible, also after the one under way
}

const (
	// Heartbeat bounds the time between renewals of a waiting claim, whatever its TTL:
	// it may have been granted, and the message lost.
	Heartbeat = 5 * time.Second
	// recheckPause is the least time between two renewals of a waiting claim that
	// look whether something has run out.
	recheckPause = 5 * time.Millisecond
)

// jitter is what a period varies by, so that clients do not renew in step.
var jitter = retry.Jitter

// believed is a copy of the claim's belief.
func (cl *claim) believed() belief { return *cl.belief.Load() }

// until is when the claim ends by the local monotonic clock, unless the machine sleeps
// before that.
func (cl *claim) until(at instant) time.Time { return at.now.Add(cl.left(at)) }

func (cl *claim) left(at instant) time.Duration { return cl.belief.Load().left(at) }

// plain reports whether only Extend renews the claim, once it holds.
func (cl *claim) plain() bool { return cl.belief.Load().plain }

func (cl *claim) setPlain(plain bool) {
	b := cl.believed()
	b.plain = plain
	cl.belief.Store(&b)
}

// span is how long the claim lasts after a renewal: its TTL, unless the store
// has given it clearly less.
func (cl *claim) span() time.Duration {
	if life := cl.term.life; life > 0 && life < cl.ttl-cl.ttl/10 {
		return life
	}
	return cl.ttl
}

// ample reports whether enough of the claim's time is left to give it to somebody
// new, who has done nothing yet: a third of it.
func (cl *claim) ample(at instant) bool { return cl.left(at) >= cl.span()/3 }

// extended takes over the deadline from the reply to a request, and sets the date of
// the next renewal.
func (cl *claim) extended(a answer) {
	st, m := &a.status, &cl.term
	b := cl.believed()
	b.failing, m.failures = nil, 0
	if st.Deadline.After(b.until) {
		b.until, b.slept = st.Deadline, a.sent.slept
	}
	next := &cl.backing.belief
	if !next.until.IsZero() { // somebody may be looking at it
		next = new(belief)
	}
	*next = b
	cl.belief.Store(next)
	if !st.Deadline.IsZero() {
		m.life = st.Deadline.Sub(a.sent.now)
	}
	period := cl.span() / 3
	if st.State == driver.Waiting {
		period = min(period, Heartbeat)
	}
	m.renewAt, m.exact = a.sent.now.Add(period-jitter(period/7)), false
	if w, ok := cl.state.(*waiting); st.State == driver.Waiting && !st.Recheck.IsZero() {
		if !ok || st.Ahead != w.ahead {
			m.soon = 0
		}
		m.recheck(a.sent.now, st.Recheck)
	}
}

// recheck sets the date of a waiting claim's next renewal: by then a claim in front of
// it may have run out.
//
// A renewal that comes a little too early gets the same date again. So it is not sent
// along with others before its date, and not at once after the last one: the pause
// doubles, up to a limit, while nothing changes.
func (m *term) recheck(sent, date time.Time) {
	if next := sent.Add(recheckPause << min(m.soon, 6)); date.Before(next) {
		date = next
		m.soon++
	} else {
		m.soon = 0
	}
	if date.Before(m.renewAt) {
		m.renewAt, m.exact = date, true
	}
}

// hurry has the claim renewed as soon as possible, also if a renewal is under way, which
// may be older than the reason.
func (cl *claim) hurry(fx *effects, at instant) {
	cl.term.hurried, cl.term.renewAt = true, at.now
	fx.date(cl)
}

// due returns when the renewer has to look at the claim, and how much earlier it
// may. It returns false if there is nothing to look for.
func (cl *claim) due(at instant) (date time.Time, slack time.Duration, ok bool) {
	switch s := cl.state.(type) {
	case *waiting:
		date = at.now.Add(cl.ttl) // it has no end; just a date
	case *holding:
		date = at.now.Add(cl.left(at))
		for t := s.tenants; t != nil; t = t.next {
			if !t.maxHoldEnds.IsZero() && t.maxHoldEnds.Before(date) {
				date = t.maxHoldEnds
			}
		}
	default:
		return date, 0, false
	}
	if cl.renews() && !cl.term.renewing && cl.term.renewAt.Before(date) {
		return cl.term.renewAt, cl.early(), true
	}
	return date, 0, true
}

// early is how much before its date a renewal may be sent along with others.
func (cl *claim) early() time.Duration {
	if cl.term.exact {
		return 0
	}
	return cl.span() / 60
}

// renews reports whether the claim is to be renewed at its date.
func (cl *claim) renews() bool {
	_, waits := cl.state.(*waiting)
	return waits || !cl.plain() || cl.term.hurried
}

// tick ends what has run out by now, and reports whether the claim is to be renewed
// now.
func (cl *claim) tick(fx *effects, at instant) (r driver.Ref, renew bool) {
	cl.expire(fx, at)
	h, holds := cl.state.(*holding)
	if _, waits := cl.state.(*waiting); !holds && !waits {
		return r, false
	}
	if m := &cl.term; cl.renews() && !m.renewing && !m.renewAt.After(at.now.Add(cl.early())) {
		r = cl.ref()
		if holds && cl.plain() && !h.fresh {
			r.TTL = driver.MinTTL // a look at a plain lease must not make it longer
		}
		cl.sentUntil(at.now.Add(r.TTL))
		m.renewing, m.hurried = true, false
		renew = true
	}
	fx.date(cl)
	return r, renew
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
