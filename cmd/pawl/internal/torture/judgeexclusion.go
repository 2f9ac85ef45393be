package torture

import (
	"cmp"
	"fmt"
	"slices"
)

// edge is where the evidence of a phase of a tenure begins or ends.
type edge struct {
	at    int64
	units int64 // below 0: it ends
	t     *tenure
}

// exclusion: those who hold a name at the same time fit beside each other, and none is
// of another kind.
//
// Invariant: all whose evidence has an instant in common held at that instant, in the
// store too, forced ones left out. The last of them was let in beside the others, after
// all of them had asked and before that instant; so together they are not above the
// highest limit that may have been in force then. A change counts with the smaller of
// both units until it is known. Evidence was taken before and after, never in between: so a pause, however
// long, only makes it shorter.
func (j *judgement) exclusion(l *lock) {
	var edges []edge
	for _, t := range l.tenures {
		for i, p := range t.phases {
			to := t.last
			if i+1 < len(t.phases) {
				to = min(to, t.phases[i+1].from)
			}
			if p.from < to {
				edges = append(edges, edge{p.from, p.units, t}, edge{to, -p.units, t})
			}
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.units, b.units))
	})
	var active []edge
	for _, e := range edges {
		if e.units < 0 {
			i := slices.IndexFunc(active, func(a edge) bool { return a.t == e.t })
			active[i] = active[len(active)-1]
			active = active[:len(active)-1]
			continue
		}
		active = append(active, e)
		other := slices.IndexFunc(active, func(a edge) bool { return a.t.kind != e.t.kind })
		if e.t.kind == semaphore && other < 0 {
			j.tooMany(l, active, e)
		} else {
			j.beside(l, active, e)
		}
	}
}

// firstAsk is when the claim was asked for, whoever has adopted it since.
func (t *tenure) firstAsk() int64 {
	for t.way == "adopt" {
		if t.from == nil {
			return 0
		}
		t = t.from
	}
	return t.ask.At
}

// limitBetween is the highest limit that may have been in force at some time between from
// and to: one that was set by then, or may have been, and that no other had surely taken the place of
// before from.
func (l *lock) limitBetween(from, to int64) int64 {
	settled := int64(0) // a change that began then was in force before from
	for _, c := range l.limits {
		if c.end < from {
			settled = c.at
		}
	}
	highest := int64(0)
	if settled == 0 {
		highest = l.declared()
	}
	for _, c := range l.limits {
		if c.at <= to && c.end >= settled {
			highest = max(highest, c.Limit)
		}
	}
	return highest
}

// declared is the highest limit that a semaphore was asked for with.
func (l *lock) declared() int64 {
	if l.most == 0 {
		for _, t := range l.tenures {
			if t.kind == semaphore {
				l.most = max(l.most, t.limit)
			}
		}
	}
	return l.most
}

// beside reports who held beside the one that came in last, and must not, if somebody did.
func (j *judgement) beside(l *lock, active []edge, last edge) {
	b := last.t
	var a *tenure
	for _, o := range active {
		conflict := o.t.kind != b.kind || o.t.alone(o.units) || b.alone(last.units)
		if o.t != b && conflict && (a == nil || o.t.granted.At < a.granted.At) {
			a = o.t
		}
	}
	if a == nil {
		return
	}
	end := min(a.last, b.last)
	events := append(a.events(), b.events()...)
	kinds := ""
	if a.kind != b.kind {
		kinds = fmt.Sprintf(" One asked for a %s, the other for a %s.", a.kind, b.kind)
	}
	for _, p := range j.lifeOf(a).pauses {
		if p.to > last.at && p.from < last.at || p.to <= last.at && p.from > a.granted.At && j.lookAfter(a, p.to) > last.at {
			if p.to > a.last {
				continue
			}
			j.find("told", l.name, last.at, events,
				"%s, was granted %q at %s and was paused %s. Meanwhile %s, was granted it, and held it %s. When the first went on, its lease still said that it holds, until %s at the least.%s",
				a.who(), l.name, j.when(a.granted.At), j.span(p.from, p.to), b.who(), j.span(last.at, b.last), j.when(a.last), kinds)
			return
		}
	}
	j.find("exclusion", l.name, last.at, events,
		"Two held %q at the same time, %s (%.3f ms): %s, granted at %s, and %s, granted at %s.%s",
		l.name, j.span(last.at, end), float64(end-last.at)/1e6, a.who(), j.when(a.granted.At), b.who(), j.when(last.at), kinds)
}

// tooMany reports that too many permits were out when the last came in, if it is so.
func (j *judgement) tooMany(l *lock, active []edge, last edge) {
	used, asked := int64(0), int64(0)
	for _, a := range active {
		used += a.units
		asked = max(asked, a.t.firstAsk())
	}
	allowed := l.limitBetween(asked, last.at)
	if used <= allowed {
		return
	}
	var events []*Event
	text := ""
	for i, a := range active {
		if i < 12 {
			text += fmt.Sprintf("; %s, held %s", a.t.who(), j.span(a.at, a.t.last))
			events = append(events, a.t.ask, a.t.granted, a.t.look)
		}
	}
	for _, c := range l.limits {
		if len(events) < 60 && c.at <= last.at {
			events = append(events, c.Event)
		}
	}
	j.find("exclusion", l.name, last.at, events, "At %s %q had %s out, and a limit of %d at the most%s.",
		j.when(last.at), l.name, permitsText(used), allowed, text)
}

// lookAfter is the first time after at that the tenure's lease was looked at and said that it
// holds, or never.
func (j *judgement) lookAfter(t *tenure, at int64) int64 {
	i, _ := slices.BinarySearchFunc(j.history, at, func(e Event, at int64) int { return cmp.Compare(e.At, at) })
	for _, e := range j.history[i:] {
		if e.What == Look && e.Op == t.op && e.Process == t.process && e.Life == t.life {
			return e.At
		}
	}
	return never
}
