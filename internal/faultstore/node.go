package faultstore

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Node is a Store in front of a node of a quorum.
type Node struct {
	Store
	Node driver.Node
}

// NewNode puts a network in front of a node.
func NewNode(n driver.Node) *Node { return &Node{Store: Store{Store: n}, Node: n} }

func (f *Node) Vote(ctx context.Context, v driver.Vote) (driver.Status, error) {
	sent := time.Now()
	f.Set(func() { f.Entered = v.ID })
	return do(ctx, &f.Store, "vote", func(ctx context.Context) (driver.Status, error) {
		st, err := f.Node.Vote(ctx, v)
		if !st.Deadline.IsZero() {
			st.Deadline = driver.Deadline(sent, v.TTL)
		}
		return st, err
	})
}

func (f *Node) Withdraw(ctx context.Context, name, id string, token int64) (driver.State, error) {
	return do(ctx, &f.Store, "withdraw", func(ctx context.Context) (driver.State, error) { return f.Node.Withdraw(ctx, name, id, token) })
}

func (f *Node) Memory(ctx context.Context) (driver.Memory, error) {
	return do(ctx, &f.Store, "memory", f.Node.Memory)
}

func (f *Node) Quarantine(ctx context.Context, d time.Duration) (driver.Memory, error) {
	return do(ctx, &f.Store, "quarantine", func(ctx context.Context) (driver.Memory, error) { return f.Node.Quarantine(ctx, d) })
}

func (f *Node) Remember(ctx context.Context, a driver.Admission) (driver.Memory, error) {
	return do(ctx, &f.Store, "remember", func(ctx context.Context) (driver.Memory, error) { return f.Node.Remember(ctx, a) })
}
