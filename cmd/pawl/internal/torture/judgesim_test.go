package torture

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// simulation is a lock service, and processes that use it, in made-up time: claims run
// out, processes are paused between any two things they do, and killed, and names are freed by
// force. wrong is what of it is broken.
type simulation struct {
	rand    *rand.Rand
	wrong   string
	now     int64
	ttl     int64
	history []Event
	names   []*simName
	procs   []*simProc
	claims  []handed
	writes  map[*simName]int64 // highest token that the resource has seen
	token   int64
}

type handed struct {
	handle string
	from   *simTurn
	times  int // that it was offered
}

type simName struct {
	name, kind string
	limit      int64
	queue      []*simTurn // that wait, in order
	holds      []*simTurn
}

type simProc struct {
	n, life int
	paused  int64 // until then
	ops     uint64
	workers []*simWorker
}

type simWorker struct {
	*simProc
	turn *simTurn
	next func() // what comes next of something with several steps
}

type simTurn struct {
	*simName
	proc     *simProc
	life     int
	op       Event
	units    int64
	token    int64
	expires  int64 // in the store
	deadline int64 // as its process knows
	granted  bool  // by the store
	known    bool  // to its process
	over     bool  // taken away
}

func simulate(seed uint64, wrong string, steps int) []Event {
	s := &simulation{rand: rand.New(rand.NewPCG(seed, 7)), wrong: wrong, now: 1e9, ttl: 50 * milli, writes: make(map[*simName]int64)}
	for i := range 6 {
		kind := AllKinds[i%3]
		n := &simName{name: fmt.Sprintf("%s%d", kind, i), kind: kind, limit: 1}
		switch kind {
		case "rw":
			n.limit = alone
		case "semaphore":
			n.limit = 3
		}
		s.names = append(s.names, n)
	}
	for i := range 5 {
		p := &simProc{n: i + 1, life: 1}
		for range 3 {
			p.workers = append(p.workers, &simWorker{simProc: p})
		}
		s.procs = append(s.procs, p)
	}
	for range steps {
		s.now += 1 + s.rand.Int64N(milli/4)
		s.serve()
		switch p := s.procs[s.rand.IntN(len(s.procs))]; {
		case s.now < p.paused:
		case s.chance(2000):
			s.parent(p, Killed)
			p.life++
			for _, w := range p.workers {
				w.turn, w.next = nil, nil
			}
		case s.chance(1000):
			s.parent(p, Paused)
			p.paused = s.now + s.rand.Int64N(3*s.ttl)
			s.history = append(s.history, Event{At: p.paused, Process: p.n, Life: p.life, What: Resumed})
		default:
			s.work(p.workers[s.rand.IntN(len(p.workers))])
		}
	}
	for _, p := range s.procs {
		s.now++
		s.parent(p, Killed)
	}
	slices.SortStableFunc(s.history, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return s.history
}

func (s *simulation) chance(n int) bool { return s.rand.IntN(n) == 0 }

// breaks tells whether something goes wrong now.
func (s *simulation) breaks(what string, n int) bool { return s.wrong == what && s.chance(n) }

func (s *simulation) parent(p *simProc, what What) {
	s.history = append(s.history, Event{At: s.now, Process: p.n, Life: p.life, What: what})
}

func (s *simulation) record(t *simTurn, what What, set func(*Event)) {
	e := Event{At: s.now, Process: t.proc.n, Life: t.life, Op: t.op.Op, What: what, Name: t.name, Kind: t.kind, Token: t.token, Units: t.units, Until: t.deadline}
	if set != nil {
		set(&e)
	}
	s.history = append(s.history, e)
}

// serve is the store: what has run out goes, and who fits is granted, in order.
func (s *simulation) serve() {
	for _, n := range s.names {
		out := func(t *simTurn) bool { return t.expires <= s.now }
		n.holds = slices.DeleteFunc(n.holds, out)
		n.queue = slices.DeleteFunc(n.queue, out)
		if len(n.holds) > 0 && s.breaks("thief", 2000) {
			n.holds[0].over = true
			n.holds = n.holds[1:]
		}
		for len(n.queue) > 0 && (n.used()+n.queue[0].units <= n.limit || s.breaks("crowded", 200)) {
			t := n.queue[0]
			n.queue = n.queue[1:]
			t.granted, t.token = true, s.draw()
			n.holds = append(n.holds, t)
		}
	}
}

func (s *simulation) draw() int64 {
	if s.token += 1 + s.rand.Int64N(3); s.breaks("counter", 200) {
		return s.token - 20
	}
	return s.token
}

func (n *simName) used() (units int64) {
	for _, t := range n.holds {
		units += t.units
	}
	return units
}

func (t *simTurn) held() bool { return slices.Contains(t.holds, t) }

// renew gives a turn more time.
func (s *simulation) renew(t *simTurn) {
	if t.held() || !t.granted && slices.Contains(t.queue, t) {
		t.expires, t.deadline = s.now+s.ttl, s.now+s.ttl*9/10
		if s.breaks("hasty", 20) {
			t.expires = s.now + s.ttl/20
		}
	}
}

// believes is what the lease says.
func (s *simulation) believes(t *simTurn) bool {
	return s.now < t.deadline || s.wrong == "blind"
}

func (s *simulation) work(w *simWorker) {
	if next := w.next; next != nil {
		w.next = nil
		next()
		return
	}
	switch t := w.turn; {
	case t == nil:
		s.begin(w)
	case !t.known:
		s.wait(w)
	default:
		s.hold(w)
	}
}

func (s *simulation) begin(w *simWorker) {
	n := s.names[s.rand.IntN(len(s.names))]
	w.ops++
	e := Event{At: s.now, Process: w.n, Life: w.life, Op: w.ops, Name: n.name}
	switch {
	case s.chance(200):
		e.What = ForceRelease
		s.call(w, e, func() {
			for _, t := range n.holds {
				t.over = true
			}
			n.holds = nil
		})
		return
	case n.kind == "semaphore" && s.chance(20):
		e.What, e.Limit = SetLimit, 1+s.rand.Int64N(4)
		s.call(w, e, func() {
			if !s.breaks("deaf", 2) {
				n.limit = e.Limit
			}
		})
		return
	case len(s.claims) > 0 && s.chance(3):
		s.adopt(w)
		return
	}
	e.What, e.Way, e.Kind, e.Limit, e.Units = Ask, "lock", n.kind, n.limit, 1
	switch {
	case n.kind == "semaphore":
		e.Limit = 3
		e.Units = 1 + s.rand.Int64N(2)
	case n.kind == "rw" && s.chance(3):
		e.Units = alone
	}
	s.history = append(s.history, e)
	t := &simTurn{simName: n, proc: w.simProc, life: w.life, op: e, units: e.Units}
	w.turn = t
	w.next = func() {
		t.expires, t.deadline = s.now+s.ttl, s.now+s.ttl*9/10
		n.queue = append(n.queue, t)
	}
}

// call does something between two events, which may not both be there.
func (s *simulation) call(w *simWorker, e Event, do func()) {
	s.history = append(s.history, e)
	w.next = func() {
		do()
		w.next = func() {
			e.End = s.now
			if s.chance(5) {
				e.Err = "no reply"
			}
			s.history = append(s.history, e)
		}
	}
}

func (s *simulation) adopt(w *simWorker) {
	h := &s.claims[0]
	from := h.from
	op := Event{At: s.now, Process: w.n, Life: w.life, Op: w.ops, What: Ask, Way: "adopt", Kind: from.kind, Name: from.name, Units: from.units, Limit: from.op.Limit, Handle: h.handle}
	s.history = append(s.history, op)
	t := &simTurn{simName: from.simName, proc: w.simProc, life: w.life, op: op, units: from.units}
	if h.times++; h.times == 2 {
		s.claims = s.claims[1:]
	}
	w.turn = t
	w.next = func() {
		i := slices.Index(from.holds, from)
		if i < 0 && (s.wrong != "twins" || from.over) {
			return
		}
		if i >= 0 {
			from.holds = slices.Delete(slices.Clone(from.holds), i, i+1)
		}
		t.expires, t.deadline = s.now+s.ttl, s.now+s.ttl*9/10
		t.granted, t.token = true, s.draw()
		from.holds = append(from.holds, t)
	}
}

func (s *simulation) wait(w *simWorker) {
	t := w.turn
	switch {
	case !t.granted && (s.chance(20) || t.op.Way == "adopt" || t.deadline < s.now):
		t.queue = slices.DeleteFunc(t.queue, func(o *simTurn) bool { return o == t })
		s.record(t, Failed, nil)
		w.turn = nil
	case t.granted && s.now < t.deadline:
		t.known = true
		w.next = func() { s.record(t, Granted, nil) }
	case t.granted:
		s.leave(t)
		s.record(t, Failed, nil)
		w.turn = nil
	default:
		s.renew(t)
	}
}

func (s *simulation) leave(t *simTurn) {
	t.holds = slices.DeleteFunc(t.holds, func(o *simTurn) bool { return o == t })
}

func (s *simulation) hold(w *simWorker) {
	t, at := w.turn, s.now
	switch n := s.rand.IntN(20); {
	case n < 8:
		w.next = func() {
			if s.believes(t) && !t.over {
				s.record(t, Look, func(e *Event) { e.At = at })
				return
			}
			s.record(t, Told, func(e *Event) { e.At, e.End = at, s.now })
			w.turn = nil
		}
	case n < 12:
		s.renew(t)
	case n < 14 && (t.kind == "mutex" || t.units == alone):
		w.next = func() {
			refused := ""
			if t.token < s.writes[t.simName] && s.wrong != "gullible" {
				refused = "stale"
			}
			s.writes[t.simName] = max(s.writes[t.simName], t.token)
			w.next = func() { s.record(t, Write, func(e *Event) { e.At, e.End, e.Err = at, s.now, refused }) }
		}
	case n < 15 && t.kind == "rw":
		s.change(w, t)
	default:
		s.release(w, t, n == 19)
	}
}

func (s *simulation) change(w *simWorker, t *simTurn) {
	units := int64(alone)
	if t.units == alone {
		units = 1
	}
	s.record(t, Changing, func(e *Event) { e.Units = units })
	w.next = func() {
		if !t.held() || s.now >= t.deadline || units > t.units && t.used() > 1 && s.wrong != "pushy" {
			return
		}
		if units > t.units {
			t.token = s.draw()
		}
		t.units = units
		w.next = func() { s.record(t, Changed, nil) }
	}
}

func (s *simulation) release(w *simWorker, t *simTurn, handOver bool) {
	way := "unlock"
	if handOver {
		way = "handover"
	}
	s.record(t, Release, func(e *Event) { e.Way = way })
	w.next = func() {
		lost := ""
		if !s.believes(t) || t.over {
			lost = "lost"
		}
		handle := ""
		switch {
		case lost != "" || !handOver:
			s.leave(t)
		case t.held():
			s.renew(t)
			handle = fmt.Sprintf("%d.%d", t.proc.n*1000+t.life, t.op.Op)
		default:
			lost = "lost"
		}
		w.next = func() {
			s.record(t, Released, func(e *Event) { e.Way, e.Err, e.Handle = "unlock", lost, handle })
			if handle != "" {
				s.claims = append(s.claims, handed{handle: handle, from: t})
			}
			w.turn = nil
		}
	}
}

// TestJudgeLegal: whatever pauses and dies, a lock service that is right is never blamed.
func TestJudgeLegal(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		v := Judge(simulate(uint64(seed), "", 20_000))
		for _, f := range v.Findings {
			t.Errorf("seed %d: %s: %s\n%+v", seed, f.Rule, f.Text, f.Events)
		}
		if v.Counts.Grants < 500 || len(v.Notes) > 0 {
			t.Errorf("seed %d: %+v, notes %q", seed, v.Counts, v.Notes)
		}
		if t.Failed() {
			return
		}
	}
}

// TestJudgeBroken: each way to be wrong is found, by the rule that is there for it.
func TestJudgeBroken(t *testing.T) {
	for wrong, want := range map[string]string{
		"crowded":  "exclusion",
		"counter":  "tokens",
		"hasty":    "exclusion",
		"blind":    "told",
		"twins":    "adoption",
		"gullible": "fence",
		"pushy":    "exclusion",
		"thief":    "lost",
		"deaf":     "exclusion",
	} {
		t.Run(wrong, func(t *testing.T) {
			found := ""
			for seed := range 5 {
				found += " " + rules(Judge(simulate(uint64(seed), wrong, 20_000)))
			}
			if !strings.Contains(found, want) || wrong != "deaf" && wrong != "gullible" && wrong != "thief" && !strings.Contains(found, "linearizable") {
				t.Errorf("found %q, want %s", found, want)
			}
		})
	}
}
