package drivertest

import (
	"errors"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var enterTests = []test{
	{name: "Holds", run: enterHolds},
	{name: "Waits", run: enterWaits},
	{name: "RepeatHolding", run: enterRepeatHolding},
	{name: "RepeatWaiting", run: enterRepeatWaiting},
	{name: "RepeatRenews", run: enterRepeatRenews},
	{name: "Try", run: enterTry},
	{name: "TryBehindWaiter", run: enterTryBehindWaiter, needs: []Feature{Units}},
	{name: "TryRepeat", run: enterTryRepeat},
	{name: "Limit", run: enterLimit, needs: []Feature{Units}},
	{name: "Invalid", run: enterInvalid},
}

func enterHolds(e *env) {
	c := e.claim(e.name())
	before := time.Now()
	st := e.enter(e.a, c, driver.Holding)
	e.deadline(st, before, c.TTL)
	if st.Behind != 0 {
		e.Errorf("nobody waits, but Behind is %d", st.Behind)
	}
	e.queueIs(c.Name, 1, c)
}

// deadline fails the test unless the deadline was counted from a moment
// between before and now.
func (e *env) deadline(st driver.Status, before time.Time, ttl time.Duration) {
	e.Helper()
	if latest := driver.Deadline(time.Now(), ttl); st.Deadline.After(latest) {
		e.Errorf("the deadline is %v later than the request allows", st.Deadline.Sub(latest))
	}
	if !st.Deadline.After(before) {
		e.Errorf("the deadline is %v before the request", before.Sub(st.Deadline))
	}
}

func enterWaits(e *env) {
	name := e.name()
	h, w1, w2, w3 := e.claim(name), e.claim(name), e.claim(name), e.claim(name)
	h.Owner = driver.Owner{Label: `nightly "import" 🚚 100%`, Host: "db-1", PID: 4711}
	e.enter(e.a, h, driver.Holding)
	for i, w := range []driver.Claim{w1, w2, w3} {
		before := time.Now()
		st := e.enter(e.b, w, driver.Waiting)
		e.deadline(st, before, w.TTL)
		e.ahead(st, i)
		e.blockedBy(st, h)
		e.recheck(st, before, life)
	}
	e.behind(e.renew(e.a, h, driver.Holding), 3)
	e.queueIs(name, 1, h, w1, w2, w3)
}

// blockedBy fails the test unless the blocker is h.
func (e *env) blockedBy(st driver.Status, h driver.Claim) {
	e.Helper()
	b := st.Blocker
	if b == nil {
		e.Fatal("there is no Blocker")
	}
	if b.ID != h.ID || b.State != driver.Holding || b.Units != h.Units || b.Token <= 0 || b.Owner != h.Owner {
		e.Errorf("Blocker is %+v, want claim %+v", *b, h)
	}
	if b.TTL <= 0 || b.TTL > h.TTL || b.Age < 0 || b.Age > life {
		e.Errorf("Blocker has TTL %v and age %v, its claim had TTL %v", b.TTL, b.Age, h.TTL)
	}
}

func enterRepeatHolding(e *env) {
	c, w := e.claim(e.name()), driver.Claim{}
	first := e.enter(e.a, c, driver.Holding)
	w = e.claim(c.Name)
	e.enter(e.b, w, driver.Waiting)
	for _, s := range []driver.Store{e.a, e.b} {
		before := time.Now()
		again := e.enter(s, c, driver.Holding)
		if again.Token != first.Token {
			e.Errorf("a repeated Enter returns token %d, the first %d", again.Token, first.Token)
		}
		e.behind(again, 1)
		e.deadline(again, before, c.TTL)
	}
	e.queueIs(c.Name, 1, c, w)
}

func enterRepeatWaiting(e *env) {
	name := e.name()
	h, w1, w2 := e.claim(name), e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w1, driver.Waiting)
	e.enter(e.a, w2, driver.Waiting)
	for _, s := range []driver.Store{e.a, e.b} {
		if st := e.enter(s, w1, driver.Waiting); st.Ahead != 0 {
			e.Errorf("a repeated Enter lost its place: Ahead is %d", st.Ahead)
		}
	}
	e.queueIs(name, 1, h, w1, w2)
}

