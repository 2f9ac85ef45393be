package engine

import (
	"context"
	"sync"
)

// observers are the events that observers have not been told yet. A goroutine of the
// engine's tells them one event at a time, in order.
type observers struct {
	spawn func(func()) bool

	mu      sync.Mutex
	events  []func()
	telling bool // the goroutine runs
}

// tell has an observer told. It may be called with a line's mutex held.
func (o *observers) tell(e *event) {
	if e.Context == nil {
		e.Context = context.Background()
	}
	o.run(func() { e.observe(e.Event) })
}

func (o *observers) run(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, f)
	if !o.telling {
		o.telling = o.spawn(o.runAll)
	}
}

func (o *observers) runAll() {
	for {
		o.mu.Lock()
		events := o.events
		o.events = nil
		o.telling = len(events) > 0
		o.mu.Unlock()
		if len(events) == 0 {
			return
		}
		for _, f := range events {
			f()
		}
	}
}
