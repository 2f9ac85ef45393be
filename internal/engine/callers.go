package engine

import (
	"context"
	"time"
)

// caller is a goroutine in Acquire.
type caller struct {
	terms *Terms
	ctx   context.Context // for the observer
	since time.Time       // it is in the line
	try   bool            // gives up as soon as it would have to wait
	inSet bool            // one of an EnterAll: gives up with the first error, too; its call tells observers
	waits bool            // it stands in the line: it is not served yet
	ready chan struct{}   // of one who waits: closed when it is served

	// The store, as this one sees it.
	failures   int       // in a row
	consulting bool      // its Backoff is being asked
	retry      time.Time // when that wants the next attempt; zero: at once

	tenant *tenant
	err    error

	prev, next *caller // in the line
}

// callers are those who wait in a line, first come first.
type callers struct {
	first, last *caller
	n           int
}

func (cs *callers) push(c *caller) {
	c.waits, c.prev = true, cs.last
	if cs.last == nil {
		cs.first = c
	} else {
		cs.last.next = c
	}
	cs.last = c
	cs.n++
}

func (cs *callers) remove(c *caller) {
	if c.prev == nil {
		cs.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		cs.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.waits, c.prev, c.next = false, nil, nil
	cs.n--
}

// all returns a copy, for who removes some of them on the way.
func (cs *callers) all() []*caller {
	all := make([]*caller, 0, cs.n)
	for c := cs.first; c != nil; c = c.next {
		all = append(all, c)
	}
	return all
}
