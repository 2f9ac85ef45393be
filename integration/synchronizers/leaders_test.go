//go:build unix

package synchronizers

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/clock"
	"github.com/pawl-go/pawl/internal/proctest"
)

// lead stands for election again and again, and notes until when it leads by
// its own clock.
func (w *worker) lead() error {
	for !w.stop() {
		w.note("stands")
		l, err := w.client.Election("election").Campaign(w, []byte("here"))
		if err != nil {
			return err
		}
		// A process that stood still since may be told of a time that is over.
		now := w.clock.Now()
		if l.Err() == nil {
			w.note("leads", l.Token(), int64(now), int64(w.clock.Now()+time.Until(l.Deadline())))
		}
		for end := time.Now().Add(time.Second); l.Err() == nil && time.Now().Before(end) && !w.stop(); time.Sleep(5 * time.Millisecond) {
			w.note("until", l.Token(), int64(w.clock.Now()), int64(w.clock.Now()+time.Until(l.Deadline())))
		}
		w.note("resigns", l.Token())
		if err := l.Resign(w); err != nil {
			w.note("lost", l.Token())
		}
	}
	return nil
}

// term is what a leader believed.
type term struct {
	worker           int
	token            int64
	from, seen, last time.Duration // elected; seen to lead; the end of its lease
	resigned         time.Duration // 0: never
}

func (c *crowd) terms() (all []*term) {
	c.Helper()
	for n, log := range c.logs() {
		var t *term
		for _, e := range log {
			switch e.what {
			case "leads":
				t = &term{worker: n, token: e.values[0], from: time.Duration(e.values[1]), seen: e.at, last: time.Duration(e.values[2])}
				all = append(all, t)
			case "until":
				t.seen, t.last = time.Duration(e.values[1]), time.Duration(e.values[2])
			case "resigns":
				if t != nil && t.token == e.values[0] {
					t.resigned = e.at
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b *term) int { return cmp.Compare(a.from, b.from) })
	return all
}

// Leaders are killed: never do two lead by their own clocks, and a new one comes
// when the TTL is over.
func TestLeadersAreKilled(t *testing.T) {
	const ttl = 2 * time.Second
	onStores(t, ttl, func(c *crowd) {
		const candidates, kills = 4, 6
		living := make(map[int]*proctest.Process)
		start := func() { p := c.start("lead"); living[c.started-1] = p }
		for range candidates {
			start()
		}
		proctest.Eventually(c, func() bool { return c.noted("stands") == candidates }, "they do not stand")
		proctest.Eventually(c, func() bool { return len(c.terms()) > 2 }, "nobody leads")
		type kill struct {
			worker int
			at     time.Duration
		}
		var killed []kill
		machine, err := clock.Open()
		if err != nil {
			c.Fatal(err)
		}
		for range kills {
			before := len(c.terms())
			proctest.Eventually(c, func() bool {
				all := c.terms()
				last := all[len(all)-1]
				return len(all) > before && last.resigned == 0 && living[last.worker] != nil
			}, "nobody leads after a kill")
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			all := c.terms()
			victim := all[len(all)-1].worker
			if living[victim] == nil {
				continue
			}
			killed = append(killed, kill{victim, machine.Now()})
			living[victim].Process.Kill()
			living[victim].Status()
			delete(living, victim)
			start()
		}
		last := len(c.terms())
		proctest.Eventually(c, func() bool { return len(c.terms()) > last+1 }, "nobody leads at the end")
		c.write("stop", "")
		for _, p := range living {
			p.Want(0)
		}

		all := c.terms()
		for i, now := range all[1:] {
			was := all[i]
			end := was.resigned
			if end == 0 { // it was killed: until then it led; the engine need not hear of that at once
				end = was.last
				if strings.HasPrefix(c.url, "file:") { // it does here
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
		for _, k := range killed {
			i := slices.IndexFunc(all, func(t *term) bool { return t.from > k.at && t.worker != k.worker })
			if i < 0 {
				c.Fatalf("nobody led after %d was killed", k.worker)
			}
			took := all[i].from - k.at
			c.Logf("a new leader %v after the kill (TTL + 1s: %v)", took.Round(time.Millisecond), ttl+time.Second)
			if took > ttl+time.Second+10*time.Second { // 10s for a machine with more to do
				c.Errorf("a new leader came after %v", took)
			}
		}
		c.Logf("%d terms, %d kills", len(all), len(killed))
	})
}
