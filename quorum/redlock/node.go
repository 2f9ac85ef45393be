package redlock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
	"github.com/pawl-go/pawl/quorum/internal/majority"
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

// each calls f for all nodes, in parallel, and collects what they reply until enough says so.
func each[T any](ctx context.Context, s *store, f func(n *node) (T, error), enough func(majority.Answers[T]) bool) (majority.Answers[T], error) {
	all := make([]int, len(s.nodes))
	for i := range all {
		all[i] = i
	}
	out := majority.Ask(s.Group, all, func(i int) (T, error) { return f(s.nodes[i]) })
	return majority.Collect(ctx, s.Group, out, func() time.Duration { return s.patience }, enough)
}
