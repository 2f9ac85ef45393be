package engine

import (
	"fmt"
	"slices"
	"sync"

	"github.com/pawl-go/pawl/driver"
)

// registry is the lines and claims there are.
type registry struct {
	mu         sync.Mutex
	lines      map[Key]*line
	rivals     map[string][]*line      // of the RWMutex of that name
	claims     map[string]*claim       // by id: what a notice may be about
	departures map[*departure]struct{} // that the store has not replied to
	closed     bool
	drained    chan struct{} // closed when closed, and lines and departures are empty
}

// join returns the line of the key and counts the caller in; leaveLine counts out.
func (e *Engine) join(k Key) (*line, error) {
	r := &e.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("lock %q: %w", k.Name, driver.ErrClosed)
	}
	l := r.lines[k]
	if l == nil {
		l = &line{key: k, owner: e.owner}
		l.owner.Label = k.Label
		r.lines[k] = l
		if k.Kind == driver.KindRW {
			r.rivals[k.Name] = append(r.rivals[k.Name], l)
		}
	}
	l.users++
	return l, nil
}

func (r *registry) leaveLine(l *line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	delete(r.lines, l.key)
	if name := l.key.Name; l.key.Kind == driver.KindRW {
		r.rivals[name] = slices.DeleteFunc(r.rivals[name], func(o *line) bool { return o == l })
		if len(r.rivals[name]) == 0 {
			delete(r.rivals, name)
		}
	}
	r.checkDrained()
}

func (r *registry) checkDrained() {
	if r.closed && len(r.lines) == 0 && len(r.departures) == 0 {
		select {
		case <-r.drained:
		default:
			close(r.drained)
		}
	}
}

// closeLines closes the registry to new callers, and returns its lines.
func (r *registry) closeLines() []*line {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	lines := make([]*line, 0, len(r.lines))
	for _, l := range r.lines {
		lines = append(lines, l)
	}
	r.checkDrained()
	return lines
}

// Closed reports whether Close was called.
func (e *Engine) Closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// departing notes that a claim is to leave, for Close to wait for.
func (r *registry) departing(d *departure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.departures[d] = struct{}{}
}

// departed notes that the claim has left, or Leave was given up.
func (r *registry) departed(d *departure) {
	if d.heard != nil {
		close(d.heard)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.departures, d)
	r.checkDrained()
}

// register makes notices about the id reach the claim, and returns the one that they
// reached before.
func (r *registry) register(id string, cl *claim) (former *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	former = r.claims[id]
	r.claims[id] = cl
	return former
}

func (r *registry) unregister(id string, cl *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims[id] == cl { // it may have been adopted since
		delete(r.claims, id)
	}
}

func (r *registry) claimOf(id string) *claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claims[id]
}

func (r *registry) allClaims() []*claim {
	r.mu.Lock()
	defer r.mu.Unlock()
	claims := make([]*claim, 0, len(r.claims))
	for _, cl := range r.claims {
		claims = append(claims, cl)
	}
	return claims
}

// rivalsOf returns the other lines of an RWMutex.
func (r *registry) rivalsOf(l *line) []*line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.rivals[l.key.Name]), func(o *line) bool { return o == l })
}
