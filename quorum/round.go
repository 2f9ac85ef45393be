package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// maxRaises is how often a round raises nodes to the token: once, if they reply.
const maxRaises = 3

// round is votes for a claim that are waited for. Who runs one has the claim's turn.
type round struct {
	s      *store
	cl     *claim
	p      int // the primary
	floor  int64
	clock  int64
	ttl    time.Duration // of the votes; 0: the claim's
	raises int
	in     chan vote
	ctx    context.Context // ends with the round
	cancel context.CancelFunc
	got    []*vote // by node: the reply to the latest vote
	out    []bool  // by node: a vote is under way
	tired  bool    // those who have not replied are not waited for
}

// vote is the reply of a node.
type vote struct {
	node int
	st   driver.Status
	err  error
}

// round begins one. Until it ends with the claim stepping back, votes of all nodes are
// wanted.
func (s *store) round(ctx context.Context, cl *claim, ttl time.Duration) (*round, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.primary < 0 {
		return nil, errSilent // it was withdrawn meanwhile
	}
	cl.wanted = true
	r := &round{s: s, cl: cl, p: cl.primary, ttl: ttl, in: make(chan vote, len(s.nodes)), got: make([]*vote, len(s.nodes)), out: make([]bool, len(s.nodes))}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.floor, r.clock = s.proposer.next()
	return r, nil
}

// ask sends a vote to a node.
func (r *round) ask(i int, try bool, token int64) {
	r.out[i], r.got[i] = true, nil
	if !r.s.Spawn(func() { r.send(i, try, token) }) {
		r.got[i] = &vote{i, driver.Status{}, driver.ErrClosed}
		r.out[i] = false
	}
}

func (r *round) send(i int, try bool, token int64) {
	st, err := r.s.vote(r.cl, i, ballot{Vote: driver.Vote{Floor: r.floor, Token: token}, ttl: r.ttl, clock: r.clock, try: try})
	r.tell(vote{i, st, err})
}

func (r *round) tell(v vote) {
	select {
	case r.in <- v:
	case <-r.ctx.Done():
	}
}

func (r *round) take(v vote) { r.got[v.node], r.out[v.node] = &v, false }

// settle waits a moment for all replies that are under way.
func (r *round) settle(ctx context.Context) {
	t := time.NewTimer(r.patience())
	defer t.Stop()
	for slices.Contains(r.out, true) {
		select {
		case v := <-r.in:
			r.take(v)
		case <-t.C:
			return
		case <-ctx.Done():
			return
		case <-r.s.Context().Done():
			return
		}
	}
}

// ballot is a vote that is asked for.
type ballot struct {
	driver.Vote               // but for the claim
	ttl         time.Duration // 0: the claim's
	clock       int64         // the time that Floor was made of
	try         bool
	regains     bool // see regain
}

// vote sends one vote, and takes its reply over, whether or not somebody still waits
// for it.
func (s *store) vote(cl *claim, i int, b ballot) (driver.Status, error) {
	n, v := s.nodes[i], b.Vote
	cl.mu.Lock()
	seat := &cl.seats[i]
	v.Claim = cl.Claim
	v.Try = b.try
	if b.ttl > 0 {
		v.TTL = b.ttl
	}
	if seat.void != 0 { // it may still hold by the vote that is being withdrawn
		v.Token = max(v.Token, v.Floor, seat.void+1)
	}
	if cl.left {
		cl.mu.Unlock()
		return driver.Status{}, errSkipped
	}
	seat.pending++
	cl.under++
	cl.mu.Unlock()
	defer s.over(cl)

	sent := time.Now()
	st, epoch, err := s.cast(cl, n, v)
	if err == nil && st.State == driver.Holding && st.Token > v.Floor && time.Since(sent) < n.patience() {
		s.proposer.learn(st.Token, b.clock)
	}

	cl.mu.Lock()
	defer cl.mu.Unlock()
	seat.votedOnce()
	if err != nil {
		seat.err = err
		if _, lost := errors.AsType[*driver.EpochError](err); lost {
			seat.state = driver.Gone
		} else if epoch != "" && !driver.IsPermanent(err) {
			seat.unsure = true
		}
	} else {
		if st.State == driver.Holding {
			seat.epoch = epoch
		}
		seat.voted(st, sent)
	}
	now := time.Now()
	switch {
	case cl.left && seat.leave == notSent: // it is sent once this is over
	case cl.left && seat.sent && seat.leave != replied:
		seat.leave = overtaken
	case cl.left && seat.sent:
		s.leaveLater(cl, i, cl.ref()) // the Leave may have been there before the vote
	case seat.there() && !cl.wants(i), b.regains && seat.state == driver.Holding && (!seat.counts(now) || cl.votes(now) <= s.Most):
		s.withdraw(cl, i, nil)
	}
	return st, err
}

// cast sends the vote, with the epoch of the node's memory. If that is another
// than was thought, it is asked for. epoch is "" if the vote has not got there.
func (s *store) cast(cl *claim, n *node, v driver.Vote) (st driver.Status, epoch string, err error) {
	for range 2 {
		if v.Epoch, err = s.epoch(n); err != nil {
			return st, epoch, err
		}
		st, err = request(s, n, func(ctx context.Context) (driver.Status, error) {
			epoch = v.Epoch
			cl.mu.Lock()
			cl.seats[n.index].sent = true
			cl.mu.Unlock()
			return n.Vote(ctx, v)
		})
		if _, lost := errors.AsType[*driver.EpochError](err); !lost {
			return st, epoch, err
		}
		n.lost(v.Epoch)
	}
	return st, epoch, err
}

