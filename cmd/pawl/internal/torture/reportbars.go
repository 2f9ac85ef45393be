package torture

import (
	"cmp"
	"slices"
)

// How an operation ended, as the page says it.
const (
	endOpen     = iota // it was still going on when the history ended
	endReleased        // unlocked
	endHanded          // handed over
	endLost            // told that the lease is gone
	endKilled          // its process was killed, or ended
	endChanged         // went on with other units: the next bar
	endFailed          // never granted
	endWaiting         // still waiting when its process or the history ended
)

var endTexts = []string{"open at the end", "released", "handed over", "lost", "process gone", "changed", "not granted", "still waiting"}

// bar is an operation, or the part of it with the same units. Times are of the machine's clock.
type bar struct {
	lane, track  int
	life, name   int
	op           uint64
	ask          int64 // when it began to wait; grant if it did not
	grant        int64 // when it was granted; when it ended, if it never was
	look         int64 // the last time the process looked and believed
	end          int64 // it let go, was told, or was gone
	changing     int64 // when it asked for other units
	token, until int64
	units, limit int64
	ended        int
	way, err     string
	writes       int
	refused      int
	finding      int // the first finding that shows it, from 1

	granted, closed bool
}

// span is a time in a lane: a fault, or a life. Lane -1 is all of them.
type span struct {
	lane     int
	from, to int64
	what     string
	note     string
}

// link is a hand-over: from one bar to the one that adopted it.
type link struct{ from, to *bar }

type name struct{ name, kind string }

// story is a history as the page draws it.
type story struct {
	begin, end int64
	processes  []int // of each lane
	tracks     []int // how many a lane has
	names      []name
	bars       []*bar // by lane, track and grant
	faults     []span
	lives      []span // what is empty
	gone       []span // between lives
	marks      []span // what: limit, force, left, ended
	links      []link

	lanes    map[int]int
	nameOf   map[name]int
	ops      map[opKey][]*bar
	claims   map[string]*bar
	adopts   map[*bar]string // the handle it asked to adopt
	markOf   map[opKey]int
	pausedAt map[int]*Event
	bornAt   map[int]int64
	goneAt   map[int]int64
}

type opKey struct {
	process, life int
	op            uint64
}

// tell makes the story of a result.
func tell(r *Result) *story {
	s := &story{
		begin: r.Begin, end: r.End,
		lanes: map[int]int{}, nameOf: map[name]int{}, ops: map[opKey][]*bar{}, claims: map[string]*bar{},
		adopts: map[*bar]string{}, markOf: map[opKey]int{}, pausedAt: map[int]*Event{}, bornAt: map[int]int64{}, goneAt: map[int]int64{},
	}
	history := r.History
	byTime := func(a, b Event) int { return cmp.Compare(a.At, b.At) }
	if !slices.IsSortedFunc(history, byTime) {
		history = slices.Clone(history)
		slices.SortStableFunc(history, byTime)
	}
	if len(history) > 0 {
		if s.begin == 0 {
			s.begin = history[0].At
		}
		s.end = max(s.end, history[len(history)-1].At)
	}
	s.end = max(s.end, s.begin+1)
	for p := 1; p <= min(r.Options.Processes, 10_000); p++ {
		s.processes = append(s.processes, p)
	}
	for _, e := range history {
		if e.Process > r.Options.Processes {
			s.processes = append(s.processes, e.Process)
		}
	}
	slices.Sort(s.processes)
	s.processes = slices.Compact(s.processes)
	for i, p := range s.processes {
		s.lanes[p] = i
	}
	for i := range history {
		s.add(&history[i])
	}
	s.finish()
	if r.Verdict != nil {
		s.point(r.Verdict.Findings)
	}
	s.stack()
	return s
}

func (s *story) lane(process int) int {
	if i, ok := s.lanes[process]; ok {
		return i
	}
	return -1
}

func (s *story) add(e *Event) {
	lane := s.lane(e.Process)
	switch e.What {
	case Started:
		s.leave(e.Process, e.At)
		if from, ok := s.goneAt[e.Process]; ok {
			s.gone = append(s.gone, span{lane: lane, from: from, to: e.At})
			delete(s.goneAt, e.Process)
		}
		s.bornAt[e.Process] = e.At
	case Killed:
		s.faults = append(s.faults, span{lane: lane, from: e.At, to: e.At, what: "kill", note: e.Note})
		s.leave(e.Process, e.At)
		s.goneAt[e.Process] = e.At
	case Ended:
		s.leave(e.Process, e.At)
		s.goneAt[e.Process] = e.At
		if e.Err != "" {
			s.marks = append(s.marks, span{lane: lane, from: e.At, to: e.At, what: "ended", note: e.Err})
		}
	case Paused:
		s.pausedAt[e.Process] = e
	case Resumed:
		s.resume(e.Process, e.At)
	case Fault:
		s.faults = append(s.faults, span{lane: lane, from: e.At, to: max(e.At, e.End), what: e.Fault, note: e.Note})
	case SetLimit, ForceRelease, Left:
		s.mark(lane, e)
	default:
		s.operate(lane, e)
	}
}

// mark notes what happened at once. Some of it is told before and after it was done.
func (s *story) mark(lane int, e *Event) {
	m := span{lane: lane, from: e.At, to: max(e.At, e.End), what: string(e.What), note: e.Name}
	switch e.What {
	case SetLimit:
		m.note += " to " + count(e.Limit)
	case Left:
		m.lane = -1
	}
	for _, more := range []string{e.Note, e.Err} {
		if more != "" {
			m.note += ": " + more
		}
	}
	key := opKey{e.Process, e.Life, e.Op}
	if i, ok := s.markOf[key]; ok && e.Op != 0 {
		s.marks[i] = m
		return
	}
	s.markOf[key] = len(s.marks)
	s.marks = append(s.marks, m)
}

