package redlock

import (
	"maps"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// registry are the claims that a store knows. No other store knows of them: not of those that
// wait, and not by which tries others hold.
type registry struct {
	mu    sync.Mutex
	byID  map[string]*claim
	sweep int // number of claims at which to look for those that have run out
}

const firstSweep = 64

// know returns the claim with the id of c, which is what a new one is made of.
func (g *registry) know(c driver.Claim) *claim {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	cl := g.byID[c.ID]
	if cl != nil && cl.Name == c.Name && !cl.ranOut(now) {
		return cl
	}
	if g.byID == nil {
		g.byID = make(map[string]*claim)
	}
	if len(g.byID) >= g.sweep { // those whose owner neither left nor went on
		maps.DeleteFunc(g.byID, func(_ string, cl *claim) bool { return cl.ranOut(now) })
		g.sweep = max(firstSweep, 2*len(g.byID))
	}
	cl = &claim{Claim: c, turn: make(chan struct{}, 1), until: now.Add(c.TTL)}
	g.byID[c.ID] = cl
	return cl
}

// known returns the claim, or nil.
func (g *registry) known(r driver.Ref) *claim {
	g.mu.Lock()
	defer g.mu.Unlock()
	if cl := g.byID[r.ID]; cl != nil && cl.Name == r.Name && !cl.ranOut(time.Now()) {
		return cl
	}
	return nil
}

func (g *registry) forget(cl *claim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.byID[cl.ID] == cl {
		delete(g.byID, cl.ID)
	}
}

// token is that of the claim, if it holds by the try with that id; else 0.
func (g *registry) token(id string) int64 {
	g.mu.Lock()
	cl := g.byID[owner(id)]
	g.mu.Unlock()
	if cl == nil {
		return 0
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.held == nil || cl.held.claim.ID != id {
		return 0
	}
	return cl.token
}

func (cl *claim) ranOut(now time.Time) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return !cl.until.After(now)
}
