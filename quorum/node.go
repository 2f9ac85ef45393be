package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

const (
	// requestLimit bounds a request to one node. Callers do not wait that long: they go
	// on with the others.
	requestLimit = 2 * time.Second
	limitStep    = requestLimit / 4
	// longestPatience bounds how long a reply is waited for that may be done without,
	// unless Options.Patience is longer.
	longestPatience = 250 * time.Millisecond
	// probes is how many requests at a time go to a node that does not reply, and
	// probePause the time between two.
	probes     = 4
	probePause = 20 * time.Millisecond
)

// node is one of the stores, and how it does.
type node struct {
	driver.Node
	index int
	least time.Duration // Options.Patience

	mu        sync.Mutex
	epoch     string // of its memory, as far as is known; "": not known
	memory    error  // why it has none
	admitting bool
	slow      bool // it was asked, and did not reply in time
	failing   bool // its last reply was a fault
	tried     time.Time
	pending   int           // requests under way
	heard     time.Time     // when it replied last, or was asked while nothing was under way
	usual     time.Duration // that its replies take
	alarm     chan struct{} // closed when it becomes slow
	watchers  int           // that wait for news from it
	watched   bool          // it is asked for signs of life
}

// begin counts a request, unless the node is to be left alone for now.
func (n *node) begin() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.pending == 0 {
		n.heard = now
	}
	silent := n.pending > 0 && now.Sub(n.heard) > n.longest()
	if silent {
		n.lag()
	}
	if silent && n.pending >= probes || n.failing && now.Sub(n.tried) < probePause {
		return false
	}
	n.tried = now
	n.pending++
	return true
}

// end counts its reply: any, also a refusal, shows that the node is there.
func (n *node) end(begun time.Time, err error) {
	took := time.Since(begun)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending--
	n.heard = time.Now()
	switch _, epoch := errors.AsType[*driver.EpochError](err); {
	case err == nil, epoch, driver.IsPermanent(err):
		n.slow, n.failing = false, false
		n.usual += (min(took, longestPatience) - n.usual) / 8
	default:
		n.failing = true
		n.lag()
	}
}

// late notes that the node did not reply in time.
func (n *node) late() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lag()
}

func (n *node) lag() {
	if !n.slow {
		n.slow = true
		close(n.alarm)
		n.alarm = make(chan struct{})
	}
}

func (n *node) isSlow() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.slow
}

// patience is how long a reply of the node is waited for that may be done without.
func (n *node) patience() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return min(max(8*n.usual, n.least), n.longest())
}

func (n *node) longest() time.Duration { return max(n.least, longestPatience) }

// request sends one request to the node, which limits bounds.
func request[T any](s *store, n *node, f func(ctx context.Context) (T, error)) (v T, err error) {
	if !n.begin() {
		return v, errSkipped
	}
	begun := time.Now()
	v, err = f(s.limits.context(s.Context(), begun))
	n.end(begun, err)
	return v, err
}

// limits makes the contexts of requests. Those that begin within limitStep share one: a
// context with a timer for each would cost as much as the rest of a request.
type limits struct {
	mu    sync.Mutex
	ctx   context.Context
	until time.Time // requests that begin before that share it
}

// context returns one that ends with parent, and between requestLimit and limitStep more from now.
func (l *limits) context(parent context.Context, now time.Time) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.Before(l.until) {
		ctx, cancel := context.WithTimeout(parent, requestLimit+limitStep)
		context.AfterFunc(ctx, cancel)
		l.ctx, l.until = ctx, now.Add(limitStep)
	}
	return l.ctx
}

type (
	answer[T any]  = majority.Answer[T]
	answers[T any] = majority.Answers[T]
)

// each calls f for each node, in parallel, begun in that order.
func each[T any](s *store, order []int, f func(n *node) (T, error)) <-chan answer[T] {
	return majority.Ask(s.Group, order, func(i int) (T, error) { return f(s.nodes[i]) })
}

// slowest is the longest patience with any node.
func (s *store) slowest() (d time.Duration) {
	for _, n := range s.nodes {
		d = max(d, n.patience())
	}
	return d
}
