package torture

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Bounds of the search for an order, which may take for ever and all memory.
const (
	linearPart    = 400             // tenures that are judged together
	linearOverlap = 50              // those of the last part that are judged with the next once more
	linearSteps   = 1 << 20         // for a part
	linearTime    = 2 * time.Second // for a part
	linearAll     = 40 * time.Second
)

// linear: each name's operations can be put into one order, each between its beginning and
// its end, in which it is a lock that knows its owners: whoever is granted it fits beside those who
// hold, tokens rise, who adopts takes the place of the one who handed over, and a tenure
// ends when it is released, runs out, or is taken away, not before.
//
// Invariant: what is not certain is left to the search, or out. What was asked for and never
// answered may have been granted and have run out: that only keeps others out, so it is
// left out. The same goes for tenures that a forced release may have made stale. An end may
// be as late as it likes; how early it may be says ends. Any part of the
// tenures of a name must have an order, so a long history is judged in parts.
func (j *judgement) linear(ctx context.Context) {
	var parts []*section
	for _, l := range j.locks {
		parts = append(parts, j.parts(l)...)
	}
	ctx, cancel := context.WithTimeout(ctx, linearAll)
	defer cancel()
	work := make(chan *section)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range work {
				p.check(ctx)
			}
		})
	}
	for _, p := range parts {
		work <- p
	}
	close(work)
	workers.Wait()
	unknown, all := 0, 0
	for _, p := range parts {
		all += p.tenures
		switch p.result {
		case porcupine.Illegal:
			j.disorder(p)
		case porcupine.Unknown:
			unknown += p.tenures
		}
	}
	if unknown > 0 {
		j.note("whether they are in a linear order was not found out in time for %d of %d grants", unknown, all)
	}
}

// section is a part of a name's history.
type section struct {
	lock    *lock
	tenures int
	ops     []porcupine.Operation
	steps   []*step
	result  porcupine.CheckResult
}

func (j *judgement) parts(l *lock) []*section {
	var ts []*tenure
	for _, t := range l.tenures {
		if t.granted != nil && t.forced > t.granted.At {
			ts = append(ts, t)
		}
	}
	slices.SortStableFunc(ts, func(a, b *tenure) int { return cmp.Compare(a.granted.At, b.granted.At) })
	var parts []*section
	for from := 0; from < len(ts); from += linearPart - linearOverlap {
		to := min(from+linearPart, len(ts))
		parts = append(parts, j.part(l, ts[from:to]))
		if to == len(ts) {
			break
		}
	}
	return parts
}

// part makes operations of tenures.
func (j *judgement) part(l *lock, ts []*tenure) *section {
	p := &section{lock: l, tenures: len(ts)}
	ids := make(map[*tenure]int, len(ts))
	for i, t := range ts {
		ids[t] = i + 1
	}
	adopted := make(map[*tenure]bool)
	for _, t := range ts {
		adopted[t.from] = true
	}
	for _, t := range ts {
		s := &step{what: stepGrant, t: t, id: ids[t], units: t.units, token: t.granted.Token}
		if t.way == "adopt" {
			s.what, s.from = stepAdopt, ids[t.from]
		}
		p.add(s, t.ask.At, t.granted.At)
		for _, ph := range t.phases[1:] {
			if ph.drawn > 0 {
				p.add(&step{what: stepGrow, t: t, id: ids[t], units: ph.units, token: ph.token}, ph.drawn, ph.from)
			} else {
				p.add(&step{what: stepShrink, t: t, id: ids[t], units: ph.units}, ph.from, never)
			}
		}
		if !adopted[t] {
			p.add(&step{what: stepEnd, t: t, id: ids[t]}, j.ends(t), never)
		}
	}
	for i := range l.limits {
		c := &l.limits[i]
		p.add(&step{what: stepLimit, units: c.Limit}, c.at, c.end)
	}
	p.rank()
	return p
}

func (p *section) add(s *step, from, to int64) {
	p.steps = append(p.steps, s)
	p.ops = append(p.ops, porcupine.Operation{Input: s, Call: from, Return: to})
}

// ends is when a tenure may have ended in the store at the earliest.
//
// Where its process went on believing until Until, as far as is known, the store must
// have kept it that long: unless it was released, taken away by force, or its process
// died, whose claims some stores end at once. A lease that is released, or was found to be lost, or
// that may have been let go with the others of its set, is certain by evidence only.
func (j *judgement) ends(t *tenure) int64 {
	if t.told != nil || t.way == "all" || t.released != nil {
		return t.last
	}
	end := t.until
	if t.release != nil {
		end = min(end, t.release.At)
	}
	if f := j.lifeOf(t); f.killed != nil || f.quit != nil {
		end = min(end, f.last)
	}
	return min(max(t.last, end), t.forced)
}

// rank tells each grant how many others come before it by their tokens. Readers have no order among
// each other: those who share a claim have the token that it got when it was entered.
func (p *section) rank() {
	var ranked []*step
	for _, s := range p.steps {
		if s.ranked() {
			ranked = append(ranked, s)
		}
	}
	slices.SortStableFunc(ranked, func(a, b *step) int { return cmp.Compare(a.token, b.token) })
	readers := make([]int, len(ranked)+1)
	for _, s := range p.steps {
		if s.drawn() && !s.ranked() {
			s.rank, _ = slices.BinarySearchFunc(ranked, s.token, func(r *step, token int64) int { return cmp.Compare(r.token, token) })
			readers[s.rank]++
		}
	}
	for i, s := range ranked {
		s.rank, s.readers = i, readers[i]
	}
}

func (p *section) check(ctx context.Context) {
	p.result = porcupine.Unknown
	if ctx.Err() != nil {
		return
	}
	m := p.model()
	if r := porcupine.CheckOperationsTimeout(m.model(), p.ops, linearTime); !m.tired {
		p.result = r
	}
}

func (p *section) model() *lockModel { return &lockModel{declared: p.lock.declared()} }

// disorder reports a part that has no order, by the first operation that fits nowhere.
func (j *judgement) disorder(p *section) {
	m := p.model()
	_, info := porcupine.CheckOperationsVerbose(m.model(), p.ops, linearTime)
	var longest []int
	for _, partial := range info.PartialLinearizations() {
		for _, order := range partial {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := make(map[int]bool)
	state := any(m.init())
	for _, i := range longest {
		placed[i] = true
		_, state = m.step(state, p.steps[i])
	}
	at := -1
	for i, o := range p.ops {
		if !placed[i] && p.steps[i].drawn() && (at < 0 || o.Return < p.ops[at].Return) {
			at = i
		}
	}
	if at < 0 {
		j.find("linearizable", p.lock.name, p.ops[0].Call, nil, "What happened to %q has no order in which it is a lock.", p.lock.name)
		return
	}
	s, o := p.steps[at], p.ops[at]
	events := s.t.events()
	text := ""
	for _, h := range state.(*lockState).holds {
		for _, q := range p.steps {
			if q.id == h.id && q.what == stepEnd {
				text += ", " + q.t.who() + ", which was granted at " + j.when(q.t.granted.At) + " and cannot have ended before " + j.when(j.ends(q.t))
				events = append(events, q.t.events()...)
			}
		}
	}
	if text != "" {
		text = " Held then" + text + "."
	}
	j.find("linearizable", p.lock.name, o.Return, events,
		"There is no order of what happened to %q in which it is a lock with rising tokens: %s, cannot have been granted %s.%s",
		p.lock.name, s.t.who(), j.span(o.Call, o.Return), text)
}
