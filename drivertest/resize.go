package drivertest

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

var resizeTests = []test{
	{name: "Down", run: resizeDown, needs: []Feature{Resize, Units}},
	{name: "DownAfterUse", run: resizeDownAfterUse, needs: []Feature{Resize, Units}},
	{name: "Up", run: resizeUp, needs: []Feature{Resize, Units}},
	{name: "UpRefused", run: resizeUpRefused, needs: []Feature{Resize, Units}},
	{name: "Late", run: resizeLate, needs: []Feature{Resize, Units}},
	{name: "Same", run: resizeSame, needs: []Feature{Resize}},
	{name: "NotHolding", run: resizeNotHolding, needs: []Feature{Resize}},
	{name: "Invalid", run: resizeInvalid, needs: []Feature{Resize}},
}

// resize resizes c and fails the test unless its state is want then.
func (e *env) resize(s driver.Store, c driver.Claim, units int64, want driver.State) driver.Status {
	e.Helper()
	st, err := s.Resize(e.ctx, ref(c), units)
	if err != nil {
		e.Fatalf("Resize to %d: %v", units, err)
	}
	if st.State != want {
		e.Fatalf("Resize to %d returned %v, want %v", units, st.State, want)
	}
	e.renewedNothing(st)
	return st
}

func resizeDown(e *env) {
	name := e.name()
	w, r1, r2 := e.part(name, 10, 10), e.part(name, 1, 10), e.part(name, 9, 10)
	entered := e.enter(e.a, w, driver.Holding)
	e.enter(e.b, r1, driver.Waiting)
	e.enter(e.b, r2, driver.Waiting)
	woken := e.await(e.b, r1)
	st := e.resize(e.a, w, 1, driver.Holding)
	if st.Token != entered.Token || st.Spare != 0 || st.Behind != 1 {
		e.Errorf("holds 1 of 10 with token %d, while one waits: %+v", entered.Token, st)
	}
	if got := soon(e, woken, "a reader is let in"); got.err != nil || got.st.State != driver.Holding {
		e.Errorf("the reader let in: %v, %v", got.st.State, got.err)
	}
	if en := e.entry(e.b, w); en.Units != 1 {
		e.Errorf("Inspect shows %d units, want 1", en.Units)
	}
	e.queueIs(name, 2, w, r1, r2)
}

func resizeDownAfterUse(e *env) {
	// It said what it used, or the claim was taken over by one that knows
	// nothing of it.
	for _, said := range []bool{true, false} {
		name := e.name()
		w := e.part(name, 5, 5)
		st := e.enter(e.a, w, driver.Holding)
		r, used := ref(w), e.spend(st, time.Now())
		if said {
			used = st.Token + st.Spare // whatever the clock says
			r.Used = used
		}
		if _, err := e.a.Resize(e.ctx, r, 1); err != nil {
			e.Fatal(err)
		}
		if st := e.enter(e.b, e.part(name, 1, 5), driver.Holding); st.Token <= used {
			e.Errorf("token %d beside a holder that used %d", st.Token, used)
		}
	}
}

func resizeUp(e *env) {
	name := e.name()
	r1, r2 := e.part(name, 1, 10), e.part(name, 2, 10)
	e.enter(e.a, r1, driver.Holding)
	last := e.enter(e.b, r2, driver.Holding).Token
	for _, units := range []int64{5, 8} {
		st := e.resize(e.a, r1, units, driver.Holding)
		if st.Token <= last || st.Spare != 0 {
			e.Errorf("growing to %d of 10 drew token %d with %d spare after %d", units, st.Token, st.Spare, last)
		}
		last = st.Token
	}
	e.leave(e.b, r2, driver.Holding)
	st := e.resize(e.a, r1, 10, driver.Holding)
	if st.Token <= last {
		e.Errorf("growing drew token %d after %d", st.Token, last)
	}
	e.enter(e.b, try(e.part(name, 1, 10)), driver.Refused)
	if again := e.renew(e.a, r1, driver.Holding); again.Token != st.Token {
		e.Errorf("Resize returned token %d, Renew %d", st.Token, again.Token)
	}
}

func resizeUpRefused(e *env) {
	name := e.name()
	r1, r2 := e.part(name, 1, 3), e.part(name, 1, 3)
	entered := e.enter(e.a, r1, driver.Holding)
	e.enter(e.b, r2, driver.Holding)
	e.blockedBy(e.resize(e.a, r1, 3, driver.Refused), r2)
	e.resize(e.a, r1, 4, driver.Refused)
	if st := e.renew(e.a, r1, driver.Holding); st.Token != entered.Token {
		e.Errorf("a refused Resize changed the token from %d to %d", entered.Token, st.Token)
	}
	if en := e.entry(e.b, r1); en.Units != 1 {
		e.Errorf("a refused Resize changed the units to %d", en.Units)
	}
	e.enter(e.b, e.part(name, 1, 3), driver.Holding)
}

// A request from before the claim last grew comes when it has grown: its owner
// counts on what it has.
func resizeLate(e *env) {
	c := e.part(e.name(), 1, 10)
	late := ref(c)
	late.Used = e.enter(e.a, c, driver.Holding).Token
	grown := e.resize(e.a, c, 10, driver.Holding)
	for _, units := range []int64{1, 5, 10} {
		st, err := e.a.Resize(e.ctx, late, units)
		if err != nil || st.State != driver.Holding || st.Token != grown.Token {
			e.Errorf("a late Resize to %d returns %+v, %v; the claim had grown with token %d", units, st, err, grown.Token)
		}
	}
	if en := e.entry(e.b, c); en.Units != 10 {
		e.Errorf("a late Resize left %d of 10 units", en.Units)
	}
	late.Used = grown.Token
	if _, err := e.a.Resize(e.ctx, late, 1); err != nil {
		e.Fatal(err)
	}
	e.enter(e.b, e.part(c.Name, 9, 10), driver.Holding)
}

func resizeSame(e *env) {
	c := e.claim(e.name())
	entered := e.enter(e.a, c, driver.Holding)
	if st := e.resize(e.b, c, 1, driver.Holding); st.Token != entered.Token || st.Spare != entered.Spare {
		e.Errorf("Resize to what it has changed the token from %d to %d", entered.Token, st.Token)
	}
	e.resize(e.b, c, 2, driver.Refused)
}

func resizeNotHolding(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.resize(e.b, w, 1, driver.Waiting)
	e.resize(e.b, e.claim(name), 1, driver.Gone)
	e.resize(e.b, e.claim(e.name()), 1, driver.Gone)
	e.queueIs(name, 1, h, w)
}

func resizeInvalid(e *env) {
	c := e.claim(e.name())
	e.enter(e.a, c, driver.Holding)
	for _, units := range []int64{0, -1, driver.MaxLimit + 1} {
		_, err := e.a.Resize(e.ctx, ref(c), units)
		e.errIs(err, driver.ErrInvalid, "Resize")
	}
	if en := e.entry(e.b, c); en.Units != 1 {
		e.Errorf("an invalid Resize changed the units to %d", en.Units)
	}
}
