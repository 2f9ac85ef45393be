package torture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// judged is a history, and what is found in it.
type judged struct {
	name string
	tale *tale
	want string // the rules, in order
	text string // a part of a finding
	n    int    // of findings; 0: any
}

func (j judged) run(t *testing.T) {
	t.Run(j.name, func(t *testing.T) {
		v := j.tale.judge()
		texts := ""
		for _, f := range v.Findings {
			texts += "\n" + f.Rule + ": " + f.Text
		}
		if got := rules(v); got != j.want {
			t.Errorf("found %q, want %q:%s", got, j.want, texts)
		}
		if j.n > 0 && len(v.Findings) != j.n {
			t.Errorf("%d findings, want %d:%s", len(v.Findings), j.n, texts)
		}
		if !strings.Contains(texts, j.text) {
			t.Errorf("want %q in:%s", j.text, texts)
		}
	})
}

func taleOf(kind string, limit int64, ts ...turn) *tale {
	s := newTale(kind, limit)
	for _, o := range ts {
		s.turn(o)
	}
	return s
}

func forced(end int64) Event {
	return Event{What: ForceRelease, Op: uint64(1000 + end), Name: "a", End: end}
}

func limited(to, end int64) Event {
	return Event{What: SetLimit, Op: uint64(1000*to + end), Name: "a", Limit: to, End: end}
}

func changing(units int64) Event { return Event{What: Changing, Op: 1, Units: units} }

func changed(units, token int64) Event {
	return Event{What: Changed, Op: 1, Units: units, Token: token}
}

func written(token, end int64, refused string) Event {
	return Event{What: Write, Op: 1, Token: token, End: end, Err: refused}
}

