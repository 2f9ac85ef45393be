package drivertest

import (
	"fmt"
	"slices"

	"github.com/pawl-go/pawl/driver"
)

var kindTests = []test{
	{name: "Mismatch", run: kindMismatch, needs: []Feature{Kinds}},
	{name: "Free", run: kindFree, needs: []Feature{Kinds}},
	{name: "AfterLimits", run: kindAfterLimits, needs: []Feature{SetLimit, Units}},
	{name: "KeptByLimit", run: kindKeptByLimit, needs: []Feature{SetLimit, Units}},
	{name: "Inspect", run: kindInspect, needs: []Feature{Kinds}},
	{name: "Invalid", run: kindInvalid},
}

var kinds = []driver.Kind{driver.KindMutex, driver.KindRW, driver.KindSemaphore, driver.KindElection, driver.KindParty}

func of(kind driver.Kind, c driver.Claim) driver.Claim {
	c.Kind = kind
	return c
}

// kindError fails the test unless entering c is a mismatch of kinds.
func (e *env) kindError(s driver.Store, c driver.Claim, have driver.Kind, limit int64) {
	e.Helper()
	_, err := s.Enter(e.ctx, c)
	e.mismatch(err, driver.MismatchError{Name: c.Name, HaveKind: have, WantKind: c.Kind, Have: limit, Want: c.Limit})
}

// A queue is of one kind: claims of another are refused, whether they would wait,
// try, or overtake, and change nothing.
func kindMismatch(e *env) {
	for _, have := range kinds {
		h := of(have, e.claim(e.name()))
		e.enter(e.a, h, driver.Holding)
		for _, want := range kinds {
			if want == have {
				continue
			}
			c := of(want, e.claim(h.Name))
			e.kindError(e.b, c, have, 1)
			e.kindError(e.a, try(c), have, 1)
			if !e.lacks(Overtake) {
				c.Overtake = true
				e.kindError(e.b, c, have, 1)
			}
		}
		e.queueIs(h.Name, 1, h)
		w := of(have, e.claim(h.Name))
		e.enter(e.b, w, driver.Waiting)
		e.leave(e.a, h, driver.Holding)
		e.kindError(e.a, of(kinds[(slices.Index(kinds, have)+1)%len(kinds)], e.claim(h.Name)), have, 1)
	}
}

// A name that nobody claims is free for every kind.
func kindFree(e *env) {
	name := e.name()
	for _, kind := range kinds {
		for _, s := range []driver.Store{e.a, e.b} {
			h := of(kind, e.claim(name))
			e.enter(s, h, driver.Holding)
			e.leave(s, h, driver.Holding)
		}
	}
}

// A semaphore whose limit becomes that of a mutex lets no mutex in, nor once the
// limit has been set back.
func kindAfterLimits(e *env) {
	name := e.name()
	h := e.part(name, 1, 2)
	e.enter(e.a, h, driver.Holding)
	e.setLimit(e.a, name, 2, 1)
	e.kindError(e.b, e.claim(name), driver.KindSemaphore, 1)
	e.setLimit(e.b, name, 2, 2)
	e.kindError(e.b, of(driver.KindMutex, e.part(name, 1, 2)), driver.KindSemaphore, 2)
	e.enter(e.b, e.part(name, 1, 2), driver.Holding)

	name = e.name()
	m := e.claim(name)
	e.enter(e.a, m, driver.Holding)
	err := e.b.SetLimit(e.ctx, name, driver.KindSemaphore, 1, 2)
	e.mismatch(err, driver.MismatchError{Name: name, HaveKind: driver.KindMutex, WantKind: driver.KindSemaphore, Have: 1, Want: 1})
	e.enter(e.b, e.claim(name), driver.Waiting)
}

// A limit that was changed is the limit of a kind, also while nobody claims the
// name.
func kindKeptByLimit(e *env) {
	name := e.name()
	e.setLimit(e.a, name, 2, 1)
	e.kindError(e.b, e.claim(name), driver.KindSemaphore, 1)
	if q := e.inspect(e.b, name); q.Kind != driver.KindSemaphore || q.Limit != 1 || q.Declared != 2 {
		e.Errorf("Inspect shows %+v", q)
	}
	e.setLimit(e.b, name, 2, 2)
	e.enter(e.b, e.claim(name), driver.Holding)
}

func kindInspect(e *env) {
	for _, kind := range kinds {
		h := of(kind, e.claim(e.name()))
		e.enter(e.a, h, driver.Holding)
		for _, s := range []driver.Store{e.a, e.b} {
			if q := e.inspect(s, h.Name); q.Kind != kind {
				e.Errorf("Inspect shows %v, want %v", q.Kind, kind)
			}
		}
		if e.lacks(List) {
			continue
		}
		n := 0
		for q, err := range e.a.List(e.ctx, h.Name) {
			if n++; err != nil || q.Kind != kind {
				e.Errorf("List shows %v, %v, want %v", q.Kind, err, kind)
			}
		}
		if n != 1 {
			e.Errorf("List shows %d queues, want 1", n)
		}
	}
}

func kindInvalid(e *env) {
	for _, kind := range []driver.Kind{0, 'x', '{', 255} {
		_, err := e.a.Enter(e.ctx, of(kind, e.claim(e.name())))
		e.errIs(err, driver.ErrInvalid, fmt.Sprintf("Enter of kind %d", kind))
	}
}
