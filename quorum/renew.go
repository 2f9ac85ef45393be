package quorum

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/lacking"
)

// renewal is one claim of a Renew.
type renewal struct {
	ref  driver.Ref
	cl   *claim
	held bool // by what was known
	p    int  // its primary
	to   int  // so many nodes were asked

	untils  []time.Time   // of those that say it holds
	yes, no int           // nodes that say it holds, or not
	first   driver.Status // of the primary
	behind  int           // the most that wait behind it at a node
	heard   bool          // the primary has replied, or failed
	silent  bool          // it has failed
	errs    []NodeError
	done    bool
}

// renewed is what a node says of one claim.
type renewed struct {
	ref, node int
	st        driver.Status
	err       error
	counts    bool
}

// Renew renews at all nodes what holds, and at its primary what waits, and at those that
// granted it before, one batch for each node. A claim is reported when a majority has replied. What holds at fewer than a
// majority is Gone; it is not entered again where it is not known any more.
func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	var aside sync.WaitGroup
	defer aside.Wait()
	batches := make([][]int, len(s.nodes))
	ns := make([]renewal, len(rs))
	total := 0
	for i, r := range rs {
		n := &ns[i]
		n.ref = r
		switch {
		case r.Mark != "": // there is no Adopt
			n.done = true
			report(i, driver.Status{}, nil)
		case r.TTL > s.maxTTL:
			n.done = true
			report(i, driver.Status{}, &ttlError{r.TTL, s.maxTTL})
		case r.HandOver%2 == 1: // to one who could not adopt it
			n.done = true
			report(i, driver.Status{}, lacking.Unsupported(noChange))
		case !s.plan(n):
			n.done = true
			aside.Go(func() {
				st, err := s.stranger(ctx, r)
				report(i, st, err)
			})
		default:
			for k := range s.nodes {
				if n.asks(k) {
					batches[k] = append(batches[k], i)
					n.to++
					total++
				}
			}
		}
	}
	if total == 0 {
		return
	}
	in := make(chan renewed, total)
	for k, batch := range batches {
		if len(batch) > 0 && !s.Spawn(func() { s.renewAt(s.nodes[k], ns, batch, in) }) {
			for _, i := range batch {
				in <- renewed{ref: i, node: k, err: driver.ErrClosed}
			}
		}
	}
	defer s.regain(ns)
	s.count(ctx, ns, in, func(i int, st driver.Status, err error) {
		n := &ns[i]
		switch {
		case err != nil && n.silent && !n.held && ctx.Err() == nil && s.Context().Err() == nil: // its primary does not reply
			aside.Go(func() {
				st, e := s.elsewhere(ctx, n.cl, n.p)
				n.cl.promise(st)
				report(i, st, e)
			})
		case err == nil && !n.held && st.State == driver.Holding:
			aside.Go(func() {
				st, e := s.finish(ctx, n.cl, true)
				n.cl.promise(st)
				report(i, st, e)
			})
		case err == nil && n.held && st.State == driver.Gone:
			// Its owner is told first: what is withdrawn may be another's at once.
			n.cl.finishOff()
			report(i, st, nil)
			s.abandon(n.cl, -1)
		default:
			if err == nil && st.State == driver.Gone {
				st = s.ended(n)
			}
			n.cl.promise(st)
			report(i, st, err)
		}
	})
}

// plan finds out what is known of a claim that is to be renewed.
func (s *store) plan(n *renewal) bool {
	if n.cl = s.known(n.ref.ID); n.cl == nil || n.cl.Name != n.ref.Name {
		return false
	}
	n.cl.mu.Lock()
	defer n.cl.mu.Unlock()
	n.held, n.p = n.cl.token != 0, n.cl.primary
	if n.cl.primary < 0 || n.cl.left {
		return false
	}
	n.cl.until = later(n.cl.until, time.Now().Add(max(n.cl.TTL, n.ref.TTL))) // it is not swept
	return true
}

// asks reports whether the node is asked to renew the claim.
func (n *renewal) asks(k int) bool {
	n.cl.mu.Lock()
	defer n.cl.mu.Unlock()
	return n.held || k == n.p || n.cl.renews(k)
}

// renewAt renews a batch at one node. in has room for all replies.
func (s *store) renewAt(n *node, ns []renewal, batch []int, in chan<- renewed) {
	if !n.begin() {
		for _, i := range batch {
			in <- renewed{ref: i, node: n.index, err: errSkipped}
		}
		return
	}
	refs := make([]driver.Ref, len(batch))
	for k, i := range batch {
		refs[k] = ns[i].ref
	}
	ctx, cancel := context.WithTimeout(s.Context(), requestLimit)
	defer cancel()
	sent := time.Now()
	var mu sync.Mutex
	var last error
	n.Renew(ctx, refs, func(k int, st driver.Status, err error) {
		if err != nil {
			mu.Lock()
			last = err
			mu.Unlock()
		}
		i := batch[k]
		in <- renewed{i, n.index, st, err, err == nil && ns[i].cl.renewed(n.index, st, sent)}
	})
	n.end(sent, last)
}

