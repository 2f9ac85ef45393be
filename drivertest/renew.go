package drivertest

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var renewTests = []test{
	{name: "Batch", run: renewBatch},
	{name: "LargeBatch", run: renewLargeBatch},
	{name: "NeverCreates", run: renewNeverCreates},
	{name: "TimeToLive", run: renewTTL},
	{name: "Waiting", run: renewWaiting},
	{name: "Used", run: renewUsed},
	{name: "ContextDone", run: renewContextDone},
}

func renewBatch(e *env) {
	n1, n2 := e.name(), e.name()
	h1, w1, h2, gone := e.claim(n1), e.claim(n1), e.claim(n2), e.claim(n2)
	e.enter(e.a, h1, driver.Holding)
	e.enter(e.b, w1, driver.Waiting)
	e.enter(e.b, h2, driver.Holding)
	badTTL, badName := ref(h1), ref(h1)
	badTTL.TTL, badName.Name = 0, ""
	before := time.Now()
	got := e.renewAll(e.ctx, e.b, []driver.Ref{ref(h1), ref(gone), badTTL, ref(w1), badName, ref(h2), ref(h1)})
	for i, want := range map[int]driver.State{
		0: driver.Holding, 1: driver.Gone, 3: driver.Waiting, 5: driver.Holding, 6: driver.Holding,
	} {
		if got[i].err != nil {
			e.Errorf("index %d: %v", i, got[i].err)
			continue
		}
		e.is(got[i].st, want, "Renew in a batch")
		if want != driver.Gone {
			e.deadline(got[i].st, before, life)
		}
	}
	e.errIs(got[2].err, driver.ErrInvalid, "Renew with TTL 0")
	e.errIs(got[4].err, driver.ErrInvalid, "Renew without a name")
	e.behind(got[0].st, 1)
	e.behind(got[5].st, 0)
	e.renewAll(e.ctx, e.a, nil)
}

func renewLargeBatch(e *env) {
	var rs []driver.Ref
	var tokens []int64
	for i := range 120 {
		c := e.claim(e.name())
		c.TTL = life / 2
		if i%10 != 9 {
			tokens = append(tokens, e.enter(e.a, c, driver.Holding).Token)
		} else {
			tokens = append(tokens, 0)
		}
		r := ref(c)
		r.TTL = life
		rs = append(rs, r)
	}
	for i, got := range e.renewAll(e.ctx, e.a, rs) {
		want := driver.Holding
		if i%10 == 9 {
			want = driver.Gone
		}
		if got.err != nil || got.st.State != want || got.st.Token != tokens[i] {
			e.Fatalf("index %d: %v with token %d, %v; want %v with token %d", i, got.st.State, got.st.Token, got.err, want, tokens[i])
		}
	}
}

func renewNeverCreates(e *env) {
	c := e.claim(e.name())
	e.renew(e.a, c, driver.Gone)
	e.queueIs(c.Name, 0)
	e.enter(e.a, c, driver.Holding)
	e.leave(e.a, c, driver.Holding)
	e.renew(e.a, c, driver.Gone)
	e.queueIs(c.Name, 0)
	other := e.claim(c.Name)
	e.enter(e.b, other, driver.Holding)
	e.renew(e.a, c, driver.Gone)
	e.queueIs(c.Name, 1, other)
}

func renewTTL(e *env) {
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	token := e.enter(e.a, h, driver.Holding).Token
	e.enter(e.a, w, driver.Waiting)
	for _, c := range e.shown(1, h, w) {
		for _, ttl := range []time.Duration{2 * life, life / 2} {
			r := ref(c)
			r.TTL = ttl
			before := time.Now()
			st, err := e.renewRef(e.b, r)
			if err != nil {
				e.Fatal(err)
			}
			e.deadline(st, before, ttl)
			if early := driver.Deadline(before, ttl).Add(-ttl / 4); st.Deadline.Before(early) {
				e.Errorf("renewed with TTL %v, but the deadline is in %v", ttl, time.Until(st.Deadline))
			}
			// A shorter TTL must not take away what an earlier request gave.
			if left := e.entry(e.a, c).TTL; left > 2*life || left < 2*life-life/4 {
				e.Errorf("renewed with TTL %v, but %v are left", ttl, left)
			}
		}
	}
	if st := e.renew(e.b, h, driver.Holding); st.Token != token {
		e.Errorf("renewing changed the token from %d to %d", token, st.Token)
	}
}

func renewWaiting(e *env) {
	name := e.name()
	h, w1, w2 := e.claim(name), e.claim(name), e.claim(name)
	h.TTL = life / 2
	e.enter(e.a, h, driver.Holding)
	e.enter(e.b, w1, driver.Waiting)
	e.enter(e.b, w2, driver.Waiting)
	before := time.Now()
	st := e.renew(e.b, w2, driver.Waiting)
	e.ahead(st, 1)
	e.blockedBy(st, h)
	// The holder may run out before the waiter's next heartbeat.
	e.recheck(st, before, h.TTL)
	e.leave(e.b, w1, driver.Waiting)
	e.ahead(e.renew(e.b, w2, driver.Waiting), 0)
}

func renewUsed(e *env) {
	c := e.claim(e.name())
	st := e.enter(e.a, c, driver.Holding)
	used := e.spend(st, time.Now())
	r := ref(c)
	r.Used = used
	again, err := e.renewRef(e.a, r)
	if err != nil {
		e.Fatal(err)
	}
	if again.Token != st.Token || again.Spare != st.Spare {
		e.Errorf("the grant's token was %d with %d spare; after Renew %d with %d", st.Token, st.Spare, again.Token, again.Spare)
	}
	e.renew(e.b, c, driver.Holding) // says nothing of used tokens
	if en := e.entry(e.b, c); en.Token != used {
		e.Errorf("token %d was used, Inspect shows %d", used, en.Token)
	}
	if w := e.enter(e.b, e.claim(c.Name), driver.Waiting); w.Blocker.Token != used {
		e.Errorf("token %d was used, Blocker shows %d", used, w.Blocker.Token)
	}
}

// spend uses as many spare tokens as the holder may: one for every microsecond
// since it knows of its grant. It returns the highest.
func (e *env) spend(st driver.Status, known time.Time) int64 {
	if st.Spare == 0 {
		return st.Token
	}
	time.Sleep(3 * time.Millisecond)
	return st.Token + min(st.Spare, time.Since(known).Microseconds())
}

func renewContextDone(e *env) {
	c := e.claim(e.name())
	e.enter(e.a, c, driver.Holding)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	r := ref(c)
	r.TTL = 2 * life
	for i, got := range e.renewAll(ctx, e.a, []driver.Ref{r, r}) {
		e.errIs(got.err, context.Canceled, "Renew under a cancelled context")
		if got.st.State != driver.Gone || !got.st.Deadline.IsZero() {
			e.Errorf("index %d: an error, and %+v", i, got.st)
		}
	}
	if left := e.entry(e.b, c).TTL; left > life {
		e.Errorf("renewed under a cancelled context: %v left", left)
	}
}
