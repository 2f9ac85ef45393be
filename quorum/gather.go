package quorum

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

const (
	// A claim that its primary has granted waits for the others this long, if nobody is
	// known to hold a majority, before it lets others go first; then twice as long.
	splitPatience = 60 * time.Millisecond
	splitLongest  = 2 * time.Second
)

// gather takes a claim that its primary has granted to a majority: it waits at the others,
// too. The holder's Leave is under way there, so few stand in front. Who has the turn
// calls it. With quick it does not wait where others stand in front.
func (s *store) gather(ctx context.Context, cl *claim, quick bool) (driver.Status, error) {
	for patience := splitPatience; ; patience = min(2*patience, splitLongest) {
		st, again, err := s.gatherOnce(ctx, cl, quick, about(patience))
		if !again {
			return st, err
		}
		// Others hold what this claim lacks, and lack what it holds: it has let them go
		// first.
		t := time.NewTimer(about(patience / 8))
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
		t.Stop()
	}
}

func (s *store) gatherOnce(ctx context.Context, cl *claim, quick bool, patience time.Duration) (st driver.Status, again bool, err error) {
	cl.mu.Lock()
	p := cl.primary
	cl.mu.Unlock()
	if p < 0 {
		return driver.Status{}, false, errSilent
	}
	r := s.round(ctx, cl, p)
	defer r.cancel()
	cl.mu.Lock()
	r.ttl = cl.rest(s.maxTTL)
	cl.mu.Unlock()
	for _, i := range s.order(p) {
		r.ask(i, false, 0)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		v, err := r.wait(ctx)
		if err != nil {
			return driver.Status{}, false, err
		}
		switch v {
		case won:
			if st, ok := r.hold(); ok {
				return st, false, nil
			}
			return s.between(cl), false, nil
		case raise:
			r.raise(false)
		case lost:
			st, err := s.notNow(ctx, cl, r)
			return st, false, err
		case unreachable:
			r.settle(ctx)
			return driver.Status{}, false, r.failures()
		default:
			if quick {
				return s.between(cl), false, nil
			}
			if !s.patient(ctx, r, timer, patience) {
				s.stepBack(cl, p)
				if ctx.Err() != nil {
					return driver.Status{}, false, ctx.Err()
				}
				return driver.Status{}, true, nil
			}
		}
	}
}

// patient waits for a node to grant, of those where the claim stands in the queue. It
// reports whether to go on.
func (s *store) patient(ctx context.Context, r *round, timer *time.Timer, patience time.Duration) bool {
	for i, got := range r.got {
		if !r.queued[i] && got != nil && got.err == nil && got.st.State == driver.Waiting {
			r.await(i)
		}
	}
	select {
	case got := <-r.in:
		r.take(got)
		return true
	case <-timer.C:
		r.cl.mu.Lock()
		_, held := r.cl.blocker(s.most)
		r.cl.mu.Unlock()
		if held { // somebody holds the lock
			timer.Reset(patience)
		}
		return held
	case <-ctx.Done():
		return false
	case <-s.ctx.Done():
		return false
	}
}
