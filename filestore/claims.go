package filestore

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/queue"
)

// probeEvery is how often a waiting claim looks whether those in front of it
// are still alive, and whether a wake-up was lost; and how often this process
// looks where the file system does not tell it of changes.
const probeEvery = 100 * time.Millisecond

func (s *store) Enter(ctx context.Context, c driver.Claim) (st driver.Status, err error) {
	if _, err := s.begun(ctx); err != nil {
		return st, err
	}
	sent := time.Now()
	var refused error
	dead := s.dead
	if c.Try {
		dead = s.asker() // it will not look again
	}
	err = s.change(ctx, c.Name, func(q *queue.Queue, o *queue.Op) {
		bury(q, o, c.ID, dead)
		var state driver.State
		state, refused = o.Enter(q, &c)
		st = q.Status(c.ID, state, o.Now, sent, c.TTL)
	})
	return st, cmp.Or(err, queue.NameLimit(refused, c.Name))
}

func (s *store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	_ = s.startMail(ctx) // without hints it looks for itself
	bell, done := s.claims.Subscribe(r.ID)
	defer done()
	k, forget := s.papers.of(r.Name)
	defer forget()
	first, err := s.look(ctx, r, k, 0)
	if err != nil || first.State != driver.Waiting {
		return first, err
	}
	st := first
	tick := time.NewTimer(s.pace(&st))
	defer tick.Stop()
	for {
		rung := false
		select {
		case <-bell:
			rung = true
		case <-tick.C:
		case <-ctx.Done():
			return st, ctx.Err()
		case <-s.closed:
			return st, driver.ErrClosed
		}
		age := s.probe / 2
		if rung {
			age = 0
		}
		if st, err = s.look(ctx, r, k, age); err != nil || rung || st.State != driver.Waiting || moved(&first, &st) {
			return st, err
		}
		tick.Reset(s.pace(&st))
	}
}

// pace is how long a waiting claim waits until it looks by itself. Those in
// front look for the dead and for lost hints; the others look at how far they
// have come, the less often the farther behind they are, so that all together
// cost little, however many they are.
func (s *store) pace(st *driver.Status) time.Duration {
	return s.probe * time.Duration(1+min(st.Ahead/front, 19))
}

// front is how many waiting claims take care of what stands in their way.
const front = 8

// moved reports whether a claim waits in another place than before, near
// enough to the front to matter.
func moved(a, b *driver.Status) bool {
	return b.Ahead < front && (a.Ahead != b.Ahead || (a.Blocker == nil) != (b.Blocker == nil) ||
		a.Blocker != nil && a.Blocker.ID != b.Blocker.ID)
}

// look returns the status of a claim, as it was no longer than age ago. It
// changes the queue only if a claim in it has run out, or stands in the way and
// is a dead client's.
func (s *store) look(ctx context.Context, r driver.Ref, k *known, age time.Duration) (st driver.Status, err error) {
	if s.glance(&st, r, k, age) {
		return st, nil
	}
	err = s.change(ctx, r.Name, func(q *queue.Queue, o *queue.Op) {
		o.Look(q)
		bury(q, o, r.ID, s.dead)
		st = q.Status(r.ID, q.State(r), o.Now, time.Time{}, 0)
	})
	return st, err
}

// glance is look without a change; it reports whether none is needed. One reading
// serves all who look at about the same time. What it cannot read is for who has the
// lock to tell.
func (s *store) glance(st *driver.Status, r driver.Ref, k *known, age time.Duration) bool {
	wanted := time.Now().Add(-age)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.read.Before(wanted) {
		if s.peek(k, r.Name) != nil {
			return false
		}
	}
	q := &k.queue
	now := s.clock.now()
	if s.overdue(q, now, r.ID) {
		return false
	}
	*st = q.Status(r.ID, q.State(r), now, time.Time{}, 0)
	return true
}

func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if len(rs) == 1 {
		s.renew(ctx, rs, []int{0}, report)
		return
	}
	// The claims of a name are renewed in one step, and no name waits for one
	// that is locked.
	var parts [shards]map[string][]int
	for i, r := range rs {
		k := shardOf(r.Name)
		if parts[k] == nil {
			parts[k] = make(map[string][]int)
		}
		parts[k][r.Name] = append(parts[k][r.Name], i)
	}
	var wg sync.WaitGroup
	for _, names := range parts {
		if len(names) > 0 {
			wg.Go(func() {
				for name, of := range names {
					if s.queues.free(name) {
						s.renew(ctx, rs, of, report)
					} else { // by somebody who may be stopped
						wg.Go(func() { s.renew(ctx, rs, of, report) })
					}
				}
			})
		}
	}
	wg.Wait()
}

// renew renews claims of one name.
func (s *store) renew(ctx context.Context, rs []driver.Ref, of []int, report func(int, driver.Status, error)) {
	name := rs[of[0]].Name
	sts := make([]driver.Status, len(of))
	kept := make([]bool, len(of))
	_, err := s.begun(ctx)
	if err == nil {
		sent := time.Now()
		err = s.change(ctx, name, func(q *queue.Queue, o *queue.Op) {
			for k, i := range of {
				r := &rs[i]
				state := o.Renew(q, *r)
				if state == driver.Holding {
					handOver(q.Find(r.ID), r.HandOver, s.id)
				}
				sts[k] = q.Status(r.ID, state, o.Now, sent, r.TTL)
			}
		})
		if disk.IsFull(err) {
			// Something has run out, say, and to write that takes room. To write what
			// holds over takes none.
			sent = time.Now()
			if kerr := s.change(ctx, name, func(q *queue.Queue, o *queue.Op) {
				for k, i := range of {
					r := &rs[i]
					if kept[k] = o.Keep(q, *r); kept[k] {
						sts[k] = q.Status(r.ID, driver.Holding, o.Now, sent, r.TTL)
					}
				}
			}); kerr != nil {
				clear(kept)
			}
		}
	}
	for k, i := range of {
		if kept[k] {
			report(i, sts[k], nil)
		} else {
			report(i, sts[k], err)
		}
	}
}

