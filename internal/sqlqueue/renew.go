package sqlqueue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	var wg sync.WaitGroup
	defer wg.Wait()
	slots, singles := make(chan struct{}, batches), make(chan struct{}, alone)
	single := func(i int) {
		wg.Go(func() {
			singles <- struct{}{}
			defer func() { <-singles }()
			st, err := call(ctx, s, s.renewing(rs[i].Name), func(w *work) (driver.Status, error) {
				if len(good) > 1 {
					w.tries = aloneTries
				}
				return w.renewOne(&rs[i], time.Now())
			})
			s.renewed(rs, i, renewal{st, err}, report)
		})
	}
	// Batches of different rows, in order of their names, do not meet.
	slices.SortStableFunc(good, func(a, b int) int { return cmp.Compare(rs[a].Name, rs[b].Name) })
	for part := range slices.Chunk(good, batch) {
		slots <- struct{}{}
		wg.Go(func() {
			rest := s.renewTogether(ctx, rs, part, report)
			<-slots
			for _, i := range rest {
				single(i)
			}
		})
	}
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

const (
	alone = 4 // claims of a batch renewed each by itself, at once: fewer than there are connections
	// aloneTries is how often each is tried, if others are to come too; its owner
	// tries again.
	aloneTries = 2
)

// renewed reports what became of a claim.
func (s *Store) renewed(rs []driver.Ref, i int, r renewal, report func(int, driver.Status, error)) {
	if r.err != nil {
		report(i, driver.Status{}, s.failed("renew", rs[i].Name, r.err))
	} else {
		report(i, r.st, nil)
	}
}

// renewTogether renews those claims whose rows nobody else changes or has locked
// meanwhile, and reports them. It returns the others.
//
// Invariant: what is wrong with one row (unreadable, too large, locked) is told of
// its claims alone, and nobody else's are told later for it.
func (s *Store) renewTogether(ctx context.Context, rs []driver.Ref, part []int, report func(int, driver.Status, error)) (rest []int) {
	refs := make([]driver.Ref, len(part))
	for k, i := range part {
		refs[k] = rs[i]
	}
	sent := time.Now()
	out, err := call(ctx, s, route{}, func(w *work) ([]*renewal, error) { return w.renewAll(refs, sent) })
	for k, i := range part {
		switch {
		case err != nil:
			s.renewed(rs, i, renewal{err: err}, report)
		case out[k] == nil:
			rest = append(rest, i)
		default:
			s.renewed(rs, i, *out[k], report)
		}
	}
	return rest
}

// renewedRow is a row and what the rules have made of it.
type renewedRow struct {
	next Change
	q    *queue.Queue
	out  []renewal // of its claims
}

// renewAll renews the claims whose rows can be saved together. What it returns is
// nil for the others.
func (w *work) renewAll(refs []driver.Ref, sent time.Time) ([]*renewal, error) {
	s := w.s
	byName := make(map[string][]int)
	for i := range refs {
		byName[refs[i].Name] = append(byName[refs[i].Name], i)
	}
	rows, err := s.Dialect.LoadAll(w.ctx, s.DB, slices.Sorted(maps.Keys(byName)))
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(rows))
	done := make(map[string]*renewedRow, len(rows))
	out := make([]*renewal, len(refs))
	var chs []Change
	for i := range rows {
		name := rows[i].Name
		there[name] = true
		r, err := w.renewRow(&rows[i], refs, byName[name], sent)
		switch {
		case err != nil:
			for _, i := range byName[name] {
				out[i] = &renewal{err: s.explain(err)}
			}
		case r != nil:
			done[name] = r
			if r.next.Stamp != r.next.Was {
				chs = append(chs, r.next)
			}
		}
	}
	saved := make(map[string]bool)
	var saving error
	if len(chs) > 0 {
		if err := w.alive(); err != nil {
			return nil, err
		}
		saved, saving = s.Dialect.SaveAll(w.ctx, s.DB, chs)
		if fault, _ := s.Dialect.Fault(saving); fault == Again || fault == Lasting {
			saving = nil // of some row: each shows by itself
		}
	}
	for name, is := range byName {
		r := done[name]
		for k, i := range is {
			switch {
			case !there[name]:
				s.own.forget(&refs[i])
				out[i] = &renewal{} // Gone
			case r != nil && (saved[name] || r.next.Stamp == r.next.Was):
				out[i] = &r.out[k]
				s.noteRenewed(&refs[i], &r.out[k].st, r.q, &r.next.Row)
			case r != nil && saving != nil:
				out[i] = &renewal{err: s.explain(saving)}
			}
		}
	}
	return out, nil
}

// renewRow renews claims of one row, and returns what is to be saved; nil if the
// row is to be done by itself, since others are to be told.
func (w *work) renewRow(row *Row, refs []driver.Ref, is []int, sent time.Time) (*renewedRow, error) {
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
	out := make([]renewal, len(is))
	for k, i := range is {
		out[k].st = q.Status(refs[i].ID, states[k], o.Now, sent, refs[i].TTL)
	}
	r := &renewedRow{out: out, next: Change{Row: Row{Name: row.Name, Last: q.Last, Asked: row.Asked, Stamp: row.Stamp}, Was: row.Stamp}, q: q}
	if some {
		r.next.Stamp = newStamp()
		r.next.Body, err = body(q)
	}
	return r, err
}

func (w *work) renewOne(r *driver.Ref, sent time.Time) (st driver.Status, err error) {
	var row *Row
	var q *queue.Queue
	err = w.change(r.Name, nil, func(now *queue.Queue, o *queue.Op, at *Row) (bool, error) {
		state := o.Renew(now, *r)
		st, q, row = now.Status(r.ID, state, o.Now, sent, r.TTL), now, at
		return state != driver.Gone, nil
	})
	if err == nil {
		w.s.noteRenewed(r, &st, q, row)
	}
	return st, err
}

// noteRenewed is note for a renewal. It tells a holder that is to look for that
// itself that it was asked for since: the next look would see no change of the
// row.
func (s *Store) noteRenewed(r *driver.Ref, st *driver.Status, q *queue.Queue, row *Row) {
	asked := st.State == driver.Holding && s.own.askedSince(r.ID, row, s.post.up.Load())
	s.note(r.ID, r.Mark, r.Name, r.TTL, st, q, row)
	if asked {
		s.post.notify(driver.Notice{Kind: driver.Wanted, ID: r.ID})
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
