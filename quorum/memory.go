package quorum

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// How a node comes to vote. Its memory has an epoch:
//
//	N.I.TTL.KIND.REST    it is the I-th of N nodes, and TTL is MaxTTL in ms
//	KIND a: admitted by a majority that had theirs; REST is random
//	KIND n: all nodes were made new together; REST is a digest of all quarantines, and its own
//
// A node without memory goes through three steps, in this order; any client may do
// each of them, at any time:
//
//	1. it stays out for MaxTTL: what holds with its former votes ends
//	2. the marks of a majority of nodes that have their memory are read
//	3. it remembers, with the greatest of these marks
//
// Invariant: who holds with a token T when step 2 begins, or held before, with a vote of the
// lost memory, had a majority with marks of T and more; that shares a node, other than this
// one, with the majority that is read. If that one has lost its memory since, it has gone
// through these steps, too.

const (
	admitted = "a"
	fresh    = "n"
	// memoryPause is the time between two looks at what a node without memory waits for.
	memoryPause = 500 * time.Millisecond
)

// place is how all epochs of a node of this quorum begin.
func (s *store) placeOf(i int) string {
	return fmt.Sprintf("%d.%d.%d.", len(s.nodes), i+1, s.maxTTL.Milliseconds())
}

// check returns what is wrong with the epoch of a node: other clients think otherwise of
// the quorum.
func (s *store) check(i int, epoch string) error {
	if strings.HasPrefix(epoch, s.placeOf(i)) {
		return nil
	}
	var of, at int
	var ttl int64
	if n, err := fmt.Sscanf(epoch, "%d.%d.%d.", &of, &at, &ttl); n != 3 || err != nil {
		return driver.Permanent(fmt.Errorf("it has a memory that is no quorum's, of epoch %q", epoch))
	}
	return driver.Permanent(fmt.Errorf("other clients have it as node %d of %d with MaxTTL %v, this one as node %d of %d with %v: "+
		"all must name the same nodes in the same order, and the same MaxTTL", at, of, time.Duration(ttl)*time.Millisecond, i+1, len(s.nodes), s.maxTTL))
}

// epoch returns that of the node's memory, and asks for it if it is not known.
func (s *store) epoch(n *node) (string, error) {
	n.mu.Lock()
	epoch, memory := n.epoch, n.memory
	n.mu.Unlock()
	if epoch != "" || memory != nil {
		return epoch, memory
	}
	m, err := request(s, n, n.Memory)
	if err != nil {
		return "", err
	}
	return s.learned(n, m)
}

// learned takes over what a node says of its memory. If there is none, it is admitted in
// the background.
func (s *store) learned(n *node, m driver.Memory) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epoch, n.memory = "", nil
	if m.Epoch != "" {
		if n.memory = s.check(n.index, m.Epoch); n.memory == nil {
			n.epoch = m.Epoch
			return n.epoch, nil
		}
	} else {
		n.memory = &MemoryError{Left: m.Left}
	}
	if !n.admitting {
		n.admitting = s.Spawn(func() { s.admit(n) })
	}
	return "", n.memory
}

// lost notes that the node has not that memory any more.
func (n *node) lost(epoch string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.epoch == epoch {
		n.epoch = ""
	}
}

// admit brings a node without memory to vote, step by step, until it does.
func (s *store) admit(n *node) {
	for {
		wait := s.step(n)
		n.mu.Lock()
		ends := n.epoch != ""
		if ends {
			n.admitting = false
		}
		n.mu.Unlock()
		if ends || !s.pause(wait) {
			return
		}
	}
}

// step does what can be done now, and returns how long to wait then.
func (s *store) step(n *node) time.Duration {
	m, err := request(s, n, n.Memory)
	if err != nil {
		return memoryPause
	}
	if m.Epoch == "" && m.Quarantine == "" {
		// Who has another MaxTTL than all others must not begin it.
		for i, other := range s.memories() {
			if err := s.check(i, other.Value.Epoch); other.Value.Epoch != "" && err != nil {
				n.blame(err)
				return memoryPause
			}
		}
		if m, err = request(s, n, func(ctx context.Context) (driver.Memory, error) { return n.Quarantine(ctx, s.maxTTL) }); err != nil {
			return memoryPause
		}
	}
	if m.Epoch != "" || m.Left > 0 {
		s.learned(n, m)
		return min(max(m.Left, time.Millisecond), memoryPause)
	}
	// Not before it is over are the others asked.
	a, err := s.admission(n.index, s.memories())
	if err != nil {
		n.blame(err)
		return memoryPause
	}
	if a.Quarantine != m.Quarantine {
		return 0 // it has lost its memory again
	}
	if m, err = request(s, n, func(ctx context.Context) (driver.Memory, error) { return n.Remember(ctx, a) }); err == nil {
		s.learned(n, m)
	}
	return 0
}

// blame notes why the node does not vote.
func (n *node) blame(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.memory = err
}

// memories reads those of all nodes.
func (s *store) memories() answers[driver.Memory] {
	out := each(s, s.order(0), func(n *node) (driver.Memory, error) { return request(s, n, n.Memory) })
	got := make(answers[driver.Memory], len(s.nodes))
	for range s.nodes {
		a := <-out
		got[a.Node] = a
	}
	return got
}

