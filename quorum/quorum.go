package quorum

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/internal/lacking"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// Defaults of Options.
const (
	DefaultMaxTTL   = time.Minute
	DefaultPatience = 50 * time.Millisecond
)

// Options of a quorum. The zero value is the default.
type Options struct {
	// MaxTTL is the longest TTL, and MinHold, that claims may have; DefaultMaxTTL if 0. A
	// node that has lost its memory stays out for as long. It is kept with the nodes:
	// all clients must use the same.
	MaxTTL time.Duration
	// Patience is how long the reply of a node is waited for, at the least, that may be
	// done without; DefaultPatience if 0. It is longer where replies usually take long. A
	// node that takes longer is not waited for any more until it replies.
	Patience time.Duration
	// Names of the nodes, for errors; "node 1" and so on if nil.
	Names []string
}

// Store is a [driver.Store] out of several.
type Store struct {
	*checked.Store
	in *store
}

type store struct {
	*lacking.Reasons
	*majority.Group
	nodes    []*node
	maxTTL   time.Duration
	proposer *proposer
	limits   limits

	mu     sync.Mutex
	claims map[string]*claim // by id
	sweep  int               // number of claims at which to look for those that have run out
}

// New makes a store of nodes, and owns them from now on. It does no I/O. All clients
// name the same nodes in the same order.
func New(nodes []driver.Store, o *Options) (*Store, error) {
	s, err := newStore(nodes, o)
	if err != nil {
		return nil, err
	}
	return &Store{checked.New("quorum", s), s}, nil
}

func newStore(nodes []driver.Store, o *Options) (*store, error) {
	if o == nil {
		o = new(Options)
	}
	g, err := majority.New(nodes, o.Names)
	if err != nil {
		return nil, err
	}
	s := &store{Reasons: &cannot, Group: g, maxTTL: o.MaxTTL, proposer: newProposer(), claims: make(map[string]*claim), sweep: 64}
	if s.maxTTL == 0 {
		s.maxTTL = DefaultMaxTTL
	}
	patience := o.Patience
	if patience == 0 {
		patience = DefaultPatience
	}
	if patience < time.Millisecond || patience > requestLimit {
		return nil, fmt.Errorf("%w patience %v: allowed are 1ms to %v", driver.ErrInvalid, patience, requestLimit)
	}
	if err := driver.CheckTTL(s.maxTTL); err != nil {
		return nil, fmt.Errorf("MaxTTL: %w", err)
	}
	for i, d := range nodes {
		n, ok := d.(driver.Node)
		if !ok {
			return nil, fmt.Errorf("%s, a %T, cannot be one of a quorum, for it cannot tell what it has forgotten (of plain locks, package quorum/redlock makes one store): %w", g.Name(i), d, driver.ErrUnsupported)
		}
		s.nodes = append(s.nodes, &node{Node: n, index: i, least: patience, alarm: make(chan struct{})})
	}
	return s, nil
}

// pause waits, and reports whether the store is still open.
func (s *store) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.Context().Done():
		return false
	}
}

// first is the node that orders the claims of a name, if it replies.
func (s *store) first(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % uint32(len(s.nodes)))
}

// primary is the node that orders the claims of a name now: the first in the name's
// order that replies and votes. Clients may disagree for a while about who that is: the
// majority decides.
func (s *store) primary(name string) int {
	first := s.first(name)
	for k := range s.nodes {
		i := (first + k) % len(s.nodes)
		n := s.nodes[i]
		n.mu.Lock()
		well := !n.slow && n.memory == nil
		n.mu.Unlock()
		if well {
			return i
		}
	}
	return first
}

// order lists the nodes with the primary last: who is granted there finds that the others
// were told before.
func (s *store) order(primary int) []int {
	order := make([]int, 0, len(s.nodes))
	for k := range s.nodes {
		order = append(order, (primary+1+k)%len(s.nodes))
	}
	return order
}

// known returns the claim with that id, or nil.
func (s *store) known(id string) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[id]
}

// know returns the claim with that id; c is what it is made of if it is not known.
func (s *store) know(c driver.Claim) *claim {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	cl := s.claims[c.ID]
	if cl == nil || cl.Name != c.Name {
		if len(s.claims) >= s.sweep { // those whose owner neither left nor went on
			maps.DeleteFunc(s.claims, func(_ string, cl *claim) bool {
				cl.mu.Lock()
				defer cl.mu.Unlock()
				return cl.until.Before(now)
			})
			s.sweep = max(64, 2*len(s.claims))
		}
		cl = newClaim(c, len(s.nodes))
		cl.first, cl.primary = s.first(c.Name), -1
		s.claims[c.ID] = cl
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.until = later(cl.until, now.Add(cl.TTL))
	return cl
}

// forget ends the interest in a claim.
func (s *store) forget(cl *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[cl.ID] == cl {
		delete(s.claims, cl.ID)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// about returns a span between d and 2d.
func about(d time.Duration) time.Duration { return d + rand.N(d) }
