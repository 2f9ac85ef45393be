package drivertest

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

var leaveTests = []test{
	{name: "ReturnsState", run: leaveState},
	{name: "NotAnothers", run: leaveNotAnothers},
	{name: "SeveralEnterAtOnce", run: leaveSeveral, needs: []Feature{Units}},
}

func leaveState(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, w, driver.Waiting)
	e.leave(e.a, w, driver.Waiting)
	e.leave(e.a, w, driver.Gone)
	e.queueIs(name, 1, h)
	e.leave(e.b, h, driver.Holding)
	for range 2 {
		e.leave(e.a, h, driver.Gone)
		e.leave(e.b, h, driver.Gone)
	}
	e.renew(e.a, h, driver.Gone)
	e.queueIs(name, 0)
	e.leave(e.a, e.claim(e.name()), driver.Gone)
}

func leaveNotAnothers(e *env) {
	name := e.name()
	old, h, w := e.claim(name), e.claim(name), e.claim(name)
	e.enter(e.a, old, driver.Holding)
	e.leave(e.a, old, driver.Holding)
	e.enter(e.b, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.leave(e.a, old, driver.Gone)
	elsewhere := h
	elsewhere.Name = e.name()
	e.leave(e.a, elsewhere, driver.Gone)
	e.queueIs(name, 1, h, w)
	alone := e.claim(e.name())
	e.enter(e.a, alone, driver.Holding)
	e.leaveRef(e.a, marked(alone, driver.NewID()), driver.Gone) // it was never adopted
	e.leave(e.a, alone, driver.Holding)
}

func leaveSeveral(e *env) {
	name := e.name()
	all := e.part(name, 4, 4)
	e.enter(e.a, all, driver.Holding)
	var c []driver.Claim
	var woken []<-chan renewed
	for _, units := range []int64{1, 2, 1, 1} {
		p := e.part(name, units, 4)
		e.enter(e.b, p, driver.Waiting)
		c = append(c, p)
		if len(c) < 4 {
			woken = append(woken, e.await(e.b, p))
		}
	}
	e.leave(e.a, all, driver.Holding)
	e.queueIs(name, 3, c...)
	for i, ch := range woken {
		if got := soon(e, ch, "all that fit are woken"); got.err != nil || got.st.State != driver.Holding {
			e.Errorf("claim %d: %v, %v", i, got.st.State, got.err)
		}
	}
}

var lingerTests = []test{
	{name: "StaysTaken", run: lingerStays, needs: []Feature{Linger}},
	{name: "OutlivesItsClient", run: lingerOutlives, needs: []Feature{Linger}},
	{name: "Ends", run: lingerEnds, needs: []Feature{Linger}},
	{name: "WaitingLeaves", run: lingerWaiting, needs: []Feature{Linger}},
	{name: "Used", run: lingerUsed, needs: []Feature{Linger}},
}

func (e *env) linger(s driver.Store, c driver.Claim, d time.Duration) {
	e.Helper()
	r := ref(c)
	r.Linger = d
	e.leaveRef(s, r, driver.Holding)
}

func lingerStays(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	h.TTL = 2 * life
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.linger(e.a, h, life)
	e.queueIs(name, 1, h, w)
	en := e.entry(e.b, h)
	if !en.Lingering || en.TTL > life || en.TTL <= 0 {
		e.Errorf("lingers for %v, Inspect shows %+v", life, en)
	}
	if !e.lacks(Queue) && e.entry(e.b, w).Lingering {
		e.Error("Inspect shows a waiting claim as lingering")
	}

	// Nobody owns it now: it cannot be renewed, taken over, or kept longer.
	e.renew(e.a, h, driver.Gone)
	e.enter(e.a, h, driver.Gone)
	for _, d := range []time.Duration{0, 2 * life} {
		r := ref(h)
		r.Linger = d
		if _, err := e.a.Leave(e.ctx, r); err != nil {
			e.Fatalf("a repeated Leave: %v", err)
		}
		e.queueIs(name, 1, h, w)
	}
	if left := e.entry(e.b, h).TTL; left > en.TTL {
		e.Errorf("lingered for another %v; after repeated calls for %v", en.TTL, left)
	}
	if st := e.enter(e.b, w, driver.Waiting); !st.Blocker.Lingering {
		e.Error("Blocker is not shown as lingering")
	}
	e.enter(e.b, try(e.claim(name)), driver.Refused)
}

func lingerOutlives(e *env) {
	name := e.name()
	s, err := e.backing.Open()
	if err != nil {
		e.Fatalf("open: %v", err)
	}
	h := e.claim(name)
	e.enter(s, h, driver.Holding)
	e.linger(s, h, life)
	if err := s.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.queueIs(name, 1, h)
	w := e.claim(name)
	e.enter(e.b, w, driver.Waiting)
	time.Sleep(50 * time.Millisecond) // what ends the claims of a client may take its time
	e.renew(e.b, w, driver.Waiting)
	e.queueIs(name, 1, h, w)
}

func lingerEnds(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	first := e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.begin()
	e.linger(e.a, h, e.short)
	e.expire()
	if st := e.becomes(e.b, w, driver.Holding); st.Token <= first.Token {
		e.Errorf("token %d after %d", st.Token, first.Token)
	}
	e.queueIs(name, 1, w)
}

func lingerWaiting(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	r := ref(w)
	r.Linger = life
	e.leaveRef(e.b, r, driver.Waiting)
	e.queueIs(name, 1, h)
}

func lingerUsed(e *env) {
	name := e.name()
	h, next := e.claim(name), e.claim(name)
	used := e.spend(e.enter(e.a, h, driver.Holding), time.Now())
	r := ref(h)
	e.begin()
	r.Used, r.Linger = used, e.short
	e.leaveRef(e.a, r, driver.Holding)
	if en := e.entry(e.b, h); en.Token != used {
		e.Errorf("token %d was used, Inspect shows %d", used, en.Token)
	}
	e.expire()
	e.eventually("the next can enter", func() bool {
		st, err := e.b.Enter(e.ctx, try(next))
		if err != nil {
			e.Fatal(err)
		}
		if st.State == driver.Holding && st.Token <= used {
			e.Errorf("token %d after %d was used", st.Token, used)
		}
		return st.State == driver.Holding
	})
}
