package zkstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

func newStore(t *testing.T) *Store {
	s, err := New([]string{"127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// waitIn makes a Leave wait in the slot until it was taken along.
func waitIn(t *testing.T, s *Store, sl *slot, ref driver.Ref) (l *leaving, taken <-chan bool) {
	l = &leaving{ref: ref, done: make(chan struct{})}
	ch := make(chan bool, 1)
	go func() {
		_, taken, err := s.lock(t.Context(), nil, sl.name, l)
		ch <- taken && err == nil
	}()
	<-sl.came
	return l, ch
}

// A change takes Leaves along as long as its tokens stay within two blocks, and
// tells those alone what became of it.
func TestTakeAlong(t *testing.T) {
	s := newStore(t)
	sl, _, err := s.lock(t.Context(), nil, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	const now = 5*block + 1
	tn := &turn{s: s, q: new(queue.Queue), l: new(list), alone: make(map[string]bool)}
	tn.Now = now
	for _, id := range []string{"holder", "next", "third"} {
		if _, err := tn.Enter(tn.q, queue.Claim{ID: id, Units: 1}, 1, forever, false); err != nil {
			t.Fatal(err)
		}
		tn.settle()
	}
	tn.q.Last, tn.q.Claims[0].Token = 7, 1 // it was granted by an earlier change
	tn.count()
	stranger, out := waitIn(t, s, sl, driver.Ref{Name: "x", ID: "stranger"})
	first, in := waitIn(t, s, sl, driver.Ref{Name: "x", ID: "holder"})
	second, out2 := waitIn(t, s, sl, driver.Ref{Name: "x", ID: "next"})
	aboard := tn.takeAlong(sl)
	if len(aboard) != 1 || aboard[0] != first || first.was != driver.Holding {
		t.Fatalf("%d were taken along", len(aboard))
	}
	if c := tn.q.Find("next"); !c.Holding() || !tn.alone["next"] || c.Token != now || tn.q.Last != now+spare {
		t.Errorf("the next: %+v, last token %d", c, tn.q.Last)
	}
	s.landed(sl, aboard, zk.ErrBadVersion)
	s.landed(sl, aboard, errUnsent)
	if fired(first.done) {
		t.Fatal("it was told of a change that was not made")
	}
	lost := errors.New("lost")
	s.landed(sl, aboard, lost)
	if !<-in || first.err != lost {
		t.Errorf("the one that was taken along is told %v", first.err)
	}
	for _, l := range []*leaving{stranger, second} {
		if fired(l.done) {
			t.Errorf("%s was not taken along, but is told so", l.ref.ID)
		}
	}
	s.unlock(sl)
	var taken bool
	for range 2 { // in whichever order
		select {
		case taken = <-out:
		case taken = <-out2:
		}
		if taken {
			t.Error("one that was not taken along is told so")
		}
		<-sl.turn // as it would let go
	}
	if last := tn.q.Last; last >= now+2*block {
		t.Errorf("the last token is %d, out of two blocks from %d", last, now)
	}
}

// What has lapsed is not renewed any more, however close the two come; and what
// was renewed has not lapsed.
func TestExtend(t *testing.T) {
	s := newStore(t)
	s.own("old", "x", 3, time.Now().Add(-2*time.Second), time.Second)
	s.own("new", "x", 3, time.Now(), time.Minute)
	if s.extend("old", "x", 3, time.Now(), time.Minute) || !s.lapsed("old") {
		t.Error("what has lapsed was extended")
	}
	if !s.extend("new", "x", 3, time.Now(), time.Hour) || s.lapsed("new") {
		t.Error("what lives was not extended")
	}
	if s.mine["new"].lapses.Before(time.Now().Add(50 * time.Minute)) {
		t.Error("it still ends when it did")
	}
	if !s.extend("adopted", "x", 3, time.Now(), time.Minute) || s.lapsed("adopted") {
		t.Error("what another Store has entered was not taken over")
	}
}

// Who was promised a token gets that, whoever goes in front of it or behind it in
// the same step; and a token that somebody who has gone may have used is not drawn.
func TestPromises(t *testing.T) {
	const now = 9*block + 1
	line := func() *turn {
		tn := &turn{q: &queue.Queue{Limit: 1}, l: &list{More: make(map[string]*more)}, alone: make(map[string]bool)}
		tn.Now = now
		for i, id := range []string{"holder", "first", "second", "third"} {
			tn.q.Claims = append(tn.q.Claims, queue.Claim{ID: id, Units: 1, Expires: forever})
			tn.l.More[id] = &more{Promise: int64(i)*block + 1}
		}
		h := &tn.q.Claims[0]
		h.Token, h.Granted, tn.q.Last = 1, 1, 1+spare
		tn.count()
		return tn
	}
	for _, tt := range []struct {
		dead []string
		next string
		want int64
	}{
		{[]string{"holder"}, "first", block + 1},
		{[]string{"holder", "first"}, "second", 2*block + 1},
		{[]string{"holder", "second", "third"}, "first", block + 1},
		{[]string{"holder", "first", "third"}, "second", 2*block + 1},
	} {
		tn := line()
		tn.Drop(tn.q, func(c *queue.Claim) bool { return slices.Contains(tt.dead, c.ID) })
		tn.settle()
		if c := tn.q.Find(tt.next); c.Token != tt.want || tn.q.Last != tt.want+spare || !tn.alone[tt.next] {
			t.Errorf("without %v: %+v, last token %d", tt.dead, c, tn.q.Last)
		}
	}
	tn := line()
	tn.Now = 1
	tn.Drop(tn.q, func(*queue.Claim) bool { return true })
	tn.settle()
	if _, err := tn.Enter(tn.q, queue.Claim{ID: "new", Units: 1}, 1, forever, false); err != nil {
		t.Fatal(err)
	}
	tn.settle()
	if c := tn.q.Find("new"); c.Token <= 3*block+1+spare {
		t.Errorf("the next has token %d, which the last may have used", c.Token)
	}
}

// What a child's name says of a claim is read as it was written.
func TestArrival(t *testing.T) {
	for _, owner := range []driver.Owner{{}, {Label: "a/b!c", Host: "h", PID: 7}} {
		a := arrival{id: driver.NewID(), mark: "s.1.2", zk: -5, ttl: 1000, came: 1 << 40, owner: owner}
		prefix, err := a.prefix()
		if err != nil || strings.Contains(prefix, "/") {
			t.Fatalf("%q, %v", prefix, err)
		}
		a.node, a.seq = prefix+"0000000012", 12
		if got, ok := parseArrival(a.node); !ok || got != a {
			t.Errorf("%+v, want %+v", got, a)
		}
	}
	for _, node := range []string{"", "+", driver.NewID(), "keep-x", "+a!b!c!d!e!f!g"} {
		if a, ok := parseArrival(node); ok {
			t.Errorf("%q is taken for %+v", node, a)
		}
	}
}

// A claim is not told that it holds while that of another has lapsed, but is there:
// an Enter would renew it.
func TestToldPastLapsed(t *testing.T) {
	n := &session{mark: "s.1.2", conn: new(zk.Conn)}
	tn := &turn{
		s: newStore(t), n: n, v: new(view), q: &queue.Queue{Limit: 1}, l: &list{More: map[string]*more{"next": {Promise: 9}}},
		was: map[string]queue.Claim{"next": {}},
	}
	tn.q.Claims = []queue.Claim{{ID: "next", Session: n.mark, Granted: 1, Token: 9}}
	for _, lapsed := range []bool{false, true} {
		if tn.forced = lapsed; tn.told("next") == lapsed {
			t.Errorf("lapsed %v: told %v", lapsed, !lapsed)
		}
	}
}

// Who has arrived is promised a token only if none that is drawn otherwise can be
// above it: or else the queue is no mutex.
func TestPromisedBehindDrawn(t *testing.T) {
	a := arrival{id: driver.NewID(), mark: "other.1.2"}
	prefix, err := a.prefix()
	if err != nil {
		t.Fatal(err)
	}
	node := prefix + "0000000003"
	for _, tt := range []struct {
		what  string
		draws bool
		drawn int64
		want  int64
	}{
		{"after promises alone", false, 0, 6*block + 1},
		{"after a lower one", false, 6 * block, 6*block + 1},
		{"after a greater one", false, 6*block + 1 + spare, 0},
		{"behind one who waits for one", true, 0, 0},
	} {
		v := &view{found: true, children: map[string]bool{node: true}, born: map[string]int64{node: 16}}
		v.stat.Czxid = 10
		tn := &turn{
			s: newStore(t), v: v, q: &queue.Queue{Limit: 1}, l: &list{More: make(map[string]*more), Drawn: tt.drawn}, draws: tt.draws,
			nodes: make(map[string]bool), was: make(map[string]queue.Claim),
		}
		tn.compose()
		if m := tn.l.More[a.id]; m.Promise != tt.want || tn.mutex() != (tt.want != 0) {
			t.Errorf("%s: promised %d, a mutex: %v", tt.what, m.Promise, tn.mutex())
		}
	}
}

// The server's numbers of children run out, and are in no order after that.
func TestNumbered(t *testing.T) {
	a := arrival{id: driver.NewID(), mark: "s.1.2"}
	prefix, err := a.prefix()
	if err != nil {
		t.Fatal(err)
	}
	for number, want := range map[string]bool{
		"0000000000": false, "1879048192": false, "1879048193": true, "2147483647": true, "-2147483648": true,
	} {
		tn := &turn{v: &view{children: map[string]bool{"keep-x": true, prefix + number: true}}}
		if got := tn.numbered(); got != want {
			t.Errorf("%s: %v", number, got)
		}
	}
}
