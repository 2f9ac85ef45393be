package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/internal/retry"
)

// granting is a grant to a caller, as the world saw it.
type granting struct {
	t       *tenant
	c       *client
	n       *name
	me      owned
	maxHold time.Time // zero: none
	minHold int64     // in the store's time, a little less for its clock; 0: none
	over    bool      // it was seen to be
}

// sawServed looks for callers that were served by the event at that time.
func (c *client) sawServed(at instant) {
	for _, o := range slices.Clone(c.callers) {
		if o.waits {
			continue
		}
		c.callers = slices.DeleteFunc(c.callers, func(x *caller) bool { return x == o })
		c.stat["served"]++
		if o.tenant != nil {
			c.granted(o.tenant, at)
		}
	}
}

// granted checks a new grant.
func (c *client) granted(t *tenant, at instant) {
	cl := t.claim
	n := c.names[cl.line.key.Name]
	me, token := owned{cl.id, cl.mark}, t.token.Load()
	c.logf("client %d: grant of %s on %s, token %d, until %v", c.id, n.name, c.short(cl.id), token, cl.left(at))
	g := &granting{t: t, c: c, n: n, me: me}
	if t.terms.MaxHold > 0 {
		g.maxHold = at.now.Add(t.terms.MaxHold)
	}
	for _, k := range n.kept {
		if k.me == me && !cl.line.key.shared() && c.world.now < k.minHold {
			c.failf("client %d: %s is passed on before its MinHold has passed", c.id, c.short(cl.id))
		}
	}
	if t.terms.MinHold > 0 {
		g.minHold = c.world.now + int64(t.terms.MinHold)*98/100
		n.kept = append(n.kept, g)
	}
	c.live = append(c.live, g)
	c.stat["grants"]++
	if why := t.over(at); why != nil {
		c.failf("client %d: granted what is over: %v", c.id, why)
		return
	}
	c.uses(g, cl.held().token, token)
}

// uses notes that a client uses a token of the claim's grant of that token.
func (w *world) uses(g *granting, of, token int64) {
	i := slices.IndexFunc(g.n.grants, func(d *drawn) bool { return d.id == g.me.id && d.token == of })
	if i < 0 {
		w.failf("client %d: the store has not granted token %d to %s", g.c.id, of, w.short(g.me.id))
		return
	}
	d := g.n.grants[i]
	shared := g.t.claim.line.key.shared()
	if token < d.token || token > d.token+queue.Spare || token <= d.used && !shared || shared && token != d.token {
		w.failf("client %d: token %d, after %d, of a grant of %d", g.c.id, token, d.used, d.token)
	}
	if limit := d.token + (w.now-d.at)/1000; token > limit {
		w.failf("client %d: token %d runs ahead of the clock, %d", g.c.id, token, limit)
	}
	// Contract of driver.Status.Spare, by this client's clock.
	if h := g.t.claim.held(); token-h.token > 0 && token-h.token > int64(g.c.now().Sub(h.since)/time.Microsecond) {
		w.failf("client %d: token %d after %d, %v after the grant", g.c.id, token, h.token, g.c.now().Sub(h.since))
	}
	d.used = token
	for _, o := range g.n.grants {
		if o == d || o.units+d.units <= g.n.most || o.forgotten || d.forgotten {
			continue
		}
		if o.token > d.token && token >= o.token || o.token < d.token && o.used >= token {
			w.failf("client %d: token %d of a grant of %d beside one of %d, used to %d", g.c.id, token, d.token, o.token, o.used)
		}
	}
}

// draws notes a grant of the store.
func (n *name) draws(w *world, c *queue.Claim) {
	d := &drawn{id: c.ID, token: c.Token, units: c.Units, at: w.now}
	for _, o := range n.grants {
		if o.units+d.units > n.most && o.used >= d.token {
			w.failf("the store grants token %d after %d was used", d.token, o.used)
		}
	}
	n.grants = append(n.grants, d)
}

func (c *client) upgraded(t *tenant) {
	for _, g := range c.live {
		if g.t == t {
			c.uses(g, t.token.Load(), t.token.Load())
		}
	}
}

func (c *client) believes(t *tenant, at instant) bool { return t.over(at) == nil }

