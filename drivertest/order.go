package drivertest

import (
	"github.com/pawl-go/pawl/driver"
)

var orderTests = []test{
	{name: "FirstComeFirstServed", run: orderFIFO, needs: []Feature{Queue}},
	{name: "Semaphore", run: orderSemaphore, needs: []Feature{Units}},
	{name: "ReadersAndWriter", run: orderReadersWriter, needs: []Feature{Units}},
	{name: "BigClaimIsNotStarved", run: orderBig, needs: []Feature{Units}},
	{name: "LeavingWaiterLetsIn", run: orderLeavingWaiter, needs: []Feature{Units}},
	{name: "Overtake", run: orderOvertake, needs: []Feature{Units, Overtake}},
	{name: "OvertakeWaiting", run: orderOvertakeWaiting, needs: []Feature{Units, Overtake}},
}

func orderFIFO(e *env) {
	name := e.name()
	var claims []driver.Claim
	for i := range 8 {
		c, want := e.claim(name), driver.Waiting
		if i == 0 {
			want = driver.Holding
		}
		claims = append(claims, c)
		e.enter([]driver.Store{e.a, e.b}[i%2], c, want)
	}
	for i := range claims {
		e.queueIs(name, 1, claims[i:]...)
		e.leave([]driver.Store{e.a, e.b}[i%2], claims[i], driver.Holding)
	}
	e.queueIs(name, 0)
}

func orderSemaphore(e *env) {
	name := e.name()
	var c []driver.Claim
	for _, units := range []int64{2, 1, 2, 1, 1} {
		c = append(c, e.part(name, units, 5))
	}
	for i, want := range []driver.State{driver.Holding, driver.Holding, driver.Holding, driver.Waiting, driver.Waiting} {
		st := e.enter(e.a, c[i], want)
		if st.Spare != 0 {
			e.Errorf("%d of 5 hold beside others, but have %d spare tokens", c[i].Units, st.Spare)
		}
	}
	e.leave(e.b, c[0], driver.Holding)
	e.queueIs(name, 4, c[1:]...)
	e.renew(e.a, c[4], driver.Holding)
	e.leave(e.b, c[2], driver.Holding)
	e.queueIs(name, 3, c[1], c[3], c[4])
}

func orderReadersWriter(e *env) {
	const all = 100
	name := e.name()
	r1, r2 := e.part(name, 1, all), e.part(name, 1, all)
	w := e.part(name, all, all)
	r3, r4 := e.part(name, 1, all), e.part(name, 1, all)
	e.enter(e.a, r1, driver.Holding)
	e.enter(e.b, r2, driver.Holding)
	e.enter(e.a, w, driver.Waiting)
	e.enter(e.b, r3, driver.Waiting)
	if st := e.enter(e.a, r4, driver.Waiting); st.Ahead != 2 {
		e.Errorf("two wait in front, but Ahead is %d", st.Ahead)
	}
	e.leave(e.a, r1, driver.Holding)
	e.queueIs(name, 1, r2, w, r3, r4)
	e.leave(e.b, r2, driver.Holding)
	e.queueIs(name, 1, w, r3, r4)
	e.leave(e.a, w, driver.Holding)
	e.queueIs(name, 2, r3, r4)
}

func orderBig(e *env) {
	name := e.name()
	h1, h2, big := e.part(name, 1, 3), e.part(name, 1, 3), e.part(name, 3, 3)
	e.enter(e.a, h1, driver.Holding)
	e.enter(e.a, h2, driver.Holding)
	e.enter(e.b, big, driver.Waiting)
	var small []driver.Claim
	for range 4 { // each would fit
		c := e.part(name, 1, 3)
		e.enter(e.a, c, driver.Waiting)
		small = append(small, c)
	}
	e.leave(e.a, h1, driver.Holding)
	for _, c := range small {
		e.renew(e.a, c, driver.Waiting)
	}
	e.leave(e.a, h2, driver.Holding)
	e.granted(e.b, big)
	for _, c := range small {
		e.renew(e.a, c, driver.Waiting)
	}
	e.leave(e.b, big, driver.Holding)
	e.queueIs(name, 3, small...)
}

func orderLeavingWaiter(e *env) {
	name := e.name()
	h, big, small1, small2 := e.part(name, 1, 3), e.part(name, 3, 3), e.part(name, 1, 3), e.part(name, 1, 3)
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, big, driver.Waiting)
	e.enter(e.a, small1, driver.Waiting)
	e.enter(e.b, small2, driver.Waiting)
	woken := e.await(e.a, small1)
	e.leave(e.b, big, driver.Waiting)
	e.queueIs(name, 3, h, small1, small2)
	if got := soon(e, woken, "the claim behind a leaving waiter is woken"); got.err != nil || got.st.State != driver.Holding {
		e.Errorf("the claim behind a leaving waiter: %v, %v", got.st.State, got.err)
	}
}

func orderOvertake(e *env) {
	name := e.name()
	h, big, plain, fast := e.part(name, 1, 3), e.part(name, 3, 3), e.part(name, 1, 3), e.part(name, 1, 3)
	fast.Overtake = true
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, big, driver.Waiting)
	e.enter(e.b, plain, driver.Waiting)
	e.enter(e.a, fast, driver.Holding)
	faster := try(e.part(name, 1, 3))
	faster.Overtake = true
	e.enter(e.b, faster, driver.Holding)
	e.renew(e.b, big, driver.Waiting)
	e.renew(e.b, plain, driver.Waiting)
}

func orderOvertakeWaiting(e *env) {
	name := e.name()
	h1, h2, big, fast := e.part(name, 1, 3), e.part(name, 2, 3), e.part(name, 3, 3), e.part(name, 2, 3)
	fast.Overtake = true
	e.enter(e.a, h1, driver.Holding)
	e.enter(e.a, h2, driver.Holding)
	e.enter(e.b, big, driver.Waiting)
	e.enter(e.b, fast, driver.Waiting)
	e.leave(e.a, h2, driver.Holding)
	e.granted(e.b, fast)
	e.renew(e.b, big, driver.Waiting)
}
