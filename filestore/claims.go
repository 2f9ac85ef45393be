package filestore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// probeEvery is how often a waiting claim looks whether those in front of it
// are still alive, and whether a wake-up was lost; and how often this process
// looks where the file system does not tell it of changes.
const probeEvery = 100 * time.Millisecond

// Enter implements [driver.Store].
func (s *Store) Enter(ctx context.Context, c driver.Claim) (st driver.Status, err error) {
	if err := c.Check(); err != nil {
		return st, fmt.Errorf("enter: %w", err)
	}
	end, err := s.begin(ctx, "enter", c.Name)
	if err != nil {
		return st, err
	}
	defer end()
	if err := s.alive(); err != nil {
		return st, fmt.Errorf("enter %q: %w", c.Name, err)
	}
	sent := time.Now()
	var refused error
	err = s.change(ctx, "enter", c.Name, func(q *queue.Queue, o *queue.Op) {
		s.bury(q, o, c.ID)
		var state driver.State
		o.Session = s.id
		state, refused = o.Enter(q, &c)
		st = q.Status(c.ID, state, o.Now, sent, c.TTL)
	})
	if err != nil {
		return driver.Status{}, err
	}
	return st, queue.NameLimit(refused, c.Name)
}

// Wait implements [driver.Store].
func (s *Store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	end, err := s.beginRef(ctx, "wait for", r)
	if err != nil {
		return driver.Status{}, err
	}
	defer end()
	s.startMail()
	bell, done := s.claims.Subscribe(r.ID)
	defer done()
	first, err := s.look(ctx, r)
	if err != nil || first.State != driver.Waiting {
		return first, err
	}
	tick := time.NewTicker(s.probe)
	defer tick.Stop()
	for {
		rung := false
		select {
		case <-bell:
			rung = true
		case <-tick.C:
		case <-ctx.Done():
		case <-s.closed:
		}
		if err := s.check(ctx, "wait for", r.Name); err != nil {
			return driver.Status{}, err
		}
		st, err := s.look(ctx, r)
		if err != nil || rung || st.State != driver.Waiting || moved(&first, &st) {
			return st, err
		}
	}
}

// moved reports whether a claim waits in another place than before.
func moved(a, b *driver.Status) bool {
	return a.Ahead != b.Ahead || (a.Blocker == nil) != (b.Blocker == nil) ||
		a.Blocker != nil && a.Blocker.ID != b.Blocker.ID
}

// look answers the status of a claim. It changes the queue only if a claim in
// it has run out, or stands in the way and is a dead client's.
func (s *Store) look(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	q, err := s.peek(r.Name)
	if err != nil {
		return st, fmt.Errorf("wait for %q: %w", r.Name, hopeless(err))
	}
	now := s.clock.now()
	if !s.overdue(&q, now, r.ID) {
		return q.Status(r.ID, q.State(r), now, time.Time{}, 0), nil
	}
	err = s.change(ctx, "wait for", r.Name, func(q *queue.Queue, o *queue.Op) {
		o.Look(q)
		s.bury(q, o, r.ID)
		st = q.Status(r.ID, q.State(r), o.Now, time.Time{}, 0)
	})
	return st, err
}

// beginRef is begin for calls about a claim.
func (s *Store) beginRef(ctx context.Context, what string, r driver.Ref) (func(), error) {
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, r.Name, err)
	}
	return s.begin(ctx, what, r.Name)
}

// beginName is begin for calls about a name.
func (s *Store) beginName(ctx context.Context, what, name string) (func(), error) {
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return s.begin(ctx, what, name)
}

// Renew implements [driver.Store].
func (s *Store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if len(rs) == 1 {
		st, err := s.renew(ctx, rs[0])
		report(0, st, err)
		return
	}
	// By shard, so that one that is locked for long delays its own names only.
	var parts [shards][]int
	for i, r := range rs {
		k := shardOf(r.Name)
		parts[k] = append(parts[k], i)
	}
	var wg sync.WaitGroup
	for _, part := range parts {
		if len(part) > 0 {
			wg.Go(func() {
				for _, i := range part {
					st, err := s.renew(ctx, rs[i])
					report(i, st, err)
				}
			})
		}
	}
	wg.Wait()
}

func (s *Store) renew(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	if err := driver.CheckTTL(r.TTL); err != nil {
		return st, fmt.Errorf("renew %q: %w", r.Name, err)
	}
	end, err := s.beginRef(ctx, "renew", r)
	if err != nil {
		return st, err
	}
	defer end()
	if err := s.alive(); err != nil {
		return st, fmt.Errorf("renew %q: %w", r.Name, err)
	}
	sent := time.Now()
	err = s.change(ctx, "renew", r.Name, func(q *queue.Queue, o *queue.Op) {
		state := o.Renew(q, r)
		st = q.Status(r.ID, state, o.Now, sent, r.TTL)
	})
	if err != nil {
		return driver.Status{}, err
	}
	return st, nil
}