// check looks at what must always be true.
func (w *world) check() {
	if w.failure != "" {
		return
	}
	believers := make(map[owned]int)
	units := make(map[*name]int64)
	for _, g := range slices.Clone(w.live) {
		c := g.c
		switch {
		case c.crashed:
			g.over = true
		case c.wakes > w.now: // it can look at nothing
			continue
		case !c.believes(g.t, c.instant()):
			g.over = true
		case !c.believes(g.t, c.exact()):
			continue // the machine's sleep shows a moment later
		}
		if g.over {
			w.live = slices.DeleteFunc(w.live, func(o *granting) bool { return o == g })
			if w.dead = append(w.dead, g); len(w.dead) > 16 {
				w.dead = w.dead[1:]
			}
			continue
		}
		if !g.maxHold.IsZero() && !c.now().Before(g.maxHold) {
			w.failf("client %d: token %d is held for longer than MaxHold", c.id, g.t.token.Load())
		}
		h := g.t.claim.held()
		if h == nil {
			w.failf("client %d: a tenant holds a claim that is %v", c.id, g.t.claim.state)
			return
		}
		shared := g.t.claim.line.key.shared() && h.units == g.t.claim.line.key.Units
		if believers[g.me]++; believers[g.me] > 1 && !shared {
			w.failf("client %d: two hold %s", c.id, w.short(g.me.id))
		}
		if g.n.excused[g.me] || w.forgive[g.me] {
			continue
		}
		if !g.n.has(g.me, h.units, w.now) {
			w.failf("client %d: token %d is believed in for %v more, the store has it no longer", c.id, g.t.token.Load(), g.t.claim.left(c.exact()))
		}
		if believers[g.me] == 1 {
			if units[g.n] += h.units; units[g.n] > g.n.most {
				w.failf("client %d: %d units are held", c.id, units[g.n])
			}
		}
	}
	for _, g := range w.dead {
		if !g.c.crashed && g.c.wakes <= w.now && g.c.believes(g.t, g.c.instant()) {
			w.failf("client %d: token %d was over, and holds again", g.c.id, g.t.token.Load())
		}
	}
	for _, c := range w.clients {
		if !c.crashed {
			for _, l := range c.e.lines {
				c.checkLine(l)
			}
		}
	}
	w.checkKnown()
}

// checkLine checks what is true of a line between two events.
func (c *client) checkLine(l *line) {
	n := l.callers.n
	var held int64
	for _, cl := range append([]*claim{l.claim, l.next}, l.older...) {
		switch {
		case cl == nil:
		case cl.held() != nil:
			if cl.left(c.exact()) <= 0 {
				continue // the renewer comes to it in a moment
			}
			if c.world.names[l.key.Name].excused[owned{cl.id, cl.mark}] {
				continue // the store does not have it any more, which was not heard of yet
			}
			if held += cl.held().units; held > max(l.key.Limit, c.world.names[l.key.Name].most) { // an operator may have raised it
				c.failf("client %d: claims of a line hold that do not fit beside each other", c.id)
			}
		case cl.pending() && n == 0 && cl.mark == "":
			c.failf("client %d: %s waits, and nobody for it", c.id, c.short(cl.id))
		case !cl.pending():
			c.failf("client %d: the line keeps %s, which is %v", c.id, c.short(cl.id), cl.state)
		}
	}
	if n == 0 || l.closed {
		return
	}
	if l.claim == nil || l.claim.held() != nil && l.next == nil && n > l.claim.room() {
		c.failf("client %d: %d callers wait, and no claim is on its way", c.id, n)
	}
}

// checkPause checks that a caller wants the Enter that is sent now.
func (p *proc) checkPause(cl *claim, at instant) {
	for _, c := range cl.line.callers.all() {
		if !c.consulting && !c.retry.After(at.now) {
			return
		}
	}
	p.failf("client %d: an Enter of %s that no Backoff allows", p.id, p.short(cl.id))
}

// has reports whether the store keeps the claim for that owner, with those units.
func (n *name) has(me owned, units int64, now int64) bool {
	c := n.q.Find(me.id)
	return c != nil && c.Mark == me.mark && c.Holding() && !c.Lingering && c.Units >= units && c.Expires > now/1000
}

