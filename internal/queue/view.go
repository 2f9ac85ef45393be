package queue

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Micros turns a span into the unit of this package, rounded up.
func Micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// Span turns microseconds into a span.
func Span(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Status is what a call that was sent at sent returns for the claim id in
// state s. ttl is what the call gave the claim, 0 if it renewed nothing.
func (q *Queue) Status(id string, s driver.State, now int64, sent time.Time, ttl time.Duration) driver.Status {
	st := driver.Status{State: s}
	stands := s == driver.Waiting || s == driver.Refused
	var mine *Claim
	ahead, waiting := 0, 0
	for i := range q.Claims { // once: many may wait
		switch c := &q.Claims[i]; {
		case mine == nil && c.ID == id:
			mine, ahead = c, waiting
		case !c.Holding():
			waiting++
		case stands:
			e := c.Entry(now)
			if st.Blocker == nil || e.TTL < st.Blocker.TTL {
				st.Blocker = &e
			}
		}
	}
	if mine == nil || s == driver.Gone {
		return st
	}
	if ttl > 0 {
		st.Deadline = driver.Deadline(sent, ttl)
	}
	if mine.Holding() {
		st.Token, st.Behind = mine.Token, waiting
		if mine.Alone {
			st.Spare = Spare
		}
		return st
	}
	st.Ahead = ahead
	if ttl > 0 && ahead < driver.Front {
		st.Recheck = sent.Add(Span(q.obstacle(id)-now) + time.Millisecond)
	}
	return st
}

// AdoptStatus is Status for an Adopt. Who is refused is told who has the claim.
func (q *Queue) AdoptStatus(a *driver.Adoption, s driver.State, now int64, sent time.Time) driver.Status {
	if s != driver.Refused {
		return q.Status(a.ID, s, now, sent, a.TTL)
	}
	e := q.Find(a.ID).Entry(now)
	return driver.Status{State: s, Blocker: &e}
}

// obstacle is when the first claim may run out that stands in the way of a
// waiting one: a holder, or one that waits in front of it.
func (q *Queue) obstacle(id string) int64 {
	first := q.Find(id).Expires
	front := true
	for i := range q.Claims {
		c := &q.Claims[i]
		if c.ID == id {
			front = false
		} else if front || c.Holding() {
			first = min(first, c.Expires)
		}
	}
	return first
}

// Spare is the number of spare tokens of a claim that holds alone.
const Spare = int64(1) << 16

// Entry is the claim as others see it.
func (c *Claim) Entry(now int64) driver.Entry {
	e := driver.Entry{
		ID: c.ID, State: stateOf(c), Units: c.Units, Owner: c.Owner,
		Token: max(c.Token, c.Used), Lingering: c.Lingering,
		Age: Span(max(0, now-c.Arrived)), TTL: Span(max(0, c.Expires-now)),
	}
	if c.Holding() {
		e.Held = Span(max(0, now-c.Granted))
	}
	return e
}

// View is the queue as others see it.
func (q *Queue) View(name string, now int64) driver.Queue {
	v := driver.Queue{Name: name, Limit: q.Limit, Declared: q.Declared}
	if q.InUse() {
		v.Kind = q.Kind
	}
	for i := range q.Claims {
		v.Claims = append(v.Claims, q.Claims[i].Entry(now))
	}
	return v
}

// State returns the state of the claim for its owner.
func (q *Queue) State(r driver.Ref) driver.State {
	if c := q.Find(r.ID); c != nil && c.Mark == r.Mark {
		return stateOf(c)
	}
	return driver.Gone
}

// NameLimit fills the name into an Enter's *driver.MismatchError.
func NameLimit(err error, name string) error {
	if l, ok := err.(*driver.MismatchError); ok {
		l.Name = name
	}
	return err
}
