package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var expiryTests = []test{
	{name: "Holder", run: expiryHolder},
	{name: "HolderIsToldFirst", run: expiryDeadline},
	{name: "Try", run: expiryTry},
	{name: "Inspect", run: expiryInspect},
	{name: "Waiter", run: expiryWaiter},
	{name: "WaiterInFront", run: expiryWaiterInFront, needs: []Feature{Units}},
	{name: "GrantedToTheDead", run: expiryGrantedToTheDead},
	{name: "EnteredAgain", run: expiryEnteredAgain},
	{name: "Calls", run: expiryCalls},
	{name: "NotBefore", run: expiryNotBefore},
	{name: "Acquire", run: expiryAcquire},
}

func expiryHolder(e *env) {
	name := e.name()
	h, w := e.brief(e.claim(name)), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.expire()
	e.becomes(e.b, w, driver.Holding)
	e.renew(e.a, h, driver.Gone)
	e.queueIs(name, 1, w)
}

// A holder's deadline, by the clock of its process, passes before anybody else
// can hold.
func expiryDeadline(e *env) {
	if e.backing.Advance != nil {
		e.Skip("the store's time is moved by hand here: it says nothing about the holder's clock")
	}
	name := e.name()
	h, w := e.brief(e.claim(name)), e.claim(name)
	deadline := e.enter(e.a, h, driver.Holding).Deadline
	st := e.renew(e.a, h, driver.Holding)
	if st.Deadline.Before(deadline) {
		e.Error("renewing brought the deadline forward")
	}
	e.inTime()
	if _, err := e.acquire(e.ctx, e.b, w); err != nil {
		e.Fatal(err)
	}
	if now := time.Now(); now.Before(st.Deadline) {
		e.Errorf("another holds %v before the deadline", st.Deadline.Sub(now))
	}
}

func expiryTry(e *env) {
	name := e.name()
	h := e.brief(e.claim(name))
	e.enter(e.a, h, driver.Holding)
	e.expire()
	c := try(e.claim(name))
	e.eventually("the name is free", func() bool {
		st, err := e.b.Enter(e.ctx, c)
		if err != nil {
			e.Fatal(err)
		}
		return st.State == driver.Holding
	})
	e.queueIs(name, 1, c)
}

// What has run out is never shown, even if no other operation came between.
func expiryInspect(e *env) {
	name := e.name()
	e.enter(e.a, e.brief(e.claim(name)), driver.Holding)
	e.enter(e.b, e.brief(e.claim(name)), driver.Waiting)
	e.expire()
	e.eventually("the queue is empty", func() bool {
		for _, c := range e.inspect(e.b, name).Claims {
			if c.TTL < 0 {
				e.Errorf("Inspect shows a claim with %v left", c.TTL)
			}
		}
		return len(e.inspect(e.b, name).Claims) == 0
	})
}

func expiryWaiter(e *env) {
	name := e.name()
	h, dead, w := e.claim(name), e.brief(e.claim(name)), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, dead, driver.Waiting)
	e.enter(e.b, w, driver.Waiting)
	e.expire()
	e.eventually("the dead waiter is not counted", func() bool {
		return e.renew(e.b, w, driver.Waiting).Ahead == 0
	})
	e.queueIs(name, 1, h, w)
	e.behind(e.renew(e.a, h, driver.Holding), 1)
	e.leave(e.a, h, driver.Holding)
	e.granted(e.b, w)
}

// A waiter that is too big to fit dies: those behind it get in.
func expiryWaiterInFront(e *env) {
	name := e.name()
	h, big, small := e.part(name, 1, 3), e.brief(e.part(name, 3, 3)), e.part(name, 1, 3)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, big, driver.Waiting)
	before := time.Now()
	st := e.enter(e.b, small, driver.Waiting)
	e.recheck(st, before, big.TTL)
	e.expire()
	e.becomes(e.b, small, driver.Holding)
	e.queueIs(name, 2, h, small)
}

