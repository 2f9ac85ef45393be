package sqlqueue

import (
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

var noTime time.Time

// own is a claim that was entered, renewed or waited for through this store.
type own struct {
	name    string
	expires time.Time // by then it has run out, or was renewed
	state   driver.State

	seen, asked int64  // the row's stamp and count when the claim was seen there last
	all         all    // of the queue, if that is what the claim wants or holds
	mark        string // of the owner here
	token       int64  // of the grant, while it holds, as far as is known

	// sole: in the row with that stamp it holds, and nobody else is there.
	sole bool
	ends int64 // Dialect.Leave's expires, if sole
	used int64 // highest token it is known to have used, if sole

	// While it waits.
	grant *driver.Status // once it is known
	// floor: it waited in a row whose last token this was. What tells of a grant
	// with no later one speaks of an earlier claim of that id: one whose entering
	// had an error for a reply, and that ran out before it was entered again.
	floor  int64
	news   chan struct{} // closed on news; nil while nobody waits for any
	rung   bool          // there was news since it was looked for
	pushed bool          // the row has this store's channel for it
	ahead  int
	pace   time.Duration // between two moves, as far as is known

	moved time.Time // when it last moved up, began to wait, or to hold
	next  time.Time // when to look next
}

// registry is the claims of a store, by id.
type registry struct {
	mu      sync.Mutex
	claims  map[string]*own
	waiters map[string]*own          // those with news
	young   map[string]*own          // those that hold since a moment ago, and are not told
	limit   int                      // size at which to look for those that have run out
	paces   map[string]time.Duration // by name
	heldAt  time.Time                // when to look at holding claims next
}

const (
	forgetful = 64
	pacesMost = 1024
)

// get returns the claim, which is there from now on; the lock is held.
func (g *registry) get(id, name string, ttl time.Duration) *own {
	now := time.Now()
	e := g.claims[id]
	if e == nil {
		if g.claims == nil {
			g.claims = make(map[string]*own)
		}
		if len(g.claims) >= max(g.limit, forgetful) {
			for id, e := range g.claims {
				if e.news == nil && e.expires.Before(now) {
					delete(g.claims, id)
					delete(g.young, id)
				}
			}
			g.limit = 2 * len(g.claims)
		}
		e = &own{name: name}
		g.claims[id] = e
	}
	if end := now.Add(ttl + time.Second); end.After(e.expires) {
		e.expires = end
	}
	return e
}

// expect makes room for news of a claim that may be told of before the reply to
// Enter is there. What is known of an earlier one of that id is void.
func (g *registry) expect(id, name string, ttl time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.get(id, name, ttl); e.mark == "" { // else it was adopted here
		e.state, e.grant, e.sole = driver.Gone, nil, false
	}
}

// put notes what the owner with that mark was told about a claim; everything, if
// it wants or holds that, and of one that holds alone, how. pushed tells whether
// the row has this store's channel for it.
func (g *registry) put(id, mark, name string, ttl time.Duration, st *driver.Status, row *Row, a all, sole *soleness, pushed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch st.State {
	case driver.Waiting:
		e := g.get(id, name, ttl)
		e.floor, e.all, e.mark = max(e.floor, row.Last), a, mark
		granted := e.state == driver.Holding && e.token > e.floor // which was told faster
		if !granted {
			g.saw(e, st, row, pushed)
		}
		e.pushed = pushed
	case driver.Holding:
		e := g.get(id, name, ttl)
		g.ring(id, e)
		e.grant, e.seen, e.asked, e.pushed = nil, row.Stamp, row.Asked, pushed
		g.hold(id, e)
		e.all, e.mark, e.token = a, mark, st.Token
		e.alone(sole)
	default:
		if e := g.claims[id]; e != nil && e.mark == mark { // else another owner's, who is here too
			g.drop(id)
		}
	}
}

// saw notes where a waiting claim stands; the lock is held.
func (g *registry) saw(e *own, st *driver.Status, row *Row, pushed bool) {
	now, up := time.Now(), e.ahead-st.Ahead
	switch {
	case e.state != driver.Waiting:
		e.pace, up = g.paces[e.name], 1
	case up > 0:
		pace := now.Sub(e.moved) / time.Duration(up)
		if e.pace > 0 { // who looks too often does less harm than who comes late
			pace = min(pace, (pace+e.pace)/2)
		}
		e.pace = pace
		g.keepPace(e.name, pace)
	}
	e.state, e.ahead, e.seen, e.asked, e.pushed = driver.Waiting, st.Ahead, row.Stamp, row.Asked, pushed
	e.sole, e.grant = false, nil
	if up != 0 {
		e.moved, e.next = now, now.Add(jittered(e.first()))
	}
}

// keepPace keeps how fast a queue moves, for those who come.
func (g *registry) keepPace(name string, pace time.Duration) {
	if len(g.paces) >= pacesMost && g.paces[name] == 0 {
		clear(g.paces)
	}
	if g.paces == nil {
		g.paces = make(map[string]time.Duration)
	}
	g.paces[name] = pace
}

// soleness is what leaving by one statement needs to know.
type soleness struct{ ends, used int64 }

func (e *own) alone(sole *soleness) {
	if e.sole = sole != nil; e.sole {
		e.ends, e.used = sole.ends, sole.used
	}
}

// held returns the claim if it holds for its owner who says that it has used that
// token; the lock is held. Nil if no token like that can have been used: the rules
// decide what it counts for.
func (g *registry) held(r *driver.Ref) *own {
	e := g.claims[r.ID]
	if e == nil || e.state != driver.Holding || e.mark != r.Mark || r.Used > e.token+queue.Spare {
		return nil
	}
	return e
}

// holdsAll returns everything that there is of the name, if the claim holds that.
func (g *registry) holdsAll(r *driver.Ref) all {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.held(r); e != nil {
		return e.all
	}
	return all{}
}

// alone returns the row's stamp if the claim holds alone in it.
func (g *registry) alone(r *driver.Ref) (was int64, how soleness) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.held(r); e != nil && e.sole {
		return e.seen, soleness{e.ends, e.used}
	}
	return 0, how
}

