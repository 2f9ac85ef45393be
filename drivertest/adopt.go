package drivertest

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var adoptTests = []test{
	{name: "Moves", run: adoptMoves, needs: []Feature{Adopt}},
	{name: "LateRequests", run: adoptLateRequests, needs: []Feature{Adopt}},
	{name: "LateResize", run: adoptLateResize, needs: []Feature{Adopt, Units, Resize}},
	{name: "LateLinger", run: adoptLateLinger, needs: []Feature{Adopt, Linger}},
	{name: "Repeated", run: adoptRepeated, needs: []Feature{Adopt}},
	{name: "OfTwoOne", run: adoptOfTwoOne, needs: []Feature{Adopt}},
	{name: "Again", run: adoptAgain, needs: []Feature{Adopt}},
	{name: "Tokens", run: adoptTokens, needs: []Feature{Adopt}},
	{name: "TokensOutOfTurn", run: adoptTokensOutOfTurn, needs: []Feature{Adopt, Units, Overtake}},
	{name: "Units", run: adoptUnits, needs: []Feature{Adopt, Units}},
	{name: "Kind", run: adoptKind, needs: []Feature{Adopt}},
	{name: "NotHolding", run: adoptNotHolding, needs: []Feature{Adopt}},
	{name: "HandsOn", run: adoptHandsOn, needs: []Feature{Adopt}},
	{name: "Expires", run: adoptExpires, needs: []Feature{Adopt}},
	{name: "TTL", run: adoptTTL, needs: []Feature{Adopt}},
	{name: "Told", run: adoptTold, needs: []Feature{Adopt, Listen}},
	{name: "Invalid", run: adoptInvalid, needs: []Feature{Adopt}},
}

// adoption asks for c, whose token was handed over.
func adoption(c driver.Claim, token int64) driver.Adoption {
	return driver.Adoption{
		Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: token, Mark: driver.NewID(), TTL: c.TTL,
		Owner: driver.Owner{Label: "adopter", Host: "there", PID: 2},
	}
}

// adopt adopts a claim, and fails the test unless its state is want then.
func (e *env) adopt(s driver.Store, a driver.Adoption, want driver.State) driver.Status {
	e.Helper()
	st, err := s.Adopt(e.ctx, a)
	if err != nil {
		e.Fatalf("Adopt: %v", err)
	}
	e.is(st, want, "Adopt")
	if want == driver.Refused && st.Blocker == nil {
		e.Errorf("Adopt is refused without a blocker")
	}
	return st
}

// marked names a claim for the owner with that mark.
func marked(c driver.Claim, mark string) driver.Ref {
	r := ref(c)
	r.Mark = mark
	return r
}

// owns fails the test unless the claim is there for who bears that mark, and
// returns its status.
func (e *env) owns(s driver.Store, c driver.Claim, mark string) driver.Status {
	e.Helper()
	st, err := e.renewRef(s, marked(c, mark))
	if err != nil {
		e.Fatalf("Renew: %v", err)
	}
	e.is(st, driver.Holding, "Renew by the owner")
	return st
}

func adoptMoves(e *env) {
	h, w := e.claim(e.name()), driver.Claim{}
	w = e.claim(h.Name)
	st := e.enter(e.a, h, driver.Holding)
	e.enter(e.a, w, driver.Waiting)
	a := adoption(h, st.Token)
	before := time.Now()
	got := e.adopt(e.b, a, driver.Holding)
	if got.Token <= st.Token || got.Behind != 1 {
		e.Errorf("token %d after %d was handed over, %d behind, want 1", got.Token, st.Token, got.Behind)
	}
	if got.Deadline.Before(before.Add(h.TTL/2)) || got.Deadline.After(time.Now().Add(h.TTL)) {
		e.Errorf("the deadline is in %v, the TTL is %v", time.Until(got.Deadline), h.TTL)
	}
	if en := e.entry(e.a, h); en.Owner != a.Owner || en.Token != got.Token {
		e.Errorf("Inspect shows %+v, want owner %+v and token %d", en, a.Owner, got.Token)
	}
	e.queueIs(h.Name, 1, h, w)
	e.owns(e.b, h, a.Mark)
	e.leaveRef(e.b, marked(h, a.Mark), driver.Holding)
	e.granted(e.a, w)
}

