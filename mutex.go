package pawl

import (
	"context"

	"github.com/pawl-go/pawl/driver"
)

// Mutex is a lock that one lease holds at a time. It is a name with options:
// making one costs nothing, and two of the same name are the same lock. Processes
// are served in the order in which they came, and so are the goroutines of each;
// see docs/GUARANTEES.md for how the two go together.
type Mutex struct {
	client *Client
	name   string
}

// Mutex returns the mutex of that name: 1 to 512 bytes of UTF-8 without
// control characters and braces. It does no I/O.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{c, name} }

// Name of the mutex.
func (m *Mutex) Name() string { return m.name }

// Lock waits until the mutex is granted or ctx ends. While the engine cannot
// be reached it keeps trying, as [Options].Backoff says.
//
// Errors: a *[WaitError] when ctx ended, with the engine's last error if that was
// the reason; at once ErrInvalid, ErrClosed, ErrDeadlock, a *[MismatchError], and
// permanent errors of the engine. Whatever the error, no claim stays behind: if the
// engine cannot be told now, it is told in the background until the claim's TTL has
// passed.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.lock(ctx, false) }

// TryLock takes the mutex if it is free, without waiting for others. If not,
// the error is a *[HeldError], which matches ErrHeld and says who holds it. If the
// engine cannot be reached, TryLock returns another error within ten seconds.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.lock(ctx, true) }

// Do runs f while it holds the mutex, with the context of the lease, and
// releases it, also if f panics. It returns f's error, and ErrLost if f was not
// protected to its end: an error can match both.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

// Adopt takes over a lease from another process, or another client, by its
// [Lease.Handle], and renews it from now on. It gets a new token. The other one
// should have given it up with [Lease.HandOver]; if not, it loses it (ErrLost), and
// is told as after [Client.ForceRelease].
//
// ErrLost: the lease has ended meanwhile. A *[HeldError], which matches ErrHeld and
// says who: another has adopted it already; of two adopters one gets it.
// ErrMismatch: the name is in use with another kind of lock. ErrInvalid: handle is
// not one of such a lock, or this client has adopted it already. If the engine does
// not reply, Adopt returns another error within ten seconds. The same client may try
// again; for another one the lease may be adopted already.
func (m *Mutex) Adopt(ctx context.Context, handle string) (*Lease, error) {
	key, err := m.client.key(ctx, driver.KindMutex, m.name, 1, 1)
	if err != nil {
		return nil, err
	}
	h, err := adoptable(m.name, handle, driver.KindMutex)
	if err != nil {
		return nil, err
	}
	l := newLease()
	if err := m.client.adopt(ctx, key, h, l); err != nil {
		return nil, err
	}
	return l, nil
}

func (m *Mutex) lock(ctx context.Context, try bool) (*Lease, error) {
	key, err := m.client.key(ctx, driver.KindMutex, m.name, 1, 1)
	if err != nil {
		return nil, err
	}
	l := newLease()
	if err := m.client.lock(ctx, key, try, l); err != nil {
		return nil, err
	}
	return l, nil
}
