package queue

import (
	"testing"

	"github.com/pawl-go/pawl/driver"
)

func vote(q *Queue, now int64, id string, floor, token, mark int64) driver.State {
	c := driver.Claim{Name: "n", ID: id, Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: Span(1000)}
	st, _ := at(now).Vote(q, &driver.Vote{Claim: c, Floor: floor, Token: token}, mark)
	return st
}

// The token of a vote is the greatest of what the queue draws, the floor, what is asked for, and
// what is above the mark; and the next one is greater.
func TestVote(t *testing.T) {
	for what, v := range map[string]struct{ now, floor, token, mark, want int64 }{
		"the clock": {now: 100, floor: 50, want: 100},
		"the floor": {now: 100, floor: 150, want: 150},
		"asked for": {now: 100, floor: 150, token: 170, want: 170},
		"the mark":  {now: 100, floor: 150, mark: 200, want: 201},
	} {
		var q Queue
		if st := vote(&q, v.now, "a", v.floor, v.token, v.mark); st != driver.Holding || q.Find("a").Token != v.want {
			t.Errorf("%s: %v with token %d, want %d", what, st, q.Find("a").Token, v.want)
		}
		if q.Find("a").Alone {
			t.Errorf("%s: it has spare tokens", what)
		}
		at(v.now).Leave(&q, driver.Ref{ID: "a"})
		if vote(&q, v.now, "b", 0, 0, 0); q.Find("b").Token <= v.want {
			t.Errorf("%s: token %d after %d", what, q.Find("b").Token, v.want)
		}
	}
}

// A claim that holds is raised, and never lowered; one that waits gets no token.
func TestVoteAgain(t *testing.T) {
	var q Queue
	vote(&q, 100, "a", 0, 0, 0)
	vote(&q, 100, "b", 500, 500, 0)
	if b := q.Find("b"); b == nil || b.Token != 0 {
		t.Errorf("who waits: %+v", b)
	}
	for _, v := range []struct{ floor, token, mark, want int64 }{{900, 0, 0, 100}, {0, 300, 0, 300}, {0, 200, 0, 300}, {0, 0, 400, 401}} {
		vote(&q, 101, "a", v.floor, v.token, v.mark)
		if got := q.Find("a").Token; got != v.want {
			t.Errorf("voted again, %+v: token %d", v, got)
		}
	}
	at(102).Leave(&q, driver.Ref{ID: "a"})
	if got := q.Find("b").Token; got <= 401 {
		t.Errorf("the next one has token %d after 401", got)
	}
}

// What was granted since is not withdrawn.
func TestWithdraw(t *testing.T) {
	var q Queue
	vote(&q, 100, "a", 0, 0, 0)
	vote(&q, 100, "b", 0, 0, 0)
	for _, token := range []int64{0, 99, 101} {
		if st := at(100).Withdraw(&q, "a", token); st != driver.Holding {
			t.Errorf("withdrawn with token %d, it had 100: %v", token, st)
		}
	}
	if st := at(100).Withdraw(&q, "b", 100); st != driver.Waiting {
		t.Errorf("who waits, with a token: %v", st)
	}
	if st := at(100).Withdraw(&q, "a", 100); st != driver.Gone || q.Find("a") != nil || !q.Find("b").Holding() {
		t.Errorf("withdrawn: %v, the next one: %+v", st, q.Find("b"))
	}
	if st := at(100).Withdraw(&q, "b", 0); st != driver.Holding {
		t.Errorf("who waited, and holds now: %v", st)
	}
	if st := at(100).Withdraw(&q, "c", 0); st != driver.Gone {
		t.Errorf("nobody: %v", st)
	}
}
