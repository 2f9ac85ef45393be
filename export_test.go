package pawl

import "time"

// Expiring answers the same election with another expiry of its record, so that
// a test need not wait for weeks.
func (el *Election) Expiring(d time.Duration) *Election {
	e := *el
	e.doc.expiry = d
	return &e
}

// Contexts answers how many contexts the lease keeps, to end them with it.
func (l *Lease) Contexts() int {
	co := l.t.cl.co
	co.mu.Lock()
	defer co.mu.Unlock()
	return len(l.t.contexts)
}
