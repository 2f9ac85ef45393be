package sqlqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/internal/queue"
)

// request is a call for a name. Those that come while another one of their lane is
// at the database go together, by one change of the row: each by itself would read
// and write all of it. Of a thousand claims that came for one name at once 355 were
// in the queue of PostgreSQL after 45 s, by 18,000 statements; together all are in
// after half a second, by a few.
type request struct {
	rule  rule
	once  bool // it must not be repeated where nobody knows whether it was carried out
	size  int  // by how many bytes the body may grow
	tries int  // see work

	caller context.Context
	sent   time.Time // before the row was read
	alone  bool      // it does not go with others
	err    error
	served chan struct{} // closed when another call has carried it out
	// By the gate's mutex: another call has taken it along; its own does not wait for
	// that any more.
	taken, left bool
}

// errRoom is the error of requests that may be too many for the row.
var errRoom = errors.New("the row may become too large")

// errLeft is the error of a request that must not be repeated.
var errLeft = errors.New("nobody knows whether it was carried out: the call that it went with was given up")

// together carries out a request: with those that wait beside it, or, where there
// are none, by alone; if that is nil, by its rule.
//
// Invariant: a request is waiting in the lane, or whoever has the lane's turn has
// taken it, or it is served, and is not carried out any more. Whose caller gives up
// is not told before it is known what became of it, or the grace is over: what is
// entered late, behind the caller's Leave, would hold for nobody.
func (s *store) together(ctx context.Context, p route, name string, r *request, alone func(*work) error) error {
	r.caller, r.served = ctx, make(chan struct{})
	p.request = r
	g := &s.gate
	l := g.use(p.lane)
	defer g.unuse(p.lane, l)
	g.queue(l, r)
	_, err := call(ctx, s, p, func(w *work) (none struct{}, err error) {
		w.tries = r.tries
		select {
		case <-r.served: // at the very moment that it was let in
			return none, errServed
		default:
		}
		rs := g.pick(l, r)
		single := len(rs) == 1
		if !single {
			err = w.joint(name, rs)
			single = s.parts(err)
			if g.settle(w, l, rs, err); err == nil {
				err = r.err
			}
		}
		if single {
			if alone == nil {
				err = w.change(name, nil, r.rule)
			} else {
				err = alone(w)
			}
			if again(s, err) {
				g.queue(l, r)
			}
		}
		return none, err
	})
	if g.leave(l, r) {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-r.served:
		case <-timer.C:
		}
	}
	select {
	case <-r.served:
		if r.err != nil {
			return cmp.Or(s.alive(ctx), r.err) // as callOn does
		}
		return nil
	default:
		return err
	}
}

// joint carries out requests by one change.
func (w *work) joint(name string, rs []*request) error {
	return w.change(name, nil, func(q *queue.Queue, o *queue.Op, row *Row) (save bool, err error) {
		grows := 0
		for _, r := range rs {
			grows += r.size
		}
		if grows > 0 && len(row.Body)+grows > w.s.Dialect.Most() {
			return false, errRoom
		}
		for _, r := range rs {
			if r.err = r.caller.Err(); r.err != nil {
				continue
			}
			some, err := r.rule(q, o, row)
			r.err, save = err, save || some
		}
		return save, nil
	})
}

// queue lets requests wait for a call that takes them along, but not those that
// nobody waits for.
func (g *gate) queue(l *lane, rs ...*request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range rs {
		if r.taken = false; r.left {
			r.err = errLeft
			close(r.served)
			continue
		}
		l.waiting = append(l.waiting, r)
	}
}

// leave ends the waiting of a request, and reports whether another call has taken it
// along and not yet said what became of it.
func (g *gate) leave(l *lane, r *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other *request) bool { return other == r })
	r.left = true
	return r.taken
}

// pick takes the request, which has the lane's turn, and those that can go with it.
func (g *gate) pick(l *lane, r *request) []*request {
	g.mu.Lock()
	defer g.mu.Unlock()
	rs := []*request{r}
	l.waiting = slices.DeleteFunc(l.waiting, func(other *request) bool {
		if other != r && !r.alone && !other.alone {
			rs, other.taken = append(rs, other), true
			return true
		}
		return other == r
	})
	now := time.Now()
	for _, r := range rs {
		r.sent = now
	}
	return rs
}

// parts reports whether requests that went together are to be carried out each by
// itself: the row has no room for all of them, or one of them cannot be stored.
func (s *store) parts(err error) bool {
	return err == errRoom || s.fault(err) == Lasting
}

// settle deals with what became of the requests that went with the first of rs:
// what is wrong with that one's time alone, or passes, is tried again.
func (g *gate) settle(w *work, l *lane, rs []*request, err error) {
	undone := again(w.s, err)
	if undone {
		g.queue(l, rs[0])
	}
	for _, r := range rs[1:] {
		switch {
		case w.s.parts(err):
			r.alone = true
			g.queue(l, r)
			continue
		case undone, err != nil && w.alive() != nil && !r.once:
			g.queue(l, r)
			continue
		case err != nil && w.alive() != nil:
			r.err = errLeft
		case err != nil:
			r.err = w.s.explain(err)
		}
		close(r.served)
	}
}