// What an earlier owner has sent changes nothing, however late it comes.
func adoptLateRequests(e *env) {
	h := e.claim(e.name())
	st := e.enter(e.a, h, driver.Holding)
	a := adoption(h, st.Token)
	token := e.adopt(e.b, a, driver.Holding).Token
	for range 2 {
		e.enter(e.a, h, driver.Gone)
		e.enter(e.a, try(h), driver.Gone)
		long := h
		long.TTL = driver.MaxTTL
		e.renew(e.a, long, driver.Gone)
		late := ref(h)
		late.Used = st.Token + st.Spare
		if st, err := e.renewRef(e.a, late); err != nil || st.State != driver.Gone {
			e.Errorf("a late Renew: %v, %v", st.State, err)
		}
		if st, err := e.a.Wait(e.ctx, ref(h)); err != nil || st.State != driver.Gone {
			e.Errorf("a late Wait: %v, %v", st.State, err)
		}
		e.leave(e.a, h, driver.Gone)
		e.adopt(e.a, adoption(h, st.Token), driver.Refused)
		if en := e.entry(e.b, h); en.TTL > h.TTL || en.Token != token {
			e.Errorf("late requests made %+v of it", en)
		}
		if got := e.owns(e.b, h, a.Mark); got.Token != token {
			e.Errorf("late requests made token %d of %d", got.Token, token)
		}
	}
	e.queueIs(h.Name, 1, h)
}

func adoptLateResize(e *env) {
	h := e.part(e.name(), 2, 4)
	st := e.enter(e.a, h, driver.Holding)
	a := adoption(h, st.Token)
	e.adopt(e.b, a, driver.Holding)
	for _, units := range []int64{1, 3} {
		if st, err := e.a.Resize(e.ctx, ref(h), units); err != nil || st.State != driver.Gone {
			e.Errorf("a late Resize to %d: %v, %v", units, st.State, err)
		}
		if en := e.entry(e.a, h); en.Units != 2 {
			e.Errorf("a late Resize to %d left %d units, want 2", units, en.Units)
		}
	}
	if st, err := e.b.Resize(e.ctx, marked(h, a.Mark), 1); err != nil || st.State != driver.Holding {
		e.Errorf("a Resize by the adopter: %v, %v", st.State, err)
	}
}

func adoptLateLinger(e *env) {
	h := e.claim(e.name())
	st := e.enter(e.a, h, driver.Holding)
	a := adoption(h, st.Token)
	e.adopt(e.b, a, driver.Holding)
	late := ref(h)
	late.Linger = e.short
	e.leaveRef(e.a, late, driver.Gone)
	if en := e.entry(e.a, h); en.Lingering {
		e.Errorf("a late Leave made it linger: %+v", en)
	}
	// Nobody owns what lingers.
	last := marked(h, a.Mark)
	last.Linger = life
	e.leaveRef(e.b, last, driver.Holding)
	e.adopt(e.a, adoption(h, e.entry(e.a, h).Token), driver.Gone)
}

func adoptRepeated(e *env) {
	h := e.claim(e.name())
	a := adoption(h, e.enter(e.a, h, driver.Holding).Token)
	first := e.adopt(e.b, a, driver.Holding)
	for _, s := range []driver.Store{e.b, e.a, e.b} {
		if again := e.adopt(s, a, driver.Holding); again.Token != first.Token || again.Spare != first.Spare {
			e.Errorf("repeated, token %d and %d spare, was %d and %d", again.Token, again.Spare, first.Token, first.Spare)
		}
	}
	e.owns(e.b, h, a.Mark)
}

// Of two who adopt a claim, one gets it, and the other is told that.
func adoptOfTwoOne(e *env) {
	for range 5 {
		h := e.claim(e.name())
		token := e.enter(e.a, h, driver.Holding).Token
		as := []driver.Adoption{adoption(h, token), adoption(h, token)}
		var out [2]driver.Status
		var errs [2]error
		var both sync.WaitGroup
		for i, s := range []driver.Store{e.a, e.b} {
			both.Go(func() { out[i], errs[i] = s.Adopt(e.ctx, as[i]) })
		}
		both.Wait()
		for i := range out {
			if errs[i] != nil {
				e.Fatalf("Adopt: %v", errs[i])
			}
		}
		winner := 0
		if out[1].State == driver.Holding {
			winner = 1
		}
		if out[winner].State != driver.Holding || out[1-winner].State != driver.Refused {
			e.Fatalf("of two adopters one is %v, the other %v", out[0].State, out[1].State)
		}
		e.owns(e.a, h, as[winner].Mark)
		if st, err := e.renewRef(e.b, marked(h, as[1-winner].Mark)); err != nil || st.State != driver.Gone {
			e.Errorf("who was refused renews: %v, %v", st.State, err)
		}
	}
}

