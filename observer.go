package pawl

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Observer is told what happens to the locks of a client. It is called from
// the goroutine where it happens and must return quickly; it may be called
// from several at once. It must not call the client.
type Observer func(Event)

// EventKind is what happened.
type EventKind uint8

const (
	// Waiting: the claim stands in the engine's queue. Ahead and Blocker say
	// where and behind whom; told again when Ahead changes.
	Waiting EventKind = iota
	// Acquired: a lease was granted, after Waited.
	Acquired
	// Released: a lease was unlocked, after Held.
	Released
	// Lost: a lease ended before it was unlocked; Err says why.
	Lost
	// Retrying: a request failed with Err and will be repeated; Attempt counts
	// the failures in a row.
	Retrying
)

func (k EventKind) String() string {
	return [...]string{"waiting", "acquired", "released", "lost", "retrying"}[k]
}

// Event is one thing that happened to one lock.
type Event struct {
	Kind    EventKind
	Name    string
	Claim   string        // id of the claim
	Token   int64         // Acquired, Released, Lost
	Waited  time.Duration // Acquired: since Lock was called
	Held    time.Duration // Released, Lost: since the grant
	Ahead   int           // Waiting: claims that wait in front of this one
	Blocker *driver.Entry // Waiting: a holder in the way, if known
	Attempt int           // Retrying
	Err     error         // Lost, Retrying
}

func (o *Options) tell(e Event) {
	if o.Observer != nil {
		o.Observer(e)
	}
}
