package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// What carries effects out in a world.

// event applies an event and carries out its effects.
func (p *proc) event(f func(fx *effects, at instant)) {
	var fx effects
	at := p.instant()
	f(&fx, at)
	p.commit(&fx, at)
}

func (p *proc) commit(fx *effects, at instant) {
	for _, x := range fx.all() {
		p.note(fx, x)
	}
	p.sawServed(at)
	p.perform(fx)
}

func (fx *effects) all() (all []*effect) {
	for i := range fx.n {
		all = append(all, &fx.few[i])
	}
	for i := range fx.more {
		all = append(all, &fx.more[i])
	}
	return all
}

func (c *client) note(fx *effects, x *effect) {
	switch x.kind {
	case fxDate:
		if due, slack, ok := x.claim.due(c.instant()); ok {
			x.claim.date.due, x.claim.date.slack = due, slack
			c.undate(x.claim)
			c.dates = append(c.dates, x.claim)
		}
	case fxUndate:
		c.undate(x.claim)
	case fxRegister:
		c.short(x.id)
		if former := c.e.register(x.id, x.claim); former != nil {
			fx.add(effect{kind: fxHurry, claim: former})
		}
	case fxUnregister:
		c.e.unregister(x.id, x.claim)
	case fxEvent:
		if x.event.Kind == EventLost {
			c.toldLost(&x.event.Event)
		}
	case fxDepart, fxRetire:
		c.e.departing(x.departure)
	}
}

func (c *client) undate(cl *claim) {
	c.dates = slices.DeleteFunc(c.dates, func(o *claim) bool { return o == cl })
}

func (p *proc) perform(fx *effects) {
	for _, x := range fx.all() {
		switch x.kind {
		case fxDate, fxUndate, fxRegister, fxUnregister, fxEvent, fxDepart:
			continue
		}
		p.breathe() // what other events bring may be carried out before
		p.do(x)
	}
}

func (p *proc) do(x *effect) {
	c := p.client
	switch x.kind {
	case fxAttempt:
		c.runAttempt(x.claim, x.attempt)
	case fxStop:
		x.attempt.stop()
	case fxWake:
		x.attempt.wake()
	case fxNudge:
		x.attempt.nudge()
	case fxServed:
		close(x.caller.ready)
	case fxEnded:
		c.ended(x.tenant, x.err)
	case fxPressed:
		x.tenant.signals.press()
	case fxRetire:
		d := x.departure
		c.leaving = append(c.leaving, d)
		c.goes(func(p *proc) { p.retire(d) })
	case fxGuard:
		d := x.departure
		c.goes(func(p *proc) { p.guard(d) })
	case fxConsult:
		c.consult(x.claim, x.caller, x.failures, x.err)
	case fxShrink:
		cl := x.claim
		c.goes(func(p *proc) { p.shrink(cl) })
	case fxRivals:
		l := x.claim.line
		c.goes(func(p *proc) {
			for _, o := range p.e.rivalsOf(l) {
				p.event(func(fx *effects, at instant) { o.rivalSeen(fx, at) })
			}
		})
	case fxHurry:
		p.hurry(x.claim)
	default:
		panic("an effect that nobody carries out")
	}
}

func (p *proc) hurry(cl *claim) {
	p.event(func(fx *effects, at instant) { cl.hurry(fx, at) })
}

func (p *proc) hurryAll() {
	all := p.e.allClaims()
	slices.SortFunc(all, func(a, b *claim) int { return cmp.Compare(p.short(a.id), p.short(b.id)) })
	for _, cl := range all {
		p.hurry(cl)
	}
}

// ended is Engine.ended: who holds is told, which takes its time.
func (c *client) ended(t *tenant, err error) {
	t.signals.closeLost()
	if told := &t.claim.telling; err != ErrReleased && c.chance(0.3) {
		c.telling[told]++
		c.goes(func(p *proc) {
			p.breathe()
			c.telling[told]--
		})
	}
	c.e.leaveLine(t.claim.line)
}

// attempt.go

func (c *client) runAttempt(cl *claim, a *attempt) {
	ctx := a.begin(c.e.ctx)
	c.goes(func(p *proc) {
		p.attempt(ctx, cl, a)
		a.stop()
	})
}

