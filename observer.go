package pawl

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Observer is told what happens to the locks of a client: one event at a time,
// in order, by a goroutine of the client's. If it is slow, events pile up, but
// locks do not wait for it. Close returns after the last event. Observers of
// one client must not call its Close.
type Observer func(Event)

// EventKind is what happened.
type EventKind uint8

const (
	// Waiting: the claim stands in the engine's queue. Ahead and Blocker say
	// where and behind whom; told again when Ahead changes, and when the engine
	// replies again after Retrying. With Local it waits for others of this
	// process first, and Ahead counts those.
	Waiting EventKind = iota
	// Acquired: a lease was granted, after Waited.
	Acquired
	// Released: a lease was given up, after Held: by Unlock, HandOver, or
	// Close (then Err is ErrClosed).
	Released
	// Lost: a lease ended before it was given up; Err says why.
	Lost
	// Retrying: a request failed with Err and will be repeated; Attempt counts
	// the failures in a row.
	Retrying
	// Removed: a call of Release took the name from its holders, who hear of it
	// as Lost. Removed says who they were, By who called. With Err the engine did
	// not reply, and may have removed them or not.
	Removed
	// GaveUp: a call that was to take a lock ended without it, after Waited: its
	// context ended, somebody was in the way of one that only tries (Blocker), or
	// the engine refused. Err is what the caller was told.
	GaveUp
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
	Waited  time.Duration // Acquired, GaveUp: since Lock was called
	Held    time.Duration // Released, Lost: since the grant
	Ahead   int           // Waiting: claims that wait in front of this one
	Local   bool          // Waiting: in this process
	Blocker *driver.Entry // Waiting, GaveUp: a holder in the way, if known
	Attempt int           // Retrying
	Err     error         // Released, Lost, Retrying, Removed, GaveUp

	Removed []driver.Entry // Removed: the holders until then
	By      driver.Owner   // Removed: this client
}

// observed is the events that observers have not been told yet.
type observed struct {
	eventMu sync.Mutex
	events  []func()
	telling bool // a goroutine is at it
}

// tell has the observer told. It may be called with any lock held but core's
// and the keeper's.
func (c *core) tell(o *Options, e Event) {
	if o.Observer != nil {
		c.note(o.Observer, e)
	}
}

// note is apart from tell, which costs nothing so where nobody observes: the
// event moves to the heap.
func (c *core) note(observer Observer, e Event) {
	if e.Context == nil {
		e.Context = context.Background()
	}
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	c.events = append(c.events, func() { observer(e) })
	if !c.telling {
		c.telling = c.spawn(c.tellAll)
	}
}

func (c *core) tellAll() {
	for {
		c.eventMu.Lock()
		events := c.events
		c.events = nil
		c.telling = len(events) > 0
		c.eventMu.Unlock()
		if len(events) == 0 {
			return
		}
		for _, tell := range events {
			tell()
		}
	}
}
