package torture

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// tale makes a history by hand, with times in milliseconds.
type tale struct {
	events []Event
	name   string
	kind   string
	limit  int64
}

const milli = 1_000_000

func (s *tale) add(at int64, process int, e Event) {
	e.At, e.Process = at*milli, process
	e.End *= milli
	e.Until *= milli
	if e.Life == 0 {
		e.Life = 1
	}
	if e.Op > 0 && e.Name == "" {
		e.Name, e.Kind = s.name, cmp.Or(e.Kind, s.kind)
	}
	s.events = append(s.events, e)
}

func newTale(kind string, limit int64) *tale { return &tale{name: "a", kind: kind, limit: limit} }

// turn is an operation of a process.
type turn struct {
	process      int
	op           uint64
	ask, granted int64
	token        int64
	look         int64 // the last positive one; 0: there is none
	unlock       int64 // it is unlocked, and was held until then; 0: it is not
	units        int64 // 0: 1
	way, handle  string
	kind         string
	until        int64
}

func (s *tale) turn(o turn) *tale {
	units := cmp.Or(o.units, 1)
	s.add(o.ask, o.process, Event{What: Ask, Op: o.op, Way: cmp.Or(o.way, "lock"), Kind: cmp.Or(o.kind, s.kind), Units: units, Limit: s.limit, Handle: o.handle})
	if o.granted > 0 {
		s.add(o.granted, o.process, Event{What: Granted, Op: o.op, Token: o.token, Units: units, Until: o.until})
	}
	if o.look > 0 {
		s.add(o.look, o.process, Event{What: Look, Op: o.op, Token: o.token, Until: o.until})
	}
	if o.unlock > 0 {
		s.add(o.unlock, o.process, Event{What: Release, Op: o.op, Way: "unlock", Token: o.token})
		s.add(o.unlock+1, o.process, Event{What: Released, Op: o.op, Way: "unlock", Token: o.token})
	}
	return s
}

// handOver gives up a turn for others to adopt.
func (s *tale) handOver(at int64, process int, op uint64, handle string) *tale {
	s.add(at, process, Event{What: Release, Op: op, Way: "handover"})
	s.add(at+1, process, Event{What: Released, Op: op, Way: "handover", Handle: handle})
	return s
}

func (s *tale) event(at int64, process int, e Event) *tale {
	s.add(at, process, e)
	return s
}

