package zkstore

import (
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// pulse is what the servers' leader has heard of one session, and when, for
// certain. It is what deadlines are computed from.
//
// The leader ends a session when it has heard nothing of it for the session's
// timeout. Of a session at a follower it hears when the client connects, and from
// then on by what the follower tells every half tick: which sessions have said
// something. A request that the follower passes on does not count. So what the
// leader has heard when it commits a write is up to half a tick older than the
// write, and if the follower dies in that moment, it hears nothing more.
//
// Invariant: a deadline is no later than the timeout after something that the
// leader has heard: the last connecting, or the last ping that was sent unheard
// before the write that the deadline is for, and got its reply. Both clocks count from
// when it was sent, which is before it was heard.
type pulse struct {
	mu      sync.Mutex
	timeout time.Duration // as granted
	begun   time.Time     // when the latest connection asked for the session
	pings   []time.Time   // when those were sent that got a reply; the last few, in order
}

// A session lasts for 3/2 of the longest TTL in it: for the TTL, for what the
// leader has not heard yet, and for a ping that is late.
//
// A tick is half a timeout at the most, as the servers do not grant less than two
// (minSessionTimeout); so half a tick is less than unheard, the rest is for leaders
// that tell the time a little late.
func timeoutOf(span time.Duration) time.Duration { return span * 3 / 2 }

// ttlOf is the longest TTL in a session of that timeout.
func ttlOf(timeout time.Duration) time.Duration { return timeout * 2 / 3 }

func unheard(timeout time.Duration) time.Duration { return timeout * 28 / 100 }

func pingEvery(timeout time.Duration) time.Duration { return timeout / 20 }

// keptPings cover more than a timeout.
const keptPings = 32

// deadline is when a claim ends that was given ttl by a write that was sent at
// sent, and has its reply, in the session of p.
func (p *pulse) deadline(sent time.Time, ttl time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard := p.begun
	before := sent.Add(-unheard(p.timeout))
	for _, at := range slices.Backward(p.pings) {
		if !at.After(before) {
			if at.After(heard) {
				heard = at
			}
			break
		}
	}
	given, ends := driver.Deadline(sent, min(ttl, ttlOf(p.timeout))), driver.Deadline(heard, p.timeout)
	if ends.Before(given) {
		return ends
	}
	return given
}

// connected notes that the session was asked for at that time, and granted.
func (p *pulse) connected(at time.Time, timeout time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.timeout = at, timeout
}

// replied notes the reply to a ping that was sent at that time.
func (p *pulse) replied(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pings) >= keptPings {
		p.pings = slices.Delete(p.pings, 0, 1)
	}
	p.pings = append(p.pings, at)
}
