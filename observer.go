package pawl

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/engine"
)

// Observer is told what happens to the locks of a client: one event at a time,
// in order, by a goroutine of the client's. If it is slow, events pile up, but
// locks do not wait for it. Close returns after the last event. Observers of
// one client must not call its Close. Package pawlmetrics has one for Prometheus.
type Observer func(Event)

// EventKind is what happened.
type EventKind uint8

const (
	// EventWaiting: the claim stands in the engine's queue. Ahead and Blocker say
	// where and behind whom; told again when Ahead changes, and when the engine
	// replies again after EventRetrying. With Local it waits for others of this
	// process first, and Ahead counts those.
	EventWaiting EventKind = iota
	// EventAcquired: a lease was granted, after Waited.
	EventAcquired
	// EventReleased: a lease was given up, after Held: by Unlock, HandOver, or
	// Close (then Err is ErrClosed).
	EventReleased
	// EventLost: a lease ended before it was given up; Err says why.
	EventLost
	// EventRetrying: a request failed with Err and will be repeated; Attempt counts
	// the failures in a row.
	EventRetrying
	// EventRemoved: a call of ForceRelease took the name from its holders, whose
	// observers are told EventLost. Removed says who they were, By who called. With
	// Err the engine did not reply, and may have removed them or not.
	EventRemoved
	// EventGaveUp: a call ended without the lock, after Waited: its context ended, a call
	// that only tries found a holder in the way (Blocker), or the engine refused. Err is
	// what the call returned.
	EventGaveUp
)

func (k EventKind) String() string {
	return [...]string{"waiting", "acquired", "released", "lost", "retrying", "removed", "gave up"}[k]
}

// Event is one thing that happened to one lock.
type Event struct {
	Kind EventKind
	// Context is that of the call that took the lock or is to take it, or that
	// released it, for the values in it: it may have ended. It is never nil.
	Context context.Context
	Name    string
	Claim   string        // id of the claim
	Token   int64         // of the lease, if there is one
	Waited  time.Duration // EventAcquired, EventGaveUp: since Lock was called
	Held    time.Duration // EventReleased, EventLost: since the grant
	Ahead   int           // EventWaiting: claims that wait in front of this one
	Local   bool          // EventWaiting: in this process
	Blocker *Entry        // EventWaiting, EventGaveUp: a holder in the way, if known
	Attempt int           // EventRetrying
	Err     error         // EventReleased, EventLost, EventRetrying, EventRemoved, EventGaveUp

	Removed []Entry // EventRemoved: the holders until then
	By      Owner   // EventRemoved: this client
}

// tell passes an event to the observer, if there is one.
func (c *Client) tell(e Event) {
	if observer := c.opts.Observer; observer != nil {
		c.core.Tell(func() { observer(e) })
	}
}

// event is the engine's event for observers.
func event(e engine.Event) Event {
	return Event{
		Kind: kinds[e.Kind], Context: e.Context, Name: e.Name, Claim: e.Claim, Token: e.Token, Waited: e.Waited, Held: e.Held,
		Ahead: e.Ahead, Local: e.Local, Blocker: e.Blocker, Attempt: e.Attempt, Err: public(e.Err),
	}
}

var kinds = [...]EventKind{
	engine.EventWaiting:  EventWaiting,
	engine.EventAcquired: EventAcquired,
	engine.EventReleased: EventReleased,
	engine.EventLost:     EventLost,
	engine.EventRetrying: EventRetrying,
	engine.EventGaveUp:   EventGaveUp,
}
