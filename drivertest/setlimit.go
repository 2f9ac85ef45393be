package drivertest

import (
	"errors"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var setLimitTests = []test{
	{name: "Up", run: setLimitUp, needs: []Feature{SetLimit, Units}},
	{name: "Down", run: setLimitDown, needs: []Feature{SetLimit, Units}},
	{name: "Stays", run: setLimitStays, needs: []Feature{SetLimit, Units}},
	{name: "Twice", run: setLimitTwice, needs: []Feature{SetLimit, Units}},
	{name: "Mismatch", run: setLimitMismatch, needs: []Feature{SetLimit, Units}},
	{name: "TooMany", run: setLimitTooMany, needs: []Feature{SetLimit, Units}},
	{name: "Tokens", run: setLimitTokens, needs: []Feature{SetLimit, Units}},
	{name: "ThereAndBack", run: setLimitThereAndBack, needs: []Feature{SetLimit, Units, Overtake}},
	{name: "Invalid", run: setLimitInvalid, needs: []Feature{SetLimit}},
}

func (e *env) setLimit(s driver.Store, name string, was, limit int64) {
	e.Helper()
	if err := s.SetLimit(e.ctx, name, driver.KindSemaphore, was, limit); err != nil {
		e.Fatalf("SetLimit from %d to %d: %v", was, limit, err)
	}
}

// mismatch fails the test unless err is a *driver.MismatchError that says so.
func (e *env) mismatch(err error, want driver.MismatchError) {
	e.Helper()
	var got *driver.MismatchError
	if !errors.As(err, &got) || *got != want {
		e.Errorf("error %v, want %+v", err, want)
	}
}

func setLimitUp(e *env) {
	name := e.name()
	h, big, small := e.part(name, 2, 2), e.part(name, 2, 2), e.part(name, 1, 2)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, big, driver.Waiting)
	e.enter(e.b, small, driver.Waiting)
	woken := e.await(e.b, big)
	e.setLimit(e.a, name, 2, 4)
	if got := soon(e, woken, "a claim that fits now is let in"); got.err != nil || got.st.State != driver.Holding {
		e.Errorf("the claim that fits now: %v, %v", got.st.State, got.err)
	}
	e.queueIs(name, 2, h, big, small)
	if q := e.inspect(e.b, name); q.Limit != 4 || q.Declared != 2 {
		e.Errorf("Inspect shows limit %d, declared %d, want 4 and 2", q.Limit, q.Declared)
	}
}

func setLimitDown(e *env) {
	name := e.name()
	c := []driver.Claim{e.part(name, 1, 3), e.part(name, 1, 3), e.part(name, 1, 3), e.part(name, 1, 3)}
	for i, want := range []driver.State{driver.Holding, driver.Holding, driver.Holding, driver.Waiting} {
		e.enter(e.a, c[i], want)
	}
	e.setLimit(e.b, name, 3, 1)
	e.queueIs(name, 3, c...)
	if !e.lacks(Resize) { // to less works though it is too much still
		if st, err := e.a.Resize(e.ctx, ref(c[0]), 1); err != nil || st.State != driver.Holding {
			e.Errorf("Resize to what it has: %v, %v", st.State, err)
		}
		if st, err := e.a.Resize(e.ctx, ref(c[0]), 2); err != nil || st.State != driver.Refused {
			e.Errorf("Resize to more: %v, %v", st.State, err)
		}
	}
	e.leave(e.a, c[0], driver.Holding)
	e.leave(e.a, c[1], driver.Holding)
	e.renew(e.a, c[3], driver.Waiting)
	e.leave(e.a, c[2], driver.Holding)
	e.granted(e.a, c[3])
}

// A changed limit outlives the claims, and ends when it is set back.
func setLimitStays(e *env) {
	name := e.name()
	e.setLimit(e.a, name, 2, 3)
	for range 2 {
		c := e.part(name, 3, 3)
		e.enter(e.b, c, driver.Holding)
		e.leave(e.b, c, driver.Holding)
		c = e.part(name, 2, 2)
		e.enter(e.a, c, driver.Holding)
		e.enter(e.b, try(e.part(name, 1, 2)), driver.Holding)
		e.leave(e.a, c, driver.Holding)
		if _, err := e.b.Break(e.ctx, name); err != nil && !e.lacks(Break) {
			e.Fatal(err)
		}
	}
	_, err := e.a.Enter(e.ctx, e.part(name, 1, 5))
	e.mismatch(err, driver.MismatchError{Name: name, Have: 3, Want: 5})
	e.queueIs(name, 0)
	e.setLimit(e.b, name, 2, 2)
	c := e.part(name, 5, 5)
	e.enter(e.a, c, driver.Holding)
	e.leave(e.a, c, driver.Holding)
}

