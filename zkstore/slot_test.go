package zkstore

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

func openStore(t *testing.T) *store {
	s, err := newStore([]string{"127.0.0.1:1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// waitIn makes a Leave wait in the slot until it was taken along.
func waitIn(t *testing.T, s *store, sl *slot, ref driver.Ref) (l *leaving, taken <-chan bool) {
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
	s := openStore(t)
	sl, _, err := s.lock(t.Context(), nil, "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	const now = 5*block + 1
	tn := &turn{s: s, q: new(queue.Queue), alone: make(map[string]bool)}
	tn.Now = now
	for _, id := range []string{"holder", "next", "third"} {
		if _, err := tn.Enter(tn.q, &driver.Claim{ID: id, Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		account(tn.q)
	}
	tn.q.Last, tn.q.Claims[0].Token = 7, 1 // it was granted by an earlier change
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
	s.arrived(sl, aboard, zk.ErrBadVersion)
	s.arrived(sl, aboard, errUnsent)
	if fired(first.done) {
		t.Fatal("it was told of a change that was not made")
	}
	lost := errors.New("lost")
	s.arrived(sl, aboard, lost)
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
	s := openStore(t)
	s.own(ownKey{id: "old"}, "x", 3, time.Now().Add(-2*time.Second), time.Second)
	s.own(ownKey{id: "new"}, "x", 3, time.Now(), time.Minute)
	if s.extend(ownKey{id: "old"}, "x", 3, time.Now(), time.Minute) || !s.lapsed(ownKey{id: "old"}) {
		t.Error("what has lapsed was extended")
	}
	if !s.extend(ownKey{id: "new"}, "x", 3, time.Now(), time.Hour) || s.lapsed(ownKey{id: "new"}) {
		t.Error("what lives was not extended")
	}
	if s.mine[ownKey{id: "new"}].lapses.Before(time.Now().Add(50 * time.Minute)) {
		t.Error("it still ends when it did")
	}
	if !s.extend(ownKey{id: "adopted"}, "x", 3, time.Now(), time.Minute) || s.lapsed(ownKey{id: "adopted"}) {
		t.Error("what another Store has entered was not taken over")
	}
}
