package zkstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// owned is a claim that was entered or renewed through this Store.
type owned struct {
	name   string
	class  int       // of its session
	lapses time.Time // then it is removed, unless it is renewed

	// What was read of its queue, and a watch that was set before; good while
	// the watch has not fired and the connection has not changed.
	session *session
	view    *view
	watch   <-chan zk.Event
	changes uint64
}

// ownKey names a claim for one of its owners. Two of them may use the same Store:
// what one does to its claim is nothing to the other, who has adopted it.
type ownKey struct{ id, mark string }

func keyOf(r driver.Ref) ownKey { return ownKey{r.ID, r.Mark} }

// own notes that a request with that TTL goes out for the claim.
func (s *store) own(key ownKey, name string, class int, sent time.Time, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownLocked(key, name, class, sent, ttl)
}

// extend is own for a claim that was found; false: it has lapsed.
//
// Invariant: changes that drop what has lapsed are made one after the other, by
// who has the slot. What was renewed is dropped by none of them, for it was
// extended before it had lapsed: asking and extending are one step.
func (s *store) extend(key ownKey, name string, class int, sent time.Time, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.mine[key]; o != nil && !time.Now().Before(o.lapses) {
		return false
	}
	s.ownLocked(key, name, class, sent, ttl)
	return true
}

func (s *store) ownLocked(key ownKey, name string, class int, sent time.Time, ttl time.Duration) {
	if s.shut {
		return
	}
	o := s.mine[key]
	if o == nil {
		o = &owned{name: name, class: class}
		s.mine[key] = o
	}
	if class > o.class {
		o.class, o.session = class, nil
	}
	if lapses := sent.Add(ttl); lapses.After(o.lapses) {
		o.lapses = lapses
	}
	if s.reaper == nil {
		s.reaper = make(chan struct{}, 1)
		s.work.Go(s.reap)
	}
	if !o.lapses.Before(s.alarm) {
		return
	}
	select {
	case s.reaper <- struct{}{}:
	default:
	}
}

func (s *store) disown(key ownKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mine, key)
}

// lapsed tells whether a claim of one of this Store's sessions was not renewed in
// time.
func (s *store) lapsed(key ownKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.mine[key]
	return o == nil || !time.Now().Before(o.lapses)
}

// sessionFor returns the session of a claim, or, if it has none here or one that
// ends too soon, that for ttl (0: any).
func (s *store) sessionFor(key ownKey, ttl time.Duration) (n *session, known bool, err error) {
	s.mu.Lock()
	o := s.mine[key]
	have := -1
	if o != nil {
		have = o.class
	}
	s.mu.Unlock()
	switch {
	case ttl > 0:
		n, err = s.sessionOf(max(class(ttl), have))
	case have >= 0:
		n, err = s.sessionOf(have)
	default:
		n, err = s.anySession()
	}
	return n, o != nil, err
}

// reap removes the claims of this Store that nobody renews: the pings that keep
// the session alive must not keep them too.
func (s *store) reap() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	sweep := time.Now().Add(rand.N(sweepEvery))
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.reaper:
		case <-timer.C:
		}
		now := time.Now()
		if now.After(sweep) {
			sweep = now.Add(sweepEvery)
			s.spawn(s.sweep)
		}
		next := now.Add(time.Hour)
		due := make(map[ownKey]owned)
		s.mu.Lock()
		s.alarm = next // whoever comes now kicks
		for key, o := range s.mine {
			if !o.lapses.After(now) {
				due[key] = *o
			} else if o.lapses.Before(next) {
				next = o.lapses
			}
		}
		s.mu.Unlock()
		if len(due) > 0 && !s.remove(due) {
			next = now.Add(100 * time.Millisecond)
		}
		s.mu.Lock()
		s.alarm = next
		s.mu.Unlock()
		timer.Reset(time.Until(next))
	}
}

// sweepEvery is how often a Store looks for queues that were left to no one: whose
// claims all died with their processes, and whose name nobody has used since.
const sweepEvery = 12 * time.Hour

func (s *store) sweep() {
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Minute)
	defer cancel()
	names, err := s.names(ctx, "")
	if err != nil {
		return // the next one will do
	}
	n, err := s.anySession()
	if err != nil {
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	limit := make(chan struct{}, 16)
	for _, name := range names {
		limit <- struct{}{}
		work.Go(func() {
			defer func() { <-limit }()
			_, err := call(ctx, n, func(c *zk.Conn) (bool, error) {
				path := s.queuePath(name)
				found, stat, err := c.Exists(path)
				if err == nil && found && stat.NumChildren == 0 {
					err = c.Delete(path, stat.Version) // which fails if somebody came
				}
				return true, err
			})
			if err != nil && !raced(err) && !errors.Is(err, zk.ErrNoAuth) {
				cancel() // the next one will do
			}
		})
	}
}