func (p *proc) attempt(ctx context.Context, cl *claim, a *attempt) {
	failed := false
	for {
		waiting := a.forWait(ctx)
		var s step
		p.event(func(fx *effects, at instant) {
			if s = cl.next(fx, at); s.kind == stepEnter && failed {
				p.checkPause(cl, at)
			}
		})
		switch s.kind {
		case stepEnd:
			return
		case stepRest:
			p.stat["rest"]++
			p.wait(s.until, func() bool { return len(a.look) > 0 || ctx.Err() != nil })
			select {
			case <-a.look:
			default:
			}
		case stepEnter:
			p.breathe()
			ans, silent := p.enter(func() bool { return ctx.Err() != nil }, &s)
			failed = ans.err != nil
			p.event(func(fx *effects, at instant) { cl.entered(fx, at, s.claim.ID, ans, silent, nil, ended{}) })
		case stepWait:
			var ans answer
			ans.status, ans.err = p.storeWait(s.ref, func() bool { return waiting.Err() != nil })
			p.event(func(fx *effects, at instant) {
				cl.waited(fx, at, s.ref.ID, ans, waiting.Err() != nil && ctx.Err() == nil)
			})
		}
	}
}

func (p *proc) enter(given func() bool, s *step) (a answer, silent bool) {
	a = answer{sent: p.instant()}
	me, came := owned{s.claim.ID, ""}, false
	p.sends(me, s.claim.TTL)
	a.status, a.err = call(p, s.most, s.claim.TTL, given, func() (driver.Status, error) {
		if q := p.names[s.claim.Name].q.Find(me.id); came && (q == nil || q.Expires <= p.world.now/1000) {
			p.forgive[me] = true // nobody can know that the network doubles what was replied to
		}
		came = true
		return p.storeEnter(s.claim, a.sent.now)
	})
	return a, a.err == context.DeadlineExceeded || a.err == context.Canceled
}

// sends notes that a request is sent that may enter the claim, or make it last for ttl.
func (p *proc) sends(me owned, ttl time.Duration) {
	if s := p.lastSent[me]; p.world.now+int64(ttl) > s.at+int64(s.ttl) {
		p.lastSent[me] = sending{p.world.now, ttl, p.client}
	}
}

func (c *client) consult(cl *claim, caller *caller, failures int, err error) {
	c.goes(func(p *proc) {
		if p.chance(0.1) {
			p.sleep(p.span(2 * p.ttl)) // a Backoff that takes its time
		}
		pause, again := caller.terms.Backoff(failures, err)
		p.event(func(fx *effects, at instant) { cl.line.consulted(fx, at, caller, failures, pause, again, err) })
	})
}

// renewer.go

func (c *client) renew(p *proc) {
	slept := p.instant().slept
	for {
		at := p.instant()
		if at.slept > slept {
			slept = at.slept
			p.hurryAll()
		}
		p.round(at)
		first := p.now().Add(look)
		for _, cl := range c.dates {
			if cl.date.due.Before(first) {
				first = cl.date.due
			}
		}
		p.wait(first, func() bool {
			for _, cl := range c.dates {
				if cl.date.due.Before(first) {
					return true
				}
			}
			return false
		})
	}
}

func (p *proc) round(at instant) {
	var due []*claim
	for _, cl := range p.dates {
		if !cl.date.due.Add(-cl.date.slack).After(at.now) {
			due = append(due, cl)
		}
	}
	for _, cl := range due {
		p.undate(cl)
	}
	for _, cl := range due {
		var ref driver.Ref
		var renew bool
		var ttl, span time.Duration
		var fx effects
		hurried := cl.term.hurried
		ref, renew = cl.tick(&fx, at)
		ttl, span = cl.ttl, cl.span()
		if h := cl.held(); renew && h != nil && cl.plain() && (!h.fresh && ref.TTL > driver.MinTTL || !hurried) {
			p.failf("client %d: plain lease %s is renewed by itself", p.id, p.short(cl.id))
		}
		p.commit(&fx, at)
		if renew {
			p.client.goes(func(p *proc) { p.sendRenewal(cl, ref, ttl, span) })
		}
	}
}

func (p *proc) sendRenewal(cl *claim, r driver.Ref, ttl, span time.Duration) {
	p.countRenewal(cl, r)
	a := p.renewOne(r, min(span/4, retry.Longest), nil)
	if r.TTL < ttl {
		a.status.Deadline = time.Time{} // it was just a look
	}
	p.event(func(fx *effects, at instant) { cl.renewed(fx, at, r.ID, a) })
	p.checkTold(cl, r, a)
}

func (p *proc) renewOne(r driver.Ref, most time.Duration, given func() bool) answer {
	a := answer{sent: p.instant()}
	p.sends(owned{r.ID, r.Mark}, r.TTL)
	a.status, a.err = call(p, most, r.TTL, given, func() (driver.Status, error) { return p.storeRenew(r, a.sent.now) })
	return a
}

