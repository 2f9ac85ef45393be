package quorum

import (
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

type (
	// Error says that too few nodes did what they were asked for.
	Error = majority.Error
	// NodeError is what went wrong with one node.
	NodeError = majority.NodeError
)

// MemoryError says why a node does not vote.
type MemoryError struct {
	Left time.Duration // of its quarantine
	// Lost: so many nodes have lost their memory that the others are no majority;
	// see Init.
	Lost bool
}

func (e *MemoryError) Error() string {
	switch {
	case e.Lost:
		return "it has lost its memory, and too few others have theirs: an operator must say that nobody holds a lock (quorum.Init)"
	case e.Left > 0:
		return fmt.Sprintf("it has no memory yet, and stays out for another %v", e.Left.Round(time.Millisecond))
	}
	return "it has no memory yet"
}

// errSkipped: the node was not asked, since it has not replied for a while.
var errSkipped = errors.New("it does not reply")

// errSilent: the reply did not come in time.
var errSilent = errors.New("no reply yet")

// errMoving: again and again what one node had granted was lost while another was asked.
var errMoving = errors.New("the nodes granted it in turns, and no majority at the same time")

// errShort: the nodes' replies took about as long as the claim was to live.
var errShort = errors.New("the nodes took longer than the TTL allows")

// ttlError is driver.ErrInvalid.
type ttlError struct{ have, most time.Duration }

func (e *ttlError) Error() string {
	return fmt.Sprintf("invalid TTL %v: this quorum allows %v at the most (MaxTTL)", e.have, e.most)
}

func (e *ttlError) Is(target error) bool { return target == driver.ErrInvalid }
