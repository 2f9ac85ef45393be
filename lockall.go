package pawl

import (
	"context"
	"fmt"
	"slices"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
)

// LockAll takes the mutexes of several names, all of them or none, and waits
// until it can or ctx ends. They are the locks of [Client.Mutex]. From 1 to 1,000
// names are allowed, in any order; one that is there twice counts once.
//
// They are held as one lease: if one is lost, all are. If the process dies, all of
// them are free a TTL later. [Options].MinHold and MaxHold count from when all were
// granted.
//
// Calls with overlapping names neither block each other for ever nor starve one
// another. While it waits for one name a call may hold those of its names that
// come before that in the order of bytes. So two who hold a lock each and then
// call LockAll for the other's wait for each other until a context ends: take all
// names in one call. With a context of a lease of one of the names it is
// ErrDeadlock, whether or not Options.Reentrant is set.
//
// Where the engine can (memory, a folder, Redis), names that are free are taken in
// one step; else one after the other.
//
// Errors are those of [Mutex.Lock]; a *[WaitError] and a *[MismatchError] say
// which name it was. ErrInvalid: no name, too many, or one that is not allowed.
// Whatever the error, nothing stays behind.
func (c *Client) LockAll(ctx context.Context, names ...string) (*Lease, error) {
	keys, err := c.keys(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if err := c.core.Holds(ctx, k); err != nil {
			return nil, fmt.Errorf("lock %q: %w", k.Name, err)
		}
	}
	return c.acquireAll(ctx, keys, false)
}

// TryLockAll takes the mutexes of several names, see [Client.LockAll], if all of
// them are free, without waiting for others. If not, the error is a
// *[HeldError], which matches ErrHeld and says who holds one of them. If the engine
// cannot be reached, it returns another error within ten seconds, or ten for each
// name where they are taken one after the other. ErrLost: one was lost before the
// last was granted, and none is held.
func (c *Client) TryLockAll(ctx context.Context, names ...string) (*Lease, error) {
	keys, err := c.keys(ctx, names)
	if err != nil {
		return nil, err
	}
	return c.acquireAll(ctx, keys, true)
}

// maxNames bounds the names of a lease.
const maxNames = 1000

// keys checks everything that can be checked before any I/O.
func (c *Client) keys(ctx context.Context, names []string) ([]engine.Key, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) < 1 || len(names) > maxNames {
		return nil, fmt.Errorf("lock all: %w number of names, %d: allowed are 1 to %d", ErrInvalid, len(names), maxNames)
	}
	keys := make([]engine.Key, len(names))
	for i, name := range names {
		var err error
		if keys[i], err = c.key(ctx, driver.KindMutex, name, 1, 1); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func (c *Client) acquireAll(ctx context.Context, keys []engine.Key, try bool) (*Lease, error) {
	var l *Lease
	err := c.core.AcquireAll(ctx, keys, c.terms, try, func() *engine.Grant {
		l = newLease()
		return &l.grant
	})
	if err != nil {
		return nil, public(err)
	}
	return l, nil
}
