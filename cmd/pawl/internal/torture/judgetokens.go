package torture

import (
	"cmp"
	"slices"
)

// draw is a token, which was drawn after lo and before hi.
type draw struct {
	t      *tenure
	token  int64
	lo, hi int64
	alone  bool
}

// draws are the tokens of a name that were granted.
func (l *lock) draws() []draw {
	var ds []draw
	for _, t := range l.tenures {
		for i, p := range t.phases {
			d := draw{t, p.token, t.ask.At, p.from, t.alone(p.units)}
			if i > 0 {
				if p.drawn == 0 {
					continue
				}
				d.lo = p.drawn
			}
			ds = append(ds, d)
		}
	}
	return ds
}

// stale tells whether the draw may be of a claim that was taken away by force, whose
// tokens its process may go on using until it is told.
func (d *draw) stale() bool { return d.t.forced <= d.hi }

// tokens: they rise in the order of grants, and no token is granted twice.
//
// Invariant: a token was drawn before its grant was known, and, if the claim is its own,
// after it was asked for. A claim that is shared was entered when the first of its
// process asked who is in one chain with it; and who holds alone was not let in while
// somebody else was granted the name in between: so one that was granted before it asked has a smaller token.
// And of two that exclude each other, both believed, the one that was known to hold first came first.
func (j *judgement) tokens(l *lock) {
	ds := l.draws()
	j.tokensOnce(l, ds)
	blamed := make(map[*tenure]bool)
	j.tokensAsked(l, ds, blamed)
	j.tokensBelieved(l, ds, blamed)
}

// tokensOnce: only readers of one process that share a claim have the same token; in a
// quorum also those that were let in at the same time.
func (j *judgement) tokensOnce(l *lock, ds []draw) {
	seen := make(map[int64]draw, len(ds))
	for _, d := range ds {
		o, again := seen[d.token]
		if !again {
			seen[d.token] = d
			continue
		}
		readers := !o.alone && !d.alone && d.t.kind == rw
		share := o.t.process == d.t.process && o.t.life == d.t.life
		atOnce := j.quorum && o.lo < d.hi && d.lo < o.hi
		if !readers || !share && !atOnce {
			j.find("tokens", l.name, d.hi, append(o.t.events(), d.t.events()...),
				"Token %d of %q was granted twice: to %s, at %s, and to %s, at %s.",
				d.token, l.name, who(o.t.process, o.t.life), j.when(o.hi), who(d.t.process, d.t.life), j.when(d.hi))
		}
	}
}

// tokensAsked: who was granted before another asked has the smaller token.
func (j *judgement) tokensAsked(l *lock, ds []draw, blamed map[*tenure]bool) {
	type question struct {
		at    int64
		d     *draw
		alone bool // only those who held alone are surely before it
	}
	var questions []question
	for i := range ds {
		d := &ds[i]
		// One that is shared in a process may have got its token before this one asked.
		questions = append(questions, question{d.t.chain, d, false})
		if !d.stale() {
			questions = append(questions, question{d.lo, d, !d.alone})
		}
	}
	slices.SortStableFunc(questions, func(a, b question) int { return cmp.Compare(a.at, b.at) })
	known := make([]*draw, len(ds))
	for i := range ds {
		known[i] = &ds[i]
	}
	slices.SortStableFunc(known, func(a, b *draw) int { return cmp.Compare(a.hi, b.hi) })
	var all, alone *draw // with the highest token so far
	for _, q := range questions {
		for ; len(known) > 0 && known[0].hi < q.at; known = known[1:] {
			if k := known[0]; all == nil || k.token > all.token {
				all = k
			}
			if k := known[0]; k.alone && (alone == nil || k.token > alone.token) {
				alone = k
			}
		}
		before := all
		if q.alone {
			before = alone
		}
		if before != nil && before.token >= q.d.token && !blamed[q.d.t] {
			blamed[q.d.t] = true
			j.fell(l, before, q.d, "asked after that, at "+j.when(q.d.lo))
		}
	}
}

// tokensBelieved: of two that exclude each other, who was known to hold first has the
// smaller token.
func (j *judgement) tokensBelieved(l *lock, ds []draw, blamed map[*tenure]bool) {
	var points []*draw
	for i := range ds {
		if d := &ds[i]; d.hi < d.t.last {
			points = append(points, d)
		}
	}
	slices.SortStableFunc(points, func(a, b *draw) int { return cmp.Compare(a.hi, b.hi) })
	var all, alone *draw
	for _, d := range points {
		before := alone
		if d.alone {
			before = all
		}
		if before != nil && before.hi < d.hi && before.token >= d.token && !blamed[d.t] {
			j.fell(l, before, d, "both believed that they hold, and exclude each other")
		}
		if all == nil || d.token > all.token {
			all = d
		}
		if d.alone && (alone == nil || d.token > alone.token) {
			alone = d
		}
	}
}

func (j *judgement) fell(l *lock, first, second *draw, why string) {
	j.find("tokens", l.name, second.hi, append(first.t.events(), second.t.events()...),
		"Tokens of %q did not rise: %s was granted token %d at %s, and %s token %d at %s; the second %s.",
		l.name, who(first.t.process, first.t.life), first.token, j.when(first.hi),
		who(second.t.process, second.t.life), second.token, j.when(second.hi), why)
}
