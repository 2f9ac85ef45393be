package torture

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

const (
	callTick = 100 * time.Millisecond
	// callTimeout is far above what any call promises, so that a busy machine does
	// not reach it.
	callTimeout = 45 * time.Second
)

// calls watches over calls that must come to an end. It counts ticks, not time: those
// while the process is paused are none of a call's.
type calls struct {
	hung chan error // gets one that did not
	quit chan struct{}
	over sync.WaitGroup

	mu   sync.Mutex
	open map[*call]struct{}
}

type call struct {
	what  string
	ctx   context.Context // it must end once this did; nil: soon
	ticks int
}

func watchCalls() *calls {
	c := &calls{hung: make(chan error, 1), quit: make(chan struct{}), open: make(map[*call]struct{})}
	c.over.Go(c.watch)
	return c
}

func (c *calls) stop() {
	close(c.quit)
	c.over.Wait()
}

// begin notes that a call begins; the function it returns, that it has ended.
func (c *calls) begin(what string, ctx context.Context) (end func()) {
	one := &call{what: what, ctx: ctx}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[one] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, one)
	}
}

func (c *calls) watch() {
	tick := time.NewTicker(callTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.look()
		case <-c.quit:
			return
		}
	}
}

func (c *calls) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		if one.ctx != nil && one.ctx.Err() == nil {
			continue
		}
		if one.ticks++; one.ticks < int(callTimeout/callTick) {
			continue
		}
		stacks := make([]byte, 64<<10)
		stacks = stacks[:runtime.Stack(stacks, true)]
		select {
		case c.hung <- fmt.Errorf("%s has not returned for %v; goroutines:\n%s", one.what, callTimeout, stacks):
		default:
		}
	}
}
