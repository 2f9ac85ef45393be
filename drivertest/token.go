package drivertest

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var tokenTests = []test{
	{name: "Release", run: tokenRelease},
	{name: "SharedHolders", run: tokenShared, needs: []Feature{Units}},
	{name: "Expiry", run: tokenExpiry},
	{name: "UsedAtLeave", run: tokenUsedAtLeave},
	{name: "UsedAtRenew", run: tokenUsedAtRenew},
	{name: "UsedUntilCrash", run: tokenUsedUntilCrash},
	{name: "Break", run: tokenBreak, needs: []Feature{Break}},
	{name: "Stable", run: tokenStable},
}

func withLongest(e *env) (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, longest)
}

func tokenRelease(e *env) {
	name := e.name()
	stores := []driver.Store{e.a, e.b, e.open()}
	var last int64
	for i := range 30 {
		s := stores[i%len(stores)]
		c := e.claim(name)
		st := e.enter(s, c, driver.Holding)
		if st.Token <= last {
			e.Fatalf("grant %d has token %d, the one before had %d", i, st.Token, last)
		}
		last = st.Token
		e.leave(s, c, driver.Holding)
	}
}

func tokenShared(e *env) {
	name := e.name()
	var last int64
	var claims []driver.Claim
	for i := range 12 {
		c, want := e.part(name, 1, 6), driver.Holding
		if i >= 6 {
			want = driver.Waiting
		}
		st := e.enter(e.a, c, want)
		claims = append(claims, c)
		if want == driver.Holding {
			if st.Token <= last {
				e.Fatalf("grant %d has token %d, the one before had %d", i, st.Token, last)
			}
			last = st.Token
		}
	}
	for i := range 6 {
		e.leave(e.b, claims[i], driver.Holding)
		st := e.renew(e.a, claims[i+6], driver.Holding)
		if st.Token <= last {
			e.Fatalf("grant %d has token %d, the one before had %d", i+6, st.Token, last)
		}
		last = st.Token
	}
}

func tokenExpiry(e *env) {
	name := e.name()
	first := e.enter(e.a, e.brief(e.claim(name)), driver.Holding)
	e.expire()
	e.after(name, first.Token)
}

// after fails the test unless the next holder has a token above last. The name
// must be free, or become free by itself.
func (e *env) after(name string, last int64) {
	e.Helper()
	c := try(e.claim(name))
	e.eventually("the next can enter", func() bool {
		st, err := e.b.Enter(e.ctx, c)
		if err != nil {
			e.Fatalf("Enter: %v", err)
		}
		if st.State == driver.Holding && st.Token <= last {
			e.Fatalf("token %d, but %d was used before", st.Token, last)
		}
		return st.State == driver.Holding
	})
	e.leave(e.b, c, driver.Holding)
}

func tokenUsedAtLeave(e *env) {
	// The next one waits already, or comes later.
	for _, waits := range []bool{true, false} {
		h, w := e.claim(e.name()), driver.Claim{}
		w = e.claim(h.Name)
		st := e.enter(e.a, h, driver.Holding)
		if waits {
			e.enter(e.b, w, driver.Waiting)
		}
		r := ref(h)
		r.Used = st.Token + st.Spare // whatever the clock says, what was used counts
		e.leaveRef(e.a, r, driver.Holding)
		if next := e.enter(e.b, w, driver.Holding); next.Token <= r.Used {
			e.Errorf("token %d after one that was left with %d used", next.Token, r.Used)
		}
	}
}

func tokenUsedAtRenew(e *env) {
	h := e.brief(e.claim(e.name()))
	r := ref(h)
	r.Used = e.spend(e.enter(e.a, h, driver.Holding), time.Now())
	st, err := e.renewRef(e.a, r)
	if err != nil {
		e.Fatal(err)
	}
	e.is(st, driver.Holding, "Renew")
	// Leave without a word about it: the process that took the claim over
	// does not know.
	e.leave(e.b, h, driver.Holding)
	e.inTime()
	e.after(h.Name, r.Used)
}

// The holder uses its spare tokens and dies without telling anybody.
func tokenUsedUntilCrash(e *env) {
	h := e.brief(e.claim(e.name()))
	used := e.spend(e.enter(e.a, h, driver.Holding), time.Now())
	e.expire()
	e.after(h.Name, used)
}

// Who is broken does not know until it is told: until its deadline it may go
// on using its tokens, and they must stay below the next holder's.
func tokenBreak(e *env) {
	h := e.claim(e.name())
	st := e.enter(e.a, h, driver.Holding)
	known := time.Now()
	if _, err := e.b.Break(e.ctx, h.Name); err != nil {
		e.Fatalf("Break: %v", err)
	}
	e.after(h.Name, st.Token+min(st.Spare, st.Deadline.Sub(known).Microseconds()))
}

func tokenStable(e *env) {
	h := e.claim(e.name())
	first := e.enter(e.a, h, driver.Holding)
	for range 3 {
		for _, got := range []driver.Status{
			e.enter(e.b, h, driver.Holding), e.renew(e.a, h, driver.Holding), e.granted(e.b, h),
		} {
			if got.Token != first.Token || got.Spare != first.Spare {
				e.Fatalf("token %d with %d spare became %d with %d", first.Token, first.Spare, got.Token, got.Spare)
			}
		}
	}
	if en := e.entry(e.b, h); en.Token != first.Token {
		e.Errorf("Inspect shows token %d, want %d", en.Token, first.Token)
	}
}