// checkKnown checks that claims in the store are someone's: that of a caller, or on
// their way out.
func (w *world) checkKnown() {
	var known map[owned]bool
	for _, n := range w.names {
		for i := range n.q.Claims {
			s := &n.q.Claims[i]
			me := owned{s.ID, s.Mark}
			last, ok := w.lastSent[me]
			if !ok {
				w.failf("the store has a claim %v that nobody has sent", me)
				return
			}
			if s.Lingering || s.Expires <= w.now/1000 || last.by.crashed || last.by.closed || w.forgive[me] ||
				w.now >= last.at+int64(last.ttl)*7/10 {
				continue
			}
			if known == nil {
				known = w.known()
			}
			if !known[me] && !w.isHanded(s) {
				w.failf("client %d: claim %s is in the store, and nobody knows it", last.by.id, w.short(me.id))
			}
		}
	}
}

func (w *world) known() map[owned]bool {
	known := make(map[owned]bool)
	for _, c := range w.clients {
		for _, l := range c.e.lines {
			for _, cl := range append([]*claim{l.claim, l.next}, l.older...) {
				if cl != nil {
					known[owned{cl.id, cl.mark}] = true
				}
			}
		}
		for d := range c.e.departures {
			known[owned{d.ref.ID, d.ref.Mark}] = true
		}
		for _, d := range c.leaving {
			known[owned{d.ref.ID, d.ref.Mark}] = true
		}
		for me := range c.adopting {
			known[me] = true
		}
		for me := range c.guarded {
			known[me] = true
		}
	}
	return known
}

// toldLost checks that what an observer is told to be lost is.
func (c *client) toldLost(e *Event) {
	c.logf("client %d: lost %s token %d: %v", c.id, c.short(e.Claim), e.Token, e.Err)
	c.stat["lost"]++
	for _, g := range c.live {
		if g.c != c || g.me.id != e.Claim || g.t.token.Load() != e.Token {
			continue
		}
		if (errors.Is(e.Err, errGone) || strings.Contains(e.Err.Error(), "older state")) && g.n.has(g.me, 1, c.world.now) && !g.n.excused[g.me] && !c.forgive[g.me] && !g.t.claim.request.unanswered {
			c.failf("client %d: %s is lost, and the store has it", c.id, c.short(e.Claim))
		}
		if c.calm && c.world.now > c.calmAt+int64(3*c.ttl) && !g.t.claim.plain() && g.maxHold.IsZero() && g.t.err == nil {
			c.failf("client %d: %s is lost, and nothing was wrong: %v", c.id, c.short(e.Claim), e.Err)
		}
	}
}

// checkTold checks that a reply that the claim is gone has ended it.
func (c *client) checkTold(cl *claim, r driver.Ref, a answer) {
	h := cl.held()
	if a.err != nil || cl.id != r.ID || cl.mark != r.Mark || h == nil {
		return
	}
	if a.status.State == driver.Gone || a.status.State == driver.Waiting && a.sent.now.After(h.since) {
		c.failf("client %d: %s is gone, and held", c.id, c.short(r.ID))
	}
}

// countRenewal checks that a waiting claim is not renewed all the time.
func (c *client) countRenewal(cl *claim, r driver.Ref) {
	if _, waits := cl.state.(*waiting); !waits {
		return
	}
	times := append(c.renewals[r.ID], c.world.now)
	for len(times) > 0 && times[0] < c.world.now-300e6 {
		times = times[1:]
	}
	c.renewals[r.ID] = times
	c.stat["most renewals"] = max(c.stat["most renewals"], len(times))
	if len(times) > 40 {
		c.failf("client %d: %s was renewed %d times in 300 ms", c.id, c.short(r.ID), len(times))
	}
}

// order names a line.
func (c *client) order(l *line) string {
	own := ""
	if l.key.own != "" {
		own = c.short(l.key.own)
	}
	return fmt.Sprint(l.key.Name, l.key.Units, l.key.Limit, l.key.TTL, l.key.NoRenewal, l.key.Overtake, own)
}

// A user of locks.

