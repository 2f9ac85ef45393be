package redlock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
	"github.com/pawl-go/pawl/quorum"
)

const (
	// requestLimit bounds a request to one node. Callers do not wait that long: they go
	// on with the others.
	requestLimit = 2 * time.Second
	// A node that has not replied for silence, or the patience if that is longer, though it was
	// asked, gets so many requests at a time; one whose last reply was a fault gets one in failPause.
	silence   = 250 * time.Millisecond
	probes    = 4
	failPause = 50 * time.Millisecond
)

var errSilent = errors.New("no reply yet")

// skippedError: the node was not asked, for it did not reply, or with a fault.
type skippedError struct{ last error }

func (e *skippedError) Error() string { return cmp.Or(e.last, errSilent).Error() }
func (e *skippedError) Unwrap() error { return e.last }

// node is one of the stores.
type node struct {
	driver.Store
	index int
	name  string
	limit time.Duration // of a request
	quiet time.Duration // for which it may not reply

	mu      sync.Mutex
	pending int       // requests under way
	heard   time.Time // when it replied last, or was asked while nothing was under way
	asked   time.Time
	fault   error // its last reply; nil if that was none
}

// begin counts a request, unless the node is to be left alone for now.
func (n *node) begin() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if n.pending == 0 {
		n.heard = now
	}
	if n.pending >= probes && now.Sub(n.heard) > n.quiet || n.fault != nil && now.Sub(n.asked) < failPause {
		return &skippedError{n.fault}
	}
	n.asked = now
	n.pending++
	return nil
}

// end counts its reply: any, also a refusal, shows that the node is there.
func (n *node) end(err error) {
	if driver.IsPermanent(err) {
		err = nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending--
	n.heard, n.fault = time.Now(), err
}

// request sends one request to the node, under a limit of its own.
func request[T any](ctx context.Context, n *node, f func(ctx context.Context) (T, error)) (v T, err error) {
	if err := n.begin(); err != nil {
		return v, err
	}
	ctx, cancel := retry.WithTimeout(ctx, n.limit)
	defer cancel()
	v, err = f(ctx)
	n.end(err)
	return v, err
}

// answer is the reply of one node.
type answer[T any] struct {
	node  int
	value T
	err   error
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

// each calls f for all nodes, in parallel. It returns when enough says so, when a
// majority has replied and the patience with the others is over, or all have. Too few good
// replies are an error.
func each[T any](ctx context.Context, s *store, f func(n *node) (T, error), enough func(answers[T]) bool) (answers[T], error) {
	out := make(chan answer[T], len(s.nodes))
	for i, n := range s.nodes {
		if !s.spawn(func() {
			v, err := f(n)
			out <- answer[T]{i, v, err}
		}) {
			out <- answer[T]{node: i, err: driver.ErrClosed}
		}
	}
	var got answers[T]
	var late <-chan time.Time
	for len(got) < len(s.nodes) {
		if got.good() >= s.most {
			if enough(got) {
				return got, nil
			}
			if late == nil {
				t := time.NewTimer(s.patience)
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

// failures says what went wrong with each node.
func failures[T any](s *store, got answers[T]) error {
	e := &quorum.Error{Need: s.most, Of: len(s.nodes)}
	for _, a := range got {
		if a.err != nil {
			e.Nodes = append(e.Nodes, quorum.NodeError{Node: s.nodes[a.node].name, Err: a.err})
		}
	}
	return e
}
