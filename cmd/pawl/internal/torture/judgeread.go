package torture

import (
	"cmp"
	"slices"
)

func newJudgement(history []Event) *judgement {
	j := &judgement{
		history: history,
		handed:  make(map[string]*tenure),
		byLife:  make(map[lifeKey]*lifetime),
		found:   make(map[string]int),
		left:    make(map[string]int),
		counts:  Counts{Faults: make(map[string]int)},
	}
	if len(history) > 0 {
		j.begin, j.end = history[0].At, history[len(history)-1].At
	}
	r := &historian{judgement: j, ops: make(map[tenureKey]*tenure), calls: make(map[tenureKey]*decree), names: make(map[string]*lock)}
	for i := range history {
		r.read(&history[i])
	}
	for _, c := range r.order {
		l := r.lock(c.Name)
		switch {
		case c.void:
		case c.What == SetLimit:
			l.limits = append(l.limits, *c)
		default:
			l.forces = append(l.forces, *c)
		}
	}
	j.locks = slices.DeleteFunc(j.locks, func(l *lock) bool {
		if l.spoiled {
			j.spoiled = append(j.spoiled, l.name)
		}
		return l.spoiled
	})
	if n := len(j.spoiled); n > 0 {
		j.note("names that are not judged, as they were made unreadable: %d", n)
	}
	for _, t := range j.tenures {
		t.adopts(j.handed[t.ask.Handle])
	}
	for _, l := range j.locks {
		l.link()
		l.force()
	}
	j.hurt = j.hurting()
	return j
}

// historian makes tenures, lives and calls of events.
type historian struct {
	*judgement
	ops   map[tenureKey]*tenure
	calls map[tenureKey]*decree
	order []*decree
	names map[string]*lock
}

func (r *historian) lock(name string) *lock {
	l := r.names[name]
	if l == nil {
		l = &lock{name: name}
		r.names[name] = l
		r.locks = append(r.locks, l)
	}
	return l
}

func (r *historian) life(e *Event) *lifetime {
	key := lifeKey{e.Process, e.Life}
	f := r.byLife[key]
	if f == nil {
		f = &lifetime{process: e.Process, life: e.Life}
		r.byLife[key] = f
		r.lives = append(r.lives, f)
	}
	return f
}

func (r *historian) read(e *Event) {
	switch e.What {
	case Started:
		r.life(e).started = e
	case Killed:
		r.life(e).killed = e
		r.counts.Faults["kill"]++
	case Ended:
		r.life(e).quit = e
	case Paused:
		f := r.life(e)
		f.pauses = append(f.pauses, period{e.At, never})
		r.counts.Faults["pause"]++
	case Resumed:
		if p := r.life(e).pauses; len(p) > 0 {
			p[len(p)-1].to = e.At
		}
	case Fault:
		switch {
		case e.Name != "":
			r.lock(e.Name).spoiled = true
		case e.Process == 0:
			r.server = append(r.server, e)
		}
		r.counts.Faults[e.Fault]++
	case Left:
		r.find("leftover", e.Name, e.At, []*Event{e}, "after all was over, this was left behind in the store: %s", cmp.Or(e.Note, e.Name))
	default:
		f := r.life(e)
		f.last = e.At
		r.act(f, e)
	}
}

// act reads an event of a process.
func (r *historian) act(f *lifetime, e *Event) {
	key := tenureKey{lifeKey{e.Process, e.Life}, e.Op}
	switch e.What {
	case SetLimit, ForceRelease:
		r.call(key, e)
		return
	case Write:
		r.counts.Writes++
		if e.Err != "" {
			r.counts.Refused++
		}
		l := r.lock(e.Name)
		l.writes = append(l.writes, e)
		return
	case Ask:
		l := r.lock(e.Name)
		t := &tenure{
			lock: l, process: e.Process, life: e.Life, op: e.Op, ask: e,
			kind: e.Kind, way: e.Way, units: e.Units, limit: e.Limit, forced: never,
		}
		r.ops[key] = t
		r.tenures = append(r.tenures, t)
		l.tenures = append(l.tenures, t)
		return
	}
	t := r.ops[key]
	if t == nil {
		return // its Ask is missing
	}
	t.until = max(t.until, e.Until)
	r.longest = max(r.longest, e.Until-e.At)
	switch e.What {
	case Granted:
		t.granted = e
		t.phases = []phase{{from: e.At, units: t.units, token: e.Token}}
		f.went = e.At
		r.counts.Grants++
		if t.way == "adopt" {
			r.counts.Adopted++
		}
	case Failed:
		t.failed = e
		f.went = e.At
		r.counts.Failed++
	case Look:
		t.last, t.look = e.At, e
	case Told:
		t.told = e
		r.counts.Lost++
	case Changing:
		t.beginChange(e)
	case Changed:
		if e.Err == "" {
			r.counts.Changed++
			t.endChange(e)
		}
	case Release:
		t.release = e
	case Released:
		r.endTenure(t, e)
	}
}

func (r *historian) endTenure(t *tenure, e *Event) {
	t.released = e
	switch {
	case e.Err != "":
		r.counts.Lost++
	case t.release != nil:
		t.last = t.release.At
	}
	if e.Handle != "" {
		r.handed[e.Handle] = t
		r.counts.HandOvers++
	}
}

// call reads what is written before a call, and once more after it.
func (r *historian) call(key tenureKey, e *Event) {
	c := r.calls[key]
	if c == nil {
		c = &decree{Event: e, at: e.At, end: never}
		r.calls[key] = c
		r.order = append(r.order, c)
	}
	if e.End == 0 {
		return
	}
	c.Event = e
	switch {
	case e.Note == "limit":
		c.void = true // it was refused
		return
	case e.Err != "":
		return
	}
	c.end = e.End
	if e.What == SetLimit {
		r.counts.Limits++
	} else {
		r.counts.Forced++
	}
}
