package quorum

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Of the nodes whose vote counts a majority has drawn no more than the token, and a majority no
// less; what has run out, or does not hold, does not count.
func TestTally(t *testing.T) {
	now := time.Now()
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		n := 3 + 2*r.IntN(3)
		most := n/2 + 1
		cl := newClaim(driver.Claim{}, n)
		var tokens []int64
		var untils []time.Time
		for i := range cl.seats {
			st := &cl.seats[i]
			st.state = []driver.State{driver.Holding, driver.Holding, driver.Holding, driver.Waiting, driver.Gone}[r.IntN(5)]
			st.token = 1 + r.Int64N(4)
			st.until = now.Add(time.Duration(r.IntN(5)-1) * time.Second)
			if st.state == driver.Holding && st.until.After(now) {
				tokens, untils = append(tokens, st.token), append(untils, st.until)
			}
		}
		h, enough, settled := cl.tally(now, most)
		if enough != (len(tokens) >= most) {
			t.Fatalf("%d of %d nodes count: enough is %v", len(tokens), n, enough)
		}
		if !enough {
			continue
		}
		less, more, alive := 0, 0, 0
		for i, token := range tokens {
			if token <= h.token {
				less++
			}
			if token >= h.token {
				more++
			}
			if !untils[i].Before(h.until) {
				alive++
			}
		}
		if less < most || settled != (more >= most) {
			t.Fatalf("token %d of %v: %d no more, %d no less, settled %v", h.token, tokens, less, more, settled)
		}
		if alive < most {
			t.Fatalf("%d nodes have it until %v, of %v", alive, h.until, untils)
		}
		for _, i := range cl.low(now, h.token) {
			cl.seats[i].token = h.token
		}
		if again, _, settled := cl.tally(now, most); !settled || again.token != h.token {
			t.Fatalf("raised to %d: token %d, settled %v", h.token, again.token, settled)
		}
	}
}

// A vote that was taken back does not count, whatever comes in later; a later grant does.
func TestVoid(t *testing.T) {
	now := time.Now()
	st := seat{void: 7}
	for token, want := range map[int64]driver.State{6: driver.Gone, 7: driver.Gone, 8: driver.Holding} {
		st.asked = time.Time{}
		st.voted(driver.Status{State: driver.Holding, Token: token, Deadline: now.Add(time.Second)}, now)
		if st.state != want {
			t.Errorf("token %d after 7 was withdrawn: %v", token, st.state)
		}
	}
}

// What a node says of a claim that holds counts if it is the grant that is known, or an
// earlier one: not if it was made since.
func TestRenewedGrant(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		known, said int64
		want        bool
	}{{10, 10, true}, {12, 12, true}, {0, 9, true}, {0, 10, true}, {0, 11, false}, {10, 11, false}} {
		cl := newClaim(driver.Claim{}, 3)
		cl.token = 10
		if c.known != 0 {
			cl.seats[0].state, cl.seats[0].token = driver.Holding, c.known
		}
		st := driver.Status{State: driver.Holding, Token: c.said, Deadline: now.Add(time.Second)}
		if got := cl.renewed(0, st, now); got != c.want {
			t.Errorf("token 10, the node had %d and says %d: %v", c.known, c.said, got)
		}
	}
}

// Proposals rise, and follow the nodes' clocks, also back.
func TestProposer(t *testing.T) {
	p := newProposer()
	first, clock := p.next()
	p.learn(clock+5_000_000, clock)
	second, _ := p.next()
	if second < first+4_000_000 {
		t.Errorf("a node is 5 s ahead: %d after %d", second, first)
	}
	p.faded = p.faded.Add(-time.Minute)
	p.next()
	if p.lead != 0 {
		t.Errorf("a minute later the lead is still %d µs", p.lead)
	}
	if third, _ := p.next(); third <= second {
		t.Errorf("%d after %d", third, second)
	}
}