// Each owner hands it on to the next, and none of them is left with anything.
func adoptAgain(e *env) {
	h := e.claim(e.name())
	token := e.enter(e.a, h, driver.Holding).Token
	marks := []string{""}
	for i := range 4 {
		a := adoption(h, token)
		st := e.adopt([]driver.Store{e.b, e.a}[i%2], a, driver.Holding)
		if st.Token <= token {
			e.Errorf("token %d after %d", st.Token, token)
		}
		token = st.Token
		for _, m := range marks {
			e.leaveRef(e.a, marked(h, m), driver.Gone)
		}
		marks = append(marks, a.Mark)
	}
	e.owns(e.b, h, marks[len(marks)-1])
}

// The token that is handed over is the highest that the owner has used, and one
// that can exist.
func adoptTokens(e *env) {
	h := e.claim(e.name())
	st := e.enter(e.a, h, driver.Holding)
	for what, token := range map[string]int64{
		"one that is over": st.Token - 1, "one above what can exist": st.Token + st.Spare + 1<<20, "the greatest number": 1<<63 - 1,
	} {
		if token > 0 {
			e.Logf("adopting with %s, %d", what, token)
			e.adopt(e.b, adoption(h, token), driver.Refused)
		}
	}
	used := e.spend(st, time.Now())
	r := ref(h)
	r.Used = used
	if st, err := e.renewRef(e.a, r); err != nil || st.State != driver.Holding {
		e.Fatalf("Renew: %v, %v", st.State, err)
	}
	if used > st.Token {
		e.adopt(e.b, adoption(h, st.Token), driver.Refused)
	}
	if got := e.adopt(e.b, adoption(h, used), driver.Holding); got.Token <= used {
		e.Errorf("token %d after %d was used", got.Token, used)
	}
}

// A claim that got ahead of others has the token of that, and none below it.
func adoptTokensOutOfTurn(e *env) {
	h, w := e.part(e.name(), 1, 3), driver.Claim{}
	w = e.part(h.Name, 3, 3)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, w, driver.Waiting)
	first, second := e.part(h.Name, 1, 3), try(e.part(h.Name, 1, 3))
	for _, c := range []driver.Claim{first, second} {
		c.Overtake = true
		token := e.enter(e.a, c, driver.Holding).Token
		e.Logf("trying %v, token %d", c.Try, token)
		e.adopt(e.b, adoption(c, token-1), driver.Refused)
		a := adoption(c, token)
		if got := e.adopt(e.b, a, driver.Holding); got.Token <= token {
			e.Errorf("token %d after %d was handed over", got.Token, token)
		}
		e.adopt(e.a, adoption(c, token), driver.Refused)
		e.leaveRef(e.b, marked(c, a.Mark), driver.Holding)
	}
	e.leave(e.a, h, driver.Holding)
	token := e.renew(e.a, w, driver.Holding).Token
	e.adopt(e.b, adoption(w, token-1), driver.Refused)
	e.adopt(e.b, adoption(w, token), driver.Holding)
}

func adoptUnits(e *env) {
	h := e.part(e.name(), 2, 3)
	token := e.enter(e.a, h, driver.Holding).Token
	a := adoption(h, token)
	others := func() {
		for _, units := range []int64{1, 3} {
			other := a
			other.Units = units
			e.adopt(e.b, other, driver.Refused)
		}
	}
	others()
	e.renew(e.a, h, driver.Holding)
	st := e.adopt(e.b, a, driver.Holding)
	others() // repeated
	if st.Spare != 0 {
		e.Errorf("2 of 3 with %d spare tokens", st.Spare)
	}
	e.enter(e.b, try(e.part(h.Name, 1, 3)), driver.Holding)
	e.enter(e.a, try(e.part(h.Name, 1, 3)), driver.Refused)
	if st, err := e.renewRef(e.b, marked(h, a.Mark)); err != nil || st.State != driver.Holding {
		e.Errorf("what was refused has changed it: Renew: %v, %v", st.State, err)
	}
}

func adoptKind(e *env) {
	h := e.claim(e.name())
	a := adoption(h, e.enter(e.a, h, driver.Holding).Token)
	a.Kind = driver.KindElection
	_, err := e.b.Adopt(e.ctx, a)
	e.mismatch(err, driver.MismatchError{Name: h.Name, HaveKind: driver.KindMutex, WantKind: driver.KindElection, Have: 1, Want: 1})
	e.renew(e.a, h, driver.Holding)
}

