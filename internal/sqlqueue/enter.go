package sqlqueue

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

func (s *store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	e, err := entrance(&c, s.channel())
	if err != nil {
		return driver.Status{}, err
	}
	if !c.Try { // somebody may tell of it before the reply is there
		s.own.expect(c.ID, c.Name, c.TTL)
	}
	var out outcome
	r := &request{size: len(e.Body)}
	r.rule = func(q *queue.Queue, o *queue.Op, row *Row) (bool, error) {
		o.Session = s.channel()
		known := q.Find(c.ID) != nil
		state, err := o.Enter(q, &c)
		if full := len(row.Body)+len(e.Body) > s.Dialect.Most(); err == nil && full && !known && q.Find(c.ID) != nil {
			return false, driver.ErrFull
		}
		out = outcome{q.Status(c.ID, state, o.Now, r.sent, c.TTL), q, row}
		return state == driver.Holding || state == driver.Waiting, queue.NameLimit(err, c.Name)
	}
	err = s.together(ctx, s.entering(c.Name), c.Name, r, func(w *work) error { return w.enter(&c, e, r, &out) })
	if err != nil {
		if !c.Try {
			s.own.forget(&driver.Ref{ID: c.ID})
		}
		return driver.Status{}, err
	}
	if out.q != nil {
		if !c.Try {
			s.post.begin()
		}
		s.known.saw(c.Name, likeness(out.q, c.ID))
		s.note(c.ID, "", c.Name, c.TTL, &out.st, out.q, out.row)
	}
	return out.st, nil
}

// outcome is a claim's status, and its queue and row if there is something to note.
type outcome struct {
	st  driver.Status
	q   *queue.Queue
	row *Row
}

// enter enters a claim that comes alone.
func (w *work) enter(c *driver.Claim, e *Entrance, r *request, out *outcome) error {
	s := w.s
	e.Stamp = newStamp()
	in, err := w.enterByOne(c, e)
	switch {
	case err != nil:
		return err
	case in.token != 0:
		st := driver.Status{State: driver.Holding, Token: in.token, Deadline: driver.Deadline(r.sent, c.TTL)}
		var everything all
		if c.Units == c.Limit {
			st.Spare, everything = queue.Spare, all{c.Kind, c.Limit}
		}
		row := Row{Name: c.Name, Stamp: e.Stamp}
		s.own.put(c.ID, "", c.Name, c.TTL, &st, &row, everything, &soleness{ends: queue.Micros(c.TTL)}, s.channel() != "")
		s.post.holds()
		*out = outcome{st: st}
		return nil
	}
	if !c.Try {
		s.post.begin()
	}
	if in.joined {
		*out = outcome{} // of a rule that was undone
		out.st, err = w.joined(c, in.row, r.sent)
		return err
	}
	if err := w.alive(); err != nil {
		return err
	}
	return w.change(c.Name, in.row, r.rule)
}

// entered is what became of an Entrance.
type entered struct {
	token  int64 // it holds with that, alone
	joined bool  // it stands in the queue, behind others unless the row tells so
	row    *Row  // if it came along: with the claim if that has joined
}

// enterByOne enters by one statement, if one fits: the one that fits what the row
// was like before comes first.
func (w *work) enterByOne(c *driver.Claim, e *Entrance) (in entered, err error) {
	s := w.s
	const first, behind = 1, 2
	var steps [2]int
	was := s.known.guess(c.Name)
	switch was {
	case strange, idle:
		steps = [...]int{first, behind}
	case busy:
		steps = [...]int{behind, first}
	}
	for _, step := range steps {
		if step == 0 || step == behind && c.Try {
			continue
		}
		if err := w.alive(); err != nil {
			return in, err
		}
		if step == first {
			if in.token, in.row, err = s.Dialect.Enter(w.ctx, s.DB, e, was == idle); in.token != 0 {
				s.known.saw(c.Name, idle)
			}
			if was == strange && again(s, err) { // it may have wanted the mark, which a row that is there does not
				return entered{}, nil
			}
		} else if err = e.behind(c); err == nil {
			var row *Row
			if in.joined, row, err = s.Dialect.Join(w.ctx, s.DB, e); in.joined {
				in.row = row
			}
		}
		if err != nil || in.token != 0 || in.joined {
			break
		}
	}
	return in, err
}

// joined returns the status of a claim that stands in the queue by now.
func (w *work) joined(c *driver.Claim, row *Row, sent time.Time) (st driver.Status, err error) {
	s := w.s
	if row == nil {
		if err := w.alive(); err != nil {
			return st, err
		}
		r, err := s.Dialect.Load(w.ctx, s.DB, c.Name)
		if err != nil {
			return st, err
		}
		row = &r
	}
	q, err := row.queue()
	if err != nil {
		return st, err
	}
	st = q.Status(c.ID, q.State(driver.Ref{ID: c.ID}), row.Now, sent, c.TTL)
	s.known.saw(c.Name, likeness(q, c.ID))
	s.note(c.ID, "", c.Name, c.TTL, &st, q, row)
	if st.State == driver.Waiting && st.Ahead == 0 {
		for i := range q.Claims {
			if q.Claims[i].Holding() {
				s.post.wanted(q.Claims[i].ID) // if it is here
			}
		}
	}
	return st, nil
}
