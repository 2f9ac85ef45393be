package adapter

import (
	"sync/atomic"
	"time"
)

// Proof is what is known of a client's connections.
type Proof struct {
	start   time.Time
	streak  atomic.Int64 // calls that succeeded in a row
	success atomic.Int64 // when the last one did: nanoseconds since start
}

// NewProof returns that of a client that has done nothing yet.
func NewProof() *Proof { return &Proof{start: time.Now()} }

// A client opens up to four connections and picks one at random.
const (
	enough = 64
	recent = time.Second
)

// Proven reports whether the connections stand, as far as one can know, and a call needs
// no goroutine of its own.
func (p *Proof) Proven() bool {
	return p.streak.Load() >= enough && time.Since(p.start)-time.Duration(p.success.Load()) < recent
}

// Seen notes how a call has ended.
func (p *Proof) Seen(err error) {
	if err != nil {
		p.streak.Store(0)
		return
	}
	p.success.Store(int64(time.Since(p.start)))
	if p.streak.Load() < enough {
		p.streak.Add(1)
	}
}
