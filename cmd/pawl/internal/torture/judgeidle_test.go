package torture

import (
	"strings"
	"testing"
)

// A name that is free is granted to who waits, but if somebody is hurt, or it is more
// than there is.
func TestIdle(t *testing.T) {
	const most = 12_000 + 2*40        // milliseconds; leases are good for 40
	used := func(kind string) *tale { // until 50
		s := newTale(kind, 3).turn(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, until: 50, unlock: 20})
		return s.event(19_980, 1, Event{What: Ask, Op: 9, Name: "b", Kind: "mutex", Units: 1, Limit: 1}).
			event(19_990, 1, Event{What: Failed, Op: 9, Name: "b"})
	}
	waits := func(kind string) *tale {
		return used(kind).turn(turn{process: 2, op: 1, ask: 30}).
			event(20_000, 2, Event{What: Failed, Op: 1, Err: "given up"})
	}
	for _, test := range []struct {
		name string
		tale *tale
		want string
	}{
		{"nobody gets it", waits("mutex"), "stuck"},
		{"somebody gets it", waits("mutex").turn(turn{process: 3, op: 1, ask: 40, granted: 8_000, token: 6, unlock: 9_000}), ""},
		{"somebody gets it too late", waits("mutex").turn(turn{process: 3, op: 1, ask: 40, granted: 60 + most, token: 6, unlock: 70 + most}), "stuck"},
		{"somebody has it", waits("mutex").turn(turn{process: 3, op: 1, ask: 40, granted: 60, token: 6, unlock: 60 + most}), ""},
		{"somebody may have it, and not all", waits("mutex").turn(turn{process: 3, op: 1, ask: 40, way: "all"}).
			event(15_000, 3, Event{What: Failed, Op: 1}), ""},
		{"a connection is hurt", waits("mutex").event(6_000, 1, Event{What: Fault, Fault: "dark", End: 10_000}), ""},
		{"a process is paused", waits("mutex").event(6_000, 1, Event{What: Paused}).event(10_000, 1, Event{What: Resumed}), ""},
		{"a process is killed", waits("mutex").event(9_000, 1, Event{What: Killed, Fault: "kill"}), ""},
		{"who waits is killed", used("mutex").turn(turn{process: 2, op: 1, ask: 30}).event(5_000, 2, Event{What: Killed}), ""},
		{"who waits ends", used("mutex").turn(turn{process: 2, op: 1, ask: 30}).event(most, 2, Event{What: Failed, Op: 1}), ""},
		{"one permit", waits("semaphore"), "stuck"},
		{"many permits", used("semaphore").turn(turn{process: 2, op: 1, ask: 30, units: 2}).
			event(20_000, 2, Event{What: Failed, Op: 1, Err: "given up"}), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := test.tale.judge()
			if got := rules(v); got != test.want {
				t.Errorf("found %q, want %q: %+v", got, test.want, v.Findings)
			}
			if test.want != "" && !strings.Contains(v.Findings[0].Text, `"a" was free from 0.049 to`) {
				t.Error(v.Findings[0].Text)
			}
		})
	}
}

// What was made unreadable is not judged; all else is.
func TestSpoiled(t *testing.T) {
	one := turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30, until: 100}
	s := newTale("mutex", 1).turn(one).turn(turn{process: 2, op: 1, ask: 2, granted: 20, token: 5, look: 40}).
		event(35, 1, Event{What: Told, Op: 1, Err: "gone", End: 36}).
		turn(turn{process: 3, op: 1, ask: 41, granted: 42, token: 7, look: 43, way: "adopt", handle: "c"}).
		event(5, 0, Event{What: Fault, Fault: "spoil", Name: "a"})
	if v := s.judge(); len(v.Findings) > 0 || !strings.Contains(strings.Join(v.Notes, "\n"), "made unreadable: 1") {
		t.Errorf("%+v, %q", v.Findings, v.Notes)
	}
	lost := newTale("mutex", 1).turn(one).event(35, 1, Event{What: Told, Op: 1, Err: "gone", End: 36}).
		event(5, 0, Event{What: Fault, Fault: "spoil", Name: "another"})
	if v := lost.judge(); rules(v) != "lost" {
		t.Errorf("beside a name that was spoiled: %+v", v.Findings)
	}
}

// A lease that an error costs which is another name's is a finding.
func TestLostByAnotherName(t *testing.T) {
	s := newTale("mutex", 1).turn(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30, until: 100}).
		event(120, 1, Event{What: Told, Op: 1, Err: `renew "a" and 3 more: key pawl/x%2Fb1 cannot be read`, End: 121}).
		event(5, 0, Event{What: Fault, Fault: "spoil", Name: "x/b"})
	if v := s.judge(); rules(v) != "" {
		t.Errorf("it is lost by a name that is like one: %+v", v.Findings)
	}
	late := newTale("mutex", 1).turn(turn{process: 1, op: 1, ask: 1, granted: 10, token: 5, look: 30, until: 100}).
		event(120, 1, Event{What: Told, Op: 1, Err: `lock "a", token 5: lease lost: etcd: renew "x/b" and 3 more: no reply; renew "x/b": no reply`, End: 121}).
		event(5, 0, Event{What: Fault, Fault: "spoil", Name: "x/b"})
	if v := late.judge(); rules(v) != "" {
		t.Errorf("it is lost by the network: %+v", v.Findings)
	}
	s.event(6, 0, Event{What: Fault, Fault: "spoil", Name: "x/b1"})
	if v := s.judge(); rules(v) != "lost" || !strings.Contains(v.Findings[0].Text, `what is wrong with "x/b1"`) {
		t.Errorf("%+v", v.Findings)
	}
	s.event(90, 0, Event{What: Fault, Fault: "server", End: 130})
	if v := s.judge(); rules(v) != "" {
		t.Errorf("the server was hurt: %+v", v.Findings)
	}
}
