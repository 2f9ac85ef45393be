package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

func TestFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		n    int
		want string
		used int
	}{
		{"abc", 3, "abc", 3},
		{"abcd", 3, "ab…", 3},
		{"", 3, "", 0},
		{"abc", 0, "", 0},
		{"abc", 1, "…", 1},
		{"漢字", 4, "漢字", 4},
		{"漢字", 3, "漢…", 3},
		{"漢字漢", 4, "漢…", 3},
		{"\U0001F512x", 3, "\U0001F512x", 3},
		{"e\u0301tat", 4, "e\u0301tat", 4},
		{"e" + strings.Repeat("\u0301", 100), 4, "e\u0301\u0301", 1},
		{"\u0301\u0301x", 4, "x", 1},
		{"a\x1b[31mb\nc\u202e\x9b", 20, "a\uFFFD[31mb c\uFFFD\uFFFD", 11},
	} {
		if got, used := fit(tt.text, tt.n); got != tt.want || used != tt.used {
			t.Errorf("fit(%q, %d) = %q, %d, want %q, %d", tt.text, tt.n, got, used, tt.want, tt.used)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	const typed = "qj\x1b[A\x1bOB\x1b[5~é漢\x1b[1;5C\x1b[200~\r\x7f\x03\x00\x1b"
	const want = "[q j up down page up é 漢 enter backspace interrupt escape]"
	for _, size := range []int{1, 2, 3, len(typed)} {
		var d decoder
		var keys []key
		for rest := []byte(typed); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			keys = append(keys, d.feed(rest[:min(size, len(rest))])...)
		}
		keys = append(keys, d.flush()...)
		if got := fmt.Sprint(keys); got != want {
			t.Errorf("in parts of %d: %s, want %s", size, got, want)
		}
	}
}

// queueOf is a queue of a mutex, held for so long; those who wait do so for shorter and
// shorter.
func queueOf(name string, held, wait time.Duration, waiters int) *pawl.Queue {
	q := &pawl.Queue{Name: name, Kind: driver.KindMutex, Limit: 1, Claims: []pawl.Entry{
		{ID: "ID-OF-" + name, State: driver.Holding, Held: held, Token: 7, Owner: pawl.Owner{Label: "label of " + name, Host: "host", PID: 99999}},
	}}
	for i := range waiters {
		q.Claims = append(q.Claims, pawl.Entry{ID: "W" + strconv.Itoa(i), State: driver.Waiting, Age: wait / time.Duration(i+1)})
	}
	return q
}

func newModel(queues ...*pawl.Queue) *topModel {
	m := &topModel{width: 80, height: 24, sort: byWait, readAt: time.Now()}
	var rows []topRow
	for _, q := range queues {
		rows = append(rows, topRowOf(q))
	}
	m.setRows(rows, 0)
	return m
}

func (m *topModel) order() (names string) {
	for _, r := range m.rows {
		names += r.name
	}
	return names
}

func TestTopModel(t *testing.T) {
	t.Parallel()
	m := newModel(queueOf("a", time.Minute, 0, 0), queueOf("b", time.Hour, time.Second, 3), queueOf("c", time.Second, time.Minute, 1))
	if m.order() != "cba" { // those without waiters by how long they hold
		t.Error(m.order())
	}
	for keys, want := range map[string]string{"n": "abc", "nn": "cba", "h": "bac", "hh": "cab", "w": "bca", "o": "cba", "oo": "abc"} {
		m.sort, m.reversed = "", false
		for _, k := range keys {
			m.typed(key(k))
		}
		if m.order() != want {
			t.Errorf("%s: %s, want %s", keys, m.order(), want)
		}
	}
	// What is selected stays so in another order.
	m.sort, m.reversed = byName, false
	m.arrange()
	m.typed(keyEnd)
	m.typed("w")
	if m.name != "c" {
		t.Errorf("%q is selected", m.name)
	}
	for _, k := range []key{"/", "L", "A", "B", "x", keyBackspace, "e", "l", " ", "o", "f", " ", "b"} {
		m.typed(k)
	}
	if m.order() != "b" || !m.searching {
		t.Errorf("with %q: %s", m.search, m.order())
	}
	m.typed(keyEnter)
	if quit, _ := m.typed("q"); !quit || m.order() != "b" {
		t.Error("q does not end it")
	}
	if m.typed(keyEscape); m.order() != "bca" {
		t.Errorf("without a search: %s", m.order())
	}
}

