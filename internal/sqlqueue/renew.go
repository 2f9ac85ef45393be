package sqlqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

const (
	batch   = 500 // claims renewed by two statements and one commit
	batches = 2   // under way at once
)

// Renew implements driver.Store.
func (s *Store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	good := make([]int, 0, len(rs))
	for i := range rs {
		if err := cmp.Or(rs[i].Check(), driver.CheckTTL(rs[i].TTL)); err != nil {
			report(i, driver.Status{}, fmt.Errorf("renew: %w", err))
			continue
		}
		good = append(good, i)
	}
	if len(good) <= batch {
		s.renew(ctx, rs, good, report)
		return
	}
	// Batches of different rows, in order of their names, do not meet.
	slices.SortStableFunc(good, func(a, b int) int { return cmp.Compare(rs[a].Name, rs[b].Name) })
	var wg sync.WaitGroup
	slots := make(chan struct{}, batches)
	for len(good) > 0 {
		part := good[:min(batch, len(good))]
		good = good[len(part):]
		slots <- struct{}{}
		wg.Go(func() {
			s.renew(ctx, rs, part, report)
			<-slots
		})
	}
	wg.Wait()
}

// again tells whether an error is one that call deals with.
func again(s *Store, err error) bool {
	if err == nil {
		return false
	}
	fault, _ := s.Dialect.Fault(err)
	return fault == Again
}

type renewal struct {
	st  driver.Status
	err error
}

func (s *Store) renew(ctx context.Context, rs []driver.Ref, part []int, report func(int, driver.Status, error)) {
	if len(part) == 0 {
		return
	}
	refs := make([]driver.Ref, len(part))
	for k, i := range part {
		refs[k] = rs[i]
	}
	sent := time.Now()
	out, err := call(ctx, s, func(w *work) ([]renewal, error) { return w.renewAll(refs, sent) })
	for k, i := range part {
		r := renewal{err: err}
		if err == nil {
			r = out[k]
		}
		if r.err != nil {
			report(i, driver.Status{}, s.failed("renew", rs[i].Name, r.err))
		} else {
			report(i, r.st, nil)
		}
	}
}

// renewed is a row and what the rules have made of it.
type renewed struct {
	next Change
	q    *queue.Queue
}

// renewAll renews all claims: those whose rows nobody else changes meanwhile
// together, the others one by one.
func (w *work) renewAll(refs []driver.Ref, sent time.Time) ([]renewal, error) {
	s := w.s
	out := make([]renewal, len(refs))
	if len(refs) == 1 {
		out[0] = w.renewOne(&refs[0], sent)
		return out, out[0].err
	}
	byName := make(map[string][]int)
	for i := range refs {
		byName[refs[i].Name] = append(byName[refs[i].Name], i)
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	rows, err := s.Dialect.LoadAll(w.ctx, s.DB, names)
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(rows))
	done := make(map[string]*renewed, len(rows))
	var chs []Change
	for i := range rows {
		name := rows[i].Name
		there[name] = true
		r, err := w.renewRow(&rows[i], refs, byName[name], sent, out)
		if err != nil || r == nil {
			continue // see below
		}
		done[name] = r
		if r.next.Stamp != r.next.Was {
			chs = append(chs, r.next)
		}
	}
	saved := make(map[string]bool)
	if len(chs) > 0 {
		slices.SortFunc(chs, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
		if err := w.alive(); err != nil {
			return nil, err
		}
		if saved, err = s.Dialect.SaveAll(w.ctx, s.DB, chs); err != nil {
			return nil, err
		}
	}
	for name, is := range byName {
		r := done[name]
		if !there[name] {
			for _, i := range is {
				s.own.forget(refs[i].ID) // out says Gone
			}
			continue
		}
		if r != nil && (saved[name] || r.next.Stamp == r.next.Was) {
			for _, i := range is {
				s.noteRenewed(refs[i].ID, name, refs[i].TTL, &out[i].st, r.q, &r.next.Row)
			}
			continue
		}
		for _, i := range is {
			out[i] = w.renewOne(&refs[i], sent)
			if again(s, out[i].err) {
				return nil, out[i].err
			}
		}
	}
	return out, nil
}

// renewRow renews claims of one row, and answers what is to be saved; nil if the
// row is to be done by itself, since others are to be told.
func (w *work) renewRow(row *Row, refs []driver.Ref, is []int, sent time.Time, out []renewal) (*renewed, error) {
	q, err := row.queue()
	if err != nil {
		return nil, err
	}
	o := &queue.Op{Now: row.Now, Session: w.s.channel()}
	some := false
	states := make([]driver.State, len(is))
	for k, i := range is {
		states[k] = o.Renew(q, refs[i])
		some = some || states[k] != driver.Gone
	}
	if len(o.Signals) > 0 {
		return nil, nil
	}
	for k, i := range is {
		out[i].st = q.Status(refs[i].ID, states[k], o.Now, sent, refs[i].TTL)
	}
	r := &renewed{next: Change{Row: Row{Name: row.Name, Last: q.Last, Asked: row.Asked, Stamp: row.Stamp}, Was: row.Stamp}, q: q}
	if some {
		r.next.Stamp = newStamp()
		r.next.Body, err = body(q)
	}
	return r, err
}

func (w *work) renewOne(r *driver.Ref, sent time.Time) (out renewal) {
	var row *Row
	var q *queue.Queue
	out.err = w.change(r.Name, nil, func(now *queue.Queue, o *queue.Op, at *Row) (bool, error) {
		state := o.Renew(now, *r)
		out.st, q, row = now.Status(r.ID, state, o.Now, sent, r.TTL), now, at
		return state != driver.Gone, nil
	})
	if out.err == nil {
		w.s.noteRenewed(r.ID, r.Name, r.TTL, &out.st, q, row)
	}
	return out
}

// noteRenewed is note for a renewal. It tells a holder that is to look for that
// itself that it was asked for since: the next look would see no change of the
// row.
func (s *Store) noteRenewed(id, name string, ttl time.Duration, st *driver.Status, q *queue.Queue, row *Row) {
	asked := st.State == driver.Holding && s.own.askedSince(id, row, s.post.up.Load())
	s.note(id, name, ttl, st, q, row)
	if asked {
		s.post.notify(driver.Notice{Kind: driver.Wanted, ID: id})
	}
}

// askedSince tells whether a holder that nobody tells was asked for since it was
// seen in its row. push as for due.
func (g *registry) askedSince(id string, row *Row, push bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.claims[id]
	return e != nil && e.state == driver.Holding && !(push && e.pushed) && e.asked != row.Asked
}