// nudge lets who waits for the claim, or is about to, look for it; the lock is
// held.
func (g *registry) nudge(id string, e *own) {
	e.rung = true
	g.ring(id, e)
}

// doubt lets who waits for the claim look for it: nobody knows what became of it.
func (g *registry) doubt(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.claims[id]; e != nil {
		g.nudge(id, e)
	}
}

// doubtName is doubt for those who wait for a name.
func (g *registry) doubtName(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, e := range g.claims {
		if e.name == name && e.state != driver.Holding {
			g.nudge(id, e)
		}
	}
}

// part parts the claims into those that are known to wait and the others.
func (g *registry) part(rs []driver.Ref, is []int) (others, waiting []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, i := range is {
		if e := g.claims[rs[i].ID]; e != nil && e.state == driver.Waiting {
			waiting = append(waiting, i)
		} else {
			others = append(others, i)
		}
	}
	return others, waiting
}

// stir has those looked for soon who wait for a name, and reports whether there
// are any.
func (g *registry) stir(name string) (some bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.waiters {
		if e.name == name {
			e.next, some = time.Now(), true
		}
	}
	return some
}

// ring wakes who waits for news of the claim; the lock is held.
func (g *registry) ring(id string, e *own) {
	if e.news != nil {
		close(e.news)
		e.news = nil
		delete(g.waiters, id)
	}
}

func (g *registry) drop(id string) {
	if e := g.claims[id]; e != nil {
		g.ring(id, e)
		delete(g.claims, id)
		delete(g.young, id)
	}
}

// forget ends the owner's interest in a claim.
func (g *registry) forget(r *driver.Ref) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.claims[r.ID]; e != nil && e.mark == r.Mark {
		g.drop(r.ID)
	}
}

// broken ends the interest in a claim, and reports whether there was any.
func (g *registry) broken(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.claims[id]
	g.drop(id)
	return ok
}

// granted notes a grant that was told, and reports whether the claim is known to
// have waited.
func (g *registry) granted(id string, st driver.Status) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.claims[id]
	if e == nil || e.state == driver.Holding || st.Token <= e.floor {
		return false
	}
	waited := e.state == driver.Waiting // else put decides whether that is this claim
	e.grant, e.sole, e.token = &st, false, st.Token
	g.hold(id, e)
	g.ring(id, e)
	return waited
}

// wanted notes that others wait for what the claim holds, and reports whether
// it is known.
func (g *registry) wanted(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.claims[id]
	if e != nil {
		e.sole = false
	}
	return e != nil
}

// doubtAll is doubt for all claims that wait or are being entered.
func (g *registry) doubtAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, e := range g.claims {
		if e.state != driver.Holding {
			g.nudge(id, e)
		}
	}
}

// take returns the grant of a claim, once, if it was told; else, of one that
// waits and needs not be looked for, a channel that is closed on news.
func (g *registry) take(id string) (*driver.Status, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.claims[id]
	switch {
	case e == nil:
		return nil, nil
	case e.grant != nil:
		st := e.grant
		e.grant = nil
		return st, nil
	case e.state != driver.Waiting, e.rung:
		e.rung = false
		return nil, nil
	}
	if e.news == nil {
		e.news = make(chan struct{})
		if g.waiters == nil {
			g.waiters = make(map[string]*own)
		}
		g.waiters[id] = e
	}
	return nil, e.news
}

// taken returns the grant of a claim, once, if it was told; if not, it is looked
// for.
func (g *registry) taken(id string) *driver.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.claims[id]
	if e == nil {
		return nil
	}
	st := e.grant
	e.grant, e.rung = nil, false
	return st
}