// renewed takes over what a node says of the claim. It reports whether it counts.
//
// Invariant: what a node has granted since another held the lock does not count, as for a
// vote that came late: its token is greater than the other's, and so than this claim's.
// What is not known here, but no greater, is a grant from before.
func (cl *claim) renewed(i int, st driver.Status, sent time.Time) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	seat := &cl.seats[i]
	if sent.Before(seat.asked) {
		return seat.state == driver.Holding
	}
	seat.said = st
	known := seat.state == driver.Holding && st.Token == seat.token
	before := cl.token != 0 && st.Token <= cl.token && st.Token > seat.void
	if st.State == driver.Holding && (known || before) {
		seat.state, seat.token, seat.until = driver.Holding, st.Token, later(seat.until, st.Deadline)
		return true
	}
	if seat.pending == 0 {
		seat.state = driver.Gone
		if st.State == driver.Waiting {
			seat.state = driver.Waiting
		}
		seat.unsure = st.State == driver.Holding
	}
	return false
}

// count receives the replies until each claim is decided.
func (s *store) count(ctx context.Context, ns []renewal, in <-chan renewed, decided func(int, driver.Status, error)) {
	left := 0
	for i := range ns {
		if !ns[i].done {
			left++
		}
	}
	tell := func(i int, st driver.Status, err error) {
		if ns[i].done = true; left > 0 {
			left--
		}
		decided(i, st, err)
	}
	var late <-chan time.Time
	tired := false
	for left > 0 {
		select {
		case got := <-in:
			n := &ns[got.ref]
			if n.done {
				continue
			}
			n.take(s, &got)
			if st, err, ok := n.verdict(s, tired); ok {
				tell(got.ref, st, err)
			} else if late == nil && n.yes+n.no >= s.Most {
				t := time.NewTimer(s.slowest())
				defer t.Stop()
				late = t.C
			}
		case <-late:
			tired = true
			for i := range ns {
				if n := &ns[i]; !n.done {
					if st, err, ok := n.verdict(s, true); ok {
						s.nodes[n.p].late()
						tell(i, st, err)
					}
				}
			}
		case <-ctx.Done():
			for i := range ns {
				if !ns[i].done {
					tell(i, driver.Status{}, ctx.Err())
				}
			}
		case <-s.Context().Done():
			for i := range ns {
				if !ns[i].done {
					tell(i, driver.Status{}, driver.ErrClosed)
				}
			}
		}
	}
}

// take takes over one reply.
func (n *renewal) take(s *store, got *renewed) {
	n.heard = n.heard || got.node == n.p
	switch {
	case got.err != nil:
		n.errs = append(n.errs, *s.Failure(got.node, got.err))
		n.silent = n.silent || got.node == n.p
		return
	case got.counts:
		n.yes++
		n.behind = max(n.behind, got.st.Behind)
		n.untils = append(n.untils, got.st.Deadline)
	default:
		n.no++
	}
	if got.node == n.p {
		n.first = got.st
	}
}

// verdict is what the replies make; tired: the primary is not waited for.
func (n *renewal) verdict(s *store, tired bool) (st driver.Status, err error, ok bool) {
	failed := s.Failed(n.errs...)
	switch {
	case !n.held && n.silent:
		return st, failed, true
	case !n.held && n.heard:
		return n.first, nil, true
	case n.held && n.yes >= s.Most && (n.heard || tired):
		st, ok = s.holds(n.cl)
		slices.SortFunc(n.untils, time.Time.Compare)
		st.Deadline, st.Behind = n.untils[len(n.untils)-s.Most], n.behind
	case n.held && n.no >= s.Most && (n.heard || tired):
		return st, nil, true
	}
	if !ok && n.to == n.yes+n.no+len(n.errs) {
		return driver.Status{}, failed, true
	}
	return st, nil, ok
}

// finishOff lets a claim not hold any more, whatever comes in for it.
func (cl *claim) finishOff() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.gone = true
}

// ended is the status of a claim that waited and is Gone by what the nodes said, unless it has got a
// majority meanwhile.
func (s *store) ended(n *renewal) driver.Status {
	if s.abandon(n.cl, n.p) {
		return driver.Status{}
	}
	if st, ok := s.holds(n.cl); ok {
		return st
	}
	return s.between(n.cl)
}

// stranger renews a claim of which this store knows nothing.
func (s *store) stranger(ctx context.Context, r driver.Ref) (driver.Status, error) {
	cl, err := s.lookup(ctx, r)
	if cl == nil || err != nil {
		return driver.Status{}, err
	}
	var st driver.Status
	if s.plan(&renewal{ref: r}) { // else it has left meanwhile
		s.Renew(ctx, []driver.Ref{r}, func(_ int, got driver.Status, e error) { st, err = got, e })
	}
	return st, err
}
