package quorum

import (
	"sync"
	"time"
)

// proposer proposes tokens: about what the nodes would draw by themselves, so that they
// mostly draw the same. Nothing depends on it but how often they do.
type proposer struct {
	start time.Time

	mu    sync.Mutex
	lead  int64 // how far the nodes are ahead of this clock, in µs
	faded time.Time
	last  int64
}

const (
	// base is what a proposal is ahead of the clock at least, in µs: a node may have the
	// same time, and sees the proposal later.
	base = 300
	// fading is the time in which the lead becomes an eighth less: what was seen once, as
	// after a pause, need not stay.
	fading = 100 * time.Millisecond
)

func newProposer() *proposer {
	now := time.Now()
	return &proposer{start: now, faded: now}
}

// next returns a proposal, greater than all before, and the time in µs that it was
// made of. It starts at the wall clock and runs on the monotonic one.
func (p *proposer) next() (floor, clock int64) {
	now := time.Now()
	clock = p.start.Add(now.Sub(p.start)).UnixMicro()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; p.lead > 0 && now.Sub(p.faded) >= fading; p.faded = p.faded.Add(fading) {
		p.lead -= (p.lead + 7) / 8
	}
	if p.lead == 0 {
		p.faded = now
	}
	p.last = max(p.last+1, clock+base+p.lead)
	return p.last, clock
}

// learn takes over a token that a node drew for a proposal of that time.
func (p *proposer) learn(token, clock int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lead = max(p.lead, token-clock-base)
}
