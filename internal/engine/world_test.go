package engine

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// world is several clients, the network, and a store, in a time of its own. It has one
// goroutine: what would be goroutines of the engine are coroutines, of which one runs at
// a time until it waits, and the random source says which is next. So a seed is a
// history.
//
// Lines, claims and tenants are the engine's own. What carries their effects out is
// written anew here, as engine.go, attempt.go, renewer.go, retire.go, grant.go and
// resize.go do it, with the world's time and messages in the place of contexts, timers
// and driver.Store.
type world struct {
	rnd     *rand.Rand
	ttl     time.Duration // most claims'
	now     int64         // in ns; the store's clock is this
	agenda  agenda
	seq     int
	clients []*client
	names   map[string]*name
	waits   []*storeWait
	calm    bool // nothing goes wrong any longer
	calmAt  int64
	away    int64 // until then the store replies to nobody
	handles []handedOver
	bad     float64 // how often messages go wrong
	coarse  bool    // the store's dates of Recheck are too early
	hasty   bool    // leases are short, and handed over

	lastSent map[owned]sending
	forgive  map[owned]bool // claims that a client cannot see to the end
	live     []*granting
	dead     []*granting
	ids      map[string]string // short ones, for the log
	stat     map[string]int
	verbose  bool
	log      []string
	failure  string
}

// sending is when a request was sent that may enter a claim or make it last for ttl.
type sending struct {
	at  int64
	ttl time.Duration
	by  *client
}

// owned is a claim by id and the mark of its owner.
type owned struct{ id, mark string }

// name is the store's queue, and what happened to it.
type name struct {
	name    string
	q       queue.Queue
	excused map[owned]bool // taken away from an owner who may not know yet
	grants  []*drawn
	kept    []*granting // with a MinHold
	former  queue.Queue // as it was at some time
	most    int64       // the highest limit it had
}

// drawn is a grant by the store.
type drawn struct {
	id           string
	token, units int64
	at           int64
	used         int64 // the highest token that a client gave to a caller
	forgotten    bool  // by the store
}

type handedOver struct {
	key    Key
	handle Handle
}

type storeWait struct {
	id   string
	ring func()
}

var errNetwork = errors.New("connection reset")

// A happening is something that happens to a client, or to the store.
type happening struct {
	at     int64
	seq    int
	client *client
	f      func()
}

type agenda []*happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(*happening)) }
func (a *agenda) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

func (w *world) logf(format string, args ...any) {
	if w.verbose {
		w.log = append(w.log, fmt.Sprintf("%10.3fms ", float64(w.now)/1e6)+fmt.Sprintf(format, args...))
	}
}

func (w *world) failf(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf("%.3fms: ", float64(w.now)/1e6) + fmt.Sprintf(format, args...)
		w.logf("FAIL %s", w.failure)
	}
}

func (w *world) short(id string) string {
	if w.ids[id] == "" {
		w.ids[id] = fmt.Sprintf("c%d", len(w.ids)+1)
	}
	return w.ids[id]
}

func (w *world) at(when int64, c *client, f func()) {
	w.seq++
	heap.Push(&w.agenda, &happening{max(when, w.now), w.seq, c, f})
}

// chance is true with that probability.
func (w *world) chance(p float64) bool { return w.rnd.Float64() < p }

// span is a random duration below d.
func (w *world) span(d time.Duration) time.Duration { return time.Duration(w.rnd.Int64N(int64(d) + 1)) }

// run plays until then, or until there is a failure or nothing to do.
func (w *world) run(until int64) {
	for len(w.agenda) > 0 && w.failure == "" && w.agenda[0].at <= until {
		x := heap.Pop(&w.agenda).(*happening)
		w.now = max(w.now, x.at)
		if c := x.client; c != nil {
			if c.crashed {
				continue
			}
			if c.wakes > w.now {
				x.at = c.wakes + w.rnd.Int64N(1e6)
				heap.Push(&w.agenda, x)
				continue
			}
			c.now()
			x.f()
			c.poll()
		} else {
			x.f()
		}
		w.check()
	}
	if w.failure == "" {
		w.now = max(w.now, until)
	}
}