func (s *tale) judge() *Verdict {
	slices.SortStableFunc(s.events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return Judge(s.events)
}

func rules(v *Verdict) string {
	var found []string
	for _, f := range v.Findings {
		found = append(found, f.Rule)
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " ")
}

const alone = 1 << 31 // units of a writer

func TestJudge(t *testing.T) {
	turns := func(kind string, limit int64, ts ...turn) *tale {
		s := newTale(kind, limit)
		for _, o := range ts {
			s.turn(o)
		}
		return s
	}
	one := turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30}
	two := turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 40}
	force := func(at, end int64, err string) Event {
		return Event{What: ForceRelease, Op: 99, Name: "a", End: end, Err: err}
	}
	limit := func(to, end int64) Event {
		return Event{What: SetLimit, Op: 99, Name: "a", Limit: to, End: end}
	}
	for _, test := range []struct {
		name string
		tale *tale
		want string // the rules, in order
		text string // a part of a finding
	}{
		{"one after the other", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15}, two), "", ""},
		{"two at once", turns("mutex", 1, one, two), "exclusion linearizable", "Two held \"a\" at the same time, from 0.019 to 0.029 s"},
		{"granted late, with no look after it", turns("mutex", 1,
			turn{process: 1, op: 1, ask: 1, granted: 30, token: 5}, turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 40}), "", ""},
		{"unlock says that it held", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 30}, two), "exclusion linearizable", ""},
		{"readers", turns("rw", alone, one, two), "", ""},
		{"reader and writer", turns("rw", alone, one, turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 40, units: alone}), "exclusion linearizable", "a writer"},
		{"two kinds", turns("semaphore", 3, one, turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 40, kind: "mutex"}), "exclusion linearizable", "One asked for a semaphore"},
		{"permits", turns("semaphore", 2, one, two), "", ""},
		{"too many permits", turns("semaphore", 2, one, two, turn{process: 3, op: 1, ask: 3, granted: 25, token: 7, look: 50}), "exclusion linearizable", "\"a\" had 3 permits out, and a limit of 2"},
		{"permits of a limit that was raised", turns("semaphore", 1, one, two).event(12, 3, limit(2, 13)), "", ""},
		{"permits of a limit that was lowered", turns("semaphore", 2, one, two).event(21, 3, limit(1, 22)), "", ""},
		{"one who came when it had been lowered", turns("semaphore", 2, one, turn{process: 2, op: 1, ask: 14, granted: 20, token: 6, look: 40}).
			event(12, 3, limit(1, 13)), "exclusion linearizable", "limit of 1"},
		{"one who came while it may have been lowered", turns("semaphore", 2, one, turn{process: 2, op: 1, ask: 14, granted: 20, token: 6, look: 40}).
			event(12, 3, limit(1, 15)), "", ""},
		{"a limit that is set late", turns("semaphore", 1, one, two).event(5, 3, limit(2, 0)), "", ""},
		{"an adopter of permits that came before it was lowered", turns("semaphore", 2, one,
			turn{process: 2, op: 1, ask: 2, granted: 12, token: 6}).handOver(14, 2, 1, "c").event(15, 3, limit(1, 16)).
			turn(turn{process: 3, op: 1, ask: 17, granted: 20, token: 7, look: 40, way: "adopt", handle: "c"}), "", ""},

		{"a writer that became a reader", turns("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30, units: alone}, two).
			event(11, 1, Event{What: Changing, Op: 1, Units: 1}).event(25, 1, Event{What: Changed, Op: 1, Units: 1, Token: 5}), "", ""},
		{"a writer that became one too late", turns("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30, units: alone}, two).
			event(25, 1, Event{What: Changing, Op: 1, Units: 1}).event(26, 1, Event{What: Changed, Op: 1, Units: 1, Token: 5}), "exclusion linearizable", ""},
		{"a reader that became a writer beside another", turns("rw", alone, one, turn{process: 2, op: 1, ask: 2, granted: 11, token: 6, look: 40}).
			event(12, 1, Event{What: Changing, Op: 1, Units: alone}).event(14, 1, Event{What: Changed, Op: 1, Units: alone, Token: 7}), "exclusion linearizable", ""},
		{"a reader that became a writer alone", turns("rw", alone, one, turn{process: 2, op: 1, ask: 2, granted: 40, token: 8, look: 41}).
			event(12, 1, Event{What: Changing, Op: 1, Units: alone}).event(14, 1, Event{What: Changed, Op: 1, Units: alone, Token: 7}), "", ""},

		{"told when it went on", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12},
			turn{process: 2, op: 1, ask: 2, granted: 60, token: 6, look: 70}).
			event(14, 1, Event{What: Paused}).event(80, 1, Event{What: Resumed}).event(81, 1, Event{What: Told, Op: 1, Err: "lost"}), "", ""},
		{"not told when it went on", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 82, until: 50},
			turn{process: 2, op: 1, ask: 2, granted: 60, token: 6, look: 70}).
			event(14, 1, Event{What: Paused}).event(80, 1, Event{What: Resumed}), "linearizable told", "was paused from 0.013 to 0.079 s"},

		{"lost before its time", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100}).
			event(20, 1, Event{What: Told, Op: 1, Err: "gone", End: 21}), "lost", "was good until 0.099 s"},
		{"lost in time", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100}).
			event(20, 1, Event{What: Told, Op: 1, Err: "gone", End: 101}), "", ""},
		{"lost by force", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100}).
			event(20, 1, Event{What: Told, Op: 1, Err: "gone", End: 21}).event(15, 2, force(15, 30, "")), "", ""},
		{"lost by a server that was hurt", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100}).
			event(20, 1, Event{What: Told, Op: 1, Err: "gone", End: 21}).event(11, 0, Event{What: Fault, Fault: "server", End: 13}), "", ""},
		{"unlock finds that it was lost before its time", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100}).
			event(20, 1, Event{What: Release, Op: 1, Way: "unlock"}).event(21, 1, Event{What: Released, Op: 1, Way: "unlock", Err: "lost"}), "lost", ""},

		{"forced", turns("mutex", 1, one, two).event(15, 3, force(15, 16, "")), "", ""},
		{"forced after it", turns("mutex", 1, one, two).event(35, 3, force(35, 36, "")), "exclusion linearizable", ""},
		{"forced before they asked", turns("mutex", 1, turn{process: 1, op: 1, ask: 5, granted: 10, token: 5, look: 30},
			turn{process: 2, op: 1, ask: 6, granted: 20, token: 6, look: 40}).event(2, 3, force(2, 3, "")), "exclusion linearizable", ""},
		{"forced, perhaps, later", turns("mutex", 1, one, two).event(1, 3, force(1, 4, "no reply")), "", ""},
		{"forced, and passed on in the process", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 18},
			turn{process: 1, op: 2, ask: 16, granted: 19, token: 6, look: 30}, turn{process: 2, op: 1, ask: 2, granted: 14, token: 100, look: 40}).
			event(12, 3, force(12, 13, "")), "", ""},
		{"the same, but not forced", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 18},
			turn{process: 1, op: 2, ask: 16, granted: 19, token: 6, look: 30}, turn{process: 2, op: 1, ask: 2, granted: 14, token: 100, look: 40}),
			"exclusion linearizable tokens", ""},

		{"a token falls", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15},
			turn{process: 2, op: 1, ask: 16, granted: 20, token: 4, look: 30}), "linearizable tokens", "granted token 5 at 0.009 s, and process 2 (first life) token 4"},
		{"a token falls, of one that was asked for before", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15},
			turn{process: 2, op: 1, ask: 2, granted: 20, token: 4, look: 30}), "linearizable tokens", "exclude each other"},
		{"a token is granted twice", turns("semaphore", 2, one, turn{process: 2, op: 1, ask: 2, granted: 20, token: 5, look: 40}), "tokens", "granted twice"},
		{"readers share a token", turns("rw", alone, one, turn{process: 1, op: 2, ask: 15, granted: 16, token: 5, look: 40}), "", ""},
		{"a reader joins one that came before another", turns("rw", alone, one, turn{process: 2, op: 1, ask: 11, granted: 12, token: 6, look: 40},
			turn{process: 1, op: 2, ask: 15, granted: 16, token: 5, look: 40}), "", ""},
		{"a reader of a claim that is over", turns("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 11},
			turn{process: 2, op: 1, ask: 12, granted: 13, token: 6, look: 40}, turn{process: 1, op: 2, ask: 15, granted: 16, token: 5, look: 40}), "tokens", "granted token 6 at"},
		{"permits out of order", turns("semaphore", 2, one, turn{process: 2, op: 1, ask: 11, granted: 20, token: 4, look: 40}), "linearizable tokens", ""},
		{"permits in any order", turns("semaphore", 2, one, turn{process: 2, op: 1, ask: 9, granted: 20, token: 4, look: 40}), "", ""},

		{"writes", turns("mutex", 1, one).event(12, 1, Event{What: Write, Op: 1, Token: 5, End: 13}).event(14, 2, Event{What: Write, Op: 1, Token: 6, End: 15}), "", ""},
		{"a stale write", turns("mutex", 1, one).event(12, 2, Event{What: Write, Op: 1, Token: 6, End: 13}).event(14, 1, Event{What: Write, Op: 1, Token: 5, End: 15}), "fence", "took a stale write"},
		{"writes in any order", turns("mutex", 1, one).event(12, 2, Event{What: Write, Op: 1, Token: 6, End: 15}).event(14, 1, Event{What: Write, Op: 1, Token: 5, End: 16}), "", ""},
		{"refused while it held", turns("mutex", 1, one).event(12, 1, Event{What: Write, Op: 1, Token: 5, End: 13, Err: "stale 6"}), "fence", "held alone from 0.009 to 0.029 s"},
		{"refused after it", turns("mutex", 1, one).event(12, 1, Event{What: Write, Op: 1, Token: 5, End: 31, Err: "stale 6"}), "", ""},
		{"refused of one that was forced", turns("mutex", 1, one).event(12, 1, Event{What: Write, Op: 1, Token: 5, End: 13, Err: "stale 6"}).event(11, 3, force(11, 12, "")), "", ""},

		{"adopted", turns("mutex", 1, one).handOver(32, 1, 1, "c").turn(turn{process: 2, op: 1, ask: 35, granted: 36, token: 6, look: 40, way: "adopt", handle: "c"}), "", ""},
		{"adopted twice", turns("mutex", 1, one).handOver(32, 1, 1, "c").
			turn(turn{process: 2, op: 1, ask: 35, granted: 36, token: 6, unlock: 40, way: "adopt", handle: "c"}).
			turn(turn{process: 3, op: 1, ask: 35, granted: 50, token: 7, look: 52, way: "adopt", handle: "c"}), "adoption linearizable", "Two adopted claim c"},
		{"adopted from nobody", turns("mutex", 1, turn{process: 2, op: 1, ask: 35, granted: 36, token: 6, look: 40, way: "adopt", handle: "c"}), "adoption", "nobody had handed over"},
		{"adopted with the same token", turns("mutex", 1, one).handOver(32, 1, 1, "c").
			turn(turn{process: 2, op: 1, ask: 35, granted: 36, token: 5, look: 40, way: "adopt", handle: "c"}), "adoption tokens", "is not greater"},
		{"adopted when another was granted", turns("mutex", 1, one).handOver(32, 1, 1, "c").turn(turn{process: 3, op: 1, ask: 33, granted: 34, token: 6, unlock: 35}).
			turn(turn{process: 2, op: 1, ask: 36, granted: 37, token: 7, look: 40, way: "adopt", handle: "c"}), "linearizable", "cannot have been granted"},

		{"granted before a killed one ran out", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 1, op: 2, ask: 48, kind: "mutex"}, turn{process: 2, op: 1, ask: 2, granted: 40, token: 6, look: 45}).
			event(50, 1, Event{What: Killed}), "linearizable", "cannot have ended before 0.047 s"},
		{"granted when a killed one may be gone", turns("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 2, granted: 60, token: 6, look: 65}).event(50, 1, Event{What: Killed}), "", ""},

		{"no answer", turns("mutex", 1, turn{process: 1, op: 1, ask: 1}), "stuck", "had no answer"},
		{"no answer, but killed", turns("mutex", 1, turn{process: 1, op: 1, ask: 1}).event(5, 1, Event{What: Killed}), "", ""},
		{"did not go on", turns("mutex", 1, one).event(31, 2, Event{What: Fault, Fault: "slow", End: 40}).event(9000, 1, Event{What: Ended}), "stuck", "did not go on after the last fault"},
		{"went on", turns("mutex", 1, one, turn{process: 1, op: 2, ask: 45, granted: 50, token: 6}).
			event(31, 1, Event{What: Fault, Fault: "slow", End: 40}).event(9000, 1, Event{What: Ended}), "", ""},
		{"ended badly", turns("mutex", 1, one).event(40, 1, Event{What: Ended, Err: "exit status 2"}), "process", "exit status 2"},
		{"left behind", turns("mutex", 1, one).event(40, 0, Event{What: Left, Name: "a", Note: "a claim"}), "leftover", "a claim"},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := test.tale.judge()
			texts := ""
			for _, f := range v.Findings {
				texts += "\n" + f.Rule + ": " + f.Text
			}
			if got := rules(v); got != test.want {
				t.Errorf("found %q, want %q:%s", got, test.want, texts)
			}
			if !strings.Contains(texts, test.text) {
				t.Errorf("want %q in:%s", test.text, texts)
			}
		})
	}
}

