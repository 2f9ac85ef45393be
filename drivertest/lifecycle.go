package drivertest

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var lifecycleTests = []test{
	{name: "ContextDone", run: contextDone},
	{name: "CloseEndsCalls", run: closeEndsCalls},
	{name: "Closed", run: closed},
	{name: "ClaimsOfAClosedStore", run: closedClaims},
}

// callAllIn calls each method that the store has, on things that are not
// there, and returns the errors.
func (e *env) callAllIn(ctx context.Context, s driver.Store, name, id string) map[string]error {
	errs := make(map[string]error)
	c := e.claim(name)
	c.ID = id
	r := ref(c)
	_, errs["Enter"] = s.Enter(ctx, c)
	_, errs["Enter to try"] = s.Enter(ctx, try(c))
	_, errs["Wait"] = s.Wait(ctx, r)
	s.Renew(ctx, []driver.Ref{r}, func(_ int, _ driver.Status, err error) { errs["Renew"] = err })
	_, errs["Leave"] = s.Leave(ctx, r)
	_, errs["Inspect"] = s.Inspect(ctx, name)
	if !e.lacks(Resize) {
		_, errs["Resize"] = s.Resize(ctx, r, 1)
	}
	if !e.lacks(Break) {
		_, errs["Break"] = s.Break(ctx, name)
	}
	if !e.lacks(Records) {
		_, errs["Load"] = s.Load(ctx, name)
		_, errs["CompareAndSwap"] = s.CompareAndSwap(ctx, driver.Record{Name: name, Value: []byte("x")})
		_, errs["WaitChange"] = s.WaitChange(ctx, name, 1)
	}
	return errs
}

func (e *env) callRest(ctx context.Context, s driver.Store) map[string]error {
	errs := make(map[string]error)
	if !e.lacks(List) {
		errs["List"] = nil
		for _, err := range s.List(ctx, "") {
			errs["List"] = err
		}
	}
	if !e.lacks(Listen) {
		errs["Listen"] = s.Listen(ctx, func(driver.Notice) {})
	}
	return errs
}

// A call under a context that is done does nothing.
func contextDone(e *env) {
	h := e.claim(e.name())
	e.enter(e.a, h, driver.Holding)
	cancelled, cancel := context.WithCancel(e.ctx)
	cancel()
	late, cancel := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
	defer cancel()
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		name := e.name()
		for what, err := range e.callAllIn(ctx, e.a, name, driver.NewID()) {
			e.errIs(err, want, what+" under a context that is done")
		}
		for what, err := range e.callRest(ctx, e.a) {
			e.errIs(err, want, what+" under a context that is done")
		}
		e.queueIs(name, 0)
		if !e.lacks(Records) {
			if r := e.load(e.b, name); r.Version != 0 {
				e.Errorf("CompareAndSwap under a context that is done wrote %+v", r)
			}
		}
		// A claim that is there is not touched.
		if _, err := e.a.Leave(ctx, ref(h)); err == nil {
			e.Error("Leave under a context that is done: no error")
		}
		if !e.lacks(Break) {
			if _, err := e.a.Break(ctx, h.Name); err == nil {
				e.Error("Break under a context that is done: no error")
			}
		}
		e.queueIs(h.Name, 1, h)
	}
}

func closeEndsCalls(e *env) {
	s := e.open()
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	e.enter(e.a, h, driver.Holding)
	e.enter(s, w, driver.Waiting)
	wait, change := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := e.wait(s, w)
		wait <- err
	}()
	go func() {
		if e.lacks(Records) {
			change <- driver.ErrClosed
			return
		}
		for {
			r, err := s.WaitChange(e.ctx, name, 0)
			if err != nil || r.Version != 0 {
				change <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	time.Sleep(50 * time.Millisecond)
	if err := s.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
	e.errIs(soon(e, wait, "Wait ends when its store is closed"), driver.ErrClosed, "Wait on a store that is closed")
	e.errIs(soon(e, change, "WaitChange ends when its store is closed"), driver.ErrClosed, "WaitChange on a store that is closed")
	e.renew(e.a, h, driver.Holding) // others go on
}

func closed(e *env) {
	s := e.open()
	name := e.name()
	for range 2 {
		if err := s.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
	}
	for what, err := range e.callAllIn(e.ctx, s, name, driver.NewID()) {
		e.errIs(err, driver.ErrClosed, what+" on a closed store")
	}
	for what, err := range e.callRest(e.ctx, s) {
		e.errIs(err, driver.ErrClosed, what+" on a closed store")
	}
	e.queueIs(name, 0)
}

func closedClaims(e *env) {
	s := e.open()
	name := e.name()
	h, w := e.claim(name), e.claim(name)
	first := e.enter(s, h, driver.Holding)
	e.enter(s, w, driver.Waiting)
	if err := s.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	if e.h.Tied {
		e.after(name, first.Token)
		return
	}
	time.Sleep(50 * time.Millisecond)
	e.queueIs(name, 1, h, w)
	e.leave(e.a, h, driver.Holding) // whoever has the reference can
	if !e.lacks(Queue) {
		e.renew(e.b, w, driver.Holding)
	}
}
