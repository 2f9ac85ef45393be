package sqlqueue

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
)

func holding(g *registry, n int, pushed bool) {
	for i := range n {
		id := fmt.Sprintf("holder%d", i)
		g.put(id, "", id, time.Hour, &driver.Status{State: driver.Holding, Token: 1}, &Row{Name: id, Stamp: 1}, all{driver.KindMutex, 1}, nil, pushed)
	}
}

// watch looks as post.look does, for that long, and returns when it has looked.
func (g *registry) watch(push bool, span time.Duration, look func([]target)) (at []time.Duration) {
	start := time.Now()
	for time.Since(start) < span {
		ts, next := g.due(push, true, time.Now())
		if len(ts) > 0 {
			at = append(at, time.Since(start))
			look(ts)
			continue
		}
		if next.IsZero() {
			break
		}
		time.Sleep(time.Until(next))
	}
	return at
}

// Holders look for what they are to be told, a bounded number at a time and only
// if somebody listens; in the end all of them.
func TestDueHeld(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var g registry
		const n = 3 * heldMost
		holding(&g, n, false)
		if ts, next := g.due(false, false, time.Now()); len(ts) != 0 || !next.IsZero() {
			t.Errorf("nobody listens: %d, %v", len(ts), next)
		}
		seen := make(map[string]bool)
		look := func(ts []target) {
			if len(ts) > heldMost {
				t.Fatalf("%d at a time", len(ts))
			}
			for _, t := range ts {
				seen[t.id] = true
			}
		}
		g.watch(false, 2*heldLook, look)
		if at := g.watch(false, 100*heldLook, look); len(at) > 130 {
			t.Errorf("looked %d times in %v", len(at), 100*heldLook)
		}
		if len(seen) < n*9/10 {
			t.Errorf("%d of %d were looked for", len(seen), n)
		}
	})
}

// Who has just begun to hold looks sooner, and ever less often, unless it is told;
// and many do it together.
func TestDueYoung(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const span = 9 * heldLook / 10
		nothing := func([]target) {}
		var one registry
		one.heldAt = time.Now().Add(time.Hour)
		holding(&one, 1, false)
		at := one.watch(false, span, nothing)
		last := time.Duration(0)
		for _, d := range at {
			if d > 4*max(last, firstHeld) {
				t.Errorf("looked after %v, and then only after %v", last, d)
			}
			last = d
		}
		if len(at) < 3 || len(at) > 6 {
			t.Errorf("looked after %v", at)
		}
		var many registry
		many.heldAt = time.Now().Add(time.Hour)
		holding(&many, 200, false)
		if at := many.watch(false, span, nothing); len(at) > 100 {
			t.Errorf("200 that hold at the same time looked %d times", len(at))
		}
		var told registry
		told.heldAt = time.Now().Add(time.Hour)
		holding(&told, 1, true)
		if at := told.watch(true, span, nothing); len(at) > 0 {
			t.Errorf("it is told, and looked after %v", at)
		}
		holding(&told, 10, false)
		for i := range 10 {
			told.forget(&driver.Ref{ID: fmt.Sprintf("holder%d", i)})
		}
		if len(told.young) > 0 {
			t.Error("who has left is looked for")
		}
	})
}

// In a queue that moves fast, who stands far behind looks when its turn comes
// near: so few looks are made for one hand-over, however many stores wait.
func TestDuePace(t *testing.T) {
	for _, n := range []int{2, 8, 32} {
		bubble.Test(t, func(t *testing.T) {
			const hold, span = 4 * time.Millisecond, 4 * time.Second
			stores := make([]*registry, n)
			line, moved := make([]int, 0, n), time.Now() // who waits, since when the first may hold
			enter := func(i int) {
				line = append(line, i)
				stores[i] = &registry{paces: stores[i].paces}
				waiting(t, stores[i], "w", "n", len(line)-1, false)
			}
			for i := range n {
				stores[i] = new(registry)
				enter(i)
			}
			looks, turns, late := 0, 0, time.Duration(0)
			for start := time.Now(); time.Since(start) < span; {
				var first time.Time
				for i, g := range stores {
					ts, next := g.due(false, false, time.Now())
					if len(ts) > 0 {
						looks++
						ahead := 0
						for line[ahead] != i {
							ahead++
						}
						if since := time.Since(moved); ahead == 0 && since >= hold {
							// It sees that it holds, leaves, and comes again.
							late += since - hold
							turns++
							line, moved = line[1:], time.Now()
							enter(i)
							g = stores[i]
						} else {
							e := g.claims["w"]
							g.saw(e, &driver.Status{State: driver.Waiting, Ahead: ahead}, &Row{Stamp: 1}, false)
						}
						_, next = g.due(false, false, time.Now())
					}
					if first.IsZero() || next.Before(first) {
						first = next
					}
				}
				time.Sleep(time.Until(first))
			}
			per := float64(looks) / float64(turns)
			t.Logf("%d wait: %.1f looks for one hand-over, late by %v", n, per, late/time.Duration(turns))
			if per > 20 {
				t.Error("too many looks")
			}
			if late/time.Duration(turns) > hold {
				t.Error("too late")
			}
		})
	}
}
