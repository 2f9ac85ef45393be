package engine

import (
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Contexts returns how many contexts the grant keeps, to end them with it.
func (g *Grant) Contexts() int {
	g.signals.mu.Lock()
	defer g.signals.mu.Unlock()
	return len(g.signals.contexts)
}

// Renewed has the grant take over the reply to a renewal that comes by now and
// gives it ttl.
func (g *Grant) Renewed(ttl time.Duration) {
	cl := g.tenants[0].claim
	var fx effects
	at := g.engine.begin(cl.line)
	cl.learned(&fx, at, answer{instant{at.now, 0}, driver.Status{State: driver.Holding, Token: cl.held().token, Deadline: at.now.Add(ttl)}, nil})
	g.engine.commit(cl.line, &fx)
}

// Freeze keeps everybody from the lock of the grant, the renewer first of all, until
// thaw is called.
func (g *Grant) Freeze() (thaw func()) {
	g.tenants[0].claim.line.mu.Lock()
	return g.tenants[0].claim.line.mu.Unlock
}
