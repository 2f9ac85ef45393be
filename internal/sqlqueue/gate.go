package sqlqueue

import (
	"database/sql"
	"errors"
	"sync"
	"time"
)

const (
	connections = 16 // assumed where the database has no limit of them
	// waited is how long a statement takes that is taken to have waited for a row.
	waited = 500 * time.Millisecond
)

// gate bounds how many calls are at the database at once. A statement that waits
// for a row that somebody has locked keeps its connection for seconds, and is sent
// again: without bounds one such row would use up all connections.
//
// Invariant: what renews many claims that hold waits for no row and passes no gate,
// and all that does wait leaves connections free for it.
type gate struct {
	all     chan struct{} // but renewals of claims that hold
	slow    chan struct{} // of these, those whose lane has waited for a row before
	renewal chan struct{} // of single claims that hold

	mu    sync.Mutex
	lanes map[string]*lane
	stuck map[string]time.Time // lanes whose last call has waited for a row, and when
}

// lane is where calls for one name queue: one of them is at the database at a time.
// It is there while somebody uses it.
type lane struct {
	turn    chan struct{}
	users   int
	waiting []*request // those that may go together with others
}

func (g *gate) init(db *sql.DB) {
	n := db.Stats().MaxOpenConnections
	if n <= 0 {
		n = connections
	}
	g.all = make(chan struct{}, max(1, n*5/8))
	g.slow = make(chan struct{}, max(1, n/4))
	g.renewal = make(chan struct{}, max(1, n*3/16))
	g.lanes = make(map[string]*lane)
	g.stuck = make(map[string]time.Time)
}

const (
	stuckFor  = 30 * time.Second // a lane is taken to be so
	stuckMost = 1024
)

// isStuck reports whether the lane's last call has waited for a row: the next one
// will probably, too.
func (g *gate) isStuck(lane string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, ok := g.stuck[lane]
	return ok && time.Since(at) < stuckFor
}

// took notes how long a call of the lane was at the database.
func (g *gate) took(lane string, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d <= waited || lane == "" {
		delete(g.stuck, lane)
		return
	}
	if len(g.stuck) >= stuckMost {
		clear(g.stuck)
	}
	g.stuck[lane] = time.Now()
}

// route is by which way a call comes to the database.
type route struct {
	lane    string        // "" for whatever names
	way     chan struct{} // gate.all or gate.renewal; nil: at once
	request *request      // that ends the waiting when it is served; or nil
}

// Calls for one name queue behind each other, but who leaves does not stand behind
// those who come, and who holds not behind those who wait. Records are other rows.
func (s *store) entering(name string) route { return route{lane: "e" + name, way: s.gate.all} }
func (s *store) leaving(name string) route  { return route{lane: "l" + name, way: s.gate.all} }
func (s *store) writing(name string) route  { return route{lane: "r" + name, way: s.gate.all} }
func (s *store) holding(name string) route  { return route{lane: "h" + name, way: s.gate.renewal} }
func (s *store) waiting(name string) route  { return route{lane: "w" + name, way: s.gate.all} }
func (s *store) reading() route             { return route{way: s.gate.all} }

// errServed is the error of a call that others have carried out meanwhile.
var errServed = errors.New("served")

// admit waits until the call may be at the database, and returns what ends that.
//
// Invariant: who is admitted waits for the database alone, and nobody waits for a
// lane or a slow slot who has a slot of the way.
func (w *work) admit(p route) (leave func(), err error) {
	g := &w.s.gate
	var taken []func()
	leave = func() {
		for _, f := range taken {
			f()
		}
	}
	var served chan struct{}
	if p.request != nil {
		served = p.request.served
	}
	take := func(slots chan struct{}) error {
		select {
		case slots <- struct{}{}:
			taken = append(taken, func() { <-slots })
			return nil
		case <-served:
			return errServed
		case <-w.caller.Done():
		case <-w.s.ctx.Done():
		}
		return w.alive()
	}
	if p.lane != "" {
		l := g.use(p.lane)
		taken = append(taken, func() { g.unuse(p.lane, l) })
		err = take(l.turn)
	}
	if err == nil && p.way == g.all && g.isStuck(p.lane) {
		err = take(g.slow)
	}
	if err == nil && p.way != nil {
		err = take(p.way)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

func (g *gate) use(name string) *lane {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lanes[name]
	if l == nil {
		l = &lane{turn: make(chan struct{}, 1)}
		g.lanes[name] = l
	}
	l.users++
	return l
}

func (g *gate) unuse(name string, l *lane) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(g.lanes, name)
	}
}
