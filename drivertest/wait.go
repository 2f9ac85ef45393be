package drivertest

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var waitTests = []test{
	{name: "Granted", run: waitGranted},
	{name: "GrantedBefore", run: waitGrantedBefore},
	{name: "NoLostWakeUp", run: waitNoLostWakeUp},
	{name: "EachItsOwn", run: waitEachItsOwn},
	{name: "Blocks", run: waitBlocks},
	{name: "NotWaiting", run: waitNotWaiting},
	{name: "ContextEnds", run: waitContextEnds},
	{name: "RenewsNothing", run: waitRenewsNothing},
}

// The next holder learns of it by Wait alone, whichever Store values are
// concerned.
func waitGranted(e *env) {
	for _, s := range [][2]driver.Store{{e.a, e.a}, {e.a, e.b}, {e.b, e.a}} {
		name := e.name()
		h, w := e.claim(name), e.claim(name)
		e.enter(s[0], h, driver.Holding)
		e.enter(s[1], w, driver.Waiting)
		woken := e.await(s[1], w)
		time.Sleep(20 * time.Millisecond) // so that it really waits
		e.leave(s[0], h, driver.Holding)
		got := soon(e, woken, "Wait returns after the holder has left")
		if got.err != nil {
			e.Fatalf("Wait: %v", got.err)
		}
		e.is(got.st, driver.Holding, "Wait")
		if st := e.renew(s[1], w, driver.Holding); st.Token != got.st.Token {
			e.Errorf("Wait returned token %d, Renew %d", got.st.Token, st.Token)
		}
	}
}

func waitGrantedBefore(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.leave(e.a, h, driver.Holding)
	time.Sleep(20 * time.Millisecond) // a wake-up would have come and gone
	e.granted(e.b, w)
}

func waitNoLostWakeUp(e *env) {
	name := e.name()
	stores := []driver.Store{e.a, e.b}
	h := e.claim(name)
	e.enter(stores[0], h, driver.Holding)
	for i := range 30 {
		from, to := stores[i%2], stores[(i+1)%2]
		w := e.claim(name)
		e.enter(to, w, driver.Waiting)
		woken := e.await(to, w)
		time.Sleep(time.Duration(i) * 50 * time.Microsecond)
		e.leave(from, h, driver.Holding)
		if got := soon(e, woken, "Wait returns"); got.err != nil || got.st.State != driver.Holding {
			e.Fatalf("hand-over %d: %v, %v", i, got.st.State, got.err)
		}
		h = w
	}
}

func waitEachItsOwn(e *env) {
	var holders, waiters []driver.Claim
	var woken []<-chan renewed
	for range 10 {
		name := e.name()
		h, w := e.claim(name), e.claim(name)
		e.enter(e.a, h, driver.Holding)
		e.enter(e.b, w, driver.Waiting)
		holders, waiters = append(holders, h), append(waiters, w)
		woken = append(woken, e.await(e.b, w))
	}
	for i := len(holders) - 1; i >= 0; i-- {
		e.leave(e.a, holders[i], driver.Holding)
		if got := soon(e, woken[i], "Wait returns"); got.err != nil || got.st.State != driver.Holding {
			e.Fatalf("claim %d: %v, %v", i, got.st.State, got.err)
		}
		if i > 0 {
			e.renew(e.b, waiters[i-1], driver.Waiting)
		}
	}
}

// Wait may return early, but who calls it in a loop does not spin.
func waitBlocks(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	e.blocks("Wait", func(ctx context.Context) error {
		_, err := e.b.Wait(ctx, ref(w))
		return err
	})
}

// blocks fails the test if f returns often while nothing happens.
func (e *env) blocks(what string, f func(context.Context) error) {
	e.Helper()
	const span, most = 300 * time.Millisecond, 60
	ctx, cancel := context.WithTimeout(e.ctx, span)
	defer cancel()
	n := 0
	for ctx.Err() == nil {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			e.Fatalf("%s: %v", what, err)
		}
		n++
	}
	if n > most {
		e.Errorf("%s returned %d times within %v, and nothing happened", what, n, span)
	}
}

func waitNotWaiting(e *env) {
	h := e.claim(e.name())
	entered := e.enter(e.a, h, driver.Holding)
	st := e.granted(e.a, h)
	if st.Token != entered.Token || st.Spare != entered.Spare {
		e.Errorf("Wait returns token %d, %d spare, Enter %d, %d spare", st.Token, st.Spare, entered.Token, entered.Spare)
	}
	e.renewedNothing(st)
	for _, c := range []driver.Claim{e.claim(h.Name), e.claim(e.name())} {
		st, err := e.wait(e.a, c)
		if err != nil {
			e.Fatalf("Wait for a claim that is not there: %v", err)
		}
		e.is(st, driver.Gone, "Wait")
	}
}

func (e *env) renewedNothing(st driver.Status) {
	e.Helper()
	if !st.Deadline.IsZero() || !st.Recheck.IsZero() {
		e.Errorf("the call renews nothing, but returns deadline %v, recheck %v", st.Deadline, st.Recheck)
	}
}

func waitContextEnds(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)

	ctx, cancel := context.WithTimeout(e.ctx, 50*time.Millisecond)
	defer cancel()
	e.errIs(e.waitOn(ctx, w), context.DeadlineExceeded, "Wait beyond the deadline of its context")

	ctx, cancel = context.WithCancel(e.ctx)
	time.AfterFunc(50*time.Millisecond, cancel)
	e.errIs(e.waitOn(ctx, w), context.Canceled, "Wait under a cancelled context")

	e.queueIs(name, 1, h, w)
	e.leave(e.a, h, driver.Holding)
	e.granted(e.b, w)
}

func (e *env) waitOn(ctx context.Context, w driver.Claim) error {
	done := make(chan error, 1)
	go func() {
		for {
			st, err := e.b.Wait(ctx, ref(w))
			if err != nil || st.State != driver.Waiting {
				done <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return soon(e, done, "Wait returns when its context ends")
}

func waitRenewsNothing(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w, driver.Waiting)
	left := w.TTL
	if !e.lacks(Queue) {
		left = e.entry(e.a, w).TTL
	}
	ctx, cancel := context.WithTimeout(e.ctx, 50*time.Millisecond)
	defer cancel()
	for {
		st, err := e.b.Wait(ctx, ref(w))
		if err != nil {
			break
		}
		e.renewedNothing(st)
		time.Sleep(time.Millisecond)
	}
	if !e.lacks(Queue) {
		if now := e.entry(e.a, w).TTL; now > left {
			e.Errorf("the claim's TTL was %v, after a Wait it is %v", left, now)
		}
	}
	e.leave(e.a, h, driver.Holding)
	e.renewedNothing(e.granted(e.b, w))
	if now := e.entry(e.a, w).TTL; now > left {
		e.Errorf("the claim's TTL was %v, after its grant it is %v", left, now)
	}
}
