package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

const (
	// requestLimit bounds a request to one node. Callers do not wait that long: they go
	// on with the others.
	requestLimit = 2 * time.Second
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
	name  string
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

// request sends one request to the node, under a limit of its own.
func request[T any](s *store, n *node, f func(ctx context.Context) (T, error)) (v T, err error) {
	if !n.begin() {
		return v, errSkipped
	}
	ctx, cancel := retry.WithTimeout(s.ctx, requestLimit)
	defer cancel()
	begun := time.Now()
	v, err = f(ctx)
	n.end(begun, err)
	return v, err
}

// answer is the reply of one node.
type answer[T any] struct {
	node  int
	value T
	err   error
}

// each calls f for each node, in parallel, begun in that order. The replies come in the
// channel, also those that nobody waits for.
func each[T any](s *store, order []int, f func(n *node) (T, error)) <-chan answer[T] {
	out := make(chan answer[T], len(order))
	for _, i := range order {
		if !s.spawn(func() {
			v, err := f(s.nodes[i])
			out <- answer[T]{i, v, err}
		}) {
			out <- answer[T]{node: i, err: driver.ErrClosed}
		}
	}
	return out
}

// answers are those of the nodes, as far as they have come.
type answers[T any] []answer[T]

func (as answers[T]) good() (n int) {
	for _, a := range as {
		if a.err == nil {
			n++
		}
	}
	return n
}

// of returns the answer of a node, if it is there and no error.
func (as answers[T]) of(node int) (v T, ok bool) {
	for _, a := range as {
		if a.node == node && a.err == nil {
			return a.value, true
		}
	}
	return v, false
}

// collect receives answers until enough says so, or a majority has replied and the patience
// with the others is over, or all n have. Too few good ones are an error.
func collect[T any](ctx context.Context, s *store, out <-chan answer[T], n int, enough func(answers[T]) bool) (answers[T], error) {
	var got answers[T]
	var late <-chan time.Time
	for len(got) < n {
		if good := got.good(); good >= s.most {
			if enough(got) {
				return got, nil
			}
			if late == nil {
				t := time.NewTimer(s.slowest())
				defer t.Stop()
				late = t.C
			}
		}
		select {
		case a := <-out:
			got = append(got, a)
		case <-late:
			return got, nil
		case <-ctx.Done():
			return got, ctx.Err()
		case <-s.ctx.Done():
			return got, driver.ErrClosed
		}
	}
	if got.good() < s.most {
		return got, failures(s, got)
	}
	return got, nil
}

// slowest is the longest patience with any node.
func (s *store) slowest() (d time.Duration) {
	for _, n := range s.nodes {
		d = max(d, n.patience())
	}
	return d
}

// failures returns an Error of what did not go well.
func failures[T any](s *store, got answers[T]) error {
	e := &Error{Need: s.most, Of: len(s.nodes)}
	for _, a := range got {
		if a.err != nil {
			e.Nodes = append(e.Nodes, NodeError{s.nodes[a.node].name, a.err})
		}
	}
	return e
}
