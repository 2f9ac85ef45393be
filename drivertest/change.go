package drivertest

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var changeTests = []test{
	{name: "AtOnce", run: changeAtOnce, needs: []Feature{Records}},
	{name: "Wakes", run: changeWakes, needs: []Feature{Records}},
	{name: "Blocks", run: changeBlocks, needs: []Feature{Records}},
	{name: "NoLostWakeUp", run: changeNoLostWakeUp, needs: []Feature{Records}},
	{name: "Expiry", run: changeExpiry, needs: []Feature{Records, RecordTTL}},
	{name: "ContextEnds", run: changeContextEnds, needs: []Feature{Records}},
}

type loaded struct {
	r   driver.Record
	err error
}

// change calls WaitChange until the version is another than version.
func (e *env) change(ctx context.Context, s driver.Store, name string, version int64) <-chan loaded {
	ch := make(chan loaded, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		for {
			r, err := s.WaitChange(ctx, name, version)
			if err != nil || r.Version != version {
				ch <- loaded{r, err}
				return
			}
			time.Sleep(time.Millisecond) // it may return early
		}
	}()
	return ch
}

// changed fails the test unless the change is seen soon, and is want.
func (e *env) changed(ch <-chan loaded, want driver.Record, what string) {
	e.Helper()
	got := soon(e, ch, what)
	if got.err != nil {
		e.Fatalf("WaitChange, %s: %v", what, got.err)
	}
	e.same(got.r, want)
}

func changeAtOnce(e *env) {
	name := e.name()
	e.changed(e.change(e.ctx, e.a, name, 5), driver.Record{Name: name}, "there is no record, version 5 is known")
	r := e.swap(e.a, driver.Record{Name: name, Value: []byte("x")})
	e.changed(e.change(e.ctx, e.b, name, 0), r, "there is a record, none is known")
	e.changed(e.change(e.ctx, e.b, name, r.Version+1), r, "another version is known")
}

func changeWakes(e *env) {
	for _, s := range []driver.Store{e.a, e.b} {
		name := e.name()
		none := driver.Record{Name: name}

		ch := e.change(e.ctx, e.a, name, 0)
		time.Sleep(20 * time.Millisecond) // so that it really waits
		r := e.swap(s, driver.Record{Name: name, Value: []byte("one")})
		e.changed(ch, r, "the record is created")

		ch = e.change(e.ctx, e.a, name, r.Version)
		time.Sleep(20 * time.Millisecond)
		r.Value = []byte("two")
		r = e.swap(s, r)
		e.changed(ch, r, "the record is changed")

		ch = e.change(e.ctx, e.a, name, r.Version)
		time.Sleep(20 * time.Millisecond)
		r.Value = nil
		e.swap(s, r)
		e.changed(ch, none, "the record is deleted")
	}
}

func changeBlocks(e *env) {
	r := e.swap(e.a, driver.Record{Name: e.name(), Value: []byte("x")})
	for _, known := range []driver.Record{r, {Name: e.name()}} {
		e.blocks("WaitChange", func(ctx context.Context) error {
			_, err := e.b.WaitChange(ctx, known.Name, known.Version)
			return err
		})
	}
}

func changeNoLostWakeUp(e *env) {
	name := e.name()
	r := driver.Record{Name: name, Value: []byte("x")}
	for i := range 30 {
		one, two := e.change(e.ctx, e.a, name, r.Version), e.change(e.ctx, e.b, name, r.Version)
		time.Sleep(time.Duration(i) * 50 * time.Microsecond)
		r = e.swap(e.a, r)
		e.changed(one, r, "the record is changed")
		e.changed(two, r, "the record is changed")
	}
}

func changeExpiry(e *env) {
	name := e.name()
	e.begin()
	r := e.swap(e.a, driver.Record{Name: name, Value: []byte("x"), TTL: e.short})
	e.inTime()
	if e.backing.Advance != nil {
		e.expire() // first, for who waits by timers does not notice
	}
	ch := e.change(e.ctx, e.b, name, r.Version)
	e.changed(ch, driver.Record{Name: name}, "the record runs out")
}

func changeContextEnds(e *env) {
	name := e.name()
	ctx, cancel := context.WithCancel(e.ctx)
	ch := e.change(ctx, e.a, name, 0)
	time.Sleep(50 * time.Millisecond)
	cancel()
	got := soon(e, ch, "WaitChange ends with its context")
	e.errIs(got.err, context.Canceled, "WaitChange under a cancelled context")
}