// Nothing is done but what was confirmed, to the claim that was named.
func TestTopConfirms(t *testing.T) {
	t.Parallel()
	m := newModel(queueOf("a", time.Minute, time.Second, 1))
	for _, keys := range [][]key{{"F"}, {"y"}, {"r", "n"}, {"r", "f"}, {"r", keyEnter}, {"r", keyEscape}, {"r", "r"}, {"r", "n", "F"}, {"/", "r", "F", keyEscape}} {
		for _, k := range keys {
			if quit, act := m.typed(k); quit || act != nil {
				t.Errorf("%q: %v, %+v", keys, quit, act)
			}
		}
	}
	m.typed("r")
	frame := m.view(time.Now())
	for _, text := range []string{`held by "label of a" (process 99999 on host)`, "Release a, claim ID-OF-a?"} {
		if !strings.Contains(frame, text) {
			t.Errorf("it does not tell %q", text)
		}
	}
	// Another holds by now, whom nobody has been asked about.
	m.setRows([]topRow{topRowOf(&pawl.Queue{Name: "a", Claims: []pawl.Entry{{ID: "OTHER", State: driver.Holding}}})}, 0)
	if _, act := m.typed("F"); act == nil || act.name != "a" || act.entry.ID != "ID-OF-a" || act.yield {
		t.Errorf("%+v", act)
	}
	m.typed(keyEnter)
	m.queue = queueOf("a", time.Minute, time.Second, 2)
	m.typed(keyDown)
	m.typed(keyDown)
	m.typed("r")
	if _, act := m.typed("y"); act != nil {
		t.Errorf("one that waits is asked to give way: %+v", act)
	}
	m.typed("r")
	if _, act := m.typed("F"); act == nil || act.entry.ID != "W1" {
		t.Errorf("%+v", act)
	}
	m.typed(keyEscape)
	m.setRows([]topRow{topRowOf(&pawl.Queue{Name: "a", Claims: []pawl.Entry{{State: driver.Holding}, {State: driver.Holding}}})}, 0)
	if m.typed("r"); m.ask != nil || !strings.Contains(m.note, "press Enter") {
		t.Errorf("%+v, %s", m.ask, m.note)
	}
}

var control = regexp.MustCompile(`\x1b\[([0-9;]*)([A-Za-z])`)

// Whatever names, labels and hosts are, and however small the terminal is, nothing is
// drawn beyond its edges, and nothing of theirs steers it.
func TestTopDrawsWithinTheEdges(t *testing.T) {
	t.Parallel()
	var queues []*pawl.Queue
	for i, text := range []string{"\x1b]0;title\x07\x1b[2J\x1b[31m", strings.Repeat("漢", 170), "\u202eright to left", strings.Repeat("z\u0301\u0302\u0303\u0304", 100), "\r\n\n", "\u009b31m", "plain", "\xff\xfe"} {
		q := queueOf(fmt.Sprint(i, text), 500*time.Hour, 90*time.Hour, i)
		q.Claims[0].Owner = pawl.Owner{Label: text, Host: text, PID: 1 << 30}
		queues = append(queues, q)
	}
	m := newModel(queues...)
	m.title, m.color = strings.Repeat("x\x1b[0m", 100), true
	for _, width := range []int{1, 10, 29, 30, 45, 55, 65, 80, 120, 300} {
		for _, height := range []int{1, 2, 5, 24, 60} {
			for _, in := range []bool{false, true} {
				for _, asked := range []bool{false, true} {
					m.width, m.height, m.in, m.queue, m.ask = width, height, "", nil, nil
					if in {
						m.in, m.queue = queues[1].Name, queues[1]
					}
					if asked {
						m.ask = &topAction{queues[0].Name, queues[0].Claims[0], false}
					}
					within(t, m.view(time.Now()), width, height)
				}
			}
		}
	}
	m.width, m.height, m.color, m.err = 80, 24, false, fmt.Errorf("connection refused")
	if frame := m.view(time.Now()); regexp.MustCompile(`\x1b\[[34]\dm`).MatchString(frame) || !strings.Contains(frame, "connection refused") {
		t.Error("colors without color, or no error")
	}
}

func within(t *testing.T, frame string, width, height int) {
	t.Helper()
	x, y := 1, 1
	for frame != "" {
		if at := control.FindStringSubmatchIndex(frame); at != nil && at[0] == 0 {
			if frame[at[4]:at[5]] == "H" {
				fmt.Sscanf(frame[at[2]:at[3]], "%d;%d", &y, &x)
			}
			frame = frame[at[1]:]
			continue
		}
		for _, r := range frame {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Fatalf("%q is drawn", r)
			}
			if x += columns(r); x > width+1 || y < 1 || y > height {
				t.Fatalf("column %d of line %d is drawn, of %dx%d", x-1, y, width, height)
			}
			frame = frame[len(string(r)):]
			break
		}
	}
}
