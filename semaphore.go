package pawl

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/internal/kind"
	"github.com/pawl-go/pawl/internal/retry"
)

// Semaphore has a number of permits, its limit, which leases hold between them.
// Like a Mutex it is a name with options. All who use a name declare the same
// limit: the engine keeps it with the queue while anybody holds or waits, and
// another limit is ErrMismatch.
//
// It is fair, over all processes: requests for few permits wait behind an earlier
// one for many, and so do not starve it. [Options].Overtake lets a request pass, if
// it fits where those in front of it do not.
//
// The permits of a holder that dies come back after its TTL; those of a lease that
// is lost (ErrLost) may be another's by then.
//
// A semaphore is not re-entered: each Acquire takes permits of its own, whatever
// lease its context belongs to. If it waits for permits that its own caller holds,
// it waits until its context ends.
type Semaphore struct {
	client *Client
	name   string
	limit  int64
}

const maxPermits = kind.MaxPermits

// Semaphore returns the semaphore of that name with that many permits, up to
// 2^30. It does no I/O.
func (c *Client) Semaphore(name string, limit int64) *Semaphore { return &Semaphore{c, name, limit} }

// Name of the semaphore.
func (s *Semaphore) Name() string { return s.name }

// Acquire waits until n permits are granted, all at once, or ctx ends. The lease
// has them until Unlock gives them back.
//
// Errors are those of [Mutex.Lock]. ErrInvalid: n is not 1 to the limit of this
// handle. ErrMismatch: others use the name with another limit, or SetLimit has left
// fewer than n permits.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (*Lease, error) {
	return s.acquire(ctx, n, false)
}

// TryAcquire takes n permits if they are free and nobody waits for them. If not,
// the error is a *[HeldError], which matches ErrHeld and names a holder. If the
// engine cannot be reached, it returns another error within ten seconds.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (*Lease, error) {
	return s.acquire(ctx, n, true)
}

// Do runs f while it holds n permits, as [Mutex.Do] does.
func (s *Semaphore) Do(ctx context.Context, n int64, f func(ctx context.Context) error) error {
	lease, err := s.Acquire(ctx, n)
	if err != nil {
		return err
	}
	return lease.do(ctx, f)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, try bool) (*Lease, error) {
	key, err := s.key(ctx, n)
	if err != nil {
		return nil, err
	}
	// Goroutines that shared a claim would wait for each other. In a queue of
	// claims the engine sees to it that they are served in turn.
	return s.client.acquire(ctx, key.Alone(), s.client.terms, try)
}

func (s *Semaphore) key(ctx context.Context, n int64) (engine.Key, error) {
	if err := checkPermits(s.limit); err != nil {
		return engine.Key{}, fmt.Errorf("semaphore %q: %w", s.name, err)
	}
	return s.client.key(ctx, driver.KindSemaphore, s.name, n, s.limit)
}

func checkPermits(limit int64) error {
	if limit < 1 || limit > maxPermits {
		return fmt.Errorf("%w limit %d: allowed are 1 to %d", ErrInvalid, limit, maxPermits)
	}
	return nil
}

// Adopt takes over a lease with all its permits from another process, or another
// client, as [Mutex.Adopt] does.
func (s *Semaphore) Adopt(ctx context.Context, handle string) (*Lease, error) {
	h, err := adoptable(s.name, handle, driver.KindSemaphore)
	if err != nil {
		return nil, err
	}
	key, err := s.key(ctx, h.Units)
	if err != nil {
		return nil, err
	}
	l := newLease()
	if err := s.client.adopt(ctx, key, h, l); err != nil {
		return nil, err
	}
	return l, nil
}

// SetLimit changes the number of permits for all, whether or not anybody uses
// the semaphore now, until it is set again. Handles with the limit that was
// declared so far go on as before, and find the new one in force; so do handles
// that declare the new one, which alone may ask for more permits than the old
// one had. Setting it back to what was declared ends the change.
//
// Waiting requests that fit now are granted. Nobody loses permits: if more are held
// than there are now, the next ones are granted when enough came back. A new request
// for more than there are now is ErrMismatch; one that waits already goes on waiting
// until there are enough, and holds up nobody.
//
// ErrMismatch: the name is in use with another kind of lock, or the limit of this
// handle is neither the one in force nor the one that was declared. After any other
// error than ErrInvalid the limit may have been changed or not; setting it again
// does no harm.
func (s *Semaphore) SetLimit(ctx context.Context, limit int64) error {
	_, err := s.key(ctx, 1)
	if err != nil {
		return err
	}
	if err = checkPermits(limit); err == nil {
		err = s.client.open()
	}
	if err != nil {
		return fmt.Errorf("set limit of %q: %w", s.name, err)
	}
	ctx, cancel := retry.WithTimeout(ctx, retry.Longest)
	defer cancel()
	if err := s.client.core.store.SetLimit(ctx, s.name, driver.KindSemaphore, s.limit, limit); err != nil {
		return fmt.Errorf("set limit of %q from %d to %d: %w", s.name, s.limit, limit, err)
	}
	return nil
}
