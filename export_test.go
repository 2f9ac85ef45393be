package pawl

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Expiring returns the same election with another expiry of its record, so that
// a test need not wait for weeks.
func (el *Election) Expiring(d time.Duration) *Election {
	e := *el
	e.record.Expiry = d
	return &e
}

// Contexts returns how many contexts the lease keeps, to end them with it.
func (l *Lease) Contexts() int {
	e := &l.t.contexts
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.all)
}

// Renewed has the lease take over the reply to a renewal that comes by now and
// gives it ttl.
func (l *Lease) Renewed(ttl time.Duration) {
	cl := l.t.cl
	cl.co.mu.Lock()
	defer cl.co.mu.Unlock()
	now := time.Now()
	cl.renewed(now, 0, driver.Status{State: driver.Holding, Token: cl.token, Deadline: now.Add(ttl)}, nil)
}

// Freeze keeps everybody from the lock of the lease, the client's own goroutine
// that looks after leases first of all, until thaw is called.
func (l *Lease) Freeze() (thaw func()) {
	l.t.cl.co.mu.Lock()
	return l.t.cl.co.mu.Unlock
}