// Adopt implements [driver.Store].
func (s *Store) Adopt(ctx context.Context, a driver.Adoption) (st driver.Status, err error) {
	if err := a.Check(); err != nil {
		return st, fmt.Errorf("adopt: %w", err)
	}
	end, err := s.begin(ctx, "adopt", a.Name)
	if err != nil {
		return st, err
	}
	defer end()
	if err := s.alive(); err != nil {
		return st, fmt.Errorf("adopt %q: %w", a.Name, err)
	}
	sent := time.Now()
	var refused error
	err = s.change(ctx, "adopt", a.Name, func(q *queue.Queue, o *queue.Op) {
		s.bury(q, o, a.ID)
		o.Session = s.id
		var state driver.State
		state, refused = o.Adopt(q, &a)
		st = q.AdoptStatus(&a, state, o.Now, sent)
	})
	if err != nil {
		return driver.Status{}, err
	}
	return st, queue.NameLimit(refused, a.Name)
}

// Leave implements [driver.Store].
func (s *Store) Leave(ctx context.Context, r driver.Ref) (was driver.State, err error) {
	end, err := s.beginRef(ctx, "leave", r)
	if err != nil {
		return was, err
	}
	defer end()
	owner := s.id
	err = s.change(ctx, "leave", r.Name, func(q *queue.Queue, o *queue.Op) {
		if c := q.Find(r.ID); c != nil {
			owner = c.Session
		}
		was = o.Leave(q, r)
	})
	if err != nil {
		return driver.Gone, err
	}
	s.claims.Ring(r.ID)
	if owner != s.id {
		s.send(owner, r.ID, mailCheck)
	}
	return was, nil
}

// Resize implements [driver.Store].
func (s *Store) Resize(ctx context.Context, r driver.Ref, units int64) (st driver.Status, err error) {
	if err := driver.CheckUnits(units); err != nil {
		return st, fmt.Errorf("resize %q: %w", r.Name, err)
	}
	end, err := s.beginRef(ctx, "resize", r)
	if err != nil {
		return st, err
	}
	defer end()
	err = s.change(ctx, "resize", r.Name, func(q *queue.Queue, o *queue.Op) {
		s.bury(q, o, r.ID)
		state := o.Resize(q, r, units)
		st = q.Status(r.ID, state, o.Now, time.Time{}, 0)
	})
	if err != nil {
		return driver.Status{}, err
	}
	return st, nil
}

// Break implements [driver.Store].
func (s *Store) Break(ctx context.Context, name string) (broken []driver.Entry, err error) {
	end, err := s.beginName(ctx, "break", name)
	if err != nil {
		return nil, err
	}
	defer end()
	err = s.change(ctx, "break", name, func(q *queue.Queue, o *queue.Op) {
		s.bury(q, o, "")
		for _, c := range o.Break(q) {
			broken = append(broken, c.Entry(o.Now))
		}
	})
	if err != nil {
		return nil, err
	}
	return broken, nil
}

// SetLimit implements [driver.Store]. The limit is on the disk when it returns,
// and stays there when the machine starts anew.
func (s *Store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	if err := cmp.Or(kind.Check(), driver.CheckLimit(was), driver.CheckLimit(limit)); err != nil {
		return fmt.Errorf("set limit of %q: %w", name, err)
	}
	end, err := s.beginName(ctx, "set limit of", name)
	if err != nil {
		return err
	}
	defer end()
	var refused error
	err = s.change(ctx, "set limit of", name, func(q *queue.Queue, o *queue.Op) {
		s.bury(q, o, "")
		refused = o.SetLimit(q, kind, was, limit)
	})
	if err != nil {
		return err
	}
	return queue.NameLimit(refused, name)
}

// Ask implements [driver.Store].
func (s *Store) Ask(ctx context.Context, name string) error {
	end, err := s.beginName(ctx, "ask", name)
	if err != nil {
		return err
	}
	defer end()
	return s.change(ctx, "ask", name, func(q *queue.Queue, o *queue.Op) { o.Ask(q) })
}

// Inspect implements [driver.Store].
func (s *Store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	end, err := s.beginName(ctx, "inspect", name)
	if err != nil {
		return driver.Queue{}, err
	}
	defer end()
	q, err := s.peek(name)
	if err != nil {
		return driver.Queue{}, fmt.Errorf("inspect %q: %w", name, hopeless(err))
	}
	return s.view(ctx, name, q)
}

// view answers a queue that was read, after what time and death change in it.
func (s *Store) view(ctx context.Context, name string, q queue.Queue) (v driver.Queue, err error) {
	now := s.clock.now()
	if !s.overdue(&q, now, "") {
		return q.View(name, now), nil
	}
	err = s.change(ctx, "inspect", name, func(q *queue.Queue, o *queue.Op) {
		o.Look(q)
		s.bury(q, o, "")
		v = q.View(name, o.Now)
	})
	return v, err
}

// List implements [driver.Store]. The error for a damaged file does not end the
// sequence.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		end, err := s.begin(ctx, "list", prefix)
		if err != nil {
			yield(driver.Queue{}, err)
			return
		}
		defer end()
		for f, err := range s.queues.files() {
			if err == nil {
				err = s.check(ctx, "list", prefix)
			}
			if err != nil {
				yield(driver.Queue{}, fmt.Errorf("list %q: %w", prefix, hopeless(err)))
				return
			}
			v, err := s.listed(ctx, f, prefix)
			if (err != nil || len(v.Claims) > 0) && !yield(v, err) {
				return
			}
		}
	}
}

func (s *Store) listed(ctx context.Context, f entry, prefix string) (v driver.Queue, err error) {
	name, q, err := s.loadFile(f)
	if err != nil || !strings.HasPrefix(name, prefix) || len(q.Claims) == 0 {
		return v, err
	}
	return s.view(ctx, name, q)
}