// retire.go

func (p *proc) retire(d *departure) {
	p.wait(time.Time{}, func() bool { return p.telling[d.told] == 0 })
	if p.now().Before(d.ends) {
		_, d.err = p.leave(d, d.ends)
	}
	p.e.departed(d)
	if d.again {
		p.leaveAgain(d)
	}
	p.left(d)
}

func (p *proc) left(d *departure) {
	p.logf("client %d: has left %s: %v", p.id, p.short(d.ref.ID), d.err)
	p.leaving = slices.DeleteFunc(p.leaving, func(o *departure) bool { return o == d })
}

func (p *proc) leave(d *departure, until time.Time) (known bool, err error) {
	for attempt := 1; ; attempt++ {
		r := d.ref
		r.Linger = max(0, d.lingers.Sub(p.now()))
		was, err := call(p, min(retry.Cleanup, d.ttl, max(0, until.Sub(p.now()))), d.ttl, nil, func() (driver.State, error) { return p.storeLeave(r) })
		if err == nil {
			return was == driver.Holding || attempt > 1, nil
		}
		p.logf("client %d: leave of %s: %v", p.id, p.short(r.ID), err)
		if driver.IsPermanent(err) {
			p.forgive[owned{r.ID, r.Mark}] = true
		}
		pause := min(10*time.Millisecond<<min(attempt, 6), d.ttl/8)
		if driver.IsPermanent(err) || d.ends.Sub(p.now()) < pause || !p.now().Add(pause).Before(until) {
			return true, fmt.Errorf("release: %w", err)
		}
		p.sleep(pause)
	}
}

func (p *proc) leaveAgain(d *departure) {
	d.ref.Used = 0
	for pause := 20 * time.Millisecond; p.now().Add(pause).Before(d.ends); pause = min(2*pause, d.ttl/4) {
		p.sleep(pause)
		p.leave(d, d.ends)
	}
}

func (p *proc) guard(d *departure) {
	me := owned{d.ref.ID, d.ref.Mark}
	p.guarded[me] = true
	defer delete(p.guarded, me)
	for pause := 20 * time.Millisecond; p.now().Add(pause).Before(d.ends); pause = min(2*pause, d.ttl/4) {
		p.sleep(pause)
		a := p.renewOne(d.handed.look, min(retry.Cleanup, d.ttl), nil)
		if a.err == nil && (a.status.State != driver.Holding || a.status.Token != d.handed.token) {
			p.client.leaving = append(p.client.leaving, d)
			p.leave(d, d.ends)
			p.leaveAgain(d)
			p.left(d)
			return
		}
	}
}

// engine.go

// acquire is Engine.acquire; ctxEnds: when the caller's context does, zero for never.
func (p *proc) acquire(key Key, terms *Terms, try bool, ctxEnds time.Time) (*tenant, error) {
	over := func() bool { return !ctxEnds.IsZero() && !p.now().Before(ctxEnds) }
	l, err := p.e.join(key)
	if err != nil {
		return nil, err
	}
	p.breathe()
	c := &caller{terms: terms, ctx: context.Background(), since: p.now(), try: try}
	var first *claim
	var s step
	p.client.callers = append(p.client.callers, c)
	p.event(func(fx *effects, at instant) {
		if first, err = l.add(fx, at, c); first != nil {
			s = step{kind: stepEnter, claim: first.toEnter(try), most: first.timeout(at)}
		}
	})
	if err != nil {
		p.client.callers = slices.DeleteFunc(p.client.callers, func(o *caller) bool { return o == c })
		p.e.leaveLine(l)
		return nil, err
	}
	if first != nil {
		a, silent := p.enter(over, &s)
		var leaves *caller
		if over() {
			leaves = c
		}
		var left <-chan struct{}
		p.event(func(fx *effects, at instant) {
			left = first.entered(fx, at, s.claim.ID, a, silent, leaves, ended{context.DeadlineExceeded, context.DeadlineExceeded})
		})
		p.wait(p.now().Add(leaveTimeout), func() bool { return isClosed(left) })
	}
	p.breathe()
	left := closedChan
	if c.waits {
		if c.ready == nil {
			c.ready = make(chan struct{})
		}
		p.wait(ctxEnds, func() bool { return isClosed(c.ready) })
		if !isClosed(c.ready) {
			p.breathe()
			p.event(func(fx *effects, at instant) {
				left = l.giveUp(fx, at, c, ended{context.DeadlineExceeded, context.DeadlineExceeded})
			})
		}
	}
	t, err := c.tenant, c.err
	if (t == nil) == (err == nil) {
		p.failf("a caller got %v and %v", t, err)
	}
	if c.waits {
		p.failf("a caller that was served waits in the line")
	}
	p.wait(p.now().Add(leaveTimeout), func() bool { return isClosed(left) })
	if c.tenant != t || c.err != err {
		p.failf("a caller got a second outcome")
	}
	if err != nil {
		p.e.leaveLine(l)
	}
	return t, err
}

