package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/lacking"
	"github.com/pawl-go/pawl/internal/retry"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// claim is a claim as this store knows it. No other knows of one that waits.
type claim struct {
	driver.Claim
	turn chan struct{} // held by who tries

	mu       sync.Mutex
	held     *try // by which it holds; nil: it does not
	token    int64
	left     bool
	waits    bool
	promised time.Time // until when its owner may believe that it holds, should it be granted
	until    time.Time // when it runs out, unless it is renewed
	blocker  *driver.Entry
	at       time.Time // that it was so
}

const (
	// triesOfTry is how often a claim tries that does not wait, when nobody has a majority.
	triesOfTry = 4
	firstPause = time.Millisecond
)

// errShort: what the nodes gave was over, or shorter than was promised, when they had replied.
var errShort = errors.New("the nodes took longer than the TTL allows")

// maxID is how long a claim's id may be, so that those of its tries are ids.
const maxID = 64 - markSize

func fits(c *driver.Claim) error {
	switch {
	case c.Kind != driver.KindMutex:
		return lacking.Unsupported("a majority of keys has one holder, so there is no " + c.Kind.String())
	case c.Limit != 1:
		return lacking.Unsupported(fmt.Sprintf("a majority of keys has one holder, so its limit is 1, not %d", c.Limit))
	case len(c.ID) > maxID:
		return fmt.Errorf("%w claim id %q: here they have up to %d characters", driver.ErrInvalid, c.ID, maxID)
	}
	return nil
}

// begin gets the turn to try.
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

// state is what the claim is now: Gone also if it was not entered yet.
func (cl *claim) state() (is driver.State, token int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.left:
		return driver.Gone, 0
	case cl.held != nil:
		return driver.Holding, cl.token
	case cl.waits:
		return driver.Waiting, 0
	}
	return driver.Gone, 0
}

func (s *store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := fits(&c); err != nil {
		return driver.Status{}, err
	}
	for {
		cl := s.claims.know(c)
		if err := cl.begin(ctx, s); err != nil {
			return driver.Status{}, err
		}
		st, err := s.enter(ctx, cl, c)
		cl.end()
		if err != nil || st.State != driver.Gone {
			return st, err
		}
		if cl.wasLeft() {
			return driver.Status{}, nil
		}
		s.claims.forget(cl) // it held, and does not any more: it is entered anew
	}
}

func (cl *claim) wasLeft() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.left
}

// enter is Enter for who has the turn.
func (s *store) enter(ctx context.Context, cl *claim, c driver.Claim) (driver.Status, error) {
	was, _ := cl.state()
	if cl.wasLeft() {
		return driver.Status{}, nil
	}
	if was == driver.Holding {
		return s.renewOne(ctx, driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL})
	}
	for tries := 1; ; tries++ {
		sent := time.Now()
		st, majority, err := s.try(ctx, cl, c.TTL)
		switch {
		case err != nil:
			if was == driver.Gone {
				s.claims.forget(cl)
			}
			return driver.Status{}, err
		case st.State != driver.Refused:
			return st, nil
		case !c.Try || was == driver.Waiting:
			return cl.wait(sent, c.TTL, st.Blocker), nil
		case majority || tries == triesOfTry:
			s.claims.forget(cl)
			return st, nil
		}
		// Several have some of the nodes each.
		if err := s.sleep(ctx, firstPause+retry.Jitter(time.Duration(tries)*s.patience/4)); err != nil {
			s.claims.forget(cl)
			return driver.Status{}, err
		}
	}
}

// wait lets the claim wait, for a TTL from then at the least.
func (cl *claim) wait(sent time.Time, ttl time.Duration, blocker *driver.Entry) driver.Status {
	deadline := driver.Deadline(sent, ttl)
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.waits = true
	cl.promised, cl.until = later(cl.promised, deadline), later(cl.until, sent.Add(ttl))
	cl.blocker, cl.at = blocker, time.Now()
	return driver.Status{State: driver.Waiting, Deadline: deadline, Blocker: blocker}
}

// try tries once to get a majority: the status is Holding, Refused, or Gone if the claim
// has left meanwhile. majority: one stands in the way who has one. Who has the turn calls it.
func (s *store) try(ctx context.Context, cl *claim, ttl time.Duration) (st driver.Status, majority bool, err error) {
	t := newTry(len(s.nodes), cl.Claim, ttl)
	s.ask(t)
	c, err := s.wait(ctx, t)
	if err == nil && c.yes >= s.Most {
		if st, err = cl.hold(t, c); err == nil && st.State == driver.Holding {
			return st, false, nil
		}
	}
	s.end(t)
	switch {
	case err != nil || c.yes >= s.Most: // it has left
		return driver.Status{}, false, err
	case c.yes+c.no < s.Most:
		return driver.Status{}, false, s.failures(t)
	}
	st.State = driver.Refused
	st.Blocker, majority = s.blocker(t)
	return st, majority, nil
}