func adoptNotHolding(e *env) {
	h, w := e.claim(e.name()), driver.Claim{}
	w = e.claim(h.Name)
	e.adopt(e.b, adoption(h, 1), driver.Gone)
	token := e.enter(e.a, h, driver.Holding).Token
	e.enter(e.a, w, driver.Waiting)
	e.adopt(e.b, adoption(w, token), driver.Gone)
	e.renew(e.a, w, driver.Waiting)
	e.leave(e.a, h, driver.Holding)
	e.adopt(e.b, adoption(h, token), driver.Gone)
	e.queueIs(h.Name, 1, w)
}

// An adopted claim is handed to who waits, and its successor's token is greater
// than those the adopter may have used.
func adoptHandsOn(e *env) {
	h, w := e.claim(e.name()), driver.Claim{}
	w = e.claim(h.Name)
	a := adoption(h, e.enter(e.a, h, driver.Holding).Token)
	st := e.adopt(e.b, a, driver.Holding)
	used := e.spend(st, time.Now())
	e.enter(e.a, w, driver.Waiting)
	r := marked(h, a.Mark)
	r.Used = used
	woken := e.await(e.a, w)
	e.leaveRef(e.b, r, driver.Holding)
	got := soon(e, woken, "the next one is granted")
	if got.err != nil || got.st.State != driver.Holding || got.st.Token <= used {
		e.Errorf("the next one: %+v, %v; the adopter used %d", got.st, got.err, used)
	}
}

func adoptExpires(e *env) {
	h := e.claim(e.name())
	a := adoption(h, e.enter(e.a, e.brief(h), driver.Holding).Token)
	a.TTL = e.short
	e.adopt(e.b, a, driver.Holding)
	e.expire()
	w := e.claim(h.Name)
	if st, err := e.acquire(e.ctx, e.a, w); err != nil || st.State != driver.Holding {
		e.Fatalf("after an adopter that is dead: %v, %v", st.State, err)
	}
	if st, err := e.renewRef(e.b, marked(h, a.Mark)); err != nil || st.State != driver.Gone {
		e.Errorf("the adopter renews: %v, %v", st.State, err)
	}
}

// A claim lives as long as its adopter asks for, also if it had more, and a
// repetition makes that no shorter.
func adoptTTL(e *env) {
	h := e.claim(e.name())
	h.TTL = 10 * life
	a := adoption(h, e.enter(e.a, h, driver.Holding).Token)
	a.TTL = life
	e.adopt(e.b, a, driver.Holding)
	if en := e.entry(e.a, h); en.TTL > 2*life {
		e.Errorf("adopted for %v, it lasts %v", a.TTL, en.TTL)
	}
	long := marked(h, a.Mark)
	long.TTL = 10 * life
	if st, err := e.renewRef(e.b, long); err != nil || st.State != driver.Holding {
		e.Fatalf("Renew: %v, %v", st.State, err)
	}
	e.adopt(e.b, a, driver.Holding)
	if en := e.entry(e.a, h); en.TTL < 5*life {
		e.Errorf("renewed for %v and adopted again, it lasts %v", long.TTL, en.TTL)
	}
}

// An owner whose claim was adopted without a hand-over is told to look.
func adoptTold(e *env) {
	notices := e.listen(e.a)
	e.noticed(notices, "the claim was adopted", func() func(driver.Notice) bool {
		h := e.claim(e.name())
		e.adopt(e.b, adoption(h, e.enter(e.a, h, driver.Holding).Token), driver.Holding)
		return func(n driver.Notice) bool { return n.Kind == driver.Check && n.ID == h.ID }
	})
}

func adoptInvalid(e *env) {
	h := e.claim(e.name())
	token := e.enter(e.a, h, driver.Holding).Token
	for what, change := range map[string]func(*driver.Adoption){
		"no name":      func(a *driver.Adoption) { a.Name = "" },
		"no id":        func(a *driver.Adoption) { a.ID = "" },
		"no mark":      func(a *driver.Adoption) { a.Mark = "" },
		"a short mark": func(a *driver.Adoption) { a.Mark = "x" },
		"no kind":      func(a *driver.Adoption) { a.Kind = 0 },
		"no units":     func(a *driver.Adoption) { a.Units = 0 },
		"no token":     func(a *driver.Adoption) { a.Token = 0 },
		"no TTL":       func(a *driver.Adoption) { a.TTL = 0 },
	} {
		a := adoption(h, token)
		change(&a)
		_, err := e.b.Adopt(e.ctx, a)
		e.errIs(err, driver.ErrInvalid, "Adopt with "+what)
	}
	e.renew(e.a, h, driver.Holding)
}