// remove drops claims that have lapsed, and reports whether all are gone.
func (s *store) remove(due map[ownKey]owned) bool {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	var work sync.WaitGroup
	var mu sync.Mutex
	all := true
	limit := make(chan struct{}, 16)
	for key, was := range due {
		limit <- struct{}{}
		work.Go(func() {
			defer func() { <-limit }()
			n, _, err := s.sessionFor(key, 0)
			if err == nil {
				// Each turn begins by dropping what has lapsed.
				_, err = s.look(ctx, n, was.name, func(*turn) error { return nil })
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if o := s.mine[key]; o != nil && o.lapses.Equal(was.lapses) { // else it is not removed
				if err == nil || driver.IsPermanent(err) {
					delete(s.views, was.name)
					delete(s.mine, key)
				} else {
					mu.Lock()
					all = false
					mu.Unlock()
				}
			}
		})
	}
	work.Wait()
	return all
}

func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	groups := make(map[*session][]int)
	for i, r := range rs {
		if n, _, err := s.sessionFor(keyOf(r), r.TTL); err != nil {
			report(i, driver.Status{}, err)
		} else {
			groups[n] = append(groups[n], i)
		}
	}
	var work sync.WaitGroup
	for n, indices := range groups {
		work.Go(func() { s.renewAll(ctx, n, rs, indices, report) })
	}
	work.Wait()
}

// round is one write that confirms that a session lives, for all that are renewed
// by it.
type round struct {
	n       *session
	sent    time.Time
	changes uint64 // of the session, before that
	pulse   *pulse // of the session, before that
}

// renewAll renews claims of one session: a majority confirms that it lives, once
// for all, and each claim is there as long as its queue says so.
func (s *store) renewAll(ctx context.Context, n *session, rs []driver.Ref, indices []int, report func(int, driver.Status, error)) {
	o := round{n: n, sent: time.Now()}
	_, err := n.prepare(ctx)
	o.changes, o.pulse = n.changes.Load(), n.beat()
	if err == nil {
		err = n.touch(ctx)
	}
	if err != nil {
		for _, i := range indices {
			report(i, driver.Status{}, err)
		}
		return
	}
	var work sync.WaitGroup
	limit := make(chan struct{}, 64)
	for _, i := range indices {
		if st, ok := s.renewKnown(ctx, o, rs[i]); ok {
			report(i, st, nil)
			continue
		}
		limit <- struct{}{}
		work.Go(func() {
			defer func() { <-limit }()
			st, err := s.renew(ctx, o, rs[i])
			report(i, st, err)
		})
	}
	work.Wait()
}

// renewKnown renews a claim that holds without asking for it: its queue was read
// with a watch, and the watch has seen nothing up to the reply to that write.
//
// Invariant: the server tells what a watch has seen before it replies anything
// that comes later, on the same connection.
func (s *store) renewKnown(ctx context.Context, o round, r driver.Ref) (st driver.Status, ok bool) {
	s.mu.Lock()
	own := s.mine[keyOf(r)]
	if own == nil || own.session != o.n || own.name != r.Name || own.changes != o.changes || o.n.changes.Load() != o.changes || fired(own.watch) {
		s.mu.Unlock()
		return st, false
	}
	v := own.view
	s.mu.Unlock()
	if v.lingers() {
		return st, false
	}
	t, err := s.newTurn(ctx, o.n, r.Name, v)
	if err != nil || s.renewIn(t, r, o.sent) != driver.Holding {
		return st, false
	}
	if changed, err := t.finish(); changed || err != nil {
		return st, false
	}
	t.pulse = o.pulse
	return t.status(r.ID, driver.Holding, o.sent, r.TTL), true
}

func (s *store) renewIn(t *turn, r driver.Ref, sent time.Time) driver.State {
	c := t.q.Find(r.ID)
	if c == nil || c.Mark != r.Mark || c.Lingering {
		return driver.Gone
	}
	if !s.extend(keyOf(r), r.Name, t.n.class, sent, r.TTL) {
		return driver.Gone // the reaper removes it
	}
	t.Session = t.session(r.ID)
	t.ttls[r.ID] = r.TTL
	used := t.used(r)
	if used <= c.Token {
		used = 0 // nothing new
	}
	return t.Op.Renew(t.q, driver.Ref{ID: r.ID, Mark: r.Mark, TTL: r.TTL, Used: used})
}

func (s *store) renew(ctx context.Context, o round, r driver.Ref) (st driver.Status, err error) {
	n := o.n
	if _, err := n.prepare(ctx); err != nil {
		return st, err
	}
	v, watch, err := s.load(ctx, n, r.Name, true)
	if err != nil {
		return st, err
	}
	var state driver.State
	t, err := s.lookAt(ctx, n, r.Name, v, func(t *turn) error {
		state = s.renewIn(t, r, o.sent)
		return nil
	})
	if err != nil {
		return st, err
	}
	switch {
	case state != driver.Gone:
		s.mu.Lock()
		if own := s.mine[keyOf(r)]; own != nil && t.v == v && watch != nil {
			own.session, own.view, own.watch, own.changes = n, v, watch, o.changes
		}
		s.mu.Unlock()
	case t.q.State(r) == driver.Gone:
		s.see(r.Name, nil)
		s.disown(keyOf(r))
	}
	t.pulse = o.pulse
	return t.status(r.ID, state, o.sent, r.TTL), nil
}
