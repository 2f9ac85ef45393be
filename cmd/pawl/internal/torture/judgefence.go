package torture

import (
	"cmp"
	"slices"
)

// fence: the resource takes no write with a smaller token than one it took, and refuses none
// of somebody who holds alone.
//
// Invariant: a write is taken or refused between At and End, so of two the one that
// ended before the other began came first. A write is refused because somebody with a
// greater token has written before. So if it was of one who held alone until after
// the reply, by its evidence, that other was granted while it held.
func (j *judgement) fence(l *lock) {
	byEnd := make([]*Event, 0, len(l.writes))
	for _, w := range l.writes {
		if w.Err == "" {
			byEnd = append(byEnd, w)
		}
	}
	slices.SortStableFunc(byEnd, func(a, b *Event) int { return cmp.Compare(a.End, b.End) })
	phases := l.byToken()
	var highest *Event
	for _, w := range l.writes { // in the order of At
		for ; len(byEnd) > 0 && byEnd[0].End < w.At; byEnd = byEnd[1:] {
			if highest == nil || byEnd[0].Token > highest.Token {
				highest = byEnd[0]
			}
		}
		if w.Err == "" {
			if highest != nil && highest.Token > w.Token {
				j.find("fence", l.name, w.At, []*Event{highest, w},
					"The resource took a stale write of %q: token %d of %s at %s, after token %d of %s at %s.",
					l.name, w.Token, who(w.Process, w.Life), j.when(w.At), highest.Token, who(highest.Process, highest.Life), j.when(highest.End))
			}
			continue
		}
		if p := phases[writer{w.Process, w.Life, w.Token}]; p.from < w.At && w.End < p.to {
			j.find("fence", l.name, w.At, append(p.t.events(), w),
				"The resource refused a write of %q with token %d, %s, of %s, which held alone %s: somebody with a greater token had written meanwhile (%s).",
				l.name, w.Token, j.span(w.At, w.End), who(w.Process, w.Life), j.span(p.from, p.to), w.Err)
		}
	}
}

type writer struct {
	process, life int
	token         int64
}

// loner is who held alone, and when; nobody did if it's empty.
type loner struct {
	t        *tenure
	from, to int64
}

// byToken is who held alone, by evidence, with which token.
func (l *lock) byToken() map[writer]loner {
	m := make(map[writer]loner)
	for _, t := range l.tenures {
		for i, p := range t.phases {
			to := t.last
			if i+1 < len(t.phases) {
				to = min(to, t.phases[i+1].from)
			}
			if t.alone(p.units) {
				m[writer{t.process, t.life, p.token}] = loner{t, p.from, to}
			}
		}
	}
	return m
}