// Being granted does not lengthen a claim's life.
func expiryGrantedToTheDead(e *env) {
	name := e.name()
	h, dead, w := e.claim(name), e.brief(e.claim(name)), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, dead, driver.Waiting)
	e.enter(e.b, w, driver.Waiting)
	e.leave(e.a, h, driver.Holding)
	for _, c := range e.inspect(e.b, name).Claims {
		if c.ID == dead.ID && c.TTL > e.short {
			e.Errorf("a claim with TTL %v has %v left after its grant", e.short, c.TTL)
		}
	}
	e.expire()
	e.becomes(e.b, w, driver.Holding)
	e.queueIs(name, 1, w)
}

// A claim that was granted, ran out before anybody knew, and was entered again waits:
// what told of that grant is about an earlier claim.
func expiryEnteredAgain(e *env) {
	name := e.name()
	h, late, w := e.claim(name), e.brief(e.claim(name)), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, late, driver.Waiting)
	e.leave(e.a, h, driver.Holding)
	e.expire()
	before := e.enter(e.a, w, driver.Holding)
	late.TTL = w.TTL
	e.enter(e.b, late, driver.Waiting)
	e.leave(e.a, w, driver.Holding)
	if st := e.granted(e.b, late); st.Token <= before.Token {
		e.Errorf("it is told of the grant of token %d, and another had %d since", st.Token, before.Token)
	}
}

// Whatever is called for a claim that has run out, it is gone.
func expiryCalls(e *env) {
	name := e.name()
	var c []driver.Claim
	for range 3 {
		c = append(c, e.brief(e.claim(name)))
		name = e.name()
		e.enter(e.a, c[len(c)-1], driver.Holding)
	}
	e.expire()
	e.becomes(e.a, c[0], driver.Gone)
	e.leave(e.a, c[1], driver.Gone)
	st, err := e.a.Wait(e.ctx, ref(c[2]))
	if err != nil {
		e.Fatal(err)
	}
	e.is(st, driver.Gone, "Wait")
	if !e.lacks(Resize) {
		st, err := e.a.Resize(e.ctx, ref(c[2]), 1)
		if err != nil {
			e.Fatal(err)
		}
		e.is(st, driver.Gone, "Resize")
	}
	// Enter is the one that makes a new claim of it.
	e.enter(e.b, c[0], driver.Holding)
}

func expiryNotBefore(e *env) {
	if e.backing.Advance == nil {
		e.Skip("needs a store whose time can be moved: in real time a busy machine would decide this test")
	}
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	for range 4 {
		e.backing.Advance(life / 2)
		e.queueIs(name, 1, h, w)
		e.renew(e.a, h, driver.Holding)
		e.enter(e.b, w, driver.Waiting)
	}
	if en := e.entry(e.b, h); en.Age < 2*life || en.Held < 2*life || en.TTL > life {
		e.Errorf("held for %v and renewed: Inspect shows %+v", 2*life, en)
	}
	e.backing.Advance(life + time.Millisecond)
	e.queueIs(name, 0)
}

// A client that only follows Wait and Recheck gets in after a dead holder and
// a dead waiter, also if Wait returns early.
func expiryAcquire(e *env) {
	if e.backing.Advance != nil {
		e.Skip("the store's time is moved by hand here")
	}
	name := e.name()
	h, dead, w := e.brief(e.claim(name)), e.brief(e.claim(name)), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.a, dead, driver.Waiting)
	e.inTime()
	ctx, cancel := withLongest(e)
	defer cancel()
	st, err := e.acquire(ctx, restless{e.b}, w)
	if err != nil {
		e.Fatal(err)
	}
	e.is(st, driver.Holding, "a client that follows Recheck")
}

// restless is a store whose Wait returns early, as where messages may have been lost.
type restless struct{ driver.Store }

func (s restless) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	early, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	st, err := s.Store.Wait(early, r)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return driver.Status{State: driver.Waiting}, nil
	}
	return st, err
}
