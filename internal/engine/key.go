package engine

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Key is what callers must have in common to share a claim.
type Key struct {
	Name         string
	Kind         driver.Kind
	Units, Limit int64
	TTL          time.Duration
	NoRenewal    bool
	Overtake     bool
	Label        string

	own string // the id of a claim that is not shared; see Alone
}

// Alone returns the key of a claim that is shared with nobody in this process.
func (k Key) Alone() Key {
	k.own = driver.NewID()
	return k
}

// shared reports whether those who want the lock can hold one claim together:
// readers.
func (k *Key) shared() bool { return k.Kind == driver.KindRW && k.Units < k.Limit }

// Terms are the options of a single caller.
type Terms struct {
	MaxHold, MinHold time.Duration // 0: none
	Backoff          func(attempt int, err error) (pause time.Duration, again bool)
	Observe          func(Event) // nil: nobody observes
}

// EventKind is what happened.
type EventKind uint8

const (
	EventWaiting EventKind = iota
	EventAcquired
	EventReleased
	EventLost
	EventRetrying
	EventGaveUp
)

// Event is one thing that happened to one lock.
type Event struct {
	Kind    EventKind
	Context context.Context // of the call; never nil when it is told
	Name    string
	Claim   string
	Token   int64
	Waited  time.Duration
	Held    time.Duration
	Ahead   int
	Local   bool
	Blocker *driver.Entry
	Attempt int
	Err     error
}

// instant is a moment by the local clocks.
type instant struct {
	now   time.Time
	slept time.Duration // how long the machine has slept until then, as far as it is known
}

// answer is the store's reply to a request, or an error.
type answer struct {
	sent   instant
	status driver.Status
	err    error
}
