package sqlqueue

import (
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// A holder that looks whether it is asked for may renew its claim before it has
// looked: then the renewal tells it, once.
func TestRenewalTellsOfAWish(t *testing.T) {
	for _, tt := range []struct {
		name     string
		pushed   bool
		state    driver.State // until now
		asked    int64        // in the row
		up, want bool
	}{
		{"asked", false, driver.Holding, 4, false, true},
		{"not asked", false, driver.Holding, 3, false, false},
		{"while it waited", false, driver.Waiting, 4, false, false},
		{"a message tells", true, driver.Holding, 4, true, false},
		{"no message comes", true, driver.Holding, 4, false, true},
		{"nobody can send one", false, driver.Holding, 4, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := new(store)
			s.post.init(s)
			var notices []driver.Notice
			s.post.hears[0] = func(n driver.Notice) { notices = append(notices, n) }
			s.post.up.Store(tt.up)
			s.own.claims = map[string]*own{"h": {name: "n", state: tt.state, asked: 3, pushed: tt.pushed}}
			q := &queue.Queue{Limit: 1}
			for range 2 {
				s.noteRenewed(&driver.Ref{ID: "h", Name: "n", TTL: driver.MinTTL}, &driver.Status{State: driver.Holding, Token: 1}, q, &Row{Name: "n", Stamp: 2, Asked: tt.asked})
			}
			if tt.want != (len(notices) == 1 && notices[0].Kind == driver.Wanted && notices[0].ID == "h") || len(notices) > 1 {
				t.Errorf("noticed %+v", notices)
			}
		})
	}
}

// A claim that holds, as its owner knows, is not taken for one that waits since the
// reply to a renewal from before is noted late.
func TestRenewalFromBeforeGrant(t *testing.T) {
	var g registry
	row, st := &Row{Name: "n", Stamp: 1, Last: 5}, driver.Status{State: driver.Waiting}
	rs := []driver.Ref{{Name: "n", ID: "c"}}
	waits := func(row *Row) bool {
		g.put("c", "", "n", driver.MinTTL, &st, row, all{}, nil, true)
		_, waiting := g.part(rs, []int{0})
		return len(waiting) == 1
	}
	g.expect("c", "n", driver.MinTTL)
	if !waits(row) {
		t.Fatal("it does not wait")
	}
	g.granted("c", driver.Status{State: driver.Holding, Token: 9})
	if got, _ := g.take("c"); got == nil || got.State != driver.Holding {
		t.Fatal(got)
	}
	if waits(row) {
		t.Error("it is taken for one that waits")
	}
	if !waits(&Row{Name: "n", Stamp: 2, Last: 9}) {
		t.Error("it waits since, and is not taken for one that does")
	}
}
