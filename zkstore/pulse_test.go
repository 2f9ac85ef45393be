package zkstore

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A follower tells its leader every half tick which sessions have said something,
// and dies right after it has confirmed a write. No deadline is later than the end
// that the leader gives the session then, and it is not sooner than need be.
func TestPulse(t *testing.T) {
	for range 20_000 {
		timeout := time.Duration(1000+rand.IntN(100_000)) * time.Millisecond
		tick := timeout/2 - rand.N(timeout/2)
		start := time.Now()
		told := start.Add(-rand.N(tick/2 + 1)) // by the follower
		p := new(pulse)
		p.connected(start, timeout)
		slow := rand.N(timeout / 4) // how late pings may be
		sent := start.Add(rand.N(3 * timeout))
		heard := start // what of the session the leader has heard
		var said []time.Time
		for at := start; at.Before(sent); at = at.Add(pingEvery(timeout) + rand.N(slow+1)) {
			p.replied(at)
			said = append(said, at)
		}
		for ; !told.After(sent); told = told.Add(tick / 2) {
			for _, at := range said {
				if at.Before(told) && at.After(heard) {
					heard = at
				}
			}
		}
		ttl := rand.N(timeout)
		got := p.deadline(sent, ttl)
		if late := got.Sub(heard.Add(timeout)); late > 0 {
			t.Fatalf("timeout %v, tick %v: the deadline is %v after the session's end", timeout, tick, late)
		}
		if got.After(driver.Deadline(sent, ttl)) {
			t.Fatalf("timeout %v: for TTL %v it returns %v", timeout, ttl, got.Sub(sent))
		}
		best := driver.Deadline(sent, min(ttl, ttlOf(timeout)))
		if early := best.Sub(got); early > slow+timeout/100 {
			t.Fatalf("timeout %v, pings %v late at the most: the deadline is %v sooner than it might be", timeout, slow, early)
		}
	}
}

// The longest TTL of each class fits into its session.
func TestTimeoutOf(t *testing.T) {
	for c := range 100 {
		if got := ttlOf(timeoutOf(span(c))); got < span(c)-time.Millisecond {
			t.Errorf("class %d of %v: its session has TTLs up to %v", c, span(c), got)
		}
	}
	if d := (&pulse{}).deadline(time.Now(), time.Minute); d.After(time.Now()) {
		t.Error("a deadline without a session")
	}
}