func (p *proc) key() Key {
	k := Key{Units: 1, Limit: 1, TTL: p.ttl}
	switch p.rnd.IntN(4) {
	case 0:
		k.Name, k.Kind = "mutex", driver.KindMutex
	case 1:
		k.Name, k.Kind = "election", driver.KindElection
	case 2:
		k.Name, k.Kind, k.Limit = "rw", driver.KindRW, 3
		if p.chance(0.4) {
			k.Units = 3
		}
	case 3:
		k.Name, k.Kind, k.Limit, k.Units = "semaphore", driver.KindSemaphore, 3, 1+p.rnd.Int64N(2)
	}
	if len(p.names) == 1 {
		for p.names[k.Name] == nil {
			return p.key()
		}
	}
	k.NoRenewal, k.Overtake = p.chance(0.08), p.chance(0.08)
	if p.chance(0.1) {
		k.TTL = max(driver.MinTTL, p.ttl/4)
	}
	return k
}

func (p *proc) terms() (terms *Terms, patient bool) {
	terms = &Terms{Observe: func(Event) {}}
	first := max(time.Millisecond, p.span(p.ttl/4))
	terms.Backoff = func(attempt int, err error) (time.Duration, bool) { return first, true }
	switch p.rnd.IntN(12) {
	case 0:
		terms.Backoff = func(int, error) (time.Duration, bool) { return 100 * time.Hour, true }
	case 1:
		most := p.rnd.IntN(4)
		terms.Backoff = func(attempt int, err error) (time.Duration, bool) { return first, attempt <= most }
	default:
		patient = true
	}
	if p.chance(0.12) {
		terms.MaxHold = 1 + p.span(p.ttl)
	}
	if p.chance(0.1) {
		terms.MinHold = 1 + p.span(p.ttl/2)
	}
	return terms, patient
}

func (c *client) user(p *proc) {
	defer func() { c.users-- }()
	key := p.key()
	terms, patient := p.terms()
	var ctxEnds time.Time
	if !patient || p.chance(0.3) {
		ctxEnds = p.now().Add(p.span(4 * p.ttl))
	}
	try := p.chance(0.2)
	t, err := p.acquire(key, terms, try, ctxEnds)
	if err != nil {
		if p.calm && p.world.now > p.calmAt+int64(3*p.ttl) && !try && ctxEnds.IsZero() && !errors.Is(err, driver.ErrClosed) {
			p.failf("client %d: Acquire returns %v, and nothing is wrong", p.id, err)
		}
		return
	}
	p.hold(t)
}

// hold has the tenant for a while, and does what can be done with it.
func (p *proc) hold(t *tenant) {
	rest := func() {
		if p.hasty {
			p.sleep(p.span(p.ttl / 100))
			return
		}
		d := p.span(p.ttl / 10)
		switch n := p.rnd.IntN(10); {
		case n < 3:
			d = p.span(p.ttl)
		case n == 3:
			d = p.span(3 * p.ttl)
		case n < 7:
			return
		}
		p.wait(p.now().Add(d), func() bool { return p.calm })
	}
	leases := 1
	for range p.rnd.IntN(4) {
		rest()
		what := p.rnd.IntN(14)
		if p.hasty && p.chance(0.3) {
			what = 4
		}
		switch what {
		case 0, 1:
			p.extend(t, 0)
		case 2:
			p.extend(t, 2*p.ttl)
		case 3:
			t := t
			p.client.goes(func(p *proc) { p.extend(t, 0) })
		case 4, 5:
			if h, err := p.handOver(t); err == nil {
				p.handles = append(p.handles, handedOver{t.claim.line.key, h})
				if c := p.clients[p.rnd.IntN(len(p.clients))]; p.chance(0.7) {
					p.at(p.world.now+int64(p.span(p.ttl/20)), c, func() { c.users++; c.goes(c.adopter) })
				}
				return
			}
		case 6:
			p.event(func(fx *effects, at instant) { t.show(fx, at) })
			p.handles = append(p.handles, handedOver{t.claim.line.key, t.handle()})
		case 7, 8:
			p.downgrade(t)
		case 9, 10:
			p.tryUpgrade(t)
		case 11:
			var ok bool
			p.event(func(fx *effects, at instant) { ok, _ = t.reenter(fx, at, 1, true) })
			if ok {
				leases++
			}
		}
	}
	rest()
	for range leases {
		p.release(t)
	}
}

