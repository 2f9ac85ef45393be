//go:build !folder

package doctor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/quorum"
	"github.com/pawl-go/pawl/quorum/redlock"
)

// quorum says of each node whether it replies and votes. Locks work as long as a majority
// does.
func (e *exam) quorum(ctx context.Context) bool {
	if s, ok := e.store.(*redlock.Store); ok {
		return e.redlock(ctx, s)
	}
	s, ok := e.store.(*quorum.Store)
	if !ok {
		e.fail("nodes", "", "it is no quorum but a %T", e.store)
		return true
	}
	// A lock that is asked for lets nodes without memory begin to come back.
	// What it says now is said by tryLock, too.
	e.lockOnce(ctx)
	states := s.Nodes(ctx)
	for range 10 { // to begin takes a moment
		if !slices.ContainsFunc(states, func(st quorum.NodeState) bool {
			return st.Err == nil && !st.Votes && st.Memory.Epoch == "" && st.Memory.Quarantine == ""
		}) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		states = s.Nodes(ctx)
	}
	reply, votes, lost := 0, 0, false
	for i := range states {
		st := &states[i]
		if st.Err == nil {
			reply++
		}
		if st.Votes {
			votes++
		}
		if memory, ok := errors.AsType[*quorum.MemoryError](st.Why); ok && memory.Lost {
			lost = true
		}
	}
	most := len(states)/2 + 1
	bad := e.warn
	if votes < most {
		bad = e.fail
	}
	for i := range states {
		e.node(&states[i], bad)
	}
	const enough = "%d of %d nodes vote, %d are needed: the locks outlive %d more that fail"
	switch {
	case reply < most:
		e.fail("majority", "bring them back: without a majority nobody gets a lock", "%d of %d nodes reply, %d are needed", reply, len(states), most)
		return false
	case lost:
		e.fail("majority", "make sure that nobody holds a lock, then: pawl quorum init --nobody-holds-a-lock", "%d of %d nodes vote, %d are needed: a majority has lost its memory", votes, len(states), most)
	case votes < most:
		e.fail("majority", "wait; or if they are new: pawl quorum init --nobody-holds-a-lock", "%d of %d nodes vote, %d are needed", votes, len(states), most)
	default:
		e.ok("majority", enough, votes, len(states), most, votes-most)
	}
	return true
}

const look = "examine it by itself: pawl doctor --store "

// redlock says of each node whether it replies.
func (e *exam) redlock(ctx context.Context, s *redlock.Store) bool {
	states := s.Nodes(ctx)
	most, reply := len(states)/2+1, 0
	for i := range states {
		if states[i].Err == nil {
			reply++
		}
	}
	bad := e.warn
	if reply < most {
		bad = e.fail
	}
	for _, st := range states {
		if st.Err != nil {
			bad("node", look+"'"+st.Name+"'", "%s does not reply: %v", st.Name, st.Err)
		} else {
			e.ok("node", "%s replies", st.Name)
		}
	}
	if reply < most {
		e.fail("majority", "bring them back: without a majority nobody gets a lock", "%d of %d nodes reply, %d are needed", reply, len(states), most)
		return false
	}
	e.ok("majority", "%d of %d nodes reply, %d are needed: the locks outlive %d more that fail", reply, len(states), most, reply-most)
	e.note("recipe", "Redlock: mutexes on the keys of other libraries; a server that comes back without its data forgets what it gave, and tokens rise only as far as the servers' clocks agree")
	return true
}

func (e *exam) node(st *quorum.NodeState, bad func(about, do, format string, args ...any)) {
	memory, none := errors.AsType[*quorum.MemoryError](st.Why)
	switch {
	case st.Err != nil:
		bad("node", look+st.Name, "%s does not reply: %v", st.Name, st.Err)
	case st.Votes:
		e.ok("node", "%s votes; its memory is %s", st.Name, st.Memory.Epoch)
	case none && memory.Left > 0:
		until := time.Now().Add(memory.Left)
		bad("node", "wait until then: it comes back by itself", "%s was started again, or is new: it is in quarantine until %s", st.Name, until.Format(time.TimeOnly))
	case none && memory.Lost:
		bad("node", "", "%s has lost its memory, and too few others have theirs", st.Name)
	default:
		bad("node", look+st.Name, "%s does not vote: %v", st.Name, st.Why)
	}
}
