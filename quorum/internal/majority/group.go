// Package majority asks several nodes at the same time, and goes on with what a majority of
// them has replied: what stores out of several nodes have in common.
package majority

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/pawl-go/pawl/driver"
)

// Group is the nodes of a store, and what goes on for it in the background.
type Group struct {
	Most int // how many nodes are a majority

	nodes  []driver.Store
	names  []string
	ctx    context.Context // ends when the store is closed
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

// New makes a group of 3, 5 or 7 nodes. names may be nil: "node 1" and so on.
func New(nodes []driver.Store, names []string) (*Group, error) {
	if n := len(nodes); n < 3 || n > 7 || n%2 == 0 {
		return nil, fmt.Errorf("%w number of nodes %d: allowed are 3, 5 and 7", driver.ErrInvalid, n)
	}
	if names != nil && len(names) != len(nodes) {
		return nil, fmt.Errorf("%w names: %d for %d nodes", driver.ErrInvalid, len(names), len(nodes))
	}
	g := &Group{Most: len(nodes)/2 + 1, nodes: nodes, names: names}
	for i, d := range nodes {
		for _, other := range nodes[:i] {
			if d == other {
				return nil, fmt.Errorf("%w nodes: %s is there twice", driver.ErrInvalid, g.Name(i))
			}
		}
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// Name is the name of a node, for errors.
func (g *Group) Name(node int) string {
	if g.names == nil {
		return fmt.Sprintf("node %d", node+1)
	}
	return g.names[node]
}

// Context ends when the store is closed.
func (g *Group) Context() context.Context { return g.ctx }

// Spawn runs f in the background, and reports whether it does: not when the store is
// closed. Close waits for it.
func (g *Group) Spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.work.Go(f)
	return true
}

// End implements checked.Ender: it ends the calls under way.
func (g *Group) End() { g.cancel() }

// Stop ends what goes on in the background, and waits for it.
func (g *Group) Stop() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.cancel()
	g.work.Wait()
}

// Close is Stop, and closes the nodes.
func (g *Group) Close() error {
	g.Stop()
	var errs []error
	for i, n := range g.nodes {
		if err := n.Close(); err != nil {
			errs = append(errs, g.Failure(i, err))
		}
	}
	return errors.Join(errs...)
}
