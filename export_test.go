package pawl

import "time"

// Expiring returns the same election with another expiry of its record, so that
// a test need not wait for weeks.
func (el *Election) Expiring(d time.Duration) *Election {
	e := *el
	e.record.Expiry = d
	return &e
}
