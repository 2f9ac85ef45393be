package queue

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// at is an operation at that time.
func at(now int64) *Op { return &Op{Now: now} }

func enter(t *testing.T, q *Queue, o *Op, id string, units, limit, ttl int64, want driver.State) {
	t.Helper()
	st, err := o.Enter(q, &driver.Claim{ID: id, Kind: driver.KindSemaphore, Units: units, Limit: limit, TTL: Span(ttl)})
	if err != nil || st != want {
		t.Fatalf("Enter %s: %v, %v; want %v", id, st, err, want)
	}
}

func ids(q *Queue, holding bool) (ids []string) {
	for _, c := range q.Claims {
		if c.Holding() == holding {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func signalled(o *Op, kind SignalKind) (ids []string) {
	for _, s := range o.Signals {
		if s.Kind == kind {
			ids = append(ids, s.Claim.ID)
		}
	}
	return ids
}

// A token that a crashed holder may have used is below the next one: it used
// one for every microsecond from its grant to its end.
func TestTokenAfterCrash(t *testing.T) {
	for _, tt := range []struct {
		name         string
		units, limit int64
		end          func(q *Queue)
		want         int64 // at the least
	}{
		{"ran out", 1, 1, func(q *Queue) { at(6000).Look(q) }, 100_000 + 4000},
		{"ran out long ago", 3, 3, func(q *Queue) { at(9000).Look(q) }, 100_000 + 4000},
		{"client died", 1, 1, func(q *Queue) { at(1500).Drop(q, func(*Claim) bool { return true }) }, 100_000 + 500},
		{"broken, and not told yet", 1, 1, func(q *Queue) { at(1500).Break(q) }, 100_000 + 4000},
		{"had made room", 3, 3, func(q *Queue) { at(1500).Resize(q, driver.Ref{ID: "first"}, 1) }, 100_000 + 500},
		{"said what it used, and lingered", 1, 1, func(q *Queue) { at(1500).Leave(q, driver.Ref{ID: "first", Used: 100_030, Linger: Span(2000)}) }, 100_000 + 30},
		{"held beside others", 2, 3, func(q *Queue) { at(6000).Look(q) }, 100_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := Queue{Last: 100_000 - 1} // ahead of the clock
			enter(t, &q, at(1000), "first", tt.units, tt.limit, 4000, driver.Holding)
			tt.end(&q)
			enter(t, &q, at(9000), "next", 1, tt.limit, 10, driver.Holding)
			if got := q.Find("next").Token; got != tt.want+1 {
				t.Errorf("the next token is %d, want %d", got, tt.want+1)
			}
		})
	}
}

// Spare bounds how far tokens may run ahead of the clock after a Break.
func TestSpareIsBounded(t *testing.T) {
	var q Queue
	enter(t, &q, at(1000), "first", 1, 1, 10*Spare, driver.Holding)
	at(1001).Break(&q)
	if want := 1000 + Spare; q.Last != want {
		t.Errorf("Last is %d, want %d", q.Last, want)
	}
}

func TestTokenFollowsTheClock(t *testing.T) {
	var q Queue
	enter(t, &q, at(5000), "first", 1, 1, 10, driver.Holding)
	if got := q.Find("first").Token; got != 5000 {
		t.Errorf("token %d at 5000", got)
	}
	at(5005).Leave(&q, driver.Ref{ID: "first"})
	enter(t, &q, at(5000), "next", 1, 1, 10, driver.Holding) // the clock was set back
	if got := q.Find("next").Token; got != 5001 {
		t.Errorf("token %d after 5000, want 5001", got)
	}
}

func TestUsedIsKept(t *testing.T) {
	var q Queue
	enter(t, &q, at(1000), "first", 1, 1, 100, driver.Holding)
	at(1050).Renew(&q, driver.Ref{ID: "first", TTL: Span(100), Used: 1040})
	at(1060).Renew(&q, driver.Ref{ID: "first", TTL: Span(100)})
	if got := q.Find("first").Used; got != 1040 {
		t.Errorf("Used is %d, want 1040", got)
	}
	at(1010).Leave(&q, driver.Ref{ID: "first"})
	if q.Last != 1040 {
		t.Errorf("Last is %d, want 1040", q.Last)
	}

	// What was said counts also where the clock was set back.
	enter(t, &q, at(2000), "next", 2, 3, 100, driver.Holding)
	at(2050).Renew(&q, driver.Ref{ID: "next", TTL: Span(100), Used: 2040})
	at(2010).Drop(&q, func(*Claim) bool { return true })
	if q.Last != 2040 {
		t.Errorf("Last is %d, want 2040", q.Last)
	}
	enter(t, &q, at(3000), "grows", 2, 3, 100, driver.Holding)
	at(3001).Resize(&q, driver.Ref{ID: "grows", Used: 3040}, 3)
	if got := q.Find("grows").Token; got != 3041 {
		t.Errorf("token %d after 3040 was used", got)
	}
}

// Whoever cannot be told is passed over, keeps its place, and gets what
// nobody else takes.
func TestUnreachable(t *testing.T) {
	deaf := func(ids ...string) func(*Claim) bool {
		return func(c *Claim) bool { return !slices.Contains(ids, c.ID) }
	}
	fill := func(t *testing.T, limit int64, units ...int64) *Queue {
		q := new(Queue)
		enter(t, q, at(1), "holder", limit-1, limit, 1000, driver.Holding)
		enter(t, q, at(1), "other", 1, limit, 1000, driver.Holding)
		for i, n := range units {
			enter(t, q, at(1), string(rune('a'+i)), n, limit, 1000, driver.Waiting)
		}
		return q
	}
	for _, tt := range []struct {
		name  string
		units []int64
		deaf  []string
		want  []string
	}{
		{"the next one gets it", []int64{3, 3}, []string{"a"}, []string{"other", "b"}},
		{"nobody can be told", []int64{3, 3}, []string{"a", "b"}, []string{"other", "a"}},
		{"what is left", []int64{1, 2, 3}, []string{"a"}, []string{"other", "a", "b"}},
		{"in front of a big one", []int64{2, 4, 1}, []string{"a"}, []string{"other", "a"}},
		{"not behind a big one", []int64{4, 1}, []string{"a", "b"}, []string{"other"}},
		{"none past one that does not fit", []int64{3, 1, 2}, []string{"a", "b"}, []string{"other", "c"}},
		{"in order", []int64{3, 2, 1}, []string{"a", "b", "c"}, []string{"other", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := fill(t, 4, tt.units...)
			o := &Op{Now: 2, Reachable: deaf(tt.deaf...)}
			o.Leave(q, driver.Ref{ID: "holder"})
			if got := ids(q, true); !slices.Equal(got, tt.want) {
				t.Errorf("%v hold, want %v", got, tt.want)
			}
		})
	}
	t.Run("whoever asks is there", func(t *testing.T) {
		var q Queue
		o := &Op{Now: 1, Reachable: func(*Claim) bool { return false }}
		enter(t, &q, o, "a", 1, 1, 10, driver.Holding)
		enter(t, &q, at(2), "b", 1, 1, 100, driver.Waiting)
		enter(t, &q, at(2), "c", 1, 1, 100, driver.Waiting)
		o = &Op{Now: 20, Reachable: deaf("b")}
		if st := o.Renew(&q, driver.Ref{ID: "b", TTL: Span(100)}); st != driver.Holding {
			t.Errorf("b renews as the name becomes free: %v", st)
		}
	})
	t.Run("one that overtakes goes past one that does not fit", func(t *testing.T) {
		q := fill(t, 4, 3, 2, 1)
		q.Find("c").Overtake = true
		o := &Op{Now: 2, Reachable: deaf("b", "c")}
		q.Find("a").Units = 2
		o.Leave(q, driver.Ref{ID: "holder"})
		if got := ids(q, true); !slices.Equal(got, []string{"other", "a", "c"}) {
			t.Errorf("%v hold", got)
		}
	})
}

func TestSignals(t *testing.T) {
	var q Queue
	enter(t, &q, at(1), "r1", 1, 3, 100, driver.Holding)
	enter(t, &q, at(1), "r2", 1, 3, 100, driver.Holding)
	at(2).Leave(&q, driver.Ref{ID: "r2", Linger: Span(50)})
	o := at(3)
	enter(t, &q, o, "w1", 3, 3, 100, driver.Waiting)
	if got := signalled(o, Wanted); !slices.Equal(got, []string{"r1"}) {
		t.Errorf("the first waits: told are %v, want those that own what they hold", got)
	}
	o = at(3)
	enter(t, &q, o, "w2", 3, 3, 100, driver.Waiting)
	if len(o.Signals) != 0 {
		t.Errorf("a second waits: told are %v", o.Signals)
	}
	o = at(4)
	o.Break(&q)
	if got := signalled(o, Broken); !slices.Equal(got, []string{"r1", "r2"}) {
		t.Errorf("broken are told %v", got)
	}
	if got := signalled(o, Granted); !slices.Equal(got, []string{"w1"}) {
		t.Errorf("granted are told %v", got)
	}
	o = at(5)
	if st := o.Renew(&q, driver.Ref{ID: "w1", TTL: Span(100)}); st != driver.Holding || len(o.Signals) != 0 {
		t.Errorf("%v, told are %v", st, o.Signals)
	}
	o = at(200) // w1 and w2 have run out; the caller knows of its own grant by the reply
	enter(t, &q, o, "w3", 3, 3, 100, driver.Holding)
	if len(o.Signals) != 0 {
		t.Errorf("told are %v", o.Signals)
	}
}

func TestSessions(t *testing.T) {
	var q Queue
	(&Op{Now: 1, Session: "one"}).Enter(&q, &driver.Claim{ID: "a", Units: 1, Kind: driver.KindSemaphore, Limit: 1, TTL: Span(100)})
	(&Op{Now: 2, Session: "two"}).Enter(&q, &driver.Claim{ID: "a", Units: 1, Kind: driver.KindSemaphore, Limit: 1, TTL: Span(100)})
	if got := q.Find("a").Session; got != "two" {
		t.Errorf("entered again by two: session %s", got)
	}
	(&Op{Now: 3, Session: "three"}).Renew(&q, driver.Ref{ID: "a", TTL: Span(100)})
	if got := q.Find("a").Session; got != "three" {
		t.Errorf("renewed by three: session %s", got)
	}
	at(3).Renew(&q, driver.Ref{ID: "a", TTL: Span(100)})
	if got := q.Find("a").Session; got != "three" {
		t.Errorf("renewed by one without a session: session %q", got)
	}
	at(4).Leave(&q, driver.Ref{ID: "a", Linger: Span(100)})
	(&Op{Now: 5, Session: "four"}).Enter(&q, &driver.Claim{ID: "a", Units: 1, Kind: driver.KindSemaphore, Limit: 1, TTL: Span(100)})
	if got := q.Find("a").Session; got != "three" {
		t.Errorf("lingers, entered again by four: session %s", got)
	}
}

func TestMismatchError(t *testing.T) {
	var q Queue
	enter(t, &q, at(1), "a", 1, 3, 100, driver.Holding)
	_, err := at(2).Enter(&q, &driver.Claim{ID: "b", Units: 1, Kind: driver.KindSemaphore, Limit: 4, TTL: Span(100)})
	err = NameLimit(err, "x")
	var le *driver.MismatchError
	if !errors.As(err, &le) || *le != (driver.MismatchError{Name: "x", Have: 3, Want: 4}) {
		t.Errorf("error %+v", err)
	}
	enter(t, &q, at(200), "b", 1, 4, 100, driver.Holding) // a has run out
	if NameLimit(nil, "x") != nil {
		t.Error("no error became one")
	}
}

func TestDisposable(t *testing.T) {
	var q Queue
	enter(t, &q, at(1000), "a", 1, 1, 10*Keep, driver.Holding)
	if q.Disposable(1000 + 2*Keep) {
		t.Error("with a claim")
	}
	if got := q.NextExpiry(); got != 1000+10*Keep {
		t.Errorf("NextExpiry is %d", got)
	}
	enter(t, &q, at(1000), "b", 1, 1, 10, driver.Waiting)
	if got := q.NextExpiry(); got != 1010 {
		t.Errorf("NextExpiry is %d, want 1010", got)
	}
	at(1001).Leave(&q, driver.Ref{ID: "b"})
	at(1001).Leave(&q, driver.Ref{ID: "a", Used: 2000})
	if q.NextExpiry() != 0 || q.Disposable(2000+Keep) || !q.Disposable(2001+Keep) {
		t.Errorf("left with token 2000: NextExpiry %d, Disposable %v and %v", q.NextExpiry(), q.Disposable(2000+Keep), q.Disposable(2001+Keep))
	}
}

func TestStatus(t *testing.T) {
	const s = int64(time.Second / time.Microsecond)
	var q Queue
	at(1*s).Enter(&q, &driver.Claim{ID: "h1", Units: 2, Owner: driver.Owner{Label: "one"}, Kind: driver.KindSemaphore, Limit: 3, TTL: Span(50 * s)})
	at(1*s).Enter(&q, &driver.Claim{ID: "h2", Units: 1, Owner: driver.Owner{Label: "two"}, Kind: driver.KindSemaphore, Limit: 3, TTL: Span(40 * s)})
	enter(t, &q, at(1*s), "w1", 3, 3, 20*s, driver.Waiting)
	enter(t, &q, at(2*s), "w2", 1, 3, 30*s, driver.Waiting)
	enter(t, &q, at(2*s), "w3", 1, 3, 5*s, driver.Waiting)
	sent := time.Now()
	status := func(id string, st driver.State, ttl time.Duration) driver.Status {
		return q.Status(id, st, 11*s/2, sent, ttl)
	}
	h2 := q.Find("h2")
	blocker := h2.Entry(11 * s / 2)
	other := q.Find("h1").Entry(11 * s / 2)
	if want := (driver.Entry{
		ID: "h2", State: driver.Holding, Units: 1, Token: h2.Token, Owner: driver.Owner{Label: "two"},
		Age: 4500 * time.Millisecond, Held: 4500 * time.Millisecond, TTL: 35500 * time.Millisecond,
	}); blocker != want {
		t.Errorf("entry %+v, want %+v", blocker, want)
	}
	for _, tt := range []struct {
		name string
		got  driver.Status
		want driver.Status
	}{
		{"waiting", status("w2", driver.Waiting, time.Minute), driver.Status{
			State: driver.Waiting, Ahead: 1, Blocker: &blocker,
			Deadline: driver.Deadline(sent, time.Minute),
			Recheck:  sent.Add(15*time.Second + 501*time.Millisecond), // w1, in front, ends first
		}},
		{"first to wait", status("w1", driver.Waiting, time.Minute), driver.Status{
			State: driver.Waiting, Blocker: &blocker,
			Deadline: driver.Deadline(sent, time.Minute),
			Recheck:  sent.Add(15*time.Second + 501*time.Millisecond), // its own end comes before the holder's
		}},
		{"waiting, not renewed", status("w2", driver.Waiting, 0), driver.Status{State: driver.Waiting, Ahead: 1, Blocker: &blocker}},
		{"holding", status("h1", driver.Holding, time.Second), driver.Status{
			State: driver.Holding, Token: q.Find("h1").Token, Behind: 3, Deadline: driver.Deadline(sent, time.Second),
		}},
		{"refused", status("x", driver.Refused, time.Second), driver.Status{State: driver.Refused, Blocker: &blocker}},
		{"not resized", status("h2", driver.Refused, 0), driver.Status{
			State: driver.Refused, Token: h2.Token, Behind: 3, Blocker: &other,
		}},
		{"gone", status("x", driver.Gone, time.Second), driver.Status{}},
		{"gone, but lingering", status("h1", driver.Gone, time.Second), driver.Status{}},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: %+v\nwant %+v", tt.name, tt.got, tt.want)
		}
	}
	var alone Queue
	enter(t, &alone, at(1), "a", 3, 3, 10, driver.Holding)
	if got := alone.Status("a", driver.Holding, 1, sent, 0).Spare; got != Spare {
		t.Errorf("holds alone: %d spare tokens", got)
	}
	if q.State(driver.Ref{ID: "w1"}) != driver.Waiting || q.State(driver.Ref{ID: "h1"}) != driver.Holding || q.State(driver.Ref{ID: "x"}) != driver.Gone {
		t.Error("State")
	}
}

func TestView(t *testing.T) {
	var q Queue
	if v := q.View("n", 1); v.Name != "n" || len(v.Claims) != 0 {
		t.Errorf("nobody there: %+v", v)
	}
	enter(t, &q, at(1000), "h", 1, 1, 100, driver.Holding)
	enter(t, &q, at(1010), "w", 1, 1, 100, driver.Waiting)
	at(1020).Leave(&q, driver.Ref{ID: "h", Used: 1015, Linger: Span(200)})
	want := driver.Queue{Name: "n", Kind: driver.KindSemaphore, Limit: 1, Claims: []driver.Entry{
		{ID: "h", State: driver.Holding, Units: 1, Token: 1015, Age: Span(30), Held: Span(30), TTL: Span(190), Lingering: true},
		{ID: "w", State: driver.Waiting, Units: 1, Age: Span(20), TTL: Span(80)},
	}}
	if v := q.View("n", 1030); !reflect.DeepEqual(v, want) {
		t.Errorf("%+v\nwant %+v", v, want)
	}
}

func TestMicros(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, time.Second: 1_000_000, driver.MaxTTL: 7 * 24 * 3600 * 1_000_000,
	} {
		if got := Micros(d); got != want {
			t.Errorf("Micros(%d ns) is %d, want %d", d, got, want)
		}
	}
	if Span(1500) != 1500*time.Microsecond {
		t.Error("Span")
	}
}