// admission is what lets the node vote again, by the memories of all, which were
// read when its quarantine was over.
func (s *store) admission(i int, all answers[driver.Memory]) (a driver.Admission, err error) {
	m, ok := all.Of(i)
	if !ok {
		return a, all[i].Err
	}
	a.Quarantine = m.Quarantine
	have, reached := 0, 0
	for k, other := range all {
		if other.Err != nil {
			continue
		}
		reached++
		a.Mark = max(a.Mark, other.Value.Mark)
		if k != i && other.Value.Epoch != "" && s.check(k, other.Value.Epoch) == nil {
			have++
		}
	}
	if have >= s.Most {
		a.Epoch = s.placeOf(i) + admitted + "." + driver.NewID()
		return a, nil
	}
	digest, made := s.birth(all)
	switch {
	case reached < len(s.nodes):
		return a, s.Failed(majority.Failures(s.Group, all)...)
	case made:
		a.Epoch = s.placeOf(i) + fresh + "." + digest + "." + m.Quarantine
		return a, nil
	case have == 0:
		return a, &MemoryError{Left: longest(all)} // some must still stay out
	}
	return a, &MemoryError{Lost: true}
}

// birth reports whether all nodes are to be made new: each has no memory, and its
// quarantine is over; or it was made new, together with the others.
//
// Invariant: no node votes with others of a memory that is not lost: a node that was made
// new names the quarantines that all the others had, and they still have them.
func (s *store) birth(all answers[driver.Memory]) (digest string, ok bool) {
	var rests []string
	claimed := make(map[string]bool) // digests of those that were made new
	for i, a := range all {
		rest := a.Value.Quarantine
		if made, ok := strings.CutPrefix(a.Value.Epoch, s.placeOf(i)+fresh+"."); ok {
			var d string
			d, rest, _ = strings.Cut(made, ".")
			claimed[d] = true
		} else if a.Value.Epoch != "" {
			return "", false
		}
		if a.Err != nil || rest == "" || a.Value.Left > 0 {
			return "", false
		}
		rests = append(rests, rest)
	}
	sum := sha256.Sum256([]byte(strings.Join(rests, " ")))
	digest = hex.EncodeToString(sum[:8])
	delete(claimed, digest)
	return digest, len(claimed) == 0
}

// NodeState is what is known of one node.
type NodeState struct {
	Name   string
	Err    error // it does not reply
	Votes  bool
	Memory driver.Memory
	Why    error // why it does not vote
}

// Nodes asks all nodes how they do.
func (s *Store) Nodes(ctx context.Context) []NodeState {
	states := make([]NodeState, len(s.in.nodes))
	out := each(s.in, s.in.order(0), func(n *node) (driver.Memory, error) {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		return n.Memory(ctx)
	})
	for range states {
		a := <-out
		st := &states[a.Node]
		n := s.in.nodes[a.Node]
		st.Name, st.Err, st.Memory = s.in.Name(a.Node), a.Err, a.Value
		switch {
		case a.Err != nil:
		case a.Value.Epoch == "":
			n.mu.Lock()
			st.Why = n.memory
			n.mu.Unlock()
			if st.Why == nil || a.Value.Left > 0 {
				st.Why = &MemoryError{Left: a.Value.Left}
			}
		default:
			st.Why = s.in.check(a.Node, a.Value.Epoch)
			st.Votes = st.Why == nil
		}
	}
	return states
}

// longest is how long the last of the nodes must still stay out.
func longest(all answers[driver.Memory]) (d time.Duration) {
	for _, a := range all {
		d = max(d, a.Value.Left)
	}
	return d
}

// Init makes nodes vote at once that have no memory. It is for an operator who knows
// that nobody holds a lock: when the nodes are new, or after a majority has lost its
// memory. If somebody does hold one, another may get it, too; and tokens rise from then on
// as far as the nodes that remember know, and by the clocks. All nodes must reply.
func Init(ctx context.Context, nodes []driver.Store, o *Options) error {
	s, err := newStore(nodes, o)
	if err != nil {
		return err
	}
	defer s.Stop() // the nodes stay the caller's
	mark, all := int64(0), make([]driver.Memory, len(s.nodes))
	for i, n := range s.nodes {
		if all[i], err = n.Quarantine(ctx, 0); err != nil {
			return fmt.Errorf("init: %w", s.Failure(i, err))
		}
		mark = max(mark, all[i].Mark)
		if all[i].Epoch != "" {
			if err := s.check(i, all[i].Epoch); err != nil {
				return fmt.Errorf("init: %w", s.Failure(i, err))
			}
		}
	}
	for i, n := range s.nodes {
		if all[i].Epoch != "" {
			continue
		}
		epoch := s.placeOf(i) + admitted + "." + driver.NewID()
		m, err := n.Remember(ctx, driver.Admission{Quarantine: all[i].Quarantine, Epoch: epoch, Mark: mark, AtOnce: true})
		if err == nil && m.Epoch == "" {
			err = errors.New("it has lost its memory again")
		}
		if err != nil {
			return fmt.Errorf("init: %w", s.Failure(i, err))
		}
	}
	return nil
}