// What TestJudge shows of each rule in large, in small.
func TestJudgeRules(t *testing.T) {
	one := turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30}
	two := turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 40}
	permits := func(t turn, n int64) turn { t.units = n; return t }
	of := func(kind string, t turn) turn { t.kind = kind; return t }
	paused := func(s *tale, from, to int64) *tale {
		return s.event(from, 1, Event{What: Paused}).event(to, 1, Event{What: Resumed})
	}
	late := turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 90, until: 50}
	after := turn{process: 2, op: 1, ask: 2, granted: 85, token: 6, look: 100}
	for _, test := range []judged{
		{"a look at the time of the grant", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 10}), "", "", 0},
		{"one ends when the other begins", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 20}, two), "", "", 0},
		{"one within the time of another", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 50}, two),
			"exclusion linearizable", "from 0.019 to 0.039 s (20.000 ms): process 1 (first life), token 5, granted at 0.009 s, and process 2", 0},
		{"three at once", taleOf("mutex", 1, one, two, turn{process: 3, op: 1, ask: 3, granted: 25, token: 7, look: 28}),
			"exclusion linearizable", "granted at 0.009 s, and process 3 (first life), token 7, granted at 0.024 s.", 0},
		{"a reader beside a reader and a writer", taleOf("rw", alone, one, permits(two, alone), turn{process: 3, op: 1, ask: 3, granted: 25, token: 7, look: 28}),
			"exclusion linearizable", "process 2 (first life), token 6, a writer, granted at 0.019 s, and process 3 (first life), token 7, a reader", 0},
		{"a semaphore beside a mutex", taleOf("semaphore", 3, of("mutex", one), two),
			"exclusion linearizable", "and process 2 (first life), token 6, with 1 permit, granted at 0.019 s. One asked for a mutex, the other for a semaphore.", 0},
		{"two mutexes by the name of a semaphore", taleOf("semaphore", 3, turn{process: 3, op: 1, ask: 1, granted: 3, token: 4, unlock: 5},
			of("mutex", one), of("mutex", two)), "exclusion linearizable", "Two held", 0},
		{"an adopter of who knows what", taleOf("rw", 0, turn{process: 2, op: 1, ask: 35, granted: 36, token: 6, look: 40, way: "adopt", handle: "c"}), "adoption", "", 0},

		{"more permits than there are", taleOf("semaphore", 2, permits(one, 2), two), "exclusion linearizable", `"a" had 3 permits out, and a limit of 2 at the most; process 1 (first life), token 5, with 2 permits, held from 0.009 to 0.029 s; process 2 (first life), token 6, with 1 permit,`, 0},
		{"no permit at all", taleOf("semaphore", 0, one), "exclusion linearizable", `"a" had 1 permit out, and a limit of 0`, 0},
		{"permits declared differently", taleOf("semaphore", 2, one, two).event(3, 3, Event{What: Ask, Op: 1, Kind: "semaphore", Units: 1, Limit: 1}).
			event(4, 3, Event{What: Failed, Op: 1, Kind: "semaphore"}), "", "", 0},
		{"one who came at the instant that it was lowered", taleOf("semaphore", 2, one, turn{process: 2, op: 1, ask: 13, granted: 20, token: 6, look: 40}).
			event(12, 3, limited(1, 13)), "", "", 0},
		{"a limit that was raised at the instant of the grant", taleOf("semaphore", 1, one, two).event(20, 3, limited(2, 22)), "", "", 0},
		{"a limit that was raised after it", taleOf("semaphore", 1, one, two).event(21, 3, limited(2, 22)), "exclusion linearizable", "a limit of 1", 0},
		{"a limit that was raised again", taleOf("semaphore", 2, one, two).event(3, 3, limited(1, 5)).event(6, 3, limited(2, 7)), "", "", 0},
		{"a limit that was lowered again", taleOf("semaphore", 1, turn{process: 1, op: 1, ask: 8, granted: 10, token: 5, look: 30},
			turn{process: 2, op: 1, ask: 9, granted: 20, token: 6, look: 40}).
			event(3, 3, limited(2, 4)).event(5, 3, limited(1, 6)), "exclusion linearizable", "a limit of 1", 0},
		{"limits that were set at one time", taleOf("semaphore", 1, turn{process: 1, op: 1, ask: 8, granted: 10, token: 5, look: 30},
			turn{process: 2, op: 1, ask: 9, granted: 20, token: 6, look: 40}).
			event(3, 3, limited(2, 5)).event(5, 4, limited(1, 6)), "", "", 0},
		{"an adopter of permits of who knows when", taleOf("semaphore", 2, one,
			turn{process: 2, op: 1, ask: 14, granted: 20, token: 6, look: 40, way: "adopt", handle: "c"}).event(12, 3, limited(1, 13)), "adoption", "", 0},

		{"told late: the other was granted it when the first went on", paused(taleOf("mutex", 1, late, after), 14, 80), "linearizable told", "was paused from 0.013 to 0.079 s", 0},
		{"told late: unlock is the first that it does", paused(taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, until: 50, unlock: 90}, after), 14, 80), "linearizable told", "", 0},
		{"it looked when it went on", paused(taleOf("mutex", 1, late, after), 14, 80).event(82, 1, Event{What: Look, Op: 1, Token: 5}), "exclusion linearizable", "", 0},
		{"another looked when it went on", paused(taleOf("mutex", 1, late, after, turn{process: 1, op: 2, ask: 4}, turn{process: 3, op: 1, ask: 3}), 14, 80).
			event(81, 3, Event{What: Look, Op: 1}).event(82, 1, Event{What: Look, Op: 2}).event(95, 3, Event{What: Failed, Op: 1}).event(95, 1, Event{What: Failed, Op: 2}), "linearizable told", "", 0},
		{"it was paused before", paused(taleOf("mutex", 1, one, two), 6, 8), "exclusion linearizable", "", 0},
		{"it is paused after", paused(taleOf("mutex", 1, one, two), 31, 50), "exclusion linearizable", "", 0},
		{"forced while it was paused", paused(taleOf("mutex", 1, late, turn{process: 2, op: 1, ask: 2, granted: 60, token: 6, look: 75}), 14, 80).
			event(70, 3, forced(71)), "exclusion linearizable", "from 0.059 to 0.069 s", 0},

		{"a writer whose last look was before it became a reader", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12}, alone), permits(two, alone)).
			event(25, 1, changing(1)), "", "", 0},
		{"a writer beside one that became a reader", taleOf("rw", alone, permits(one, alone), permits(two, alone)).
			event(11, 1, changing(1)).event(13, 1, changed(1, 5)), "exclusion linearizable", "", 0},
		{"one that could become a reader held until it asked to", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5}, alone), permits(turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 25}, alone)).
			event(30, 1, changing(1)).event(31, 1, changed(1, 5)), "exclusion linearizable", "", 0},
		{"one that could not", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5}, alone), permits(turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 25}, alone)).
			event(30, 1, changing(1)).event(31, 1, Event{What: Changed, Op: 1, Units: 1, Token: 5, Err: "no reply"}), "", "", 0},
		{"unlock that failed says nothing", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5}, two).
			event(30, 1, Event{What: Release, Op: 1}).event(31, 1, Event{What: Released, Op: 1, Err: "lost"}), "", "", 0},

		{"an order of limits that was refused", taleOf("semaphore", 1, one, two).event(5, 3, limited(2, 0)).
			event(5, 3, Event{What: SetLimit, Op: 2000, Name: "a", Limit: 2, End: 6, Note: "limit", Err: "not that"}), "exclusion linearizable", "a limit of 1", 0},
		{"an order of limits without a reply", taleOf("semaphore", 2, one, turn{process: 2, op: 1, ask: 14, granted: 20, token: 6, look: 40}).
			event(12, 3, Event{What: SetLimit, Op: 99, Name: "a", Limit: 1, End: 13, Err: "no reply"}), "", "", 0},
		{"an order of limits with a reply", taleOf("semaphore", 2, one, turn{process: 2, op: 1, ask: 14, granted: 20, token: 6, look: 40}).
			event(12, 3, Event{What: SetLimit, Op: 99, Name: "a", Limit: 1}).event(12, 3, Event{What: SetLimit, Op: 99, Name: "a", Limit: 1, End: 13}), "exclusion linearizable", "a limit of 1", 0},
		{"the last that asked holds longest", taleOf("semaphore", 2, turn{process: 1, op: 1, ask: 14, granted: 15, token: 5, look: 30}, two).
			event(12, 3, limited(1, 13)), "exclusion linearizable", "a limit of 1", 0},
		{"another kind that was refused declares no permits", taleOf("semaphore", 1, one, two).
			event(3, 3, Event{What: Ask, Op: 1, Kind: "rw", Units: 1, Limit: alone}).event(4, 3, Event{What: Failed, Op: 1, Kind: "rw"}), "exclusion linearizable", "", 0},

		{"two orders of force", taleOf("mutex", 1, one, two).event(15, 3, forced(16)).event(35, 3, forced(36)), "", "", 0},
		{"forced at the instant at which they asked", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 3, granted: 10, token: 5, look: 30},
			turn{process: 2, op: 1, ask: 3, granted: 20, token: 6, look: 40}).event(2, 3, forced(3)), "", "", 0},
		{"forced without a reply", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 5, granted: 10, token: 5, look: 30},
			turn{process: 2, op: 1, ask: 6, granted: 20, token: 6, look: 40}).event(1, 3, Event{What: ForceRelease, Op: 99, Name: "a", End: 4, Err: "no reply"}), "", "", 0},
		{"a set is asked for after the force", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 3, token: 4, unlock: 12},
			turn{process: 1, op: 2, ask: 10, granted: 20, token: 5, look: 30, way: "all"}, turn{process: 2, op: 1, ask: 15, granted: 22, token: 6, look: 40}).
			event(5, 3, forced(6)), "exclusion linearizable", "", 0},
		{"permits are asked for after the force", taleOf("semaphore", 1, turn{process: 1, op: 1, ask: 1, granted: 3, token: 4, unlock: 12},
			turn{process: 1, op: 2, ask: 10, granted: 20, token: 5, look: 30}, turn{process: 2, op: 1, ask: 15, granted: 22, token: 6, look: 40}).
			event(5, 3, forced(6)), "exclusion linearizable", "", 0},
		{"adopted after the force", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 3, token: 4, unlock: 17}, turn{process: 3, op: 1, ask: 8, granted: 9, token: 5}).
			handOver(10, 3, 1, "c").turn(turn{process: 1, op: 2, ask: 16, granted: 20, token: 6, look: 30, way: "adopt", handle: "c"}).
			turn(turn{process: 2, op: 1, ask: 15, granted: 22, token: 7, look: 40}).event(5, 4, forced(6)), "exclusion linearizable", "", 0},

		{"events of what nobody asked for", taleOf("mutex", 1, one).event(12, 2, Event{What: Look, Op: 9}).event(12, 1, Event{What: Resumed}), "", "", 0},
		{"the same number in another life", taleOf("mutex", 1, one).event(31, 1, Event{What: Killed}).
			event(32, 1, Event{What: Ask, Op: 1, Life: 2, Way: "lock", Units: 1, Limit: 1}).event(34, 1, Event{What: Granted, Op: 1, Life: 2, Token: 6}).
			event(50, 1, Event{What: Look, Op: 1, Life: 2}).turn(turn{process: 2, op: 1, ask: 33, granted: 40, token: 7, look: 45}),
			"exclusion linearizable", "from 0.039 to 0.044 s", 0},
		{"lost beside a fault of a connection", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100}).
			event(20, 1, Event{What: Told, Op: 1, Err: "gone", End: 21}).event(11, 2, Event{What: Fault, Fault: "dark", End: 22}), "lost", "", 0},

		{"a token of an upgrade falls", taleOf("rw", alone, one).event(12, 1, changing(alone)).event(14, 1, changed(alone, 4)), "linearizable tokens", "", 0},
		{"a token of an upgrade is below another's", taleOf("rw", alone, one, turn{process: 2, op: 1, ask: 2, granted: 11, token: 8}).
			event(20, 1, changing(alone)).event(22, 1, changed(alone, 7)), "linearizable tokens", "asked after that, at 0.019 s", 0},
		{"a reader has the token that the same process wrote with", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15}, alone),
			turn{process: 1, op: 2, ask: 12, granted: 20, token: 5, look: 30}), "linearizable tokens", "granted twice", 0},
		{"a writer has the token that the same process read with", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15},
			permits(turn{process: 1, op: 2, ask: 12, granted: 20, token: 5, look: 30}, alone)), "tokens", "granted twice", 0},
		{"permits of one process have one token", taleOf("semaphore", 2, one, turn{process: 1, op: 2, ask: 2, granted: 20, token: 5, look: 40}), "tokens", "granted twice", 0},
		{"readers of two processes have one token", taleOf("rw", alone, one, turn{process: 2, op: 1, ask: 2, granted: 20, token: 5, look: 40}), "tokens", "granted twice", 0},
		{"readers of two lives have one token", taleOf("rw", alone, one).event(2, 1, Event{What: Ask, Op: 2, Life: 2, Units: 1, Limit: alone}).
			event(20, 1, Event{What: Granted, Op: 2, Life: 2, Token: 5}), "tokens", "granted twice", 0},
		{"a reader has the token of a claim that is over", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 11},
			turn{process: 1, op: 2, ask: 15, granted: 16, token: 5, look: 40}), "tokens", "asked after that", 0},
		{"a reader asks at the instant at which its process's claim is over", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 14},
			turn{process: 2, op: 1, ask: 11, granted: 13, token: 6, look: 40}, turn{process: 1, op: 2, ask: 15, granted: 16, token: 5, look: 40}), "", "", 0},
		{"a reader of a claim that the first keeps", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5, unlock: 50}, turn{process: 1, op: 2, ask: 2, granted: 4, token: 5, unlock: 6},
			turn{process: 2, op: 1, ask: 8, granted: 9, token: 6, look: 60}, turn{process: 1, op: 3, ask: 20, granted: 21, token: 5, look: 40}), "", "", 0},
		{"a reader of a claim that was given up", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1}, turn{process: 2, op: 1, ask: 2, granted: 7, token: 6, look: 40},
			turn{process: 1, op: 2, ask: 10, granted: 12, token: 5, look: 40}).event(5, 1, Event{What: Failed, Op: 1}), "tokens", "", 0},
		{"a reader of a claim that was lost", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5}, turn{process: 2, op: 1, ask: 7, granted: 8, token: 6, look: 40},
			turn{process: 1, op: 2, ask: 10, granted: 12, token: 5, look: 40}).event(4, 1, Event{What: Told, Op: 1, End: 6}), "tokens", "", 0},
		{"a reader's claim from before a writer", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5, unlock: 8}, turn{process: 1, op: 2, ask: 7},
			permits(turn{process: 2, op: 1, ask: 2, granted: 12, token: 9, unlock: 14}, alone), turn{process: 1, op: 3, ask: 16, granted: 21, token: 5, look: 30}).
			event(25, 1, Event{What: Failed, Op: 2}), "linearizable tokens", "asked after that, at 0.015 s", 0},
		{"a writer's claim from before a reader", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5, unlock: 8}, turn{process: 1, op: 2, ask: 7},
			turn{process: 2, op: 1, ask: 2, granted: 12, token: 9, unlock: 14}, permits(turn{process: 1, op: 3, ask: 16, granted: 21, token: 6}, alone)).
			event(25, 1, Event{What: Failed, Op: 2}), "linearizable tokens", "asked after that, at 0.015 s", 0},
		{"a claim from before the greatest of two writers", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5, unlock: 8}, turn{process: 1, op: 2, ask: 7},
			permits(turn{process: 2, op: 1, ask: 2, granted: 9, token: 20}, alone), permits(turn{process: 3, op: 1, ask: 2, granted: 12, token: 10}, alone),
			turn{process: 1, op: 3, ask: 16, granted: 21, token: 15, look: 30}).event(25, 1, Event{What: Failed, Op: 2}), "linearizable tokens", "asked after that, at 0.015 s", 0},
		{"a claim from before the second of two writers", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5, unlock: 8}, turn{process: 1, op: 2, ask: 7},
			permits(turn{process: 2, op: 1, ask: 2, granted: 9, token: 10}, alone), permits(turn{process: 3, op: 1, ask: 2, granted: 12, token: 20}, alone),
			turn{process: 1, op: 3, ask: 16, granted: 21, token: 15, look: 30}).event(25, 1, Event{What: Failed, Op: 2}), "linearizable tokens", "asked after that, at 0.015 s", 0},
		{"a shared claim falls behind another", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 18},
			turn{process: 1, op: 2, ask: 16, granted: 19, token: 6}, turn{process: 2, op: 1, ask: 2, granted: 14, token: 100}), "linearizable tokens", "asked after that, at 0.015 s", 0},
		{"a shared claim that was freed by force may", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 18},
			turn{process: 1, op: 2, ask: 16, granted: 19, token: 6}, turn{process: 2, op: 1, ask: 2, granted: 14, token: 100}).event(12, 3, forced(13)), "", "", 0},
		{"permits behind the greatest of two", taleOf("semaphore", 3, turn{process: 1, op: 1, ask: 1, granted: 10, token: 9}, turn{process: 2, op: 1, ask: 2, granted: 12, token: 6},
			turn{process: 3, op: 1, ask: 20, granted: 21, token: 7}), "linearizable tokens", "", 0},
		{"permits behind one that asked later than a third", taleOf("semaphore", 3, turn{process: 1, op: 1, ask: 1, granted: 50, token: 9}, turn{process: 2, op: 1, ask: 2, granted: 10, token: 6},
			turn{process: 3, op: 1, ask: 20, granted: 21, token: 5}), "linearizable tokens", "", 0},
		{"permits asked for at the instant of another grant", taleOf("semaphore", 3, one, turn{process: 2, op: 1, ask: 10, granted: 20, token: 4, look: 40}), "", "", 0},
		{"a mutex behind a permit that it excludes", taleOf("semaphore", 3, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15},
			of("mutex", turn{process: 2, op: 1, ask: 2, granted: 20, token: 4, look: 30})), "linearizable tokens", "exclude each other", 0},
		{"a token falls, of one that asked first", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 5, granted: 10, token: 5, unlock: 15},
			turn{process: 2, op: 1, ask: 2, granted: 20, token: 4, look: 30}), "linearizable tokens", "exclude each other", 0},
		{"a writer behind a reader", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15},
			permits(turn{process: 2, op: 1, ask: 2, granted: 20, token: 4, look: 30}, alone)), "linearizable tokens", "exclude each other", 0},
		{"a reader behind a writer", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15}, alone),
			turn{process: 2, op: 1, ask: 2, granted: 20, token: 4, look: 30}), "linearizable tokens", "exclude each other", 0},
		{"a reader behind a reader", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15},
			turn{process: 2, op: 1, ask: 2, granted: 20, token: 4, look: 30}), "", "", 0},
		{"a writer behind the first of two readers", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 9, unlock: 15}, turn{process: 2, op: 1, ask: 2, granted: 12, token: 6, unlock: 16},
			permits(turn{process: 3, op: 1, ask: 3, granted: 20, token: 7, look: 30}, alone)), "linearizable tokens", "exclude each other", 0},
		{"a writer behind the second of two readers", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 6, unlock: 15}, turn{process: 2, op: 1, ask: 2, granted: 12, token: 9, unlock: 16},
			permits(turn{process: 3, op: 1, ask: 3, granted: 20, token: 7, look: 30}, alone)), "linearizable tokens", "exclude each other", 0},
		{"a reader behind the second of two writers", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 6, unlock: 15}, alone),
			permits(turn{process: 2, op: 1, ask: 2, granted: 18, token: 9, unlock: 19}, alone), turn{process: 3, op: 1, ask: 3, granted: 21, token: 7, look: 30}), "linearizable tokens", "exclude each other", 0},

		{"a refused write does not make others stale", taleOf("mutex", 1).event(12, 2, written(6, 13, "stale 9")).event(14, 1, written(5, 15, "")), "", "", 0},
		{"writes in the order in which they ended", taleOf("mutex", 1).event(12, 1, written(9, 30, "")).event(13, 2, written(6, 14, "")).event(16, 3, written(5, 17, "")), "fence", "token 5 of process 3", 0},
		{"a write when another ends", taleOf("mutex", 1).event(12, 2, written(6, 14, "")).event(14, 1, written(5, 15, "")), "", "", 0},
		{"a token is written twice", taleOf("mutex", 1).event(12, 1, written(5, 13, "")).event(14, 1, written(5, 15, "")), "", "", 0},
		{"a write behind the greatest of two", taleOf("mutex", 1).event(12, 1, written(7, 14, "")).event(12, 2, written(5, 15, "")).event(16, 3, written(6, 17, "")), "fence", "after token 7", 0},
		{"a write behind the second of two", taleOf("mutex", 1).event(12, 1, written(5, 13, "")).event(14, 2, written(7, 15, "")).event(16, 3, written(6, 17, "")), "fence", "after token 7", 0},
		{"refused with a token that is granted once more", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15}, turn{process: 1, op: 2, ask: 18, granted: 30, token: 5, look: 50}).
			event(20, 1, written(5, 21, "stale 6")), "tokens", "", 0},
		{"refused when it held no more for all that is known", taleOf("mutex", 1, one).event(12, 1, written(5, 30, "stale 6")), "", "", 0},
		{"refused when it had become a reader", taleOf("rw", alone, permits(one, alone)).event(15, 1, changing(1)).event(18, 1, changed(1, 5)).event(16, 1, written(5, 17, "stale 6")), "", "", 0},
		{"refused after its last look as a writer", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12}, alone)).event(15, 1, changing(1)).
			event(13, 1, written(5, 14, "stale 6")), "", "", 0},
		{"refused while it wrote alone, before it became a reader", taleOf("rw", alone, permits(one, alone)).event(20, 1, changing(1)).event(22, 1, changed(1, 5)).
			event(12, 1, written(5, 14, "stale 6")), "fence", "held alone from 0.009 to 0.019 s", 0},
		{"refused of a reader", taleOf("rw", alone, one).event(12, 1, written(5, 13, "stale 6")), "", "", 0},
		{"refused of who has all permits", taleOf("semaphore", 1, one).event(12, 1, written(5, 13, "stale 6")), "", "", 0},

		{"adopted before it was handed over", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5}).handOver(32, 1, 1, "c").
			turn(turn{process: 2, op: 1, ask: 28, granted: 31, token: 6, way: "adopt", handle: "c"}), "adoption", "before process 1 (first life), token 5, began to hand it over at 0.031 s", 0},
		{"adopted when it was handed over", taleOf("mutex", 1, one).handOver(32, 1, 1, "c").
			turn(turn{process: 2, op: 1, ask: 28, granted: 32, token: 6, look: 40, way: "adopt", handle: "c"}), "", "", 0},
		{"handed over who knows when", taleOf("mutex", 1, one).event(33, 1, Event{What: Released, Op: 1, Way: "handover", Handle: "c"}).
			turn(turn{process: 2, op: 1, ask: 35, granted: 36, token: 6, look: 40, way: "adopt", handle: "c"}), "", "", 0},
		{"nobody adopts", taleOf("mutex", 1, one, turn{process: 2, op: 1, ask: 35, way: "adopt", handle: "c"}).handOver(32, 1, 1, "c").event(36, 2, Event{What: Failed, Op: 1}), "", "", 0},
		{"adopted of a reader with the token that it wrote with", taleOf("rw", alone, permits(one, alone)).event(15, 1, changing(1)).event(18, 1, changed(1, 5)).handOver(32, 1, 1, "c").
			turn(turn{process: 2, op: 1, ask: 35, granted: 36, token: 5, look: 40, way: "adopt", handle: "c"}), "adoption linearizable tokens", "is not greater", 0},

		{"granted before a set's time is over", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100, way: "all"},
			turn{process: 2, op: 1, ask: 2, granted: 40, token: 6, look: 45}), "", "", 0},
		{"granted before the time of another is over", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 2, granted: 40, token: 6, look: 45}), "linearizable",
			"process 2 (first life), token 6, cannot have been granted from 0.001 to 0.039 s. Held then, process 1 (first life), token 5, which was granted at 0.009 s and cannot have ended before 0.099 s.", 0},
		{"granted before the time of one that was told later", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 2, granted: 40, token: 6, look: 45}).event(90, 1, Event{What: Told, Op: 1, End: 101}), "", "", 0},
		{"granted before the time of one whose unlock failed", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 2, granted: 40, token: 6, look: 45}).event(102, 1, Event{What: Release, Op: 1}).event(103, 1, Event{What: Released, Op: 1, Err: "lost"}), "", "", 0},
		{"granted when the other was unlocked", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, until: 100, unlock: 30},
			turn{process: 2, op: 1, ask: 2, granted: 35, token: 6, look: 45}), "", "", 0},
		{"granted when the other had begun to unlock", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 2, granted: 35, token: 6, look: 45}).event(30, 1, Event{What: Release, Op: 1}), "", "", 0},
		{"granted when the time of one that unlocks later was over", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 30},
			turn{process: 2, op: 1, ask: 2, granted: 35, token: 6, look: 45}).event(60, 1, Event{What: Release, Op: 1}), "", "", 0},
		{"granted when the other's process had ended", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 2, granted: 60, token: 6, look: 65}).event(50, 1, Event{What: Ended}), "", "", 0},
		{"granted when the time of one that is killed later was over", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 50}, turn{process: 1, op: 2, ask: 90},
			turn{process: 2, op: 1, ask: 2, granted: 60, token: 6, look: 65}).event(100, 1, Event{What: Killed}), "", "", 0},
		{"granted when the other was freed by force", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 35, granted: 40, token: 6, look: 45}).event(30, 3, forced(31)), "", "", 0},

		{"one ends when the other, which asked first, begins", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 3, granted: 10, token: 5, look: 20}, two), "", "", 0},
		{"a permit beside a reader", taleOf("semaphore", 3, one, of("rw", two)), "exclusion linearizable", "", 0},
		{"the one that holds longest of three", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 22}, turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 50},
			turn{process: 3, op: 1, ask: 3, granted: 21, token: 7, look: 50}, turn{process: 4, op: 1, ask: 4, granted: 30, token: 8, look: 50}),
			"exclusion linearizable", "granted at 0.019 s, and process 4 (first life), token 8, granted at 0.029 s.", 0},
		{"two of one kind", taleOf("mutex", 1, one, two, turn{process: 3, op: 1, ask: 39, granted: 45, token: 7, look: 50}), "exclusion linearizable", "and process 2 (first life), token 6, granted at 0.019 s.\n", 2},
		{"permits beside who is left", taleOf("semaphore", 2, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 50}, turn{process: 2, op: 1, ask: 2, granted: 12, token: 6, unlock: 15},
			turn{process: 3, op: 1, ask: 18, granted: 20, token: 7, look: 40}).event(16, 4, limited(1, 17)), "exclusion linearizable", "at the most; process 1 (first life), token 5", 0},
		{"an adopter of permits that came after it was lowered", taleOf("semaphore", 2, one,
			turn{process: 2, op: 1, ask: 14, granted: 15, token: 6}).handOver(15, 2, 1, "c").event(12, 3, limited(1, 13)).
			turn(turn{process: 3, op: 1, ask: 17, granted: 20, token: 7, look: 40, way: "adopt", handle: "c"}), "exclusion linearizable", "a limit of 1", 0},
		{"permits that are adopted beside others", taleOf("semaphore", 2, turn{process: 2, op: 1, ask: 2, granted: 12, token: 6}).handOver(14, 2, 1, "c").
			turn(turn{process: 3, op: 1, ask: 15, granted: 18, token: 7, look: 40, way: "adopt", handle: "c"}).turn(turn{process: 1, op: 1, ask: 19, granted: 20, token: 8, look: 30}), "", "", 0},
		{"permits that come and go", taleOf("semaphore", 2, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 30}, turn{process: 2, op: 1, ask: 2, granted: 12, token: 6, unlock: 14},
			turn{process: 3, op: 1, ask: 15, granted: 20, token: 7, unlock: 25}), "", "", 0},
		{"a reader beside one that became a writer", taleOf("rw", alone, one, turn{process: 2, op: 1, ask: 15, granted: 20, token: 8, look: 40}).
			event(12, 1, changing(alone)).event(14, 1, changed(alone, 7)), "exclusion linearizable", "", 0},
		{"a writer after one that became a reader", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 20}, alone), permits(turn{process: 2, op: 1, ask: 2, granted: 30, token: 6, look: 40}, alone)).
			event(11, 1, changing(1)).event(13, 1, changed(1, 5)), "", "", 0},

		{"it was paused while both held", paused(taleOf("mutex", 1, one, two), 22, 25), "exclusion linearizable", "", 0},
		{"it looked before it was paused", paused(taleOf("mutex", 1, late, after), 14, 80).event(12, 1, Event{What: Look, Op: 1, Token: 5}), "linearizable told", "", 0},
		{"it wrote before it looked", paused(taleOf("mutex", 1, late, after), 14, 80).event(82, 1, written(5, 83, "")), "linearizable told", "", 0},

		{"adopted three times", taleOf("mutex", 1, one).handOver(32, 1, 1, "c").
			turn(turn{process: 2, op: 1, ask: 35, granted: 36, token: 6, unlock: 40, way: "adopt", handle: "c"}).
			turn(turn{process: 3, op: 1, ask: 35, granted: 50, token: 7, unlock: 52, way: "adopt", handle: "c"}).
			turn(turn{process: 4, op: 1, ask: 35, granted: 60, token: 8, look: 62, way: "adopt", handle: "c"}), "adoption linearizable", "token 6, at 0.035 s, and process 4", 0},
		{"a reader of a claim that somebody of its process waits for", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5, unlock: 8}, turn{process: 1, op: 2, ask: 7},
			turn{process: 2, op: 1, ask: 2, granted: 12, token: 9, look: 40}, turn{process: 1, op: 3, ask: 16, granted: 21, token: 5, look: 30}).
			event(25, 1, Event{What: Failed, Op: 2}), "", "", 0},
		{"a reader of a claim that is about to be lost", taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 3, token: 5}, turn{process: 2, op: 1, ask: 2, granted: 8, token: 6, look: 40},
			turn{process: 1, op: 2, ask: 10, granted: 13, token: 5, look: 40}).event(7, 1, Event{What: Told, Op: 1, End: 12}), "", "", 0},
		{"a token of an adopter's upgrade is below another's", taleOf("rw", alone, turn{process: 3, op: 1, ask: 1, granted: 3, token: 5}).handOver(5, 3, 1, "c").
			turn(turn{process: 1, op: 1, ask: 8, granted: 9, token: 6, look: 30, way: "adopt", handle: "c"}).turn(turn{process: 2, op: 1, ask: 2, granted: 11, token: 8}).
			event(20, 1, changing(alone)).event(22, 1, changed(alone, 7)), "linearizable tokens", "asked after that, at 0.019 s", 0},
		{"a token that falls is told once", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15},
			turn{process: 2, op: 1, ask: 16, granted: 20, token: 4, look: 30}), "linearizable tokens", "", 2},
		{"the tokens of two fall", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 9, unlock: 15}, alone), permits(turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, unlock: 22}, alone),
			turn{process: 3, op: 1, ask: 3, granted: 30, token: 7, look: 40}), "linearizable tokens", "", 3},

		{"went on, in vain", taleOf("mutex", 1, one, turn{process: 1, op: 2, ask: 45}).event(50, 1, Event{What: Failed, Op: 2}).
			event(31, 1, Event{What: Fault, Fault: "slow", End: 40}).event(9000, 1, Event{What: Ended}), "", "", 0},
		{"one of many lives", taleOf("mutex", 1).event(1, 3, Event{What: Ended, Life: 12, Err: "bad"}), "process", "Process 3 (life 12) ended", 0},
		{"the last life that has a name", taleOf("mutex", 1).event(1, 3, Event{What: Ended, Life: 9, Err: "bad"}), "process", "Process 3 (ninth life) ended", 0},
		{"the life after", taleOf("mutex", 1).event(1, 3, Event{What: Ended, Life: 10, Err: "bad"}), "process", "Process 3 (life 10) ended", 0},

		{"limits that were set at once", taleOf("semaphore", 1, turn{process: 1, op: 1, ask: 20, granted: 22, token: 5, look: 50}, turn{process: 2, op: 1, ask: 20, granted: 23, token: 6, look: 50}).
			event(5, 3, limited(2, 15)).event(6, 4, limited(1, 16)), "", "", 0},
		{"two that cannot have been granted", taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 12, until: 100},
			turn{process: 2, op: 1, ask: 2, granted: 40, token: 6, unlock: 45}, turn{process: 3, op: 1, ask: 2, granted: 50, token: 7, look: 55}), "linearizable", "process 2 (first life), token 6, cannot have been granted", 0},
		{"a reader beside a writer that became one, and a writer then", taleOf("rw", alone, permits(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 30}, alone), turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, unlock: 40},
			permits(turn{process: 3, op: 1, ask: 3, granted: 50, token: 7, look: 60}, alone)).event(11, 1, changing(1)).event(13, 1, changed(1, 5)), "", "", 0},
		{"started a moment before the end", taleOf("mutex", 1).event(31, 2, Event{What: Fault, Fault: "slow", End: 40}).event(5000, 1, Event{What: Started}).event(5500, 1, Event{What: Ended}), "", "", 0},
	} {
		test.run(t)
	}
}

