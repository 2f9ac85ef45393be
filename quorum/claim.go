package quorum

import (
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// claim is a claim as this store knows it, and what each node said of it.
type claim struct {
	driver.Claim // TTL is that which was asked for last, and guarded by mu

	first int           // the node that is the first in the name's order
	turn  chan struct{} // held by who enters it, or gathers votes for it

	mu      sync.Mutex
	primary int       // the node in whose queue it stands; -1: none
	token   int64     // of the grant; 0: it does not hold
	wanted  bool      // votes of all nodes are wanted; else see wants
	left    bool      // it is to be nowhere
	under   int       // requests to vote and to leave that are under way
	gone    bool      // its owner was told that it is Gone; until it enters it again
	seats   []seat    // by node
	until   time.Time // when it ends at the latest, for who sweeps
	moved   chan struct{}

	promised time.Time // to the caller, should it be granted
}

// seat is a claim at one node.
type seat struct {
	state   driver.State  // Holding: it counts
	token   int64         // while Holding
	until   time.Time     // while Holding: when it ends there unless renewed
	void    int64         // what holds with this token, or less, is being withdrawn
	unsure  bool          // it may be there, in a way that does not count
	epoch   string        // of the memory in which the node has granted it last; "": it has not, as far as is known
	said    driver.Status // by the last reply
	err     error         // of the last request
	asked   time.Time     // when the request was sent whose reply was the last one taken over
	sent    bool          // a vote was sent there, ever
	pending int           // votes under way
	idle    chan struct{} // closed when none is; nil while nobody waits for that
	leave   leaveState
}

// leaveState is how far a claim's Leave is at a node.
type leaveState uint8

const (
	notSent   leaveState = iota
	underWay             // it was sent
	overtaken            // and a vote's reply came since: the vote may have been carried out after it
	replied              // the node has replied, or failed
)

func newClaim(c driver.Claim, nodes int) *claim {
	return &claim{Claim: c, turn: make(chan struct{}, 1), seats: make([]seat, nodes), moved: make(chan struct{})}
}

// rank is the place of a node in the name's order.
func (cl *claim) rank(i int) int { return (i - cl.first + len(cl.seats)) % len(cl.seats) }

// wants reports whether what the node grants is kept: what waits keeps what the nodes before its primary
// have granted; see gather. cl.mu is held.
func (cl *claim) wants(i int) bool {
	return cl.wanted || cl.primary >= 0 && cl.rank(i) <= cl.rank(cl.primary)
}

// renews reports whether the node is asked to renew the claim. cl.mu is held.
func (cl *claim) renews(i int) bool {
	seat := &cl.seats[i]
	return cl.token != 0 || i == cl.primary || cl.wants(i) && (cl.wanted || seat.there())
}

func (cl *claim) ref() driver.Ref { return driver.Ref{Name: cl.Name, ID: cl.ID} }

// counts reports whether the node's vote counts at that time.
//
// Invariant: a vote counts only until the node may have given it to another: until is
// counted from before the request was sent. A node that has lost its memory since does not
// vote before that time has passed, for it stays out for as long as any TTL is.
func (st *seat) counts(now time.Time) bool { return st.state == driver.Holding && st.until.After(now) }

// there reports whether the claim is at the node, or may be.
func (st *seat) there() bool { return st.state != driver.Gone || st.unsure }

// counted are the nodes whose vote counts. cl.mu is held.
func (cl *claim) counted(now time.Time) []bool {
	nodes := make([]bool, len(cl.seats))
	for i := range nodes {
		nodes[i] = cl.seats[i].counts(now)
	}
	return nodes
}

// held is a majority.
type held struct {
	token int64
	until time.Time
}

// tally returns what the votes make. enough: a majority holds. settled: and the token
// is known, which is else the least to which some nodes must be raised.
//
// Invariant: of the nodes whose vote counts, a majority has drawn no more than the token, and a
// majority no less. Each earlier grant was a majority with no less than its own token,
// and shares a node with the former, whose draw came after: so the token is greater. Each
// later one draws from a node of the latter: so its token is greater than this one.
func (cl *claim) tally(now time.Time, most int) (h held, enough, settled bool) {
	// Of 7 nodes at the most: on the stack.
	tokens, untils, atLeast := make([]int64, 0, 7), make([]time.Time, 0, 7), 0
	for i := range cl.seats {
		if st := &cl.seats[i]; st.counts(now) {
			tokens = append(tokens, st.token)
			untils = append(untils, st.until)
		}
	}
	if len(tokens) < most {
		return held{}, false, false
	}
	slices.Sort(tokens)
	h.token = tokens[most-1]
	for _, t := range tokens {
		if t >= h.token {
			atLeast++
		}
	}
	// The weakest of the best majority.
	slices.SortFunc(untils, time.Time.Compare)
	h.until = untils[len(untils)-most]
	return h, true, atLeast >= most
}

// low returns the nodes whose vote counts with less than the token.
func (cl *claim) low(now time.Time, token int64) (nodes []int) {
	for i := range cl.seats {
		if st := &cl.seats[i]; st.counts(now) && st.token < token {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// blocker is who stands in the way, as the nodes say: whom a majority names, else
// whom the primary names, else anybody.
func (cl *claim) blocker(most int) (b *driver.Entry, majority bool) {
	count := make(map[string]int)
	for i := range cl.seats {
		said := cl.seats[i].said.Blocker
		if said == nil || said.ID == cl.ID {
			continue
		}
		if count[said.ID]++; count[said.ID] >= most {
			return said, true
		}
		if b == nil || i == cl.primary {
			b = said
		}
	}
	return b, false
}

// move makes another node the claim's primary, and wakes who waits at the one before.
func (cl *claim) move(primary int) {
	if cl.primary != primary {
		cl.primary = primary
		close(cl.moved)
		cl.moved = make(chan struct{})
	}
}

// votedOnce notes that one vote is not under way any more.
func (st *seat) votedOnce() {
	if st.pending--; st.pending == 0 && st.idle != nil {
		close(st.idle)
		st.idle = nil
	}
}

// voted takes over the reply to a vote that was sent then.
func (st *seat) voted(s driver.Status, sent time.Time) {
	if sent.Before(st.asked) {
		return // another reply is newer
	}
	st.asked, st.said, st.err, st.unsure = sent, s, nil, false
	switch {
	case s.State == driver.Holding && s.Token <= st.void:
		st.state = driver.Gone
	case s.State == driver.Holding:
		st.state, st.token, st.until = driver.Holding, s.Token, s.Deadline
	case s.State == driver.Waiting:
		st.state = driver.Waiting
	default:
		st.state = driver.Gone
	}
}