// adopter takes over what was handed over.
func (c *client) adopter(p *proc) {
	defer func() { c.users-- }()
	if len(p.handles) == 0 {
		return
	}
	h := p.handles[p.rnd.IntN(len(p.handles))]
	if p.chance(0.7) {
		h = p.handles[len(p.handles)-1]
	}
	terms, _ := p.terms()
	key := h.key
	key.Units = h.handle.Units
	if p.chance(0.2) {
		key.NoRenewal = !key.NoRenewal
	}
	for range 1 + p.rnd.IntN(3) {
		t, err := p.adopt(key, terms, h.handle)
		p.logf("client %d: adopts %s: %v", p.id, p.short(h.handle.ID), err)
		if err == nil {
			p.stat["adopted"]++
			p.hold(t)
			return
		}
		p.sleep(p.span(p.ttl / 4))
	}
}

// trouble is what happens to the world.
func (w *world) trouble() {
	c := w.clients[w.rnd.IntN(len(w.clients))]
	on := w.anyName()
	switch w.rnd.IntN(18) {
	case 0, 1, 2:
		c.pause(w.span(2*w.ttl), false)
	case 3, 4, 5:
		c.pause(w.span(2*w.ttl), true)
	case 6, 7:
		w.logf("the store is away")
		w.away = w.now + int64(w.span(w.ttl*3/2))
	case 8:
		w.logf("forced release of %s", on.name)
		w.store(on.name, func(n *name, o *queue.Op) {
			for _, b := range o.Break(&n.q) {
				n.excused[owned{b.ID, b.Mark}] = true
			}
		})
	case 9:
		w.logf("the store forgets %s", on.name)
		on.kept = nil
		for i := range on.q.Claims {
			s := &on.q.Claims[i]
			on.excused[owned{s.ID, s.Mark}] = true
		}
		for _, d := range on.grants {
			d.forgotten = true
		}
		if last := on.q.Last + queue.Spare; last > w.now/1000 {
			on.q = queue.Queue{Last: last} // the clock is behind, or behind what a holder has used
		} else {
			on.q = queue.Queue{}
		}
		w.notice(driver.Notice{Kind: driver.Check})
	case 10, 11:
		if on := w.names["semaphore"]; on != nil {
			limit := 1 + w.rnd.Int64N(5)
			w.logf("limit %d", limit)
			w.store(on.name, func(n *name, o *queue.Op) {
				n.most = max(n.most, limit)
				_ = o.SetLimit(&n.q, driver.KindSemaphore, 3, limit)
			})
		}
	case 12:
		w.notice(driver.Notice{Kind: driver.Check})
	case 13:
		w.store(on.name, func(n *name, o *queue.Op) { o.Ask(&n.q) })
	case 14:
		if w.chance(0.3) && len(w.clients) > 2 {
			w.logf("client %d crashes", c.id)
			c.crashed, c.users = true, 0
		}
	case 16, 17:
		w.logf("the store goes back to an older state of %s", on.name)
		for _, s := range slices.Concat(on.q.Claims, on.former.Claims) {
			on.excused[owned{s.ID, s.Mark}], w.forgive[owned{s.ID, s.Mark}] = true, true
		}
		for _, d := range on.grants {
			d.forgotten = true
		}
		last := on.q.Last + queue.Spare // a holder may have used those
		on.q = on.former
		on.q.Last, on.q.Claims = last, slices.Clone(on.q.Claims)
	case 15:
		if w.chance(0.3) && !c.closing {
			c.closing = true
			c.goes(c.close)
		}
	}
}

func (w *world) anyName() *name {
	for _, s := range []string{"mutex", "election", "rw", "semaphore"} {
		if n := w.names[s]; n != nil && (len(w.names) == 1 || w.chance(0.4)) {
			return n
		}
	}
	return w.names["semaphore"]
}