// client is one engine's pure part, with a clock, and what carries out effects.
type client struct {
	*world
	id    int
	e     *Engine
	procs []*proc

	rate     float64 // of its clock, by the store's
	clock    time.Time
	clockAt  int64
	asleep   time.Duration // the sleep of its machine
	known    time.Duration // as measured last
	measured time.Time
	wakes    int64 // it is paused, or its machine sleeps, until then
	sleeps   bool  // its clock stands still until wakes
	crashed  bool
	closing  bool
	users    int
	closed   bool
	dates    []*claim
	callers  []*caller // that were not seen served yet
	telling  map[*sync.WaitGroup]int
	leaving  []*departure // being told to the store
	adopting map[owned]bool
	handed   map[owned]int64 // with the token
	renewals map[string][]int64
	guarded  map[owned]bool
}

func (w *world) newClient() *client {
	c := &client{
		world: w, id: len(w.clients) + 1, e: New(nil, driver.Owner{}), rate: 1,
		clock: time.Unix(1e6, 0), clockAt: w.now, telling: make(map[*sync.WaitGroup]int),
		adopting: make(map[owned]bool), handed: make(map[owned]int64), renewals: make(map[string][]int64), guarded: make(map[owned]bool),
	}
	switch w.rnd.IntN(4) {
	case 0:
		c.rate = 0.99
	case 1:
		c.rate = 1.01
	case 2:
		c.rate = 0.99 + 0.02*w.rnd.Float64()
	}
	w.clients = append(w.clients, c)
	c.goes(c.renew)
	return c
}

// now is the client's monotonic clock.
func (c *client) now() time.Time {
	if c.sleeps {
		if c.world.now < c.wakes {
			return c.clock
		}
		c.sleeps, c.clockAt = false, c.wakes
	}
	c.clock = c.clock.Add(time.Duration(float64(c.world.now-c.clockAt) * c.rate))
	c.clockAt = c.world.now
	return c.clock
}

// instant is now, with the machine's sleep as it was measured up to some milliseconds
// before that.
func (c *client) instant() instant {
	now := c.now()
	if now.Sub(c.measured) >= remeasure {
		c.known, c.measured = c.asleep, now
	}
	return instant{now, c.known}
}

// exact is now, with the machine's sleep as it is.
func (c *client) exact() instant { return instant{c.now(), c.asleep} }

// pause stops the client for d; asleep: with its machine.
func (c *client) pause(d time.Duration, asleep bool) {
	now := c.now()
	if c.wakes > c.world.now {
		return
	}
	c.logf("client %d pauses for %v, its machine sleeps: %v", c.id, d, asleep)
	c.wakes = c.world.now + int64(d)
	if asleep {
		c.sleeps, c.clock = true, now
		c.asleep += time.Duration(float64(d) * c.rate)
	}
}

// proc is a coroutine.
type proc struct {
	*client
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	cond  func() bool // that it waits for
	woken bool        // it was seen to be true
	turn  int         // of its waits
	done  bool
}

type stopped struct{}

func (c *client) goes(f func(p *proc)) *proc {
	p := &proc{client: c}
	p.next, p.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (any)(stopped{}) {
				panic(r)
			}
		}()
		p.yield = yield
		f(p)
	})
	c.procs = append(c.procs, p)
	turn := p.turn
	c.at(c.world.now+c.lag(), c, func() { p.resume(turn) })
	return p
}

// lag is how long a goroutine takes to run.
func (w *world) lag() int64 {
	switch n := w.rnd.IntN(40); {
	case n < 10:
		return w.rnd.Int64N(500)
	case w.calm, n < 30:
		return w.rnd.Int64N(20e3)
	case n < 39:
		return w.rnd.Int64N(1e6)
	}
	return w.rnd.Int64N(30e6)
}

func (p *proc) resume(turn int) {
	if p.done || p.turn != turn {
		return
	}
	p.turn++
	p.cond, p.woken = nil, false
	if _, ok := p.next(); !ok {
		p.done = true
		p.procs = slices.DeleteFunc(p.procs, func(o *proc) bool { return o == p })
	}
}