// Only the first findings of a name and of a rule are told, and how many more there are.
func TestJudgeLeavesOut(t *testing.T) {
	s := newTale("mutex", 1)
	for i := range 5 {
		s.event(int64(100-i), 0, Event{What: Left, Name: "a"})
	}
	v := s.judge()
	if len(v.Findings) != 3 || !slices.Equal(v.Notes, []string{"findings of rule leftover that are left out: 2"}) {
		t.Errorf("%d findings of a name, notes %q", len(v.Findings), v.Notes)
	}
	for i := range 30 {
		s.event(int64(200+i), 0, Event{What: Left, Name: fmt.Sprint(i)})
		s.event(int64(300+i), i+1, Event{What: Ended, Err: "exit status 2"})
	}
	v = s.judge()
	if len(v.Findings) != 40 || !slices.Equal(v.Notes[len(v.Notes)-2:], []string{"findings of rule leftover that are left out: 15", "findings of rule process that are left out: 10"}) {
		t.Errorf("%d findings, notes %q", len(v.Findings), v.Notes)
	}
}

// A long history is judged in parts, which overlap: what is wrong is found wherever it is.
func TestJudgeParts(t *testing.T) {
	for _, wrong := range []int{-1, 0, linearPart - linearOverlap - 1, linearPart - linearOverlap, linearPart - 1, linearPart, 2*linearPart + 3} {
		s := newTale("mutex", 1)
		for i := range 3 * linearPart {
			at := int64(10 * i)
			o := turn{process: 1 + i%2, op: uint64(1 + i), ask: at + 1, granted: at + 2, token: at + 1, unlock: at + 4}
			if i == wrong {
				o.unlock, o.until = 0, at+18
			}
			s.turn(o)
		}
		want := ""
		if wrong >= 0 {
			want = "linearizable"
		}
		if v := s.judge(); rules(v) != want || len(v.Notes) > 0 {
			t.Errorf("wrong is %d: found %q, notes %q", wrong, rules(v), v.Notes)
		}
	}
}

