package sqlqueue

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// note notes what became of a claim, for the owner with that mark.
func (s *store) note(id, mark, name string, ttl time.Duration, st *driver.Status, q *queue.Queue, row *Row) {
	c := q.Find(id)
	s.own.put(id, mark, name, ttl, st, row, allOf(q, c), aloneIn(q, c, row), c != nil && c.Session != "" && c.Session == s.channel())
	if st.State == driver.Holding {
		s.post.holds()
	}
}

// aloneIn returns what leaving needs to know of a claim that holds alone.
func aloneIn(q *queue.Queue, c *queue.Claim, row *Row) *soleness {
	if c == nil || !c.Holding() || c.Lingering || len(q.Claims) != 1 || q.Declared != 0 {
		return nil
	}
	return &soleness{ends: c.Expires - row.Since, used: c.Used}
}

// all is everything that there is of a name; the zero value is nothing.
type all struct {
	kind  driver.Kind
	limit int64
}

// allOf returns everything, if that is what the claim wants or holds.
func allOf(q *queue.Queue, c *queue.Claim) all {
	if c == nil || c.Units != q.Limit || q.Declared != 0 {
		return all{}
	}
	return all{q.Kind, q.Limit}
}

// lookFor is how long a look may take before it is made again: on a connection that is
// dead one of Wait would keep the name's lane for as long as the claim waits, and
// one for all claims would be the last.
const lookFor = 5 * time.Second

func (s *store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	s.post.begin()
	for {
		granted, news := s.own.take(r.ID)
		if granted != nil {
			return *granted, nil
		}
		if news != nil { // else nothing is known of it, and what comes from now on is not enough
			if !s.post.up.Load() {
				s.post.wake()
			}
			select {
			case <-news:
			case <-ctx.Done():
				return driver.Status{}, ctx.Err()
			case <-s.ctx.Done():
				return driver.Status{}, driver.ErrClosed
			}
			if st := s.own.taken(r.ID); st != nil {
				return *st, nil
			}
		}
		one, cancel := context.WithTimeout(ctx, lookFor)
		st, err := s.see(one, r)
		late := err != nil && one.Err() != nil && s.alive(ctx) == nil
		cancel()
		if err != nil {
			s.own.doubt(r.ID) // which nobody has seen
		}
		if !late && (err != nil || st.State != driver.Waiting) {
			return st, err
		}
	}
}

// see returns the status of a claim without renewing it.
func (s *store) see(ctx context.Context, r driver.Ref) (driver.Status, error) {
	var out outcome
	err := s.together(ctx, s.entering(r.Name), r.Name, &request{rule: func(q *queue.Queue, o *queue.Op, row *Row) (bool, error) {
		o.Look(q)
		out = outcome{q.Status(r.ID, q.State(r), o.Now, noTime, 0), q, row}
		return false, nil
	}}, nil)
	if err != nil {
		return driver.Status{}, err
	}
	s.note(r.ID, r.Mark, r.Name, time.Minute, &out.st, out.q, out.row)
	return out.st, nil
}

func (s *store) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	return call(ctx, s, s.entering(a.Name), func(w *work) (st driver.Status, err error) {
		sent := time.Now()
		var row *Row
		var q *queue.Queue
		err = w.change(a.Name, nil, func(now *queue.Queue, o *queue.Op, at *Row) (bool, error) {
			state, err := o.Adopt(now, &a)
			st, q, row = now.AdoptStatus(&a, state, o.Now, sent), now, at
			return state == driver.Holding, queue.NameLimit(err, a.Name)
		})
		if err == nil {
			s.note(a.ID, a.Mark, a.Name, a.TTL, &st, q, row)
		}
		return st, err
	})
}

func (s *store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	var was driver.State
	var like guess
	rule := func(q *queue.Queue, o *queue.Op, _ *Row) (bool, error) {
		was, like = o.Leave(q, r), likeness(q, "")
		return was != driver.Gone, nil
	}
	passed := false
	// A repetition would find the claim gone, which is another reply.
	err := s.together(ctx, s.leaving(r.Name), r.Name, &request{rule: rule, once: true}, func(w *work) (err error) {
		if passed, err = w.leave(&r); err == nil && !passed {
			err = w.change(r.Name, nil, rule)
		}
		return err
	})
	if err != nil {
		return driver.Gone, err
	}
	s.own.forget(&r)
	if passed {
		return driver.Holding, nil
	}
	s.known.saw(r.Name, like)
	return was, nil
}

// leave does it by one statement, if the claim holds everything, and reports
// whether it did.
func (w *work) leave(r *driver.Ref) (bool, error) {
	s := w.s
	if s.sweep.due() {
		w.after = func(ctx context.Context) { s.sweep.run(ctx, s, r.Name) }
	}
	if stamp, how := s.own.alone(r); stamp != 0 && r.Linger == 0 {
		left, err := s.Dialect.Leave(w.ctx, s.DB, r.Name, stamp, how.ends, max(how.used, r.Used), newStamp())
		if left && err == nil {
			s.known.saw(r.Name, idle)
		}
		if left || err != nil {
			return left, err
		}
	}
	if a := s.own.holdsAll(r); a.limit != 0 && r.Linger == 0 {
		return w.pass(passage(r, a, s.channel()))
	}
	return false, nil
}

