package pawl

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/internal/kind"
)

// RWMutex is a lock that any number of readers, or one writer, hold at a time.
// Like a Mutex it is a name with options.
//
// It is fair, over all processes: readers and writers are served in the order
// in which they came, so a writer that waits stops later readers, and readers
// that stand in the queue together hold together. With [Options].Overtake
// readers pass writers that wait, which may never get their turn then.
//
// Readers of one process share one claim in the engine, those with the same TTL,
// label and Overtake, until somebody waits there: so reading costs no request while
// others of the process read. Each has a lease of its own: MaxHold and MinHold
// are the lease's, and one that ends does not touch the others. If the claim is
// lost, all of them are. Plain leases ([Options].NoRenewal) share no claim.
//
// A process that dies holds up the others for the TTL, whether it read, wrote
// or waited.
//
// With a context of a lease of the same lock ([Lease.Context]), RLock and Lock
// are ErrDeadlock, or re-enter if [Options].Reentrant says so: RLock under a
// reader's or a writer's lease, Lock under a writer's. Such leases are all one
// with the first, have what it has, and the lock is released with the last of
// them. Lock under a reader's lease is always ErrDeadlock: use
// [RWLease.TryUpgrade].
type RWMutex struct {
	client *Client
	name   string
}

// readers is how many may read at a time.
const readers = kind.Readers

// RWMutex returns the read-write lock of that name: 1 to 512 bytes of UTF-8
// without control characters and braces. It does no I/O.
func (c *Client) RWMutex(name string) *RWMutex { return &RWMutex{c, name} }

// Name of the lock.
func (m *RWMutex) Name() string { return m.name }

// Lock waits until the caller holds the lock alone, or ctx ends. Errors are
// those of [Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context) (*RWLease, error) { return m.lock(ctx, readers, false) }

// TryLock takes the lock to write, if it is free, as [Mutex.TryLock] does.
func (m *RWMutex) TryLock(ctx context.Context) (*RWLease, error) { return m.lock(ctx, readers, true) }

// RLock waits until the caller holds the lock beside other readers, or ctx ends.
// Errors are those of [Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context) (*RWLease, error) { return m.lock(ctx, 1, false) }

// TryRLock takes the lock to read, if no writer holds it or waits for it. If
// not, the error is a *[HeldError], which matches ErrHeld and names a holder; if
// a writer only waits, that is a reader. If the engine cannot be reached, TryRLock
// returns another error within ten seconds.
func (m *RWMutex) TryRLock(ctx context.Context) (*RWLease, error) { return m.lock(ctx, 1, true) }

// Do runs f while it holds the lock to write, as [Mutex.Do] does.
func (m *RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// RDo runs f while it holds the lock to read, as [Mutex.Do] does.
func (m *RWMutex) RDo(ctx context.Context, f func(ctx context.Context) error) error {
	lease, err := m.RLock(ctx)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// Adopt takes over a lease, of a reader or a writer as it was there, as
// [Mutex.Adopt] does.
func (m *RWMutex) Adopt(ctx context.Context, handle string) (*RWLease, error) {
	h, err := adoptable(m.name, handle, driver.KindRW)
	if err != nil {
		return nil, err
	}
	key, err := m.key(ctx, h.Units)
	if err != nil {
		return nil, err
	}
	l := newRWLease()
	if err := m.client.adopt(ctx, key, h, &l.Lease); err != nil {
		return nil, err
	}
	return l, nil
}

func (m *RWMutex) lock(ctx context.Context, units int64, try bool) (*RWLease, error) {
	key, err := m.key(ctx, units)
	if err != nil {
		return nil, err
	}
	if key.NoRenewal && units < readers {
		key = key.Alone() // each lease lasts for a TTL of its own
	}
	l := newRWLease()
	if err := m.client.lock(ctx, key, try, &l.Lease); err != nil {
		return nil, err
	}
	return l, nil
}

func (m *RWMutex) key(ctx context.Context, units int64) (engine.Key, error) {
	return m.client.key(ctx, driver.KindRW, m.name, units, readers)
}

// RWLease is a lease of an [RWMutex], a reader's or a writer's. Use &l.Lease where a
// *Lease is needed; [LeaseFrom] returns that.
type RWLease struct {
	Lease
}

func newRWLease() *RWLease {
	l := &RWLease{}
	l.grant.User = &l.Lease
	return l
}

// Downgrade makes a writer's lease a reader's, without a gap: no other writer
// holds in between, and readers who wait are let in at once. The token stays. A
// reader's lease is left as it is.
//
// ErrInvalid: the lease was re-entered (the other leases count on being alone), or
// its [Lease.Handle] was given to another process. ErrLost, ErrReleased, ErrClosed:
// the lease is over. Any other error: the engine has not replied within ten
// seconds, a TTL, or ctx. The lease is a reader's all the same; other readers may
// have to wait until the engine has heard of it, which is seen to in the
// background.
func (l *RWLease) Downgrade(ctx context.Context) error {
	if err := l.grant.Downgrade(ctx); err != nil {
		return fmt.Errorf("downgrade %q: %w", l.Name(), err)
	}
	return nil
}

// TryUpgrade makes a reader's lease a writer's, if it is the only one that holds
// the lock, in all processes; writers who wait are passed. It gets a new token,
// which [Lease.Token] returns from then on. A writer's lease is left as it is.
//
// It does not wait for other readers: two who did would wait for each other. If
// there are others, the error is a *[HeldError], which matches ErrHeld and says
// who; release the lease then, call [RWMutex.Lock], and look again at what was
// read. Whatever the error, the lease is the reader's that it was, unless it is
// over.
//
// Other errors: ErrInvalid: its [Lease.Handle] was given to another process.
// ErrLost, ErrReleased, ErrClosed: the lease is over. Any other: the engine has not
// replied within ten seconds, a TTL, or ctx. It may take the lease for a writer's
// then, and keep other readers waiting, until it has heard that it is not, which is
// seen to in the background.
func (l *RWLease) TryUpgrade(ctx context.Context) error {
	err := l.grant.TryUpgrade(ctx)
	if held, ok := err.(*engine.HeldError); ok {
		return public(held)
	}
	if err != nil {
		return fmt.Errorf("upgrade %q: %w", l.Name(), err)
	}
	return nil
}