// What is not searched in time, or takes too many steps, is not judged.
func TestJudgeTired(t *testing.T) {
	h := taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30}, turn{process: 2, op: 1, ask: 2, granted: 20, token: 6, look: 40}).events
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j := newJudgement(h)
	j.linear(ctx)
	if v := j.verdict(); len(v.Findings) > 0 || !slices.Equal(v.Notes, []string{"whether they are in a linear order was not found out in time for 2 of 2 grants"}) {
		t.Errorf("found %q, notes %q", rules(v), v.Notes)
	}
	s := newTale("semaphore", 1000)
	for i := range 40 {
		s.turn(turn{process: 1 + i, op: 1, ask: 1, granted: 100, token: int64(i)})
	}
	s.turn(turn{process: 41, op: 1, ask: 1, granted: 110, token: 41, look: 400})
	s.turn(turn{process: 42, op: 1, ask: 200, granted: 300, token: 42, kind: "mutex"})
	j = newJudgement(s.events)
	j.linear(t.Context())
	if v := j.verdict(); len(v.Findings) > 0 || len(v.Notes) != 1 {
		t.Errorf("found %q, notes %q", rules(v), v.Notes)
	}
}

// A finding shows what led to it.
func TestJudgeShows(t *testing.T) {
	shown := func(f Finding) string {
		s := fmt.Sprintf("%s %s %d:", f.Rule, f.Name, f.At/milli)
		for _, e := range f.Events {
			s += fmt.Sprintf(" %d-%d %s", e.At/milli, e.End/milli, e.What)
		}
		return s
	}
	v := taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30}, turn{process: 2, op: 1, ask: 2, granted: 12, token: 8, look: 40}).
		event(15, 1, changing(alone)).event(20, 1, changed(alone, 7)).event(50, 0, Event{What: Left, Name: "b"}).judge()
	var all []string
	for _, f := range v.Findings {
		if f.Rule != "linearizable" {
			all = append(all, shown(f))
		}
	}
	if want := []string{
		"exclusion a 20: 1-0 ask 2-0 ask 10-0 granted 12-0 granted 20-0 changed 30-0 look 40-0 look",
		"tokens a 20: 1-0 ask 2-0 ask 10-0 granted 12-0 granted 20-0 changed 30-0 look 40-0 look",
		"leftover b 50: 50-0 left",
	}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}

	v = taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 20, until: 100, units: alone}, turn{process: 2, op: 1, ask: 2, granted: 40, token: 6, look: 45, units: alone}).
		event(15, 1, changing(1)).event(16, 1, changed(1, 5)).judge()
	if got := shown(v.Findings[0]); got != "linearizable a 40: 1-0 ask 2-0 ask 10-0 granted 15-0 changing 20-0 look 40-0 granted 45-0 look" {
		t.Error(got)
	}
	v = taleOf("mutex", 1, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, unlock: 15}, turn{process: 2, op: 1, ask: 16, granted: 20, token: 4}).judge()
	if f := v.Findings[0]; !strings.HasSuffix(f.Text, "cannot have been granted from 0.000 to 0.009 s.") {
		t.Error(f.Text)
	}
	for limits, want := range map[int]int{9: 9, 30: 24} {
		s := newTale("semaphore", 1)
		for i := range 13 {
			s.turn(turn{process: 1 + i, op: 1, ask: 1, granted: 10, token: int64(i), look: 99, units: 9})
		}
		for i := range limits {
			e := Event{What: SetLimit, Op: uint64(2 + i), Name: "a", Limit: 110}
			s.event(5, 20, e)
			e.End = 6
			s.event(5, 20, e)
		}
		f := s.event(30, 20, limited(3, 31)).judge().Findings[0]
		if got := shown(f); !strings.HasSuffix(f.Text, "token 11, with 9 permits, held from 0.009 to 0.098 s.") || strings.Count(got, "look") != 12 || strings.Count(got, " 5-6 limit") != want || strings.Count(got, "limit") != want {
			t.Errorf("%s\n%s", f.Text, got)
		}
	}
}