// handOver unties the claim from its owner's session, or ties it again, if the
// owner has changed its mind.
//
// Invariant: a claim that was given up is no session's until it is adopted or its
// owner takes it back, whatever comes late of what the owner has sent before.
func handOver(c *queue.Claim, n int64, session string) {
	if n <= c.HandOver {
		return
	}
	c.HandOver, c.Session = n, session
	if n%2 == 1 {
		c.Session = ""
	}
}

func (s *store) Adopt(ctx context.Context, a driver.Adoption) (st driver.Status, err error) {
	if _, err := s.begun(ctx); err != nil {
		return st, err
	}
	sent := time.Now()
	var refused error
	err = s.change(ctx, a.Name, func(q *queue.Queue, o *queue.Op) {
		bury(q, o, a.ID, s.dead)
		var state driver.State
		state, refused = o.Adopt(q, &a)
		st = q.AdoptStatus(&a, state, o.Now, sent)
	})
	return st, cmp.Or(err, queue.NameLimit(refused, a.Name))
}

func (s *store) Leave(ctx context.Context, r driver.Ref) (was driver.State, err error) {
	owner := s.id
	err = s.change(ctx, r.Name, func(q *queue.Queue, o *queue.Op) {
		if c := q.Find(r.ID); c != nil {
			owner = c.Session
		}
		was = o.Leave(q, r)
	})
	if err != nil {
		return was, err
	}
	s.claims.Ring(r.ID)
	if owner != s.id {
		s.send(owner, r.ID, mailCheck)
	}
	return was, nil
}

func (s *store) Resize(ctx context.Context, r driver.Ref, units int64) (st driver.Status, err error) {
	err = s.change(ctx, r.Name, func(q *queue.Queue, o *queue.Op) {
		bury(q, o, r.ID, s.asker())
		state := o.Resize(q, r, units)
		st = q.Status(r.ID, state, o.Now, time.Time{}, 0)
	})
	return st, err
}

func (s *store) Break(ctx context.Context, name string) (broken []driver.Entry, err error) {
	err = s.change(ctx, name, func(q *queue.Queue, o *queue.Op) {
		bury(q, o, "", s.asker())
		for _, c := range o.Break(q) {
			broken = append(broken, c.Entry(o.Now))
		}
	})
	return broken, err
}

// SetLimit has the limit on the disk when it returns: it stays there when the
// machine starts anew.
func (s *store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	var refused error
	err := s.change(ctx, name, func(q *queue.Queue, o *queue.Op) {
		bury(q, o, "", s.asker())
		refused = o.SetLimit(q, kind, was, limit)
	})
	return cmp.Or(err, queue.NameLimit(refused, name))
}

func (s *store) Ask(ctx context.Context, name string) error {
	return s.change(ctx, name, func(q *queue.Queue, o *queue.Op) { o.Ask(q) })
}

func (s *store) Inspect(_ context.Context, name string) (driver.Queue, error) {
	k, forget := s.papers.of(name)
	defer forget()
	k.mu.Lock()
	err := s.peek(k, name)
	if err == nil && s.ranOut(&k.queue) {
		err = s.peek(k, name)
	}
	q := k.queue
	q.Claims = slices.Clone(q.Claims)
	k.mu.Unlock() // who changes the queue does not wait for what asks about sessions
	if err != nil {
		return driver.Queue{}, err
	}
	return s.show(name, q, s.asker()), nil
}

// ranOut reports whether a claim of the queue has run out. One that is renewed
// while the queue is read may look so: who cares reads again.
func (s *store) ranOut(q *queue.Queue) bool {
	next := q.NextExpiry()
	return next != 0 && next <= s.clock.now()
}

// show is a queue as others see it, after what time and death have changed in
// it. That is not saved: who asks may not be allowed to, and whoever uses the
// name next does it.
func (s *store) show(name string, q queue.Queue, dead func(string) bool) driver.Queue {
	o := &queue.Op{Now: s.clock.now(), Drawn: queue.Undrawn}
	o.Drop(&q, func(c *queue.Claim) bool { return dead(c.Session) })
	return q.View(name, o.Now)
}

// List yields errors under the names of the files that can't be read.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		dead := s.asker()
		for f, err := range s.queues.files() {
			if err == nil && strings.HasSuffix(f.name, asideSuffix) {
				continue
			}
			if err == nil {
				err = s.ended(ctx)
			}
			if err != nil {
				yield(driver.Queue{}, err)
				return
			}
			v, err := s.listed(f, prefix, dead)
			if err != nil {
				err = &driver.NameError{Name: strings.TrimSuffix(f.name, queueSuffix), Err: err}
			}
			if (err != nil || len(v.Claims) > 0) && !yield(v, err) {
				return
			}
		}
	}
}

// listed is the queue in a file; without claims if its name has another prefix.
func (s *store) listed(f entry, prefix string, dead func(string) bool) (v driver.Queue, err error) {
	name, q, err := s.loadFile(f)
	if err == nil && s.ranOut(&q) {
		name, q, err = s.loadFile(f)
	}
	if err != nil || !strings.HasPrefix(name, prefix) {
		return v, err
	}
	return s.show(name, q, dead), nil
}
