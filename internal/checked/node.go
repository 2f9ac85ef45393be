package checked

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// NodeStore is an AllStore around an engine that can be one of a quorum.
type NodeStore struct {
	*AllStore
	inner driver.Node
}

// NewNode is NewAll for such an engine.
func NewNode[S interface {
	driver.Node
	driver.AllEnterer
}](engine string, inner S) *NodeStore {
	return &NodeStore{NewAll(engine, inner), inner}
}

// Vote implements driver.Node.
func (s *NodeStore) Vote(ctx context.Context, v driver.Vote) (driver.Status, error) {
	return Do(ctx, s.Store, "vote on", v.Name, v.Check(), func() (driver.Status, error) { return s.inner.Vote(ctx, v) })
}

// Withdraw implements driver.Node.
func (s *NodeStore) Withdraw(ctx context.Context, name, id string, token int64) (driver.State, error) {
	return Do(ctx, s.Store, "withdraw from", name, driver.CheckWithdrawal(name, id, token), func() (driver.State, error) {
		return s.inner.Withdraw(ctx, name, id, token)
	})
}

// Memory implements driver.Node.
func (s *NodeStore) Memory(ctx context.Context) (driver.Memory, error) {
	return Do(ctx, s.Store, "read the memory", "", nil, func() (driver.Memory, error) { return s.inner.Memory(ctx) })
}

// Quarantine implements driver.Node.
func (s *NodeStore) Quarantine(ctx context.Context, d time.Duration) (driver.Memory, error) {
	return Do(ctx, s.Store, "begin a quarantine", "", nil, func() (driver.Memory, error) { return s.inner.Quarantine(ctx, d) })
}

// Remember implements driver.Node.
func (s *NodeStore) Remember(ctx context.Context, a driver.Admission) (driver.Memory, error) {
	return Do(ctx, s.Store, "end a quarantine", "", a.Check(), func() (driver.Memory, error) { return s.inner.Remember(ctx, a) })
}

var _ driver.Node = (*NodeStore)(nil)
