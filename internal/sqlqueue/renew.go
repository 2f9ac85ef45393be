package sqlqueue

import (
	"cmp"
	"context"
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
	crowd   = 8   // so many that wait for one name go by themselves
)

// Renew: claims that hold are renewed ahead of names of which
// none does. A crowd that waits for one name, whose row is large and contended, is
// renewed by itself, apart from that name's holder; and so is a claim that waits
// alone: these go together where they meet.
func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	tries := 0
	if len(rs) > 1 {
		tries = aloneTries
	}
	every := make([]int, len(rs))
	for i := range rs {
		every[i] = i
	}
	held := &renewals{together: route{}, alone: s.holding}
	waiting := &renewals{together: s.reading(), alone: s.waiting}
	var crowds [][]int
	names := byName(rs, every)
	for _, is := range names {
		holds, waits := s.own.part(rs, is)
		switch {
		case len(waits) >= crowd, len(holds) == 0 && len(names) == 1:
			held.few = append(held.few, holds...)
			crowds = append(crowds, waits)
		case len(holds) == 0:
			waiting.few = append(waiting.few, is...)
		default: // at once
			held.few = append(held.few, is...)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	each := func(names [][]int, turns chan struct{}, way func(name string) route) {
		for _, is := range names {
			wg.Go(func() {
				turns <- struct{}{}
				defer func() { <-turns }()
				s.renewName(ctx, way(rs[is[0]].Name), tries, rs, is, report)
			})
		}
	}
	for _, of := range []*renewals{held, waiting} {
		slots, turns := make(chan struct{}, batches), make(chan struct{}, alone)
		for part := range slices.Chunk(of.few, batch) {
			of.batches.Add(1)
			wg.Go(func() {
				slots <- struct{}{}
				rest := s.renewTogether(ctx, of.together, rs, part, report)
				if len(rest) > 1 {
					// Those that somebody was faster with would stand behind those that
					// somebody has locked.
					rest = s.renewTogether(ctx, of.together, rs, rest, report)
				}
				<-slots
				of.batches.Done()
				each(byName(rs, rest), turns, of.alone)
			})
		}
	}
	wg.Go(func() {
		held.batches.Wait() // or a crowd would change its holder's row meanwhile
		each(crowds, make(chan struct{}, alone), s.waiting)
	})
}

// renewals are indices of claims, and by which ways they are renewed.
type renewals struct {
	few      []int
	batches  sync.WaitGroup // of few
	together route
	alone    func(name string) route
}

// byName parts the indices by the names of their claims, in order of these: so
// batches of different rows do not meet.
func byName(rs []driver.Ref, is []int) [][]int {
	is = slices.Clone(is)
	slices.SortStableFunc(is, func(a, b int) int { return cmp.Compare(rs[a].Name, rs[b].Name) })
	var all [][]int
	for k, i := range is {
		if k == 0 || rs[i].Name != rs[is[k-1]].Name {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], i)
	}
	return all
}

// renewName renews claims of one name, together with others that come meanwhile.
func (s *store) renewName(ctx context.Context, p route, tries int, rs []driver.Ref, is []int, report func(int, driver.Status, error)) {
	var out []driver.Status
	var q *queue.Queue
	var row *Row
	r := &request{tries: tries}
	r.rule = func(now *queue.Queue, o *queue.Op, at *Row) (some bool, err error) {
		out, q, row = make([]driver.Status, len(is)), now, at
		for k, i := range is {
			state := o.Renew(now, rs[i])
			out[k] = now.Status(rs[i].ID, state, o.Now, r.sent, rs[i].TTL)
			some = some || state != driver.Gone
		}
		return some, nil
	}
	err := s.together(ctx, p, rs[is[0]].Name, r, nil)
	for k, i := range is {
		if err != nil {
			report(i, driver.Status{}, err)
			continue
		}
		s.noteRenewed(&rs[i], &out[k], q, row)
		report(i, out[k], nil)
	}
}

// again tells whether an error is one that call deals with.
func again(s *store, err error) bool { return s.fault(err) == Again }

func (s *store) fault(err error) Fault {
	if err == nil {
		return Unknown
	}
	fault, _ := s.Dialect.Fault(err)
	return fault
}

type renewal struct {
	st  driver.Status
	err error
}

const (
	alone = 4 // names of a batch whose claims are renewed by themselves, at once: fewer than there are connections
	// aloneTries is how often each is tried, if others are to come too; its owner
	// tries again.
	aloneTries = 2
)

// renewTogether renews those claims whose rows nobody else changes or has locked
// meanwhile, and reports them. It returns the others.
//
// Invariant: what is wrong with one row (unreadable, too large, locked) is told of
// its claims alone, and nobody else's are told later for it.
func (s *store) renewTogether(ctx context.Context, p route, rs []driver.Ref, part []int, report func(int, driver.Status, error)) (rest []int) {
	refs := make([]driver.Ref, len(part))
	for k, i := range part {
		refs[k] = rs[i]
	}
	sent := time.Now()
	out, err := call(ctx, s, p, func(w *work) ([]*renewal, error) { return w.renewAll(refs, sent) })
	for k, i := range part {
		switch {
		case err != nil:
			report(i, driver.Status{}, err)
		case out[k] == nil:
			rest = append(rest, i)
		default:
			report(i, out[k].st, out[k].err)
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

// noteRenewed is note for a renewal. It tells a holder that is to look for that
// itself that it was asked for since: the next look would see no change of the
// row.
func (s *store) noteRenewed(r *driver.Ref, st *driver.Status, q *queue.Queue, row *Row) {
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