// close is Engine.close.
func (c *client) close(p *proc) {
	c.logf("client %d closes", c.id)
	lines := c.e.closeLines()
	slices.SortFunc(lines, func(a, b *line) int { return cmp.Compare(c.order(a), c.order(b)) })
	all := make([]effects, len(lines))
	for i, l := range lines {
		at := p.instant()
		l.close(&all[i], at)
		for _, x := range all[i].all() {
			p.note(&all[i], x)
		}
		p.sawServed(at)
	}
	for i := range all {
		p.perform(&all[i])
	}
	if !p.wait(p.now().Add(3*c.ttl), func() bool { return isClosed(c.e.drained) }) && c.calm {
		c.failf("client %d closes, and is not drained", c.id)
	}
	c.closed = true
	c.e.cancel(driver.ErrClosed)
}

// grant.go

// release is Engine.release.
func (p *proc) release(t *tenant) error {
	l := t.claim.line
	at := p.instant()
	soon := func() bool { _, soon, _ := l.heir(at, t); return soon }
	for tries := 0; tries < 50 && soon(); tries++ {
		p.sleep(time.Duration(p.rnd.Int64N(3e3)))
		at = p.instant()
	}
	if at.now != p.now() {
		panic("the clock went on")
	}
	before := p.believes(t, at)
	last := t.leases == 1
	var fx effects
	d, err := t.release(&fx, at, context.Background())
	if before != (err == nil) {
		p.failf("client %d: release of token %d returns %v, and it held: %v", p.id, t.token.Load(), err, before)
	}
	if d != nil {
		p.client.leaving = append(p.client.leaving, d)
	}
	p.stat["released"]++
	if !last && before && t.err != nil {
		p.failf("client %d: a release of one lease of several has ended all", p.id)
	}
	p.commit(&fx, at)
	if d == nil {
		if err == nil && last && t.err == nil {
			p.failf("a tenant holds that was released")
		}
		return err
	}
	_, err = p.leave(d, p.now().Add(min(retry.Cleanup, d.ttl)))
	if err != nil {
		p.left(d)
		p.event(func(fx *effects, at instant) { fx.add(effect{kind: fxRetire, departure: d}) })
		return nil
	}
	p.breathe()
	if d.again {
		p.leaveAgain(d)
	}
	p.left(d)
	return nil
}

func (p *proc) extend(t *tenant, ttl time.Duration) error {
	var r driver.Ref
	var err error
	before := p.believes(t, p.instant())
	p.event(func(fx *effects, at instant) { r, err = t.extending(fx, at, ttl) })
	if before != (err == nil) {
		p.failf("Extend returns %v of what holds: %v", err, before)
	}
	if err != nil {
		return err
	}
	whole := p.now().Add(min(retry.Longest, r.TTL, max(0, t.claim.left(p.instant()))))
	for failures := 0; ; failures++ {
		most := min(retry.Timeout(failures), r.TTL/4, max(0, whole.Sub(p.now())))
		t.claim.extends(p.instant(), r.TTL)
		a := p.renewOne(r, most, nil)
		p.event(func(fx *effects, at instant) { err = t.extended(fx, at, a) })
		if err != nil || a.err == nil {
			return err
		}
		if !p.now().Before(whole) || driver.IsPermanent(a.err) || a.err == errNetwork {
			return a.err
		}
	}
}

func (p *proc) handOver(t *tenant) (h Handle, err error) {
	p.event(func(fx *effects, at instant) { err = t.offer(fx, at) })
	if err != nil {
		return h, err
	}
	if err = p.extend(t, 0); err == nil {
		p.event(func(fx *effects, at instant) {
			h = t.handle()
			if err = t.cannotHandOver(fx, at); err != nil {
				return
			}
			token := t.claim.held().token // of the grant; h has the last that was used
			t.handOver(fx, at, context.Background())
			p.logf("client %d: hands over %s token %d", p.id, p.short(h.ID), h.Token)
			p.handed[owned{h.ID, t.claim.mark}] = token
		})
	}
	if err != nil {
		p.event(func(fx *effects, at instant) { t.takeBack(fx, at) })
	}
	return h, err
}

