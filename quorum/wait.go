package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// watchPeriod is how often a node is asked for a sign of life while claims wait for news
// from it.
const watchPeriod = 200 * time.Millisecond

var errMoved = errors.New("another node orders the claims now")

// Wait waits at the claim's primary. When that has granted, it gathers the votes of the
// others.
func (s *store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	if r.Mark != "" {
		return driver.Status{}, nil
	}
	for {
		cl, p, err := s.place(ctx, r)
		if cl == nil || err != nil {
			return driver.Status{}, err
		}
		cl.mu.Lock()
		token, moved, counted := cl.token, cl.moved, cl.counted(time.Now())
		cl.mu.Unlock()
		if token != 0 {
			if ok, err := s.stands(ctx, r, counted); !ok || err != nil {
				return driver.Status{}, err
			}
			return driver.Status{State: driver.Holding, Token: token}, nil
		}
		st, err := s.waitAt(ctx, s.nodes[p], r, moved)
		switch {
		case ctx.Err() != nil:
			return driver.Status{}, ctx.Err()
		case errors.Is(err, errMoved):
		case err != nil:
			st, err = s.elsewhere(ctx, cl, p)
			if err != nil || st.State != driver.Waiting {
				return still(st), err
			}
		case st.State == driver.Holding:
			st, err = s.finish(ctx, cl, false)
			return still(st), err
		case st.State == driver.Gone:
			if s.abandon(cl, p) {
				return st, nil
			}
		default:
			return st, nil
		}
	}
}

// still is a status without what only a renewal brings.
func still(st driver.Status) driver.Status {
	st.Deadline, st.Recheck = time.Time{}, time.Time{}
	return st
}

// place returns the claim and the node in whose queue it stands; none if it is nowhere.
func (s *store) place(ctx context.Context, r driver.Ref) (*claim, int, error) {
	cl := s.known(r.ID)
	if cl != nil {
		cl.mu.Lock()
		p, known := cl.primary, !cl.left && (cl.primary >= 0 || cl.token != 0)
		cl.mu.Unlock()
		if known {
			return cl, p, nil
		}
	}
	cl, err := s.lookup(ctx, r)
	if cl == nil || err != nil {
		return nil, 0, err
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl, cl.primary, nil
}

// waitAt waits at one node, until it becomes slow or another one is the claim's primary.
func (s *store) waitAt(ctx context.Context, n *node, r driver.Ref, moved <-chan struct{}) (driver.Status, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.mu.Lock()
	alarm := n.alarm
	if n.slow {
		n.mu.Unlock()
		return driver.Status{}, errSkipped
	}
	n.watchers++
	if !n.watched {
		n.watched = s.Spawn(func() { s.watch(n) })
	}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.watchers--
		n.mu.Unlock()
	}()
	ended := make(chan struct{})
	defer close(ended)
	if !s.Spawn(func() {
		select {
		case <-moved:
			cancel(errMoved)
		case <-alarm:
			cancel(errSkipped)
		case <-s.Context().Done():
			cancel(driver.ErrClosed)
		case <-ended:
		}
	}) {
		return driver.Status{}, driver.ErrClosed
	}
	st, err := n.Wait(ctx, r)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return st, err
}

// watch asks the node for signs of life while claims wait for news from it.
func (s *store) watch(n *node) {
	for s.pause(watchPeriod) {
		n.mu.Lock()
		if n.watchers == 0 || n.slow {
			n.watched = false
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		replied := make(chan struct{})
		if !s.Spawn(func() {
			defer close(replied)
			request(s, n, n.Memory)
		}) {
			return
		}
		late := time.NewTimer(n.longest())
		select {
		case <-replied:
		case <-late.C:
			n.late()
		case <-s.Context().Done():
		}
		late.Stop()
	}
}

// elsewhere enters a claim again whose primary does not reply.
func (s *store) elsewhere(ctx context.Context, cl *claim, p int) (driver.Status, error) {
	if err := cl.begin(ctx, s); err != nil {
		return driver.Status{}, err
	}
	defer cl.end()
	s.nodes[p].late()
	cl.mu.Lock()
	other, left := cl.primary != p, cl.left
	cl.mu.Unlock()
	if left {
		return driver.Status{}, nil
	}
	if st, ok := s.holds(cl); ok {
		return st, nil
	}
	if other { // somebody else has done so meanwhile
		return s.between(cl), nil
	}
	return s.enter(ctx, cl, false)
}

// finish gathers votes for a claim that its primary has granted, unless somebody else has
// done so meanwhile, or, with quick, is about it.
func (s *store) finish(ctx context.Context, cl *claim, quick bool) (driver.Status, error) {
	if quick {
		select {
		case cl.turn <- struct{}{}:
		default: // Wait does it
			return s.between(cl), nil
		}
	} else if err := cl.begin(ctx, s); err != nil {
		return driver.Status{}, err
	}
	defer cl.end()
	cl.mu.Lock()
	left := cl.left
	cl.mu.Unlock()
	if left {
		return driver.Status{}, nil
	}
	if st, ok := s.holds(cl); ok {
		return st, nil
	}
	cl.mu.Lock()
	rest := cl.rest(s.maxTTL)
	cl.mu.Unlock()
	return s.gather(ctx, cl, rest, false)
}

// holds is the status of a claim that holds, as far as is known.
func (s *store) holds(cl *claim) (driver.Status, bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	h, enough, _ := cl.tally(time.Now(), s.Most)
	if cl.token == 0 || !enough {
		return driver.Status{}, false
	}
	return driver.Status{State: driver.Holding, Token: cl.token, Deadline: h.until}, true
}

// abandon ends a claim that its primary p, or a majority (p is -1), has not any more. What
// is left of it is withdrawn. It returns false if the claim holds since, or has
// another primary.
//
// Invariant: a claim that was said to be Gone does not hold afterwards, nor the other
// way round: both are decided with cl.mu held.
func (s *store) abandon(cl *claim, p int) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if p >= 0 && (cl.token != 0 || cl.primary != p) {
		return false
	}
	cl.gone = true
	s.withdrawAll(cl, -1, nil)
	return true
}
