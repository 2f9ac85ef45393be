package queue

import (
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Entering is one claim of an EnterAll, and the operation on its queue.
type Entering struct {
	*Op
	Queue *Queue
	Claim driver.Claim

	state driver.State
	known bool // it was in the queue
	fits  bool
}

// EnterAll enters the claims as driver.AllEnterer says. Whatever it returns, the
// queues are to be saved: time and renewals have changed them.
func EnterAll(es []*Entering) (err error) {
	all := true
	for _, e := range es {
		e.self = e.Claim.ID
		e.advance(e.Queue) // what has run out is not known
		e.known = e.Queue.Find(e.self) != nil
		q := e.Queue
		if !e.known {
			copied := *e.Queue
			copied.Claims = slices.Clone(copied.Claims)
			q = &copied
		}
		if e.state, err = e.enter(q); err != nil {
			return NameLimit(err, e.Claim.Name)
		}
		e.fits = e.state == driver.Holding
		all = all && e.fits
	}
	for _, e := range es {
		switch {
		case e.known:
		case all:
			e.state, _ = e.enter(e.Queue) // as it did on the copy
		case e.fits:
			e.state = driver.Refused
		}
	}
	return nil
}

func (e *Entering) enter(q *Queue) (driver.State, error) {
	c := e.Claim
	c.Try = true
	return e.Op.Enter(q, &c)
}

// Status of the claim, for a call that was sent at sent.
func (e *Entering) Status(sent time.Time) driver.Status {
	if e.fits && e.state == driver.Refused { // the others are in the way
		return driver.Status{State: driver.Refused}
	}
	return e.Queue.Status(e.Claim.ID, e.state, e.Now, sent, e.Claim.TTL)
}