// adopt.go

func (p *proc) adopt(key Key, terms *Terms, h Handle) (t *tenant, err error) {
	key.own = h.ID
	l, err := p.e.join(key)
	if err != nil {
		return nil, err
	}
	if t, err = p.adoptInto(l, terms, h); err != nil {
		p.e.leaveLine(l)
	}
	return t, err
}

func (p *proc) adoptInto(l *line, terms *Terms, h Handle) (t *tenant, err error) {
	key := &l.key
	what := adoptee{key.Name, h.ID, key.Kind, key.Units, h.Token}
	mark, ok := p.e.adoptions.begin(what)
	if !ok {
		return nil, errors.New("this client is adopting it already")
	}
	p.breathe()
	at := p.instant()
	ttl := key.TTL
	cl, err := l.adopting(at, h.ID, mark)
	if err != nil {
		p.e.adoptions.end(what, false)
		return nil, err
	}
	me := owned{h.ID, mark}
	p.adopting[me] = true // until it runs out: an attempt without a reply is repeated with this mark, or not
	a := answer{sent: p.instant()}
	p.sends(me, ttl)
	a.status, a.err = call(p, min(retry.Longest, ttl), ttl, nil, func() (driver.Status, error) {
		return p.storeAdopt(driver.Adoption{
			Name: key.Name, ID: h.ID, Kind: key.Kind, Units: key.Units, Token: h.Token, Mark: mark, TTL: ttl, Owner: l.owner,
		}, a.sent.now)
	})
	_, mismatch := errors.AsType[*driver.MismatchError](a.err)
	replied := a.err == nil || mismatch
	p.breathe()
	var fx effects
	at = p.instant()
	t, err = l.adopted(&fx, at, cl, a, terms, context.Background(), at.now)
	if replied {
		delete(p.adopting, me)
	}
	if t != nil {
		p.logf("client %d: adopted %s token %d", p.id, p.short(h.ID), t.token.Load())
		p.granted(t, at)
	}
	p.commit(&fx, at)
	p.e.adoptions.end(what, replied)
	return t, err
}

// resize.go

func (p *proc) downgrade(t *tenant) error {
	var spare int64
	if h := t.claim.held(); h != nil {
		spare = h.spare
	}
	var asked *resize
	var err error
	p.event(func(fx *effects, at instant) { asked, err = t.downgrading(fx, at, nil) })
	if asked == nil || err != nil {
		return err
	}
	r := p.resize(t.claim, asked)
	p.event(func(fx *effects, at instant) { err = t.downgraded(fx, at, asked, spare, r) })
	return err
}

func (p *proc) tryUpgrade(t *tenant) error {
	var asked *resize
	var err error
	p.event(func(fx *effects, at instant) { asked, err = t.upgrading(fx, at, nil) })
	if asked == nil || err != nil {
		return err
	}
	r := p.resize(t.claim, asked)
	p.event(func(fx *effects, at instant) {
		if err = t.upgraded(fx, at, asked, r); err == nil {
			p.upgraded(t)
		}
	})
	return err
}

func (p *proc) resize(cl *claim, asked *resize) (r resized) {
	ttl := asked.ref.TTL
	until := p.now().Add(min(retry.Longest, ttl))
	pause := 10 * time.Millisecond
	for {
		most := min(retry.Cleanup, ttl/4, max(0, until.Sub(p.now())))
		r.status, r.err = call(p, most, ttl, nil, func() (driver.Status, error) { return p.storeResize(asked.ref, asked.units) })
		if r.err == nil || driver.IsPermanent(r.err) {
			return r
		}
		if !p.now().Add(pause).Before(until) {
			return r
		}
		p.sleep(pause)
		if cl.held() == nil {
			return r
		}
		r.unsure = true
		pause = min(2*pause, ttl/8, time.Second)
	}
}

func (p *proc) shrink(cl *claim) {
	var asked *resize
	p.event(func(fx *effects, at instant) {
		if cl.held() != nil {
			r := cl.toUnits(fx, at, 1)
			asked = &r
		}
	})
	for asked != nil && !p.closed {
		r := p.resize(cl, asked)
		if driver.IsPermanent(r.err) {
			p.sleep(permanentPause)
		}
		p.event(func(fx *effects, at instant) { asked = cl.shrunk(fx, at, asked, r) })
	}
}
