package quorum

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Enter asks all nodes at the same time: the primary as the caller does, the others to
// grant at once or not at all. What a majority has granted, the primary among them or out
// of reach, holds. If the primary lets the claim wait, it waits there alone, for several
// queues might disagree about whose turn it is; see gather.
func (s *store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := s.admissible(&c); err != nil {
		return driver.Status{}, err
	}
	cl := s.know(c)
	if cl.hasLeft() { // a new claim of that id
		s.forget(cl)
		cl = s.know(c)
	}
	if err := cl.begin(ctx, s); err != nil {
		return driver.Status{}, err
	}
	defer cl.end()
	cl.mu.Lock()
	cl.TTL, cl.gone = c.TTL, false
	cl.mu.Unlock()
	st, err := s.enter(ctx, cl, c.Try)
	cl.promise(st)
	return st, err
}

// promise notes until when the caller may believe in the claim once it is granted.
func (cl *claim) promise(st driver.Status) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.promised = later(cl.promised, st.Deadline)
}

// rest is the TTL that makes a claim end when its primary ends it: its owner believes in
// what it was promised, and Wait renews nothing. cl.mu is held.
func (cl *claim) rest(most time.Duration) time.Duration {
	left := time.Until(cl.promised)
	if left <= 0 {
		return cl.TTL
	}
	// As driver.Deadline counts.
	return min(max((left+2*time.Millisecond)*100/99+10*time.Microsecond, driver.MinTTL), most)
}

// begin gets the turn to enter the claim, or to gather votes for it.
func (cl *claim) begin(ctx context.Context, s *store) error {
	select {
	case cl.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Context().Done():
		return driver.ErrClosed
	}
}

func (cl *claim) end() { <-cl.turn }

// enter is Enter for who has the turn.
func (s *store) enter(ctx context.Context, cl *claim, try bool) (driver.Status, error) {
	cl.mu.Lock()
	cl.move(s.post(cl))
	before := cl.token
	cl.token = 0
	cl.mu.Unlock()
	st, err := s.gather(ctx, cl, 0, try)
	if err != nil || st.State != driver.Holding {
		return st, err
	}
	return s.same(cl, st, before), nil
}

// post is the node at which the claim stands, or is to begin: the first that has granted,
// or the first of all, of those that reply. cl.mu is held.
func (s *store) post(cl *claim) int {
	if p := cl.primary; p >= 0 && !s.nodes[p].isSlow() {
		return p
	}
	now := time.Now()
	for k := range s.nodes {
		if i := (cl.first + k) % len(s.nodes); cl.seats[i].counts(now) && !s.nodes[i].isSlow() {
			return i
		}
	}
	return s.primary(cl.Name)
}

// same keeps the token of a claim that held before and has done so ever since: one
// that a majority of nodes still has as it had.
func (s *store) same(cl *claim, st driver.Status, before int64) driver.Status {
	if before == 0 {
		return st
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now, kept := time.Now(), 0
	for i := range cl.seats {
		if seat := &cl.seats[i]; seat.counts(now) && seat.token == before {
			kept++
		}
	}
	if kept >= s.Most {
		cl.token, st.Token = before, before
	}
	return st
}
