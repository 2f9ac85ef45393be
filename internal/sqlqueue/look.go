package sqlqueue

import (
	"math/rand/v2"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

const (
	firstLook = time.Millisecond
	lastLook  = 50 * time.Millisecond // of the first in the queue, and
	farLook   = time.Second           // of those behind
	heldLook  = time.Second           // for what holders are to be told
	heldMost  = 256                   // of them at a time
	lookMost  = 64                    // rows in one statement
)

// target is a claim to look for in its row.
type target struct {
	id  string
	row Seen
}

// due answers the claims to look for now, and when to look next, or zero for
// never: those that wait and that nobody tells, and with held those that hold.
//
// A waiting claim looks again after a quarter of the time that its queue has
// not moved for: so looking comes late by a share of how long others hold, and
// the number of looks grows with its logarithm only. What is farther behind
// looks less often.
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
			n := time.Duration(e.ahead + 1)
			most := lastLook
			if n > 1 {
				most = min(farLook, n*lastLook)
			}
			d := min(max(n*now.Sub(e.moved)/4, firstLook), most)
			e.next = now.Add(d - d/8 + rand.N(d/4))
		}
		soon(e.next)
	}
	if !held || len(g.claims) == 0 {
		return ts, next
	}
	if !g.heldAt.After(now) {
		n := 0
		for id, e := range g.claims { // in another order each time
			if e.state != driver.Holding || push && e.pushed || e.expires.Before(now) {
				continue
			}
			ts = append(ts, target{id, Seen{e.name, e.seen}})
			if n++; n == heldMost {
				break
			}
		}
		g.heldAt = now.Add(heldLook - heldLook/8 + rand.N(heldLook/4))
	}
	soon(g.heldAt)
	return ts, next
}

// found applies what a row says of a claim, and answers what is to be noticed.
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
		e.state, e.grant, e.sole, e.seen, e.asked = driver.Holding, &st, false, row.Stamp, row.Asked
		g.ring(id, e)
		return driver.Notice{Kind: driver.Granted, ID: id, Status: st}, true
	case e.state == driver.Waiting:
		st := q.Status(id, driver.Waiting, row.Now, noTime, 0)
		e.floor = max(e.floor, row.Last)
		e.saw(&st, row, e.pushed)
	case e.state == driver.Holding:
		wanted := e.asked != row.Asked
		if e.seen != row.Stamp {
			e.sole = false
		}
		e.seen, e.asked = row.Stamp, row.Asked
		return driver.Notice{Kind: driver.Wanted, ID: id}, wanted
	}
	return n, false
}

// look looks for the claims in their rows, where these have changed.
func (s *Store) look(ts []target) error {
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
		rows, err := call(s.ctx, s, func(w *work) ([]Row, error) {
			return s.Dialect.Changed(w.ctx, s.DB, part)
		})
		if err != nil {
			return err
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