// play plays the history of a seed, and returns what was wrong.
func play(seed uint64, verbose bool) (w *world) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	jitter = func(most time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(most) + 1)) }
	w = &world{
		rnd: rnd, now: 1e15, verbose: verbose, names: make(map[string]*name), lastSent: make(map[owned]sending),
		forgive: make(map[owned]bool), ids: make(map[string]string), stat: make(map[string]int),
	}
	defer func() {
		jitter = retry.Jitter
		if r := recover(); r != nil {
			w.failf("panic: %v\n%s", r, debug.Stack())
		}
		for _, c := range w.clients {
			for _, p := range slices.Clone(c.procs) {
				p.stop()
			}
		}
	}()
	w.ttl = []time.Duration{200 * time.Millisecond, time.Second, 15 * time.Second, time.Minute}[rnd.IntN(4)]
	w.bad = []float64{0, 0.5, 1, 2}[rnd.IntN(4)]
	w.coarse, w.hasty = rnd.IntN(4) == 0, rnd.IntN(4) == 0
	names := []string{"mutex", "election", "rw", "semaphore"}
	if rnd.IntN(3) > 0 {
		names = []string{names[rnd.IntN(4)]}
	}
	for _, s := range names {
		w.names[s] = &name{name: s, excused: make(map[owned]bool)}
	}
	for range 1 + rnd.IntN(4) {
		w.newClient()
	}
	w.logf("TTL %v, bad %v, %v", w.ttl, w.bad, names)
	begun, length := w.now, int64(4+rnd.IntN(10))*int64(w.ttl)
	w.calmAt = begun + length
	for range 3 + rnd.IntN(40) {
		at, c := begun+rnd.Int64N(length), w.clients[rnd.IntN(len(w.clients))]
		w.at(at, c, func() { c.users++; c.goes(c.user) })
		if rnd.IntN(4) == 0 {
			w.at(at+rnd.Int64N(length/4), c, func() { c.users++; c.goes(c.adopter) })
		}
	}
	if w.bad > 0 {
		for range rnd.IntN(6) {
			w.at(begun+rnd.Int64N(length), nil, w.trouble)
		}
	}
	w.run(begun + length)
	w.logf("calm")
	w.calm, w.away = true, 0
	if w.names["semaphore"] != nil {
		w.store("semaphore", func(n *name, o *queue.Op) { _ = o.SetLimit(&n.q, driver.KindSemaphore, 3, 3) })
	}
	w.run(w.now + 40*int64(w.ttl) + 60e9)
	w.checkEnd()
	return w
}

// checkEnd checks that nothing is left.
func (w *world) checkEnd() {
	for _, c := range w.clients {
		if c.crashed || w.failure != "" {
			continue
		}
		for _, l := range c.e.lines {
			w.failf("client %d keeps a line of %s: %d callers, claim %v next %v older %d, users %d", c.id, l.key.Name, l.callers.n, l.claim, l.next, len(l.older), l.users)
		}
		switch {
		case c.users > 0:
			w.failf("client %d: %d calls have not ended", c.id, c.users)
		case len(c.e.claims) > 0:
			w.failf("client %d gets notices for %d claims that are over", c.id, len(c.e.claims))
		case len(c.e.departures) > 0 || len(c.leaving) > 0:
			w.failf("client %d: %d departures were not heard", c.id, len(c.e.departures))
		case len(c.dates) > 0:
			w.failf("client %d: the renewer keeps %d claims", c.id, len(c.dates))
		case len(c.procs) > 1:
			w.failf("client %d: %d goroutines are left", c.id, len(c.procs)-1)
		case len(c.callers) > 0:
			w.failf("client %d: %d callers were not served", c.id, len(c.callers))
		}
	}
	for _, n := range w.names {
		(&queue.Op{Now: w.now / 1000}).Look(&n.q)
		if len(n.q.Claims) > 0 {
			w.failf("the store still has %d claims", len(n.q.Claims))
		}
	}
}

func TestMachine(t *testing.T) {
	if s := os.Getenv("PAWL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		w := play(seed, true)
		for _, line := range w.log {
			t.Log(line)
		}
		if w.failure != "" {
			t.Fatal(w.failure)
		}
		return
	}
	seeds, first := 150, rand.Uint64()>>16
	if await.Soak() {
		seeds = 200_000
	}
	stat := make(map[string]int)
	for i := range seeds {
		seed := first + uint64(i)
		w := play(seed, false)
		for k, v := range w.stat {
			if k == "most renewals" {
				stat[k] = max(stat[k], v)
			} else {
				stat[k] += v
			}
		}
		if w.failure != "" {
			t.Fatalf("history %d, PAWL_SEED=%d: %s", i+1, seed, w.failure)
		}
	}
	t.Log(stat)
}
