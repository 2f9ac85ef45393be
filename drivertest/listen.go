package drivertest

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var listenTests = []test{
	{name: "Wanted", run: listenWanted, needs: []Feature{Listen}},
	{name: "Asked", run: listenAsked, needs: []Feature{Listen, Ask}},
	{name: "Broken", run: listenBroken, needs: []Feature{Listen, Break}},
	{name: "Ends", run: listenEnds, needs: []Feature{Listen}},
}

// listen collects the notices that s gives, until the end of the test.
func (e *env) listen(s driver.Store) <-chan driver.Notice {
	notices := make(chan driver.Notice, 1000)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(e.ctx)
	go func() {
		defer close(done)
		s.Listen(ctx, func(n driver.Notice) {
			select {
			case notices <- n:
			default: // a notice may be lost
			}
		})
	}()
	e.Cleanup(func() { cancel(); <-done })
	return notices
}

// noticed repeats act, for a notice may be lost or nobody listen yet, until
// one comes that fits.
func (e *env) noticed(notices <-chan driver.Notice, what string, act func() (fits func(driver.Notice) bool)) {
	e.Helper()
	for end := time.Now().Add(longest); time.Now().Before(end); {
		fits := act()
		for pause := time.After(200 * time.Millisecond); pause != nil; {
			select {
			case n := <-notices:
				if fits(n) {
					return
				}
			case <-pause:
				pause = nil
			}
		}
	}
	e.Fatalf("no notice within %v: %s", longest, what)
}

func listenWanted(e *env) {
	for _, s := range []driver.Store{e.a, e.b} {
		notices := e.listen(e.a)
		h := e.claim(e.name())
		e.enter(e.a, h, driver.Holding)
		e.noticed(notices, "somebody waits for the claim", func() func(driver.Notice) bool {
			w := e.claim(h.Name)
			e.enter(s, w, driver.Waiting)
			e.leave(s, w, driver.Waiting)
			return func(n driver.Notice) bool { return n.Kind == driver.Wanted && n.ID == h.ID }
		})
	}
}

// Those who are asked for are told, all that hold, though nobody waits.
func listenAsked(e *env) {
	limit := int64(2)
	if e.lacks(Units) {
		limit = 1
	}
	for _, s := range []driver.Store{e.a, e.b} {
		ours, theirs := e.listen(e.a), e.listen(e.b)
		h := e.part(e.name(), 1, limit)
		told := map[<-chan driver.Notice]driver.Claim{ours: h}
		e.enter(e.a, h, driver.Holding)
		if limit > 1 {
			other := e.part(h.Name, 1, limit)
			e.enter(e.b, other, driver.Holding)
			told[theirs] = other
		}
		for notices, c := range told {
			e.noticed(notices, "somebody asks for the claim", func() func(driver.Notice) bool {
				if err := s.Ask(e.ctx, h.Name); err != nil {
					e.Fatalf("Ask: %v", err)
				}
				return func(n driver.Notice) bool { return n.Kind == driver.Wanted && n.ID == c.ID }
			})
		}
		if err := s.Ask(e.ctx, e.name()); err != nil {
			e.Errorf("Ask for a name that nobody holds: %v", err)
		}
		e.errIs(s.Ask(e.ctx, ""), driver.ErrInvalid, "Ask without a name")
	}
}

func listenBroken(e *env) {
	for _, s := range []driver.Store{e.a, e.b} {
		notices := e.listen(e.a)
		e.noticed(notices, "the claim was broken", func() func(driver.Notice) bool {
			h := e.claim(e.name())
			e.enter(e.a, h, driver.Holding)
			e.breakUp(s, h.Name)
			return func(n driver.Notice) bool { return n.Kind == driver.Check && n.ID == h.ID }
		})
	}
}

func listenEnds(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	s := e.open()
	byContext, byClose := make(chan error, 1), make(chan error, 1)
	ignore := func(driver.Notice) {}
	go func() { byContext <- e.a.Listen(ctx, ignore) }()
	go func() { byClose <- s.Listen(e.ctx, ignore) }()
	select {
	case err := <-byContext:
		e.Fatalf("Listen ended by itself: %v", err)
	case err := <-byClose:
		e.Fatalf("Listen ended by itself: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	cancel()
	e.errIs(soon(e, byContext, "Listen ends with its context"), context.Canceled, "Listen under a cancelled context")
	if err := s.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
	e.errIs(soon(e, byClose, "Listen ends with its store"), driver.ErrClosed, "Listen on a closed store")
}
