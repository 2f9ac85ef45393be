package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// renewal is a claim of a Renew that holds.
type renewal struct {
	cl     *claim
	held   *try
	token  int64
	ttl    time.Duration
	at     int // in the caller's list
	untils []time.Time
	gone   int
	errs   []majority.NodeError
	done   bool
}

// renewed is what a node says of one claim.
type renewed struct {
	claim, node int
	st          driver.Status
	err         error
}

// Renew renews at all nodes what holds, one batch for each node; of what waits, no
// node knows. A claim is reported when a majority has said that it holds, or cannot any more.
func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	var ns []*renewal
	for i, r := range rs {
		n, st := s.plan(r)
		if n == nil {
			report(i, st, nil)
			continue
		}
		n.at = i
		ns = append(ns, n)
	}
	if len(ns) == 0 {
		return
	}
	in := make(chan renewed, len(ns)*len(s.nodes))
	for _, n := range s.nodes {
		if !s.Spawn(func() { s.renewAt(n, ns, in) }) {
			for i := range ns {
				in <- renewed{claim: i, node: n.index, err: driver.ErrClosed}
			}
		}
	}
	for left := len(ns); left > 0; {
		select {
		case got := <-in:
			n := ns[got.claim]
			if st, err, ok := s.verdict(n, &got); ok {
				left--
				report(n.at, st, err)
				if err == nil && st.State == driver.Gone { // its owner was told first
					s.lose(n)
				}
			}
		case <-ctx.Done():
			s.giveUp(ns, ctx.Err(), report)
			return
		case <-s.Context().Done():
			s.giveUp(ns, driver.ErrClosed, report)
			return
		}
	}
}

// plan is what is to be done for a claim: nothing, if it does not hold.
func (s *store) plan(r driver.Ref) (*renewal, driver.Status) {
	if r.Mark != "" { // there is no Adopt
		return nil, driver.Status{}
	}
	cl := s.claims.known(r)
	if cl == nil {
		return nil, driver.Status{}
	}
	now := time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.left:
		return nil, driver.Status{}
	case cl.held != nil:
		return &renewal{cl: cl, held: cl.held, token: cl.token, ttl: r.TTL}, driver.Status{}
	case !cl.waits:
		return nil, driver.Status{}
	}
	deadline := driver.Deadline(now, r.TTL)
	cl.promised, cl.until = later(cl.promised, deadline), later(cl.until, now.Add(r.TTL))
	st := driver.Status{State: driver.Waiting, Deadline: deadline}
	if cl.blocker != nil {
		b, since := *cl.blocker, now.Sub(cl.at)
		b.Held, b.Age, b.TTL = b.Held+since, b.Age+since, max(0, b.TTL-since)
		st.Blocker = &b
	}
	return nil, st
}

// renewAt renews a batch at one node. in has room for all replies.
func (s *store) renewAt(n *node, ns []*renewal, in chan<- renewed) {
	if err := n.begin(); err != nil {
		for i := range ns {
			in <- renewed{claim: i, node: n.index, err: err}
		}
		return
	}
	refs := make([]driver.Ref, len(ns))
	for i, r := range ns {
		refs[i] = driver.Ref{Name: r.cl.Name, ID: r.held.claim.ID, TTL: r.ttl}
	}
	ctx, cancel := retry.WithTimeout(s.Context(), n.limit)
	defer cancel()
	var mu sync.Mutex
	var last error
	n.Renew(ctx, refs, func(i int, st driver.Status, err error) {
		if err != nil {
			mu.Lock()
			last = err
			mu.Unlock()
		}
		in <- renewed{i, n.index, st, err}
	})
	n.end(last)
}

// verdict takes over one reply, and reports whether that decides.
func (s *store) verdict(n *renewal, got *renewed) (st driver.Status, err error, ok bool) {
	switch {
	case got.err != nil:
		n.errs = append(n.errs, *s.Failure(got.node, got.err))
	case got.st.State == driver.Holding:
		n.untils = append(n.untils, got.st.Deadline)
	default:
		n.gone++
	}
	switch {
	case n.done:
		return st, nil, false
	case len(n.untils) >= s.Most:
		st = driver.Status{State: driver.Holding, Token: n.token, Deadline: s.weakest(n.untils)}
		n.cl.extend(st.Deadline, n.ttl)
	case n.gone > len(s.nodes)-s.Most:
	case len(n.untils)+n.gone+len(n.errs) == len(s.nodes):
		err = s.Failed(n.errs...)
	default:
		return st, nil, false
	}
	n.done = true
	return st, err, true
}

func (cl *claim) extend(deadline time.Time, ttl time.Duration) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.promised, cl.until = later(cl.promised, deadline), later(cl.until, time.Now().Add(ttl))
}

// lose ends a claim that a majority has not any more. What is left of it is given back.
func (s *store) lose(n *renewal) {
	s.claims.forget(n.cl)
	n.cl.mu.Lock()
	n.cl.held = nil
	n.cl.mu.Unlock()
	s.Spawn(func() { s.end(n.held) })
}

func (s *store) giveUp(ns []*renewal, err error, report func(int, driver.Status, error)) {
	for _, n := range ns {
		if !n.done {
			report(n.at, driver.Status{}, err)
		}
	}
}

// renewOne renews one claim.
func (s *store) renewOne(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	var mu sync.Mutex
	s.Renew(ctx, []driver.Ref{r}, func(_ int, got driver.Status, e error) {
		mu.Lock()
		defer mu.Unlock()
		st, err = got, e
	})
	return st, err
}