// leave ends a life of a process.
func (s *story) leave(process int, at int64) {
	s.resume(process, at)
	if from, ok := s.bornAt[process]; ok {
		s.lives = append(s.lives, span{lane: s.lane(process), from: from, to: at})
		delete(s.bornAt, process)
	}
	for key, bars := range s.ops {
		if key.process != process {
			continue
		}
		for _, b := range bars {
			b.close(at, endKilled)
		}
		delete(s.ops, key)
	}
}

func (s *story) resume(process int, at int64) {
	if e, ok := s.pausedAt[process]; ok {
		s.faults = append(s.faults, span{lane: s.lane(process), from: e.At, to: at, what: "pause", note: e.Note})
		delete(s.pausedAt, process)
	}
}

func (b *bar) close(at int64, how int) {
	if b.closed {
		return
	}
	b.closed, b.ended = true, how
	if !b.granted {
		b.grant, b.look = at, at
		if how != endFailed {
			b.ended = endWaiting
		}
	}
	b.end = max(at, b.look)
}

func (s *story) newBar(lane int, e *Event) *bar {
	n := name{e.Name, e.Kind}
	i, ok := s.nameOf[n]
	if !ok {
		i = len(s.names)
		s.names = append(s.names, n)
		s.nameOf[n] = i
	}
	b := &bar{lane: lane, life: e.Life, op: e.Op, name: i, ask: e.At, units: e.Units, limit: e.Limit, way: e.Way}
	s.bars = append(s.bars, b)
	return b
}

// operate follows an operation. Its events may leave out what its first one said; those of
// several names at once say the name.
func (s *story) operate(lane int, e *Event) {
	key := opKey{e.Process, e.Life, e.Op}
	if e.What == Ask {
		b := s.newBar(lane, e)
		if e.Handle != "" {
			s.adopts[b] = e.Handle
		}
		s.ops[key] = append(s.ops[key], b)
		return
	}
	bars := s.ops[key]
	if len(bars) == 0 && e.What == Granted && e.Name != "" { // a history that was cut off
		bars = append(bars, s.newBar(lane, e))
		s.ops[key] = bars
	}
	open := false
	for i, b := range bars {
		if e.Name == "" || s.names[b.name].name == e.Name {
			bars[i] = s.step(b, e)
		}
		open = open || !bars[i].closed
	}
	if !open && (e.What == Released || e.What == Told || e.What == Failed) {
		delete(s.ops, key)
	}
}

// step applies an event to b, and returns the bar that goes on.
func (s *story) step(b *bar, e *Event) *bar {
	if e.Err != "" && e.What != Write {
		b.err = e.Err
	}
	if e.Until != 0 {
		b.until = e.Until
	}
	switch e.What {
	case Granted:
		b.granted, b.grant, b.look, b.token = true, e.At, e.At, e.Token
		if e.Units != 0 {
			b.units = e.Units
		}
		if e.Limit != 0 {
			b.limit = e.Limit
		}
		s.adopted(b, e)
	case Look:
		if b.granted && !b.closed {
			b.look = max(b.look, e.At)
		}
	case Told:
		b.close(e.At, endLost)
	case Failed:
		b.close(e.At, endFailed)
	case Release:
		b.close(e.At, endReleased)
		if b.granted {
			b.way = way(b.way, e.Way)
		}
	case Released:
		b.close(e.At, endReleased)
		if e.Handle != "" {
			if b.ended == endReleased {
				b.ended = endHanded
			}
			s.claims[e.Handle] = b
		}
	case Write:
		b.writes++
		if e.Err != "" {
			b.refused++
		}
	case Changing:
		b.changing = e.At
	case Changed:
		if !b.granted || b.closed || e.Err != "" {
			return b
		}
		return s.change(b, e)
	}
	return b
}

func way(asked, let string) string {
	if let == "" || let == "unlock" {
		return asked
	}
	return asked + ", " + let
}

// change ends b and begins a bar of the same operation with other units.
func (s *story) change(b *bar, e *Event) *bar {
	at := e.At
	if b.changing != 0 && e.Units < b.units { // a writer is a reader when it asks to be one
		at = b.changing
	}
	next := *b
	b.look = at // it has the lock before and after
	b.close(at, endChanged)
	next.ask, next.grant, next.look, next.way, next.changing = at, at, e.At, e.Way, 0
	next.writes, next.refused, next.err = 0, 0, ""
	if e.Units != 0 {
		next.units = e.Units
	}
	if e.Token != 0 {
		next.token = e.Token
	}
	s.bars = append(s.bars, &next)
	return &next
}

func (s *story) adopted(b *bar, e *Event) {
	handle := cmp.Or(e.Handle, s.adopts[b])
	if from := s.claims[handle]; handle != "" && from != nil {
		s.links = append(s.links, link{from, b})
	}
	delete(s.adopts, b)
}

func (s *story) finish() {
	for _, bars := range s.ops {
		for _, b := range bars {
			b.close(s.end, endOpen)
		}
	}
	for p := range s.pausedAt {
		s.resume(p, s.end)
	}
	for p, from := range s.bornAt {
		s.lives = append(s.lives, span{lane: s.lane(p), from: from, to: s.end})
	}
	for p, from := range s.goneAt {
		s.gone = append(s.gone, span{lane: s.lane(p), from: from, to: s.end})
	}
	for _, spans := range [][]span{s.faults, s.lives, s.gone, s.marks} {
		slices.SortStableFunc(spans, func(a, b span) int {
			return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.lane, b.lane))
		})
	}
}