// poll lets those go on whose conditions are true by now.
func (c *client) poll() {
	for _, p := range c.procs {
		if p.cond != nil && !p.woken && p.cond() {
			p.woken = true
			turn := p.turn
			c.at(c.world.now+c.lag(), c, func() { p.resume(turn) })
		}
	}
}

// wait waits until cond is true, or until then by the client's clock; zero: for ever.
func (p *proc) wait(until time.Time, cond func() bool) bool {
	for {
		if cond != nil && cond() {
			return true
		}
		if !until.IsZero() && !p.now().Before(until) {
			return false
		}
		p.cond = cond
		if !until.IsZero() {
			p.alarm(until, p.turn)
		}
		if !p.yield(struct{}{}) {
			panic(stopped{})
		}
	}
}

func (p *proc) alarm(until time.Time, turn int) {
	d := float64(until.Sub(p.now())) / p.rate
	p.at(p.world.now+int64(d)+1+p.lag()/4, p.client, func() {
		switch {
		case p.done || p.turn != turn:
		case p.now().Before(until): // it slept
			p.alarm(until, turn)
		default:
			p.resume(turn)
		}
	})
}

func (p *proc) sleep(d time.Duration) { p.wait(p.now().Add(d), nil) }

// breathe lets others go first, now and then.
func (p *proc) breathe() {
	if p.chance(0.2) && !p.calm {
		p.sleep(time.Duration(p.lag()))
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// delay is how long a message is under way, late at the most.
func (w *world) delay(late time.Duration) int64 {
	switch n := w.rnd.Float64(); {
	case w.calm || n > 0.2*w.bad:
		return 50e3 + w.rnd.Int64N(1e6)
	case n > 0.06*w.bad:
		return 50e3 + w.rnd.Int64N(min(30e6, int64(late)))
	}
	return 50e3 + w.rnd.Int64N(int64(late)*6/10)
}

// call is a request that the store carries out with do when it arrives, twice if it is
// doubled. It returns the first reply that comes within most, unless it is given up
// before. late is how long a message may be under way.
func call[R any](p *proc, most, late time.Duration, given func() bool, do func() (R, error)) (r R, err error) {
	w := p.world
	var replied bool
	reply := func(got R, e error) {
		d := w.delay(late)
		if !w.calm && w.chance(0.04*w.bad) {
			return
		}
		w.at(w.now+d, p.client, func() {
			if !replied {
				replied, r, err = true, got, e
			}
		})
	}
	arrive := func() {
		if w.now < w.away {
			if w.chance(0.5) {
				var none R
				reply(none, errNetwork)
			}
			return
		}
		got, e := do()
		if !w.calm && w.chance(0.03*w.bad) {
			e = errNetwork // it was carried out, which the client does not learn
		}
		reply(got, e)
	}
	switch n := w.rnd.Float64(); {
	case w.calm || n > 0.13*w.bad:
		w.at(w.now+w.delay(late), nil, arrive)
	case n > 0.08*w.bad: // doubled
		w.at(w.now+w.delay(late), nil, arrive)
		w.at(w.now+w.delay(late), nil, arrive)
	case n > 0.04*w.bad: // lost
	case n > 0.037*w.bad:
		w.at(w.now+w.delay(late), nil, func() { var none R; reply(none, driver.Permanent(errors.New("no permission"))) })
	default:
		w.at(w.now+w.delay(late), nil, func() { var none R; reply(none, errNetwork) })
	}
	ok := p.wait(p.now().Add(most), func() bool { return replied || given != nil && given() })
	if replied {
		return r, err
	}
	replied = true // what comes now is for nobody
	var none R
	if ok {
		return none, context.Canceled
	}
	return none, context.DeadlineExceeded
}

// store runs one operation on a queue, and tells whom it concerns.
func (w *world) store(on string, f func(n *name, o *queue.Op)) {
	n := w.names[on]
	o := &queue.Op{Now: w.now / 1000}
	o.Drawn = func(c *queue.Claim) {
		n.draws(w, c)
		w.logf("    store %s: grants %s token %d units %d", on, w.short(c.ID), c.Token, c.Units)
	}
	f(n, o)
	n.most = max(n.most, n.q.Limit)
	for _, s := range o.Signals {
		id := s.Claim.ID
		switch s.Kind {
		case queue.Granted:
			w.ring(id)
			if c := n.q.Find(id); c != nil && c.Holding() && w.chance(0.3) {
				st := n.q.Status(id, driver.Holding, o.Now, time.Time{}, 0)
				w.notice(driver.Notice{Kind: driver.Granted, ID: id, Status: st})
			}
		case queue.Wanted:
			w.notice(driver.Notice{Kind: driver.Wanted, ID: id})
		default:
			w.notice(driver.Notice{Kind: driver.Check, ID: id})
		}
	}
}

// ring wakes those who wait for news of the claim.
func (w *world) ring(id string) {
	for _, s := range slices.Clone(w.waits) {
		if s.id == id {
			s.ring()
		}
	}
}

// notice tells all clients; those of others do not know the id.
func (w *world) notice(n driver.Notice) {
	for _, c := range w.clients {
		if c.closed || c.crashed || !w.calm && w.chance(0.1*w.bad) {
			continue
		}
		for ok := true; ok; ok = !w.calm && w.chance(0.05*w.bad) {
			w.at(w.now+w.delay(w.ttl), c, func() { c.goes(func(p *proc) { p.noticed(n) }) })
		}
	}
}

func (p *proc) noticed(n driver.Notice) {
	if n.ID == "" {
		p.hurryAll()
		return
	}
	if cl := p.e.claimOf(n.ID); cl != nil {
		p.breathe()
		p.logf("client %d: notice %d for %s", p.id, n.Kind, p.short(n.ID))
		p.event(func(fx *effects, at instant) { cl.noticed(fx, at, &n) })
	}
}

// The store's operations, as memstore has them.

func (p *proc) storeEnter(a driver.Claim, sent time.Time) (st driver.Status, err error) {
	p.store(a.Name, func(n *name, o *queue.Op) {
		state, e := o.Enter(&n.q, &a)
		if p.chance(0.2) {
			n.former = n.q
			n.former.Claims = slices.Clone(n.q.Claims)
		}
		st, err = n.q.Status(a.ID, state, o.Now, sent, a.TTL), queue.NameLimit(e, a.Name)
		if p.coarse && !st.Recheck.IsZero() {
			st.Recheck = sent
		}
		p.logf("    store %s: enter %s of client %d try=%v: %v ahead %d %v", a.Name, p.short(a.ID), p.id, a.Try, st.State, st.Ahead, err)
	})
	return st, err
}

func (p *proc) storeRenew(r driver.Ref, sent time.Time) (st driver.Status, err error) {
	p.store(r.Name, func(n *name, o *queue.Op) {
		st = n.q.Status(r.ID, o.Renew(&n.q, r), o.Now, sent, r.TTL)
		if p.coarse && !st.Recheck.IsZero() {
			st.Recheck = sent
		}
		p.logf("    store %s: renew %s of client %d for %v: %v", r.Name, p.short(r.ID), p.id, r.TTL, st.State)
	})
	return st, nil
}

func (p *proc) storeLeave(r driver.Ref) (was driver.State, err error) {
	p.store(r.Name, func(n *name, o *queue.Op) {
		if s := n.q.Find(r.ID); s != nil && s.Mark == r.Mark && s.Expires > o.Now && p.isHanded(s) {
			p.failf("client %d: %s leaves, which was handed over", p.id, p.short(r.ID))
		}
		was = o.Leave(&n.q, r)
		for _, g := range n.kept {
			if was == driver.Holding && g.me == (owned{r.ID, r.Mark}) && p.world.now+int64(r.Linger) < g.minHold {
				p.failf("client %d: %s leaves before its MinHold has passed", p.id, p.short(r.ID))
			}
		}
		p.logf("    store %s: leave %s of client %d used %d linger %v: %v", r.Name, p.short(r.ID), p.id, r.Used, r.Linger, was)
	})
	p.ring(r.ID)
	return was, nil
}

func (p *proc) storeResize(r driver.Ref, units int64) (st driver.Status, err error) {
	p.store(r.Name, func(n *name, o *queue.Op) {
		if s := n.q.Find(r.ID); s != nil && s.Mark == r.Mark && s.Expires > o.Now && p.isHanded(s) {
			defer func(token int64) {
				if s.Token != token {
					p.failf("client %d: %s grows, which was handed over", p.id, p.short(r.ID))
				}
			}(s.Token)
		}
		st = n.q.Status(r.ID, o.Resize(&n.q, r, units), o.Now, time.Time{}, 0)
		p.logf("    store %s: resize %s of client %d to %d: %v token %d", r.Name, p.short(r.ID), p.id, units, st.State, st.Token)
	})
	return st, nil
}

func (p *proc) storeAdopt(a driver.Adoption, sent time.Time) (st driver.Status, err error) {
	p.store(a.Name, func(n *name, o *queue.Op) {
		var old owned
		if c := n.q.Find(a.ID); c != nil {
			old = owned{c.ID, c.Mark}
		}
		state, e := o.Adopt(&n.q, &a)
		if state == driver.Holding && old.mark != a.Mark {
			n.excused[old] = true
			if p.forgive[old] { // brought back by an older state, when nobody wanted it any more
				p.forgive[owned{a.ID, a.Mark}] = true
			}
		}
		st, err = n.q.AdoptStatus(&a, state, o.Now, sent), queue.NameLimit(e, a.Name)
		p.logf("    store %s: adopt %s by client %d: %v token %d %v", a.Name, p.short(a.ID), p.id, st.State, st.Token, err)
	})
	p.ring(a.ID)
	return st, err
}

// storeWait is Wait, which replies when there is news, or for no reason.
func (p *proc) storeWait(r driver.Ref, given func() bool) (st driver.Status, err error) {
	w, replied := p.world, false
	reply := func(got driver.Status, e error) {
		if w.calm || !w.chance(0.05*w.bad) {
			w.at(w.now+w.delay(w.ttl), p.client, func() {
				if !replied {
					replied, st, err = true, got, e
				}
			})
		}
	}
	look := func() (got driver.Status) {
		w.store(r.Name, func(n *name, o *queue.Op) {
			o.Look(&n.q)
			got = n.q.Status(r.ID, n.q.State(r), o.Now, time.Time{}, 0)
		})
		return got
	}
	s := &storeWait{id: r.ID}
	s.ring = func() {
		w.waits = slices.DeleteFunc(w.waits, func(o *storeWait) bool { return o == s })
		reply(look(), nil)
	}
	w.at(w.now+w.delay(w.ttl), nil, func() {
		switch {
		case w.now < w.away:
			reply(driver.Status{}, errNetwork)
			return
		case !w.calm && w.chance(0.02*w.bad):
			reply(driver.Status{}, driver.Permanent(errors.New("no permission")))
			return
		}
		if got := look(); got.State != driver.Waiting {
			reply(got, nil)
			return
		}
		w.waits = append(w.waits, s)
		if w.chance(0.1) {
			w.at(w.now+int64(w.span(w.ttl)), nil, s.ring)
		}
	})
	p.wait(time.Time{}, func() bool { return replied || given() })
	w.waits = slices.DeleteFunc(w.waits, func(o *storeWait) bool { return o == s })
	if !replied {
		replied = true
		return driver.Status{}, context.Canceled
	}
	return st, err
}

// isHanded reports whether the claim was handed over, and nobody has adopted it.
func (w *world) isHanded(s *queue.Claim) bool {
	for _, c := range w.clients {
		if token, ok := c.handed[owned{s.ID, s.Mark}]; ok && token == s.Token {
			return !w.forgive[owned{s.ID, s.Mark}]
		}
	}
	return false
}