// hold lets the claim hold by a try that has a majority.
//
// Invariant: a claim holds for as long as its owner was promised, at a majority: until is
// counted from before the requests were sent.
func (cl *claim) hold(t *try, c tally) (driver.Status, error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.left {
		return driver.Status{}, nil
	}
	if !c.until.After(time.Now()) || c.until.Before(cl.promised) {
		return driver.Status{}, errShort
	}
	cl.held, cl.token, cl.waits, cl.blocker = t, c.token, false, nil
	cl.promised, cl.until = c.until, later(cl.until, c.until)
	return driver.Status{State: driver.Holding, Token: c.token, Deadline: c.until}, nil
}

// Wait tries again and again, after pauses that become longer.
func (s *store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	if r.Mark != "" {
		return driver.Status{}, nil
	}
	for begun := time.Now(); ; {
		cl := s.claims.known(r)
		if cl == nil {
			return driver.Status{}, nil
		}
		if is, token := cl.state(); is == driver.Gone {
			return driver.Status{}, nil
		} else if is == driver.Holding {
			return s.stands(ctx, cl, token)
		}
		d := min(max(time.Since(begun)/4, firstPause), s.pause)
		if err := s.sleep(ctx, d-retry.Jitter(d/2)); err != nil {
			return driver.Status{}, err
		}
		st, err := s.grab(ctx, cl)
		if err != nil || st.State != driver.Waiting {
			st.Deadline = time.Time{}
			return st, err
		}
	}
}

// grab tries once for a claim that waits.
func (s *store) grab(ctx context.Context, cl *claim) (driver.Status, error) {
	if err := cl.begin(ctx, s); err != nil {
		return driver.Status{}, err
	}
	defer cl.end()
	if is, token := cl.state(); is != driver.Waiting || cl.ranOut(time.Now()) {
		return driver.Status{State: is, Token: token}, nil
	}
	st, _, err := s.try(ctx, cl, cl.remaining())
	switch {
	case err == errShort: // it was renewed meanwhile: for longer than the nodes gave it
	case err != nil || st.State != driver.Refused:
		return st, err
	default:
		cl.mu.Lock()
		cl.blocker, cl.at = st.Blocker, time.Now()
		cl.mu.Unlock()
	}
	return driver.Status{State: driver.Waiting}, nil
}

// remaining is the TTL that makes a claim end at the nodes when it was to end: its owner believes in what
// it was promised, and a grant renews nothing.
func (cl *claim) remaining() time.Duration {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	left := time.Until(cl.promised)
	// As driver.Deadline counts.
	return min(max((left+2*time.Millisecond)*100/99+10*time.Microsecond, driver.MinTTL), driver.MaxTTL)
}

// sleep waits for d.
func (s *store) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Context().Done():
		return driver.ErrClosed
	}
}

// Leave tells all nodes, and returns when a majority has replied. The others are told in
// the background, until the claim has run out there.
func (s *store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	if r.Mark != "" {
		return driver.Gone, nil
	}
	cl := s.claims.known(r)
	if cl == nil {
		return driver.Gone, nil
	}
	cl.mu.Lock()
	held, waited, promised := cl.held, cl.waits, cl.promised
	cl.left, cl.waits = true, false
	cl.until = later(cl.until, time.Now().Add(r.Linger))
	cl.mu.Unlock()
	if held == nil {
		s.claims.forget(cl)
		if waited {
			return driver.Waiting, nil
		}
		return driver.Gone, nil
	}
	got, err := each(ctx, s, func(n *node) (driver.State, error) { return s.leave(held, n, r.Linger) },
		func(got majority.Answers[driver.State]) bool { return majority.Holding(got) >= s.Most })
	if err != nil {
		return driver.Gone, err // who repeats it finds the claim as it is
	}
	if r.Linger == 0 {
		s.claims.forget(cl)
	}
	if s.kept(held, got) >= s.Most && time.Now().Before(promised) || majority.Holding(got) >= s.Most {
		return driver.Holding, nil
	}
	return driver.Gone, nil
}

// kept counts the nodes that have the try until now: also those that gave their lock and do not reply
// now, for they keep it until it runs out.
func (s *store) kept(t *try, got majority.Answers[driver.State]) int {
	n := majority.Holding(got)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, v := range t.votes {
		replied := slices.ContainsFunc(got, func(a majority.Answer[driver.State]) bool { return a.Node == i && a.Err == nil })
		if !replied && v != nil && v.err == nil && v.st.State == driver.Holding {
			n++
		}
	}
	return n
}

// leave tells one node, and again in the background if that fails and the node may have
// the claim.
func (s *store) leave(t *try, n *node, linger time.Duration) (driver.State, error) {
	t.mu.Lock()
	t.over = true // what comes late is given back
	v := t.votes[n.index]
	t.mu.Unlock()
	ref := driver.Ref{Name: t.claim.Name, ID: t.claim.ID, Linger: linger}
	st, err := request(s.Context(), n, func(ctx context.Context) (driver.State, error) { return n.Leave(ctx, ref) })
	if err != nil && linger == 0 && v != nil && v.mayHold() {
		s.Spawn(func() { s.giveBack(t, n) })
	}
	return st, err
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
