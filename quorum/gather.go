package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// The order in which nodes are waited for. For each name all clients have the nodes in the
// same order (rank). A claim stands in one queue at a time: its primary's.
//
// Invariant: what waits in its primary's queue keeps only grants of nodes before that;
// what nodes behind it have granted is withdrawn first. So who holds a node waits, if at
// all, for one that comes later in the order, and there is no circle of claims that wait for
// each other, though clients reach different nodes and take different ones for the first.
//
// Why everybody gets through, once each client reaches a majority that does not change, and
// those who hold the lock leave: who has been granted the last node has the lock, or
// gives the node back. So whoever stands there is granted in time, for queues
// are in order. So whoever has been granted the last but one gets rid of it in time,
// and so on to the first. A claim goes from node to node until it has all that its
// client reaches, or a majority before. What a client withdraws and cannot reach ends
// with its TTL, for nobody renews it.

// gather votes for a claim at all nodes: at the primary, where it waits if it must, and at
// the others, which grant at once or not at all. If the primary has granted and too few
// others, the claim stands at the next node in the order that did not grant. With try
// it does not wait. ttl is that of the votes; 0: the claim's. Who has the turn calls it.
func (s *store) gather(ctx context.Context, cl *claim, ttl time.Duration, try bool) (driver.Status, error) {
	// Each time one node more has granted, but for what is lost meanwhile.
	for range 2 * len(s.nodes) {
		r, err := s.round(ctx, cl, ttl)
		if err != nil {
			return driver.Status{}, err
		}
		st, v, err := r.run(ctx, try)
		r.cancel()
		switch {
		case v != split && v != headless:
			return st, err
		case try && v == split:
			return s.contend(ctx, cl)
		case try:
			return s.refused(cl), nil
		}
		next := r.next()
		if next < 0 {
			break
		}
		cl.mu.Lock()
		if cl.primary >= 0 { // else it was withdrawn meanwhile
			cl.move(next)
		}
		cl.mu.Unlock()
	}
	s.stepBack(cl, -1)
	return driver.Status{}, errMoving
}

// run asks all nodes, and waits for the verdict. Only if that is split or headless is the
// claim to stand at another node.
func (r *round) run(ctx context.Context, try bool) (driver.Status, verdict, error) {
	for _, i := range r.s.order(r.p) {
		r.ask(i, try || i != r.p, 0)
	}
	for {
		v, err := r.wait(ctx)
		if err != nil { // what becomes of the votes is the caller's to say: it enters again, or leaves
			return driver.Status{}, open, err
		}
		switch v {
		case won:
			if st, ok := r.hold(); ok {
				return st, v, nil
			}
			if r.ttl > 0 {
				return r.s.between(r.cl), v, nil
			}
			r.s.stepBack(r.cl, -1)
			return driver.Status{}, v, errShort
		case raise:
			r.raise()
		case lost:
			st, err := r.s.notNow(ctx, r.cl, r)
			return st, v, err
		case unreachable:
			r.settle(ctx)
			r.s.stepBack(r.cl, -1)
			return driver.Status{}, v, r.failures()
		default:
			return driver.Status{}, v, nil
		}
	}
}

// next is the node at which the claim is to stand now: the first behind the primary that
// replies and has not granted; if there is none, the first of all, and the claim begins
// from there once more.
func (r *round) next() int {
	cl, now, again := r.cl, time.Now(), -1
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for k := range r.got {
		i := (cl.first + k) % len(r.got)
		if got := r.got[i]; got == nil || got.err != nil || cl.seats[i].counts(now) {
			continue
		}
		if k > cl.rank(r.p) {
			return i
		}
		if again < 0 {
			again = i
		}
	}
	return again
}

// notNow is the end of a round in which the primary says no.
func (s *store) notNow(ctx context.Context, cl *claim, r *round) (driver.Status, error) {
	r.settle(ctx)
	first := r.got[r.p]
	st, keep := first.st, -1
	if first.err == nil && st.State == driver.Waiting {
		keep = r.p
	}
	if st.Blocker != nil {
		b := *st.Blocker
		b.Token = cl.tokenOf(b.ID, s.Most, b.Token)
		st.Blocker = &b
	}
	s.stepBack(cl, keep)
	return st, first.err
}

// tokenOf is the token of another claim, as far as the nodes have named it.
func (cl *claim) tokenOf(id string, most int, token int64) int64 {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var tokens []int64
	for i := range cl.seats {
		if b := cl.seats[i].said.Blocker; b != nil && b.ID == id {
			tokens = append(tokens, b.Token)
		}
	}
	if len(tokens) < most {
		return token
	}
	slices.Sort(tokens)
	return tokens[most-1]
}

// contend is a try that the primary has granted: of those that try at the same time, one
// gets that far. The others withdraw, and this one waits for that.
func (s *store) contend(ctx context.Context, cl *claim) (driver.Status, error) {
	brief, cancel := context.WithTimeout(ctx, longestPatience)
	defer cancel()
	for {
		st, err := s.gather(brief, cl, 0, false)
		if err == nil && st.State == driver.Holding || ctx.Err() != nil {
			return st, err
		}
		if err != nil || st.State != driver.Waiting {
			break
		}
		cl.mu.Lock()
		p, moved := cl.primary, cl.moved
		cl.mu.Unlock()
		if p < 0 {
			break
		}
		if st, err = s.waitAt(brief, s.nodes[p], cl.ref(), moved); err != nil || st.State == driver.Gone {
			break
		}
	}
	return s.refused(cl), nil
}

// refused is the end of a try that some nodes have granted and others not.
func (s *store) refused(cl *claim) driver.Status {
	cl.mu.Lock()
	b, _ := cl.blocker(s.Most)
	cl.mu.Unlock()
	s.stepBack(cl, -1)
	return driver.Status{State: driver.Refused, Blocker: b}
}

// between is the status of a claim that waits, or that its primary has granted, and too few
// others: what one node says is never passed on as a grant.
func (s *store) between(cl *claim) driver.Status {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	b, _ := cl.blocker(s.Most)
	st := driver.Status{State: driver.Waiting, Blocker: b}
	if cl.primary >= 0 {
		st.Deadline = cl.seats[cl.primary].said.Deadline
	}
	return st
}
