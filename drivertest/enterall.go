package drivertest

import (
	"strings"

	"github.com/pawl-go/pawl/driver"
)

// These are skipped by stores without driver.AllEnterer, which is optional.
var enterAllTests = []test{
	{name: "Free", run: enterAllFree},
	{name: "OneTaken", run: enterAllOneTaken},
	{name: "Repeated", run: enterAllRepeated},
	{name: "Known", run: enterAllKnown},
	{name: "RunOut", run: enterAllRunOut},
	{name: "Mismatch", run: enterAllMismatch, needs: []Feature{Units}},
	{name: "Invalid", run: enterAllInvalid},
	{name: "Closed", run: enterAllClosed},
}

func (e *env) all(s driver.Store) driver.AllEnterer {
	a, ok := s.(driver.AllEnterer)
	if !ok {
		e.Skip("the store has no EnterAll")
	}
	return a
}

// enterAll fails the test unless the states are want.
func (e *env) enterAll(s driver.Store, cs []driver.Claim, want ...driver.State) []driver.Status {
	e.Helper()
	sts, err := e.all(s).EnterAll(e.ctx, cs)
	if err != nil {
		e.Fatalf("EnterAll: %v", err)
	}
	if len(sts) != len(want) {
		e.Fatalf("EnterAll of %d claims returned %d statuses", len(cs), len(sts))
	}
	for i := range sts {
		if sts[i].State != want[i] {
			e.Fatalf("EnterAll returned %v for claim %d, want %v", sts[i].State, i, want[i])
		}
		if want[i] == driver.Holding {
			e.is(sts[i], driver.Holding, "EnterAll")
		}
	}
	return sts
}

func (e *env) three() []driver.Claim {
	base := e.name()
	return []driver.Claim{e.claim(base + "/b"), e.claim(base + "/a"), e.claim(base + "/c")}
}

func enterAllFree(e *env) {
	cs := e.three()
	sts := e.enterAll(e.a, cs, driver.Holding, driver.Holding, driver.Holding)
	for i, c := range cs {
		if st := e.renew(e.b, c, driver.Holding); st.Token != sts[i].Token {
			e.Errorf("EnterAll returned token %d, Renew %d", sts[i].Token, st.Token)
		}
		e.leave(e.b, c, driver.Holding)
	}
	again := e.three()
	for i := range again {
		again[i].Name = cs[i].Name
	}
	for i, st := range e.enterAll(e.b, again, driver.Holding, driver.Holding, driver.Holding) {
		if st.Token <= sts[i].Token {
			e.Errorf("token %d after %d", st.Token, sts[i].Token)
		}
	}
}

// One that is taken keeps all of them out, and says who is in the way.
func enterAllOneTaken(e *env) {
	cs := e.three()
	h := e.claim(cs[1].Name)
	e.enter(e.b, h, driver.Holding)
	sts := e.enterAll(e.a, cs, driver.Refused, driver.Refused, driver.Refused)
	e.blockedBy(sts[1], h)
	e.queueIs(cs[0].Name, 0)
	e.queueIs(cs[1].Name, 1, h)
	e.queueIs(cs[2].Name, 0)
	e.leave(e.b, h, driver.Holding)
	e.enterAll(e.a, cs, driver.Holding, driver.Holding, driver.Holding)
}

func enterAllRepeated(e *env) {
	cs := e.three()
	sts := e.enterAll(e.a, cs, driver.Holding, driver.Holding, driver.Holding)
	for i, st := range e.enterAll(e.b, cs, driver.Holding, driver.Holding, driver.Holding) {
		if st.Token != sts[i].Token {
			e.Errorf("token %d became %d", sts[i].Token, st.Token)
		}
	}
	e.queueIs(cs[0].Name, 1, cs[0])
}

// Claims that are there already stay as they are, and are renewed, whatever
// becomes of the others.
func enterAllKnown(e *env) {
	cs := e.three()
	h := e.claim(cs[1].Name)
	st := e.enter(e.a, e.brief(cs[0]), driver.Holding)
	e.enter(e.b, h, driver.Holding)
	sts := e.enterAll(e.a, cs, driver.Holding, driver.Refused, driver.Refused)
	if sts[0].Token != st.Token {
		e.Errorf("token %d became %d", st.Token, sts[0].Token)
	}
	e.enter(e.a, cs[1], driver.Waiting)
	e.enterAll(e.b, cs, driver.Holding, driver.Waiting, driver.Refused)
	e.expire() // not for what was renewed
	e.queueIs(cs[0].Name, 1, cs[0])
	e.queueIs(cs[1].Name, 1, h, cs[1])
	e.queueIs(cs[2].Name, 0)
	e.leave(e.b, h, driver.Holding)
	e.enterAll(e.a, cs, driver.Holding, driver.Holding, driver.Holding)
}

// Claims that have run out are no longer there to be renewed: they come back
// together or not at all.
func enterAllRunOut(e *env) {
	cs := e.three()
	for i := range cs {
		cs[i] = e.brief(cs[i])
	}
	e.enterAll(e.a, cs, driver.Holding, driver.Holding, driver.Holding)
	e.expire()
	h := e.claim(cs[2].Name)
	e.enter(e.b, h, driver.Holding)
	e.enterAll(e.a, cs, driver.Refused, driver.Refused, driver.Refused)
	e.queueIs(cs[0].Name, 0)
	e.queueIs(cs[1].Name, 0)
	e.queueIs(cs[2].Name, 1, h)
}

func enterAllMismatch(e *env) {
	cs := e.three()
	e.enter(e.b, e.part(cs[2].Name, 1, 2), driver.Holding)
	_, err := e.all(e.a).EnterAll(e.ctx, cs)
	e.mismatch(err, driver.MismatchError{Name: cs[2].Name, HaveKind: driver.KindSemaphore, WantKind: driver.KindMutex, Have: 2, Want: 1})
	e.queueIs(cs[0].Name, 0)
}

func enterAllInvalid(e *env) {
	for what, change := range map[string]func([]driver.Claim){
		"a name twice":  func(cs []driver.Claim) { cs[2].Name = cs[0].Name },
		"a long name":   func(cs []driver.Claim) { cs[1].Name = strings.Repeat("x", driver.MaxName+1) },
		"no TTL":        func(cs []driver.Claim) { cs[2].TTL = 0 },
		"too many unit": func(cs []driver.Claim) { cs[0].Units = 2 },
	} {
		cs := e.three()
		change(cs)
		_, err := e.all(e.a).EnterAll(e.ctx, cs)
		e.errIs(err, driver.ErrInvalid, "EnterAll with "+what)
	}
}

func enterAllClosed(e *env) {
	s := e.open()
	all := e.all(s)
	if err := s.Close(); err != nil {
		e.Fatal(err)
	}
	_, err := all.EnterAll(e.ctx, e.three())
	e.errIs(err, driver.ErrClosed, "EnterAll on a closed store")
}
