//go:build unix

package synchronizers

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/await"
)

// reign holds a lease until it is over, and notes until when it does so by its
// own clock. What the lease is of has that number.
func (w *worker) reign(number int, l *pawl.Lease, over func() bool) {
	// A process that stood still since may be told of a time that is over.
	now := w.clock.Now()
	if l.Err() == nil {
		w.note("leads", number, l.Token(), int64(now), int64(w.clock.Now()+time.Until(l.Deadline())))
	}
	for l.Err() == nil && !over() {
		w.note("until", number, l.Token(), int64(w.clock.Now()), int64(w.clock.Now()+time.Until(l.Deadline())))
		time.Sleep(5 * time.Millisecond)
	}
	w.note("resigns", number, l.Token())
}

// within tells whether d is not over yet.
func within(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

// lead stands for election again and again.
func (w *worker) lead() error {
	for !w.stop() {
		w.note("stands")
		l, err := w.client.Election("election").Campaign(w, []byte("here"))
		if err != nil {
			return err
		}
		serves := within(300 * time.Millisecond)
		w.reign(0, l.Lease, func() bool { return !serves() || w.stop() })
		if err := l.Resign(w); err != nil {
			w.note("lost", l.Token())
		}
	}
	return nil
}

// term is what a holder believed.
type term struct {
	worker           int
	token            int64
	from, seen, last time.Duration // it held; was seen to hold; the end of its lease
	resigned         time.Duration // 0: never
}

// terms returns those of the leases with that number, in order.
func (c *crowd) terms(number int) (all []*term) {
	c.Helper()
	for n, log := range c.logs() {
		var t *term
		for _, e := range log {
			if len(e.values) == 0 || e.values[0] != int64(number) {
				continue
			}
			switch e.what {
			case "leads":
				t = &term{worker: n, token: e.values[1], from: time.Duration(e.values[2]), seen: e.at, last: time.Duration(e.values[3])}
				all = append(all, t)
			case "until":
				t.seen, t.last = time.Duration(e.values[2]), time.Duration(e.values[3])
			case "resigns":
				if t != nil && t.token == e.values[1] {
					t.resigned = e.at
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *term) int { return cmp.Compare(a.from, b.from) })
	return all
}

// reigns returns whose term has begun after the first n, and has not ended.
func (c *crowd) reigns(number, n int) (worker int, ok bool) {
	c.Helper()
	all := c.terms(number)
	if len(all) <= n {
		return 0, false
	}
	last := all[len(all)-1]
	return last.worker, last.resigned == 0 && c.living[last.worker] != nil
}

// checkTerms checks that never two held by their own clocks.
func (c *crowd) checkTerms(all []*term) {
	c.Helper()
	for i := 1; i < len(all); i++ {
		was, now := all[i-1], all[i]
		end := was.resigned
		if end == 0 { // it was killed: until then it led; the engine need not hear of that at once
			end = was.last
			if c.engine.prompt { // it does here
				end = was.seen
			}
		}
		if now.from < min(end, was.last) {
			c.Errorf("%d led %v before the time of %d was over: %+v after %+v", now.worker, min(end, was.last)-now.from, was.worker, *now, *was)
		}
		if now.token <= was.token {
			c.Errorf("token %d after %d", now.token, was.token)
		}
	}
}

// slack is for a machine with more to do.
const slack = await.Limit

// checkKills checks that each holder that was killed was followed by another one
// when its TTL was over.
func (c *crowd) checkKills(all []*term) {
	c.Helper()
	for _, k := range c.killed {
		i := slices.IndexFunc(all, func(t *term) bool { return t.from > k.at && t.worker != k.worker })
		if i < 0 {
			c.Fatalf("nobody followed after %d was killed", k.worker)
		}
		took, most := all[i].from-k.at, c.ttl+c.engine.late+time.Second
		c.Logf("the next one %v after the kill (at the most: %v)", took.Round(time.Millisecond), most)
		if took > most+slack {
			c.Errorf("the next one came after %v", took)
		}
	}
}

// Leaders are killed: never do two lead by their own clocks, and a new one comes
// when the TTL is over.
func testLeadersAreKilled(c *crowd) {
	const candidates, kills = 3, 3
	for range candidates {
		c.start("lead")
	}
	c.eventually(func() bool { return c.noted("stands") == candidates }, "they do not stand")
	c.eventually(func() bool { return len(c.terms(0)) > 2 }, "nobody leads")
	for range kills {
		before := len(c.terms(0))
		c.eventually(func() bool { _, ok := c.reigns(0, before); return ok }, "nobody leads after a kill")
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		all := c.terms(0)
		victim := all[len(all)-1].worker
		if c.living[victim] == nil {
			continue
		}
		c.kill(victim)
		c.start("lead")
	}
	last := len(c.terms(0))
	c.eventually(func() bool { return len(c.terms(0)) > last+1 }, "nobody leads at the end")
	c.write("stop", "")
	c.end()
	all := c.terms(0)
	c.checkTerms(all)
	c.checkKills(all)
	c.Logf("%d terms, %d kills", len(all), len(c.killed))
	c.free("election")
}