// Who asks for what was asked for first is always right.
func setLimitTwice(e *env) {
	name := e.name()
	e.enter(e.a, e.part(name, 2, 2), driver.Holding)
	e.setLimit(e.a, name, 2, 3)
	e.setLimit(e.b, name, 3, 5)
	e.enter(e.a, e.part(name, 1, 2), driver.Holding)
	e.enter(e.b, e.part(name, 1, 5), driver.Holding)
	_, err := e.a.Enter(e.ctx, e.part(name, 1, 3))
	e.mismatch(err, driver.MismatchError{Name: name, Have: 5, Want: 3})
	e.setLimit(e.b, name, 2, 4)
	e.enter(e.b, e.part(name, 1, 2), driver.Waiting)
}

func setLimitMismatch(e *env) {
	name := e.name()
	e.enter(e.a, e.part(name, 1, 2), driver.Holding)
	e.mismatch(e.b.SetLimit(e.ctx, name, driver.KindSemaphore, 3, 4), driver.MismatchError{Name: name, Have: 2, Want: 3})
	e.enter(e.a, e.part(name, 1, 2), driver.Holding)
	e.enter(e.b, e.part(name, 1, 2), driver.Waiting)
}

// Claims for more than there is now: a new one is refused, one that waits
// stands in nobody's way, and gets its turn when there is more.
func setLimitTooMany(e *env) {
	name := e.name()
	h, big, small := e.part(name, 3, 3), e.part(name, 3, 3), e.part(name, 1, 3)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, big, driver.Waiting)
	e.enter(e.b, small, driver.Waiting)
	e.setLimit(e.b, name, 3, 2)
	_, err := e.b.Enter(e.ctx, e.part(name, 3, 3))
	e.mismatch(err, driver.MismatchError{Name: name, Have: 2, Want: 3, Units: 3})
	e.leave(e.a, h, driver.Holding)
	e.granted(e.b, small)
	e.renew(e.a, big, driver.Waiting)
	e.enter(e.b, try(e.part(name, 1, 3)), driver.Holding)
	if _, err := e.b.Break(e.ctx, name); err != nil && !e.lacks(Break) {
		e.Fatal(err)
	}
	if e.lacks(Break) {
		return
	}
	e.queueIs(name, 0, big)
	e.setLimit(e.b, name, 3, 3)
	e.granted(e.a, big)
}

// A holder of all units may go on using its spare tokens beside those who are
// let in.
func setLimitTokens(e *env) {
	name := e.name()
	h := e.part(name, 2, 2)
	used := e.spend(e.enter(e.a, h, driver.Holding), time.Now())
	e.setLimit(e.b, name, 2, 3)
	if st := e.enter(e.b, e.part(name, 1, 2), driver.Holding); st.Token <= used {
		e.Errorf("token %d beside a holder that used %d", st.Token, used)
	}
}

// Who was let in while there was more holds on when there is less again, and
// nobody is let in beside, whoever else leaves first.
func setLimitThereAndBack(e *env) {
	name := e.name()
	h, next, part := e.part(name, 3, 3), e.part(name, 3, 3), e.part(name, 2, 3)
	part.Overtake = true
	e.enter(e.a, h, driver.Holding)
	e.setLimit(e.a, name, 3, 5)
	e.enter(e.b, next, driver.Waiting)
	e.enter(e.a, part, driver.Holding)
	e.setLimit(e.b, name, 3, 3)
	e.renew(e.a, part, driver.Holding)
	e.leave(e.a, h, driver.Holding)
	e.renew(e.a, part, driver.Holding)
	e.renew(e.b, next, driver.Waiting)
	e.leave(e.a, part, driver.Holding)
	e.granted(e.b, next)

	name = e.name()
	first, second, third := e.part(name, 1, 1), e.part(name, 1, 1), e.part(name, 1, 1)
	e.enter(e.a, first, driver.Holding)
	e.setLimit(e.a, name, 1, 2)
	e.enter(e.b, second, driver.Holding)
	e.enter(e.b, third, driver.Waiting)
	e.setLimit(e.b, name, 1, 1)
	e.leave(e.b, second, driver.Holding)
	e.renew(e.a, first, driver.Holding)
	e.renew(e.b, third, driver.Waiting)
	e.queueIs(name, 1, first, third)
	e.leave(e.a, first, driver.Holding)
	e.granted(e.b, third)
}

func setLimitInvalid(e *env) {
	for _, limit := range []int64{0, -1, driver.MaxLimit + 1} {
		e.errIs(e.a.SetLimit(e.ctx, e.name(), driver.KindSemaphore, 1, limit), driver.ErrInvalid, "SetLimit")
		e.errIs(e.a.SetLimit(e.ctx, e.name(), driver.KindSemaphore, limit, 1), driver.ErrInvalid, "SetLimit")
	}
	e.errIs(e.a.SetLimit(e.ctx, e.name(), 0, 1, 2), driver.ErrInvalid, "SetLimit of no kind")
	e.errIs(e.a.SetLimit(e.ctx, "", driver.KindSemaphore, 1, 2), driver.ErrInvalid, "SetLimit")
}