func TestJudgeCountsChanges(t *testing.T) {
	c := taleOf("rw", alone, turn{process: 1, op: 1, ask: 1, granted: 10, token: 5}).event(12, 1, changing(alone)).event(13, 1, changed(alone, 6)).
		event(14, 1, Event{What: Release, Op: 1}).event(15, 1, Event{What: Released, Op: 1, Err: "lost"}).
		event(16, 2, Event{What: SetLimit, Op: 2, Name: "b", Limit: 2}).event(16, 2, Event{What: SetLimit, Op: 2, Name: "b", Limit: 2, End: 17, Note: "limit", Err: "not that"}).
		event(18, 2, Event{What: SetLimit, Op: 3, Name: "b", Limit: 2, End: 19, Err: "no reply"}).judge().Counts
	if c.Changed != 1 || c.Lost != 1 || c.Limits != 0 {
		t.Errorf("%+v", c)
	}
}

// Many at once are judged in few steps, if what is alike is searched once, and what cannot be is given up early.
func TestJudgeCrowd(t *testing.T) {
	s := newTale("rw", alone)
	for i := range 60 {
		o := turn{process: 1 + i, op: 1, ask: 1, granted: int64(100 + 10*i), token: int64(1 + i)}
		if i%5 == 0 {
			o.units = alone
		}
		s.turn(o)
	}
	searched := func(s *tale, want string) {
		t.Helper()
		v := s.judge()
		for _, note := range v.Notes {
			if strings.Contains(note, "in time") {
				t.Error(note)
			}
		}
		if rules(v) != want {
			t.Errorf("found %q, want %q", rules(v), want)
		}
	}
	searched(s, "")
	s = newTale("rw", alone)
	for i := range 6 {
		s.turn(turn{process: 1 + i, op: 1, ask: 1, granted: 100, token: int64(1 + i)})
	}
	searched(s.turn(turn{process: 10, op: 1, ask: 1, granted: 110, token: 10, look: 150}).turn(turn{process: 11, op: 1, ask: 120, granted: 130, token: 11, units: alone}), "linearizable")
}
