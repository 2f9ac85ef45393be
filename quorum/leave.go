package quorum

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// Leave tells all nodes, and returns when a majority has replied, and the primary and the
// name's, which grant to the next, unless they are slow. The others are told in the background, until the
// claim has run out there.
func (s *store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	if r.Mark != "" { // there is no Adopt
		return driver.Gone, nil
	}
	if r.Linger > s.maxTTL {
		return driver.Gone, &ttlError{r.Linger, s.maxTTL}
	}
	cl, first, held := s.known(r.ID), s.primary(r.Name), false
	p := first
	var counted []bool
	if cl != nil {
		defer s.over(cl)
		cl.mu.Lock()
		cl.left, held, counted = true, cl.token != 0, cl.counted(time.Now())
		if cl.primary >= 0 {
			p = cl.primary
		}
		close(cl.moved)
		cl.moved = make(chan struct{})
		cl.under += 1 + len(s.nodes)
		cl.mu.Unlock()
	}
	out := each(s, s.order(p), func(n *node) (driver.State, error) { return s.leaveAt(cl, n, r) })
	got, err := majority.Collect(ctx, s.Group, out, s.slowest, func(got answers[driver.State]) bool {
		for _, i := range []int{first, p} {
			if _, replied := got.Of(i); !replied && !s.nodes[i].isSlow() {
				return false
			}
		}
		return !held || majority.Holding(got) >= s.Most
	})
	if err != nil {
		return driver.Gone, err
	}
	if cl != nil { // whoever repeats it finds nothing that held
		cl.mu.Lock()
		cl.token = 0
		cl.mu.Unlock()
	}
	if majority.Holding(got) >= s.Most || held && majority.Holding(got)+silent(got, counted) >= s.Most {
		return driver.Holding, nil
	}
	if held {
		return driver.Gone, nil
	}
	for k := range s.nodes { // the primary's word, or that of who stands in for it
		if st, ok := got.Of((p + k) % len(s.nodes)); ok {
			return st, nil
		}
	}
	return driver.Gone, nil
}

// silent is how many of those nodes have not replied.
func silent[T any](got answers[T], nodes []bool) (n int) {
	for i, in := range nodes {
		if _, replied := got.Of(i); in && !replied {
			n++
		}
	}
	return n
}

// leaveAt tells one node, and again in the background if the claim may still be there: this
// failed, or a vote may have come after it. Never before it is over: the node's word must be that of the first.
func (s *store) leaveAt(cl *claim, n *node, r driver.Ref) (driver.State, error) {
	if cl != nil {
		s.settled(cl, n)
	}
	st, err := request(s, n, func(ctx context.Context) (driver.State, error) { return n.Leave(ctx, r) })
	if cl != nil {
		defer s.over(cl)
		cl.mu.Lock()
		defer cl.mu.Unlock()
		seat := &cl.seats[n.index]
		if seat.leave == overtaken || err != nil && seat.sent {
			s.leaveLater(cl, n.index, r)
		}
		seat.leave = replied
	}
	return st, err
}

// settled waits until no vote is under way to a node, but not for long: a Leave that overtakes one must
// be repeated, and costs the node more.
func (s *store) settled(cl *claim, n *node) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	seat := &cl.seats[n.index]
	if seat.pending > 0 {
		if seat.idle == nil {
			seat.idle = make(chan struct{})
		}
		idle := seat.idle
		cl.mu.Unlock()
		t := time.NewTimer(n.patience())
		select {
		case <-idle:
		case <-t.C:
		case <-s.Context().Done():
		}
		t.Stop()
		cl.mu.Lock()
	}
	if seat.leave == notSent {
		seat.leave = underWay
	}
}

// leaveLater tells a node in the background until it has replied, or the claim has run out
// there. cl.mu is held.
func (s *store) leaveLater(cl *claim, i int, r driver.Ref) {
	n, ends, lingers := s.nodes[i], time.Now().Add(cl.TTL), time.Now().Add(r.Linger)
	cl.under++
	s.Spawn(func() {
		defer s.over(cl)
		s.repeat(ends, func() error {
			r.Linger = max(0, time.Until(lingers))
			_, err := request(s, n, func(ctx context.Context) (driver.State, error) { return n.Leave(ctx, r) })
			return err
		}, nil)
	})
}

// over notes that a request about the claim is over. One that has left is forgotten with the last:
// until then it is known to be Gone, whatever a renewal would find at a node.
func (s *store) over(cl *claim) {
	cl.mu.Lock()
	cl.under--
	last := cl.left && cl.under == 0
	cl.mu.Unlock()
	if last {
		s.forget(cl)
	}
}

func (cl *claim) hasLeft() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.left
}