// pass hands over to the next one by one statement, and tells it if it is here.
//
// Invariant: what the statement does to the row is what queue.Op.Leave would, but
// that claims farther behind that have run out stay for the next operation. It is
// not conditional on a stamp, for it decides by the row as it finds it: a repeated
// or late one finds another claim in front, and changes nothing.
func (w *work) pass(p *Passage) (bool, error) {
	if err := w.alive(); err != nil {
		return false, err
	}
	s := w.s
	passed, row, err := s.Dialect.Pass(w.ctx, s.DB, p)
	switch {
	case err != nil && !again(s, err):
		s.own.doubtName(p.Name)
	case passed && row == nil:
		s.known.saw(p.Name, busy)
		if s.own.stir(p.Name) {
			s.post.wake()
		}
	case passed:
		q, err := row.queue()
		if err != nil {
			return false, err
		}
		s.known.saw(p.Name, likeness(q, ""))
		if len(q.Claims) > 0 {
			next := q.Claims[0].ID
			s.post.granted(next, q.Status(next, driver.Holding, row.Now, noTime, 0))
		}
	}
	return passed, err
}

func (s *store) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	return call(ctx, s, s.entering(r.Name), func(w *work) (st driver.Status, err error) {
		err = w.change(r.Name, nil, func(q *queue.Queue, o *queue.Op, _ *Row) (bool, error) {
			state := o.Resize(q, r, units)
			st = q.Status(r.ID, state, o.Now, noTime, 0)
			// Time alone may have granted it a moment before.
			return state == driver.Holding || state == driver.Refused, nil
		})
		return st, err
	})
}

func (s *store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	return call(ctx, s, s.entering(name), func(w *work) (broken []driver.Entry, err error) {
		err = w.change(name, nil, func(q *queue.Queue, o *queue.Op, _ *Row) (bool, error) {
			broken = nil
			for _, c := range o.Break(q) {
				broken = append(broken, c.Entry(o.Now))
			}
			return len(broken) > 0, nil
		})
		return broken, err
	})
}

func (s *store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	_, err := call(ctx, s, s.entering(name), func(w *work) (struct{}, error) {
		return struct{}{}, w.change(name, nil, func(q *queue.Queue, o *queue.Op, _ *Row) (bool, error) {
			return true, queue.NameLimit(o.SetLimit(q, kind, was, limit), name)
		})
	})
	return err
}

func (s *store) Ask(ctx context.Context, name string) error {
	_, err := call(ctx, s, s.entering(name), func(w *work) (struct{}, error) {
		return struct{}{}, w.change(name, nil, func(q *queue.Queue, o *queue.Op, _ *Row) (bool, error) {
			o.Ask(q)
			return false, nil
		})
	})
	return err
}

func (s *store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return call(ctx, s, s.reading(), func(w *work) (driver.Queue, error) {
		row, err := s.Dialect.Load(w.ctx, s.DB, name)
		if err != nil {
			return driver.Queue{}, err
		}
		return row.view()
	})
}

// view returns the queue as others see it, without what has run out. Whom that
// lets in is granted by the next operation, for reading writes nothing.
func (r *Row) view() (driver.Queue, error) {
	q, err := r.queue()
	if err != nil {
		return driver.Queue{Name: r.Name}, err
	}
	q.Claims = slices.DeleteFunc(q.Claims, func(c queue.Claim) bool { return c.Expires <= r.Now })
	return q.View(r.Name, r.Now), nil
}

// List reads a few rows first, so that there is something to see, and then ever
// more at a time, as long as they are not large.
const (
	firstPage = 100
	lastPage  = 4000
	largePage = 1 << 20 // bytes
)

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		if prefix != "" && driver.CheckName(prefix) != nil {
			return // no name begins like that
		}
		from, after := prefix, false
		for page := firstPage; ; {
			rows, err := call(ctx, s, s.reading(), func(w *work) ([]Row, error) {
				return s.Dialect.Page(w.ctx, s.DB, from, after, page)
			})
			if err != nil {
				yield(driver.Queue{}, err)
				return
			}
			size := 0
			for i := range rows {
				r := &rows[i]
				if !strings.HasPrefix(r.Name, prefix) {
					return
				}
				size += len(r.Body)
				v, err := r.view()
				if err != nil {
					err = &driver.NameError{Name: r.Name, Err: err}
				} else if len(v.Claims) == 0 {
					continue
				}
				if !yield(v, err) {
					return
				}
			}
			if len(rows) < page {
				return
			}
			from, after = rows[len(rows)-1].Name, true
			if size > largePage {
				page = max(1, page/2)
			} else {
				page = min(2*page, lastPage)
			}
		}
	}
}
