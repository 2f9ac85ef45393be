package sqlqueue

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

const (
	firstLook = time.Millisecond
	lastLook  = 50 * time.Millisecond // of the first in the queue, and
	farLook   = time.Second           // of those behind
	firstHeld = 10 * time.Millisecond // for what holders are to be told
	heldLook  = time.Second           // the same, of those who hold for long
	heldMost  = 256                   // of them at a time
	lookMost  = 64                    // rows in one statement
)

// target is a claim to look for in its row.
type target struct {
	id  string
	row Seen
}

// due returns the claims to look for now, and when to look next, or zero for
// never: those that wait and that nobody tells, and with held those that hold.
//
// A waiting claim looks again after a quarter of the time that its queue has
// not moved for: so looking comes late by a share of how long others hold, and
// the number of looks grows with its logarithm only. What is farther behind
// looks less often: not before a quarter of those in front of it have had their
// turns, if these take as long as those before them. So the looks for one
// hand-over do not become many more where many wait. Much later would be too late:
// one who oversleeps makes turns seem long, and then all sleep longer.
//
// A claim that holds looks when it has held for a moment, for three times that, and
// so on: it learns late that it is wanted by a share of how long it has held.
func (g *registry) due(push, held bool, now time.Time) (ts []target, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	soon := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for id, e := range g.waiters {
		if push && e.pushed {
			continue
		}
		if !e.next.After(now) {
			ts = append(ts, target{id, Seen{e.name, e.seen}})
			e.next = now.Add(jittered(e.interval(now)))
		}
		soon(e.next)
	}
	if !held || len(g.claims) == 0 {
		return ts, next
	}
	n := 0
	for id, e := range g.young {
		if e.state != driver.Holding || push && e.pushed {
			delete(g.young, id)
			continue
		}
		if !e.next.After(now.Add(firstHeld / 2)) { // together with others
			n++
			ts = append(ts, target{id, Seen{e.name, e.seen}})
			d := 2 * max(now.Sub(e.moved), firstHeld)
			if d >= heldLook {
				delete(g.young, id) // one of the many from now on
				continue
			}
			e.next = now.Add(jittered(d))
		}
		soon(e.next)
	}
	if !g.heldAt.After(now) {
		for id, e := range g.claims { // in another order each time
			if n == heldMost {
				break
			}
			if e.state != driver.Holding || push && e.pushed || e.expires.Before(now) || g.young[id] != nil {
				continue
			}
			ts = append(ts, target{id, Seen{e.name, e.seen}})
			n++
		}
		g.heldAt = now.Add(jittered(heldLook))
	}
	soon(g.heldAt)
	return ts, next
}

// most is how long a waiting claim may go without a look.
func (e *own) most() time.Duration {
	if e.ahead == 0 {
		return lastLook
	}
	return min(farLook, time.Duration(e.ahead+1)*lastLook)
}

// first is how long after its queue has moved a waiting claim looks.
func (e *own) first() time.Duration {
	return min(max(time.Duration(e.ahead+1)*e.pace/4, firstLook), e.most())
}

// interval is how long after a look in vain it looks again.
func (e *own) interval(now time.Time) time.Duration {
	return min(max(now.Sub(e.moved)/4, time.Duration(e.ahead)*e.pace/4, firstLook), e.most())
}

func jittered(d time.Duration) time.Duration { return d - d/8 + rand.N(d/4) }

// hold notes that a claim holds, and has it looked for soon if that is new and it
// is not told what it is to know; the lock is held.
func (g *registry) hold(id string, e *own) {
	if e.state == driver.Holding {
		return
	}
	e.state, e.moved = driver.Holding, time.Now()
	if e.pushed || len(g.young) >= heldMost {
		return
	}
	if g.young == nil {
		g.young = make(map[string]*own)
	}
	e.next = e.moved.Add(firstHeld)
	g.young[id] = e
}

// found applies what a row says of a claim, and returns what is to be noticed.
func (g *registry) found(id string, row *Row, q *queue.Queue) (n driver.Notice, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, c := g.claims[id], q.Find(id)
	switch {
	case e == nil || e.state == driver.Gone:
		return n, false
	case c == nil || c.Expires <= row.Now:
		g.nudge(id, e) // it looks itself, and removes what has run out
		return driver.Notice{Kind: driver.Check, ID: id}, e.state == driver.Holding && c == nil
	case e.state == driver.Waiting && c.Holding() && c.Token <= e.floor: // read long ago
	case e.state == driver.Waiting && c.Holding():
		st := q.Status(id, driver.Holding, row.Now, noTime, 0)
		e.grant, e.seen, e.asked, e.token = &st, row.Stamp, row.Asked, st.Token
		g.hold(id, e)
		e.alone(aloneIn(q, c, row))
		g.ring(id, e)
		return driver.Notice{Kind: driver.Granted, ID: id, Status: st}, true
	case e.state == driver.Waiting:
		st := q.Status(id, driver.Waiting, row.Now, noTime, 0)
		e.floor = max(e.floor, row.Last)
		now := time.Now()
		e.next = now.Add(jittered(e.interval(now)))
		g.saw(e, &st, row, e.pushed)
	case e.state == driver.Holding:
		if c.Mark != e.mark { // it is another's by now
			e.seen, e.sole = row.Stamp, false
			return driver.Notice{Kind: driver.Check, ID: id}, true
		}
		wanted := e.asked != row.Asked
		if e.seen != row.Stamp {
			e.sole = false
		}
		e.seen, e.asked = row.Stamp, row.Asked
		return driver.Notice{Kind: driver.Wanted, ID: id}, wanted
	}
	return n, false
}

// alsoLook adds those that wait for the same names: a row that is read for one is
// read for all, or each of a crowd would read it.
func (g *registry) alsoLook(byName map[string][]string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, e := range g.waiters {
		if ids, ok := byName[e.name]; ok && !slices.Contains(ids, id) {
			byName[e.name] = append(ids, id)
		}
	}
}

// look looks for the claims in their rows, where these have changed.
func (s *store) look(ts []target) error {
	byName := make(map[string][]string)
	at := make(map[string]int)
	seen := make([]Seen, 0, len(ts))
	for _, t := range ts {
		name := t.row.Name
		if i, ok := at[name]; !ok {
			at[name] = len(seen)
			seen = append(seen, t.row)
		} else if seen[i].Stamp != t.row.Stamp {
			seen[i].Stamp = 0 // no row has that: what one claim has seen another has not
		}
		byName[name] = append(byName[name], t.id)
	}
	for len(seen) > 0 {
		part := seen[:min(lookMost, len(seen))]
		seen = seen[len(part):]
		ctx, cancel := context.WithTimeout(s.ctx, lookFor)
		rows, err := call(ctx, s, route{}, func(w *work) ([]Row, error) {
			return s.Dialect.Changed(w.ctx, s.DB, part)
		})
		cancel()
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			s.own.alsoLook(byName)
		}
		for i := range rows {
			q, err := rows[i].queue()
			if err != nil {
				continue // whoever works with that row is told
			}
			for _, id := range byName[rows[i].Name] {
				if n, ok := s.own.found(id, &rows[i], q); ok {
					s.post.notify(n)
				}
			}
		}
	}
	return nil
}
