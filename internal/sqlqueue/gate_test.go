package sqlqueue

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
)

// Many names whose rows somebody has locked: once each has shown that, they do not
// use up the connections, whoever comes for them; and a name that is free again is
// like any other.
func TestStuckNames(t *testing.T) {
	const n = 30
	tab, s := newTable(t)
	ctx := await.Context(t)
	var wg sync.WaitGroup
	enter := func() {
		for i := range n {
			wg.Go(func() { s.Enter(ctx, permit(fmt.Sprint("bad", i), driver.NewID(), 1)) })
		}
	}
	tab.before = func(_ context.Context, st, name string) {
		if st == "load" && strings.HasPrefix(name, "bad") {
			time.Sleep(waited + waited/10)
		}
	}
	enter()
	wg.Wait()
	if !s.gate.isStuck(s.entering("bad0").lane) {
		t.Fatal("it does not count as stuck")
	}

	open := make(chan struct{})
	tab.mu.Lock()
	tab.before = func(_ context.Context, _, name string) {
		if strings.HasPrefix(name, "bad") {
			<-open
		}
	}
	tab.mu.Unlock()
	enter()
	most := cap(s.gate.slow)
	await.That(t, "all but a few wait for their turns", func() bool {
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		waiting := 0
		for _, l := range s.gate.lanes {
			waiting += len(l.waiting)
		}
		return waiting == n-most && len(s.gate.all) == most
	})
	enters(t, s, permit("good", "claim-good", 1), driver.Holding)
	close(open)
	wg.Wait()
	await.That(t, "none counts as stuck any more", func() bool {
		for i := range n {
			enters(t, s, permit(fmt.Sprint("bad", i), driver.NewID(), 1), driver.Waiting)
		}
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		return len(s.gate.stuck) == 0
	})
}
