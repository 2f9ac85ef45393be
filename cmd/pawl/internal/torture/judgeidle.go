package torture

import (
	"cmp"
	"slices"
	"time"
)

// idle: a name that somebody waits for, and nobody has, is granted to somebody before long,
// if nobody is hurt.
//
// Invariant: from a grant on a name counts as used until it is released and its last
// deadline is over, and a fault lasts as long after its end as any lease did: what
// a process that was hurt has in the store runs out by then. What is left is time in which
// who waits is in the way of nobody but the others who wait. How much of it may pass is a
// guess that is far on the safe side of a slow machine, and no promise.
func (j *judgement) idle(l *lock) {
	most := int64(idleTime) + 2*j.longest
	if !slices.ContainsFunc(l.tenures, func(t *tenure) bool { return j.overOf(t)-t.ask.At >= most }) {
		return
	}
	used := slices.Clone(j.hurt)
	for _, t := range l.tenures {
		switch {
		case t.granted != nil:
			used = append(used, period{t.granted.At, max(j.overOf(t), t.until)})
		case t.way == "all": // it may have this one, and wait for another
			used = append(used, period{t.ask.At, j.overOf(t)})
		}
	}
	slices.SortFunc(used, func(a, b period) int { return cmp.Compare(a.from, b.from) })
	used = append(used, period{j.end, j.end})
	from := j.begin
	for _, u := range used {
		if u.from-from >= most {
			j.idleBetween(l, period{from, u.from}, most)
		}
		from = max(from, u.to)
	}
}

// idleTime is how long a name may be free while somebody waits.
const idleTime = 12 * time.Second

// idleBetween tells who waited for that long while the name was free.
func (j *judgement) idleBetween(l *lock, free period, most int64) {
	var first *tenure
	n := 0
	for _, t := range l.tenures {
		// More permits than a lowered limit allows are never granted.
		mayWait := t.kind != semaphore || t.units == 1
		if mayWait && min(j.overOf(t), free.to)-max(t.ask.At, free.from) >= most {
			if n++; first == nil {
				first = t
			}
		}
	}
	if first != nil {
		j.find("stuck", l.name, free.from, first.events(),
			"%q was free %s, and nobody was hurt, but it was not granted to any of those who waited for it all the while, %d of them: %s asked for it at %s.",
			l.name, j.span(max(free.from, first.ask.At), free.to), n, who(first.process, first.life), j.when(first.ask.At))
	}
}

// overOf is when the tenure was over, or its process.
func (j *judgement) overOf(t *tenure) int64 {
	over := min(t.over(), j.end)
	if f := j.lifeOf(t); f.killed != nil {
		over = min(over, f.killed.At)
	} else if f.quit != nil {
		over = min(over, f.quit.At)
	}
	return over
}

// hurting is when somebody was hurt, and for as long after as any lease was good for.
func (j *judgement) hurting() []period {
	var hurt []period
	for i := range j.history {
		if e := &j.history[i]; e.What == Fault || e.What == Killed {
			hurt = append(hurt, period{e.At, max(e.At, e.End) + j.longest})
		}
	}
	for _, f := range j.lives {
		for _, p := range f.pauses {
			hurt = append(hurt, period{p.from, min(p.to, j.end) + j.longest})
		}
	}
	return hurt
}
