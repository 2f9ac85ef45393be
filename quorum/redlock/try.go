package redlock

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// try is one try of a claim to get a majority, under an id of its own. So a request of
// an earlier one that comes late, to take a key or to give it back, concerns no later one.
type try struct {
	claim driver.Claim // as the nodes have it

	mu    sync.Mutex
	over  bool    // what it has taken, or takes yet, is given back
	votes []*vote // by node; nil: no reply yet
	news  chan struct{}
}

// vote is what a node replied.
type vote struct {
	st  driver.Status
	err error
}

const (
	mark     = "_" // between the id of a claim and the rest of a try's
	markSize = 7   // of the rest, with the mark
)

func newTry(nodes int, c driver.Claim, ttl time.Duration) *try {
	t := &try{claim: c, votes: make([]*vote, nodes), news: make(chan struct{}, 1)}
	t.claim.ID = c.ID + mark + driver.NewID()[:markSize-len(mark)]
	t.claim.TTL, t.claim.Try = ttl, true
	return t
}

// owner is the claim's id, of the id of one of its tries; any other id is returned as it is.
func owner(id string) string {
	if at := len(id) - markSize; at > 0 && strings.HasPrefix(id[at:], mark) {
		return id[:at]
	}
	return id
}

// ask asks all nodes.
func (s *store) ask(t *try) {
	for i, n := range s.nodes {
		if !s.Spawn(func() { s.askOne(t, n) }) {
			t.take(i, driver.Status{}, driver.ErrClosed)
		}
	}
}

func (s *store) askOne(t *try, n *node) {
	st, err := request(s.Context(), n, func(ctx context.Context) (driver.Status, error) { return n.Enter(ctx, t.claim) })
	if t.take(n.index, st, err) {
		s.giveBack(t, n)
	}
}

// take notes the reply of a node. It reports whether what the node may have given is to
// be given back.
func (t *try) take(i int, st driver.Status, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.votes[i] = &vote{st, err}
	select {
	case t.news <- struct{}{}:
	default:
	}
	return t.over && t.votes[i].mayHold()
}

// mayHold reports whether the node may have given its lock.
func (v *vote) mayHold() bool {
	if v.err != nil {
		_, skipped := v.err.(*skippedError)
		return !skipped && v.err != driver.ErrClosed && !driver.IsPermanent(v.err)
	}
	return v.st.State == driver.Holding
}

// tally is what the nodes have replied.
type tally struct {
	yes, no, failed int
	token           int64     // if a majority said yes
	until           time.Time // and when the weakest of the best majority ends
}

// lost reports whether no majority can say yes any more, and that is not for faults alone: who
// is held up by another is not told of faults.
func (c *tally) lost(s *store) bool {
	return c.no+c.failed > len(s.nodes)-s.Most && c.yes+c.no >= s.Most
}

func (s *store) count(t *try) (c tally) {
	var untils []time.Time
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.votes {
		switch {
		case v == nil:
		case v.err != nil:
			c.failed++
		case v.st.State == driver.Holding:
			c.yes++
			c.token = max(c.token, v.st.Token)
			untils = append(untils, v.st.Deadline)
		default:
			c.no++
		}
	}
	c.until = s.weakest(untils)
	return c
}

// weakest is when the weakest of the best majority ends; zero if they are none.
func (s *store) weakest(untils []time.Time) time.Time {
	if len(untils) < s.Most {
		return time.Time{}
	}
	slices.SortFunc(untils, time.Time.Compare)
	return untils[len(untils)-s.Most]
}

// wait waits until a majority has said yes, or cannot any more, or the patience with those
// who might is over.
func (s *store) wait(ctx context.Context, t *try) (tally, error) {
	var late <-chan time.Time
	for {
		c := s.count(t)
		replied := c.yes + c.no + c.failed
		if c.yes >= s.Most || replied == len(s.nodes) || c.lost(s) {
			return c, nil
		}
		if replied >= s.Most && late == nil {
			timer := time.NewTimer(s.patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-t.news:
		case <-late:
			return s.count(t), nil
		case <-ctx.Done():
			return c, ctx.Err()
		case <-s.Context().Done():
			return c, driver.ErrClosed
		}
	}
}

// end gives back what the try has taken, and takes yet. It waits a moment for those that have said
// yes, so that the next try does not meet this one.
func (s *store) end(t *try) {
	var given []chan struct{}
	t.mu.Lock()
	t.over = true
	for i, v := range t.votes {
		if v == nil || !v.mayHold() {
			continue
		}
		done := make(chan struct{})
		if s.Spawn(func() { defer close(done); s.giveBack(t, s.nodes[i]) }) && v.err == nil {
			given = append(given, done)
		}
	}
	t.mu.Unlock()
	timer := time.NewTimer(s.patience)
	defer timer.Stop()
	for _, done := range given {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// Pauses between repeats of a Leave.
const (
	firstRepeat = 20 * time.Millisecond
	lastRepeat  = 5 * time.Second
)

// giveBack lets the node forget the try, until it has replied or the try has run out there. It
// sends the first request also while the store is being closed.
func (s *store) giveBack(t *try, n *node) {
	ref := driver.Ref{Name: t.claim.Name, ID: t.claim.ID}
	ends := time.Now().Add(t.claim.TTL)
	ctx := context.Background()
	for pause := firstRepeat; ; pause = min(2*pause, lastRepeat) {
		_, err := request(ctx, n, func(ctx context.Context) (driver.State, error) { return n.Leave(ctx, ref) })
		if err == nil || driver.IsPermanent(err) || time.Now().After(ends) {
			return
		}
		if ctx = s.Context(); !retry.Sleep(ctx, pause) {
			return
		}
	}
}

// blocker is who stands in the way: whom a majority names, else anybody.
func (s *store) blocker(t *try) (b *driver.Entry, majority bool) {
	count := make(map[string]int)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.votes {
		if v == nil || v.err != nil || v.st.Blocker == nil {
			continue
		}
		said := *v.st.Blocker
		if count[said.ID]++; b == nil || count[said.ID] >= s.Most {
			b = &said
		}
		if count[said.ID] >= s.Most {
			majority = true
			break
		}
	}
	if b != nil {
		b.Token = s.claims.token(b.ID)
		b.ID = owner(b.ID)
	}
	return b, majority
}

// failures says what went wrong with each node.
func (s *store) failures(t *try) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var failed []majority.NodeError
	for i, v := range t.votes {
		if v == nil {
			failed = append(failed, *s.Failure(i, errSilent))
		} else if v.err != nil {
			failed = append(failed, *s.Failure(i, v.err))
		}
	}
	return s.Failed(failed...)
}