// verdict is what a round has come to.
type verdict int

const (
	open        verdict = iota
	won                 // a majority holds, and the token is known
	raise               // a majority holds; some nodes must be raised to the token
	lost                // the primary says no
	split               // the primary has granted, others not
	headless            // the primary does not reply, and others have not granted
	unreachable         // too few nodes reply
)

// wait waits until there is a verdict.
func (r *round) wait(ctx context.Context) (verdict, error) {
	var late <-chan time.Time
	for {
		v, enough := r.verdict()
		if v != open {
			return v, nil
		}
		if enough && late == nil {
			t := time.NewTimer(r.patience())
			defer t.Stop()
			late = t.C
		}
		select {
		case got := <-r.in:
			r.take(got)
		case <-late:
			late = nil
			r.tired = true
			for i := range r.out {
				if r.out[i] {
					r.s.nodes[i].late()
				}
			}
		case <-ctx.Done():
			return open, ctx.Err()
		case <-r.s.Context().Done():
			return open, driver.ErrClosed
		}
	}
}

// patience is how long those who have not replied are waited for, once the others are enough.
func (r *round) patience() (d time.Duration) {
	for i, out := range r.out {
		if out {
			d = max(d, r.s.nodes[i].patience())
		}
	}
	return d
}

// verdict also reports whether the replies that are there would do.
func (r *round) verdict() (v verdict, enough bool) {
	cl, most := r.cl, r.s.Most
	cl.mu.Lock()
	defer cl.mu.Unlock()
	first := r.got[r.p]
	if first != nil && (first.err == nil && first.st.State != driver.Holding || refusal(first.err)) {
		return lost, true
	}
	replied, outstanding := 0, 0
	earlier := 0 // of those that are outstanding, so many count by an earlier vote, which may end sooner
	now := time.Now()
	for i, got := range r.got {
		switch {
		case got != nil && got.err == nil:
			replied++
		case r.out[i] && !r.tired:
			outstanding++
			if cl.seats[i].counts(now) {
				earlier++
			}
		}
	}
	_, enough, settled := cl.tally(now, most)
	switch away := first == nil && r.tired || first != nil && first.err != nil; {
	case enough && cl.votes(now)-earlier >= most && (first != nil || away):
		if settled {
			return won, true
		}
		if outstanding == 0 && r.raises < maxRaises {
			return raise, true
		} else if outstanding == 0 {
			return unreachable, false
		}
	case enough:
	case cl.votes(now)+outstanding >= most, first == nil && !away: // there may be more
	case replied+outstanding < most:
		return unreachable, false
	case replied < most: // of those that are outstanding some may say who stands in the way
	case away:
		return headless, true
	default:
		return split, true
	}
	return open, enough || replied >= most
}

// votes counts those that count.
func (cl *claim) votes(now time.Time) (n int) {
	for i := range cl.seats {
		if cl.seats[i].counts(now) {
			n++
		}
	}
	return n
}

// refusal reports whether the error concerns the claim, not the node.
func refusal(err error) bool {
	return errors.Is(err, driver.ErrMismatch) || errors.Is(err, driver.ErrFull) || errors.Is(err, driver.ErrInvalid)
}

// raise sends votes that raise those nodes to the token that are below it.
func (r *round) raise() {
	now := time.Now()
	r.cl.mu.Lock()
	h, _, _ := r.cl.tally(now, r.s.Most)
	low := r.cl.low(now, h.token)
	r.cl.mu.Unlock()
	r.tired = false
	r.raises++
	for _, i := range low {
		r.ask(i, true, h.token)
	}
}

// hold is the end of a round that was won.
func (r *round) hold() (driver.Status, bool) {
	cl := r.cl
	cl.mu.Lock()
	defer cl.mu.Unlock()
	now, p := time.Now(), r.p
	h, enough, settled := cl.tally(now, r.s.Most)
	if !enough || !settled || cl.left || cl.gone || r.ttl > 0 && h.until.Before(cl.promised) {
		return driver.Status{}, false // the time of one is over, or shorter than its owner thinks
	}
	cl.token = h.token
	st := driver.Status{State: driver.Holding, Token: h.token, Deadline: h.until}
	for k := len(r.got) - 1; k >= 0; k-- {
		i := (cl.first + k) % len(r.got)
		if got := r.got[i]; got != nil && got.err == nil {
			st.Behind = max(st.Behind, got.st.Behind)
			if cl.seats[i].counts(now) {
				p = i
			}
		}
	}
	cl.move(p) // most wait at the first
	return st, true
}

// failures says what went wrong with each node.
func (r *round) failures() error {
	var failed []NodeError
	for i := range r.got {
		switch got := r.got[i]; {
		case got == nil:
			failed = append(failed, *r.s.Failure(i, errSilent))
		case got.err != nil:
			failed = append(failed, *r.s.Failure(i, got.err))
		}
	}
	return r.s.Failed(failed...)
}
