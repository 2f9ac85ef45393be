package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Enter asks all nodes at the same time: the primary as the caller does, the others to
// grant at once or not at all. What a majority has granted, the primary among them or out
// of reach, holds. If the primary lets the claim wait, it waits there alone, for several
// queues might disagree about whose turn it is; what others have granted is withdrawn.
func (s *store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := s.admissible(&c); err != nil {
		return driver.Status{}, err
	}
	cl := s.know(c)
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
	case <-s.ctx.Done():
		return driver.ErrClosed
	}
}

func (cl *claim) end() { <-cl.turn }

// enter is Enter for who has the turn.
func (s *store) enter(ctx context.Context, cl *claim, try bool) (driver.Status, error) {
	cl.mu.Lock()
	p := cl.primary
	if p < 0 || s.nodes[p].isSlow() {
		p = s.primary(cl.Name)
	}
	cl.move(p)
	before := cl.token
	cl.token = 0
	cl.mu.Unlock()
	r := s.round(ctx, cl, p)
	defer r.cancel()
	for _, i := range s.order(p) {
		r.ask(i, try || i != p, 0)
	}
	for tried := 0; ; {
		v, err := r.wait(ctx)
		if err != nil {
			return driver.Status{}, err // what becomes of the votes is the caller's to say: it enters again, or leaves
		}
		switch v {
		case won:
			if st, ok := r.hold(); ok {
				return s.same(cl, st, before), nil
			}
			s.stepBack(cl, -1)
			return driver.Status{}, errShort
		case raise:
			r.raise(true)
		case lost:
			return s.notNow(ctx, cl, r)
		case headless:
			// Another node orders the claims, as long as the primary does not.
			if next := r.next(); tried < len(s.nodes) && next >= 0 && !try {
				tried++
				cl.mu.Lock()
				cl.move(next)
				cl.mu.Unlock()
				r.p = next
				r.ask(next, false, 0)
				continue
			}
			return s.refused(cl), nil
		case split:
			if !try {
				return s.between(cl), nil
			}
			return s.contend(ctx, cl)
		case unreachable:
			r.settle(ctx)
			s.stepBack(cl, -1)
			return driver.Status{}, r.failures()
		}
	}
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
	if kept >= s.most {
		cl.token, st.Token = before, before
	}
	return st
}

// next is a node that has replied, the one behind the primary in the name's order.
func (r *round) next() int {
	for k := 1; k < len(r.got); k++ {
		i := (r.p + k) % len(r.got)
		if got := r.got[i]; got != nil && got.err == nil {
			return i
		}
	}
	return -1
}

// notNow is the end of an Enter to which the primary says no.
func (s *store) notNow(ctx context.Context, cl *claim, r *round) (driver.Status, error) {
	r.settle(ctx)
	first := r.got[r.p]
	st, keep := first.st, -1
	if first.err == nil && st.State == driver.Waiting {
		keep = r.p
	}
	if st.Blocker != nil {
		b := *st.Blocker
		b.Token = cl.tokenOf(b.ID, s.most, b.Token)
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
	st, err := s.gather(brief, cl, false)
	if err == nil && st.State == driver.Holding || ctx.Err() != nil {
		return st, err
	}
	return s.refused(cl), nil
}

// refused is the end of a try that some nodes have granted and others not.
func (s *store) refused(cl *claim) driver.Status {
	cl.mu.Lock()
	b, _ := cl.blocker(s.most)
	cl.mu.Unlock()
	s.stepBack(cl, -1)
	return driver.Status{State: driver.Refused, Blocker: b}
}

// between is the status of a claim that waits, or that its primary has granted, and too few
// others: what one node says is never passed on as a grant.
func (s *store) between(cl *claim) driver.Status {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	b, _ := cl.blocker(s.most)
	st := driver.Status{State: driver.Waiting, Blocker: b}
	if cl.primary >= 0 {
		st.Deadline = cl.seats[cl.primary].said.Deadline
	}
	return st
}

// stepBack withdraws what nodes have granted, but for the node keep (-1: none), and
// waits a moment for that.
func (s *store) stepBack(cl *claim, keep int) {
	var done sync.WaitGroup
	cl.mu.Lock()
	wait := s.withdrawAll(cl, keep, &done)
	cl.mu.Unlock()
	if wait == 0 {
		return
	}
	all := make(chan struct{})
	go func() { done.Wait(); close(all) }()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-all:
	case <-t.C:
	}
}

// withdrawAll is stepBack without waiting: it returns how long that is worth it. cl.mu is held.
func (s *store) withdrawAll(cl *claim, keep int, done *sync.WaitGroup) (wait time.Duration) {
	cl.wanted, cl.token = false, 0
	if keep < 0 {
		cl.primary = -1
	}
	for i := range cl.seats {
		if i != keep && cl.seats[i].state != driver.Gone {
			wait = max(wait, s.nodes[i].patience())
			s.withdraw(cl, i, done)
		}
	}
	return wait
}

// withdraw takes back what a node has granted, or lets the claim leave its queue. cl.mu is
// held.
//
// Invariant: from now on what holds there with this token does not count; a later
// grant has a greater one. The node removes only what has this token. So however late this
// request comes, and how often, it removes nothing that counts.
func (s *store) withdraw(cl *claim, i int, done *sync.WaitGroup) {
	seat, n, token := &cl.seats[i], s.nodes[i], int64(0)
	if seat.state == driver.Holding {
		token = seat.token
		seat.void = max(seat.void, token)
	}
	seat.state, seat.until = driver.Gone, time.Time{}
	ends := time.Now().Add(cl.TTL)
	if done != nil {
		done.Add(1)
	}
	if !s.spawn(func() {
		s.repeat(ends, func() error {
			_, err := request(s, n, func(ctx context.Context) (driver.State, error) {
				return n.Withdraw(ctx, cl.Name, cl.ID, token)
			})
			return err
		}, done)
	}) && done != nil {
		done.Done()
	}
}

// repeat calls f until it succeeds, or the claim has run out at the node. done is told after
// the first time.
func (s *store) repeat(ends time.Time, f func() error, done *sync.WaitGroup) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := f()
		if done != nil {
			done.Done()
			done = nil
		}
		if err == nil || driver.IsPermanent(err) || time.Now().Add(pause).After(ends) || !s.pause(about(pause)) {
			return
		}
	}
}