func TestJudgeCounts(t *testing.T) {
	v := newTale("mutex", 1).
		turn(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5}).
		event(11, 1, Event{What: Write, Op: 1, Token: 5, End: 12}).event(13, 1, Event{What: Write, Op: 1, Token: 5, End: 16, Err: "stale 6"}).
		handOver(15, 1, 1, "c").
		turn(turn{process: 2, op: 1, ask: 20, granted: 21, token: 6, way: "adopt", handle: "c"}).event(22, 2, Event{What: Told, Op: 1, Err: "lost"}).
		turn(turn{process: 2, op: 2, ask: 23}).event(24, 2, Event{What: Failed, Op: 2, Err: "held"}).
		event(25, 2, Event{What: ForceRelease, Op: 3, Name: "a"}).event(25, 2, Event{What: ForceRelease, Op: 3, Name: "a", End: 26}).
		event(27, 2, Event{What: SetLimit, Op: 4, Name: "s", Limit: 2}).event(27, 2, Event{What: SetLimit, Op: 4, Name: "s", Limit: 2, End: 28}).
		event(30, 1, Event{What: Fault, Fault: "dark", End: 31}).event(32, 1, Event{What: Paused, Fault: "pause"}).
		event(33, 1, Event{What: Resumed, Fault: "pause"}).event(34, 1, Event{What: Killed, Fault: "kill"}).judge()
	c := v.Counts
	got := [...]int{c.Grants, c.Failed, c.Lost, c.HandOvers, c.Adopted, c.Changed, c.Limits, c.Forced, c.Writes, c.Refused, c.Faults["dark"], c.Faults["pause"], c.Faults["kill"]}
	if want := [...]int{2, 1, 1, 1, 1, 0, 1, 1, 2, 1, 1, 1, 1}; got != want {
		t.Errorf("counts %v, want %v", got, want)
	}
	if len(v.Findings) != 0 {
		t.Errorf("found %+v", v.Findings)
	}
}

// In a quorum readers that are let in at the same time may have the same token, and nobody else.
func TestJudgeQuorum(t *testing.T) {
	one := turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 50}
	other := turn{process: 2, op: 1, ask: 2, granted: 20, token: 5, look: 40}
	later := turn{process: 2, op: 1, ask: 12, granted: 20, token: 5, look: 40}
	for _, c := range []struct {
		name, want string
		tale       *tale
	}{
		{"readers at the same time", "", taleOf("rw", alone, one, other)},
		{"a reader later", "tokens", taleOf("rw", alone, one, later)},
		{"permits", "tokens", taleOf("semaphore", 2, one, other)},
	} {
		c.tale.judge()
		if got := rules(JudgeQuorum(c.tale.events)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestJudgeNothing(t *testing.T) {
	if v := Judge(nil); len(v.Findings) != 0 {
		t.Error(v.Findings)
	}
}