func enterRepeatRenews(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, w, driver.Waiting)
	for _, c := range e.shown(1, h, w) {
		for _, ttl := range []time.Duration{2 * life, life / 2} {
			c.TTL = ttl
			st, err := e.a.Enter(e.ctx, c)
			if err != nil {
				e.Fatal(err)
			}
			// A shorter TTL must not take away what an earlier request gave.
			if left := e.entry(e.b, c).TTL; left > 2*life || left < 2*life-life/4 {
				e.Errorf("%v claim entered again with TTL %v: %v left", st.State, ttl, left)
			}
		}
	}
}

func enterTry(e *env) {
	name := e.name()
	h := try(e.claim(name))
	e.enter(e.a, h, driver.Holding)
	c := try(e.claim(name))
	for _, s := range []driver.Store{e.a, e.b} {
		st := e.enter(s, c, driver.Refused)
		e.blockedBy(st, h)
		if st.Token != 0 {
			e.Errorf("refused with token %d", st.Token)
		}
	}
	e.queueIs(name, 1, h)
	e.renew(e.a, c, driver.Gone)
	e.leave(e.a, h, driver.Holding)
	e.enter(e.b, c, driver.Holding)
	e.queueIs(name, 1, c)
}

func enterTryBehindWaiter(e *env) {
	name := e.name()
	small, big, late := e.part(name, 1, 3), e.part(name, 3, 3), try(e.part(name, 1, 3))
	e.enter(e.a, small, driver.Holding)
	e.enter(e.a, big, driver.Waiting)
	e.enter(e.b, late, driver.Refused)
	e.queueIs(name, 1, small, big)
}

func enterTryRepeat(e *env) {
	name := e.name()
	h, w := try(e.claim(name)), e.claim(name)
	first := e.enter(e.a, h, driver.Holding)
	if again := e.enter(e.b, h, driver.Holding); again.Token != first.Token {
		e.Errorf("a repeated Enter returns token %d, the first %d", again.Token, first.Token)
	}
	e.enter(e.a, w, driver.Waiting)
	e.enter(e.knowing(e.a, e.b), try(w), driver.Waiting)
	e.queueIs(name, 1, h, w)
}

func enterLimit(e *env) {
	name := e.name()
	h := e.part(name, 1, 3)
	e.enter(e.a, h, driver.Holding)
	for _, c := range []driver.Claim{e.claim(name), e.part(name, 2, 4), try(e.part(name, 1, 2))} {
		_, err := e.b.Enter(e.ctx, c)
		var limit *driver.MismatchError
		if !errors.As(err, &limit) {
			e.Fatalf("limit 3, then %d: error %v, want a MismatchError", c.Limit, err)
		}
		if limit.Name != name || limit.Have != 3 || limit.Want != c.Limit {
			e.Errorf("limit 3, then %d: %+v", c.Limit, *limit)
		}
	}
	e.queueIs(name, 1, h)
	e.leave(e.a, h, driver.Holding)
	c := e.part(name, 2, 4)
	e.enter(e.b, c, driver.Holding)
	if q := e.inspect(e.a, name); q.Limit != 4 {
		e.Errorf("Inspect shows limit %d, want 4", q.Limit)
	}
}

func enterInvalid(e *env) {
	name := e.name()
	for what, change := range map[string]func(*driver.Claim){
		"no TTL":            func(c *driver.Claim) { c.TTL = 0 },
		"too short a TTL":   func(c *driver.Claim) { c.TTL = driver.MinTTL - 1 },
		"too long a TTL":    func(c *driver.Claim) { c.TTL = driver.MaxTTL + 1 },
		"no units":          func(c *driver.Claim) { c.Units = 0 },
		"negative units":    func(c *driver.Claim) { c.Units = -1 },
		"too many units":    func(c *driver.Claim) { c.Units = 2 },
		"no limit":          func(c *driver.Claim) { c.Limit = 0 },
		"too high a limit":  func(c *driver.Claim) { c.Limit = driver.MaxLimit + 1 },
		"no id":             func(c *driver.Claim) { c.ID = "" },
		"an id with quotes": func(c *driver.Claim) { c.ID = `12345678'"` },
		"a label with CR":   func(c *driver.Claim) { c.Owner.Label = "a\rb" },
	} {
		c := e.claim(name)
		change(&c)
		_, err := e.a.Enter(e.ctx, c)
		e.errIs(err, driver.ErrInvalid, "Enter with "+what)
	}
	e.queueIs(name, 0)
}
