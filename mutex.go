package pawl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// Mutex is a lock that one lease holds at a time. It is a name and options
// only: making one costs nothing, and two of the same name are the same lock.
// Processes are served in the order in which they came, and so are the
// goroutines of each; see docs/GUARANTEES.md for how the two go together.
type Mutex struct {
	client *Client
	name   string
}

// Mutex answers the mutex of that name: 1 to 512 bytes of UTF-8 without
// control characters and braces. It does no I/O.
func (c *Client) Mutex(name string) *Mutex { return &Mutex{c, name} }

// Name of the mutex.
func (m *Mutex) Name() string { return m.name }

// Lock waits until the mutex is granted or ctx ends. While the engine cannot
// be reached it keeps trying, as [Options].Backoff says.
//
// Errors: a *[WaitError] when ctx ended, with the engine's last error if that
// was the reason;
// ErrInvalid, ErrClosed, ErrDeadlock, a *driver.LimitError, and errors of the
// engine that trying again cannot mend, at once. Whatever the error, no claim
// stays behind: if the engine cannot be told now, it is told in the
// background until the claim's TTL has passed.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.lock(ctx, false) }

// TryLock takes the mutex if it is free, without waiting for others. If not,
// the error is a *[HeldError], which matches ErrHeld and says who holds it.
// An engine that cannot be reached is another error, after ten seconds at the
// most.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.lock(ctx, true) }

// Do runs f while it holds the mutex, with the context of the lease, and
// releases it, also if f panics. It answers f's error; if f had none, that of
// Unlock: ErrLost says that f was not protected to its end.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := lease.Unlock(ctx); err == nil {
			err = e
		}
	}()
	return f(lease.Context(ctx))
}

// Adopt takes over a lease from another process, or another client, by its
// [Lease.Claim], and renews it from now on. The other one must have given it
// up with [Lease.HandOver], or both hold it. A lease that ended meanwhile is
// ErrLost. An engine that does not answer is another error, after ten seconds
// at the most; trying again does no harm.
func (m *Mutex) Adopt(ctx context.Context, claim string) (*Lease, error) {
	id, tok, _ := strings.Cut(claim, ".")
	token, err := strconv.ParseInt(tok, 10, 64)
	if err != nil || driver.CheckID(id) != nil {
		return nil, fmt.Errorf("adopt %q: %w claim %q: it is no Lease.Claim", m.name, ErrInvalid, claim)
	}
	key, err := m.key(ctx)
	if err != nil {
		return nil, err
	}
	key.adopted = id
	return m.client.core.acquire(key, &m.client.opts, func(co *cohort) (*tenure, error) {
		return co.adopt(ctx, token, &m.client.opts)
	})
}

func (m *Mutex) lock(ctx context.Context, try bool) (*Lease, error) {
	key, err := m.key(ctx)
	if err != nil {
		return nil, err
	}
	if t := held(ctx, m.client.core, m.name); t != nil {
		switch lease, alive := t.reenter(m.client.opts.Reentrant); {
		case lease != nil:
			return lease, nil
		case alive && !try:
			return nil, fmt.Errorf("lock %q: %w", m.name, ErrDeadlock)
		}
	}
	return m.client.core.acquire(key, &m.client.opts, func(co *cohort) (*tenure, error) {
		return co.acquire(ctx, &m.client.opts, try)
	})
}

// key checks everything that can be checked before any I/O.
func (m *Mutex) key(ctx context.Context) (k cohortKey, err error) {
	if err = ctx.Err(); err != nil {
		return k, fmt.Errorf("lock %q: the context was over before: %w", m.name, errors.Join(err, ifOther(context.Cause(ctx), err)))
	}
	if err = driver.CheckName(m.name); err != nil {
		return k, err
	}
	if err = m.client.err; err != nil {
		return k, fmt.Errorf("lock %q: %w", m.name, err)
	}
	o := &m.client.opts
	return cohortKey{name: m.name, units: 1, limit: 1, ttl: o.TTL, noRenewal: o.NoRenewal, overtake: o.Overtake, label: o.Label}, nil
}

// acquire makes a lease of what get answers for the key's cohort.
func (c *core) acquire(key cohortKey, opts *Options, get func(*cohort) (*tenure, error)) (*Lease, error) {
	c.start()
	co, err := c.cohort(key)
	if err != nil {
		return nil, err
	}
	t, err := get(co)
	if err != nil {
		c.release(co)
		return nil, err
	}
	return &Lease{t: t}, nil
}
