package quorum

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A claim that holds is at a majority of nodes, and each of these may lose its memory, one
// after the other. So with each renewal the others are asked to grant it, too: those that
// vote again, or did not reply before.
//
// Invariant: a vote that is regained counts only if, when its reply comes, a majority of the
// others still counts. So from the grant on there is no moment at which no majority has
// kept the claim: what was counted then has been there since, for a node grants a claim anew only
// with another token. A node that has lost the claim and not its memory is left alone: somebody
// has released it by force there. The claim's own token stays: all that is said of earlier and later grants
// in tally holds for the marks of the nodes, and these only grow.

// regain asks the nodes where claims that were renewed are not, one after the other, in the
// background.
func (s *store) regain(ns []renewal) {
	for k, n := range s.nodes {
		if n.isSlow() {
			continue
		}
		var lacking []*renewal
		for i := range ns {
			if r := &ns[i]; r.cl != nil && s.lacks(r.cl, k, r.ref.TTL) {
				lacking = append(lacking, r)
			}
		}
		if len(lacking) == 0 {
			continue
		}
		s.Spawn(func() {
			for _, r := range lacking {
				if !s.regainAt(r.cl, k, r.ref.TTL) {
					return
				}
			}
		})
	}
}

// lacks reports whether the claim, which holds and was renewed for that long, is not at the
// node. A renewal that only looks whether a claim is there does not count.
func (s *store) lacks(cl *claim, k int, ttl time.Duration) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	seat := &cl.seats[k]
	return cl.token != 0 && cl.wanted && !cl.left && !cl.gone && ttl >= cl.TTL &&
		seat.state == driver.Gone && seat.pending == 0 && cl.votes(time.Now()) >= s.Most
}

// regainAt asks one node for its vote, and reports whether others may be asked of it, too.
func (s *store) regainAt(cl *claim, k int, ttl time.Duration) bool {
	select {
	case cl.turn <- struct{}{}:
	default:
		return true // somebody gathers votes already
	}
	defer cl.end()
	if !s.lacks(cl, k, ttl) {
		return true
	}
	cl.mu.Lock()
	token, granted := cl.token, cl.seats[k].epoch
	cl.mu.Unlock()
	if remembers, err := s.remembers(s.nodes[k], granted); remembers || err != nil {
		return err == nil
	}
	floor, clock := s.proposer.next()
	_, err := s.vote(cl, k, ballot{Vote: driver.Vote{Floor: max(floor, token)}, ttl: ttl, clock: clock, try: true, regains: true})
	return err == nil || refusal(err)
}

// remembers asks whether the node has the memory of that epoch still; it has none of "".
func (s *store) remembers(n *node, epoch string) (bool, error) {
	if epoch == "" {
		return false, nil
	}
	m, err := request(s, n, n.Memory)
	if err != nil {
		return false, err
	}
	s.learned(n, m)
	return m.Epoch == epoch, nil
}
