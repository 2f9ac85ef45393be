package quorum

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// Inspect shows the queue of the primary, with the holders that a majority has.
func (s *store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	got, err := s.views(ctx, name)
	if err != nil {
		return driver.Queue{}, err
	}
	return s.merge(name, got), nil
}

// views are the queues of the nodes.
func (s *store) views(ctx context.Context, name string) (answers[driver.Queue], error) {
	out := each(s, s.order(s.primary(name)), func(n *node) (driver.Queue, error) {
		return request(s, n, func(ctx context.Context) (driver.Queue, error) { return n.Inspect(ctx, name) })
	})
	return majority.Collect(ctx, s.Group, out, s.slowest, majority.Everybody)
}

// merge makes one queue of those of the nodes. A claim holds if a majority says so. What
// the primary has granted holds too, if nobody else does: it is about to get the others. Its
// token is not known yet.
func (s *store) merge(name string, got answers[driver.Queue]) driver.Queue {
	held := make(map[string][]driver.Entry)
	var order []string // of first mention, the primary's queue first
	waits := make(map[string]driver.Entry)
	var q driver.Queue
	p := s.primary(name)
	for k := range s.nodes {
		view, ok := got.Of((p + k) % len(s.nodes))
		if !ok {
			continue
		}
		if q.Name == "" || len(q.Claims) == 0 && len(view.Claims) > 0 {
			q = view
		}
		for _, e := range view.Claims {
			if !slices.Contains(order, e.ID) {
				order = append(order, e.ID)
			}
			if e.State == driver.Holding {
				held[e.ID] = append(held[e.ID], e)
			} else if _, seen := waits[e.ID]; !seen {
				waits[e.ID] = e
			}
		}
	}
	first, _ := got.Of(p)
	q.Name, q.Claims = name, nil
	major := slices.ContainsFunc(order, func(id string) bool { return len(held[id]) >= s.Most })
	var waiting []driver.Entry
	for _, id := range order {
		es := held[id]
		w, queued := waits[id]
		i := slices.IndexFunc(first.Claims, func(e driver.Entry) bool { return e.ID == id && e.State == driver.Holding })
		switch {
		case len(es) >= s.Most:
			q.Claims = append(q.Claims, s.joint(es))
		case i >= 0 && !major:
			e := first.Claims[i]
			e.Token = 0
			q.Claims = append(q.Claims, e)
		case i >= 0:
			e := first.Claims[i]
			e.State, e.Token, e.Held = driver.Waiting, 0, 0
			waiting = append(waiting, e)
		case queued:
			waiting = append(waiting, w)
		}
	}
	q.Claims = append(q.Claims, waiting...)
	return q
}

// joint is a claim that a majority has.
func (s *store) joint(es []driver.Entry) driver.Entry {
	e := es[0]
	slices.SortFunc(es, func(a, b driver.Entry) int { return int(a.TTL - b.TTL) })
	e.TTL = es[len(es)-s.Most].TTL
	tokens := make([]int64, len(es))
	for i := range es {
		tokens[i] = es[i].Token
	}
	slices.Sort(tokens)
	e.Token = tokens[s.Most-1]
	return e
}

// lookup finds out what the nodes know of a claim of which this store knows nothing; nil
// if that is nothing.
func (s *store) lookup(ctx context.Context, r driver.Ref) (*claim, error) {
	if cl := s.known(r.ID); cl != nil && cl.hasLeft() {
		return nil, nil
	}
	sent := time.Now()
	got, err := s.views(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	seats := make([]seat, len(s.nodes))
	c := driver.Claim{Name: r.Name, ID: r.ID, TTL: max(r.TTL, driver.MinTTL)}
	p := -1
	for k := range s.nodes {
		i := (s.primary(r.Name) + k) % len(s.nodes)
		q, ok := got.Of(i)
		at := slices.IndexFunc(q.Claims, func(e driver.Entry) bool { return e.ID == r.ID && !e.Lingering })
		if !ok || at < 0 {
			continue
		}
		e := q.Claims[at]
		if p < 0 {
			p = i
		}
		c.Kind, c.Units, c.Limit, c.Owner = q.Kind, e.Units, q.Limit, e.Owner
		seats[i] = seat{state: e.State, token: e.Token, until: driver.Deadline(sent, e.TTL), asked: sent, sent: true}
		seats[i].said = driver.Status{State: e.State, Token: e.Token}
	}
	if p < 0 {
		return nil, nil
	}
	cl := s.know(c)
	if err := cl.begin(ctx, s); err != nil {
		return nil, err
	}
	defer cl.end()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.left {
		return nil, nil
	}
	if cl.token != 0 || cl.primary >= 0 { // it has been entered meanwhile
		return cl, nil
	}
	for i := range seats {
		old := &cl.seats[i]
		if !sent.After(old.asked) {
			seats[i] = *old
		}
		seats[i].void, seats[i].pending, seats[i].unsure = old.void, old.pending, old.unsure
		if seats[i].state == driver.Holding && seats[i].token <= old.void {
			seats[i].state = driver.Gone
		}
	}
	copy(cl.seats, seats) // votes under way have their places
	cl.move(p)
	cl.wanted, cl.gone = false, false
	if h, enough, settled := cl.tally(time.Now(), s.Most); enough && settled {
		cl.token, cl.wanted = h.token, true
	}
	return cl, nil
}

// stands reports whether the claim holds at a majority: the nodes say so, or say nothing, and
// their vote counts. It changes nothing.
func (s *store) stands(ctx context.Context, r driver.Ref, counted []bool) (bool, error) {
	got, err := s.views(ctx, r.Name)
	if err != nil {
		return false, err
	}
	held := 0
	for _, a := range got {
		if slices.ContainsFunc(a.Value.Claims, func(e driver.Entry) bool {
			return e.ID == r.ID && e.State == driver.Holding && !e.Lingering
		}) {
			held++
		}
	}
	return held+silent(got, counted) >= s.Most, nil
}

// List merges what the nodes list.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	type listed struct {
		queues map[string]driver.Queue
		bad    map[string]error
	}
	return func(yield func(driver.Queue, error) bool) {
		out := each(s, s.order(0), func(n *node) (l listed, err error) {
			if !n.begin() {
				return l, errSkipped
			}
			begun := time.Now()
			l.queues, l.bad = make(map[string]driver.Queue), make(map[string]error)
			for q, e := range n.List(ctx, prefix) {
				if name, one := nameError(e); one {
					l.bad[name] = e
				} else if e != nil {
					err = e
				} else {
					l.queues[q.Name] = q
				}
			}
			n.end(begun, err)
			return l, err
		})
		got, err := majority.Collect(ctx, s.Group, out, s.slowest, majority.Everybody)
		if err != nil {
			yield(driver.Queue{}, err)
			return
		}
		names, bad := make(map[string]answers[driver.Queue]), make(map[string]error)
		for _, a := range got {
			for name := range a.Value.queues {
				names[name] = nil
			}
			maps.Copy(bad, a.Value.bad)
		}
		for name := range names {
			for _, a := range got {
				if a.Err == nil {
					names[name] = append(names[name], answer[driver.Queue]{Node: a.Node, Value: a.Value.queues[name]})
				}
			}
			if q := s.merge(name, names[name]); len(q.Claims) > 0 && !yield(q, nil) {
				return
			}
			delete(bad, name)
		}
		for name, err := range bad {
			if !yield(driver.Queue{Name: name}, err) {
				return
			}
		}
	}
}

// Break removes all that holds from a majority of nodes: no other majority is left.
func (s *store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	p := s.primary(name)
	out := each(s, s.order(p), func(n *node) ([]driver.Entry, error) {
		return request(s, n, func(ctx context.Context) ([]driver.Entry, error) { return n.Break(ctx, name) })
	})
	got, err := majority.Collect(ctx, s.Group, out, s.slowest, majority.Everybody)
	if err != nil {
		return nil, err
	}
	views := make(answers[driver.Queue], 0, len(got))
	for _, a := range got {
		views = append(views, answer[driver.Queue]{Node: a.Node, Value: driver.Queue{Name: name, Claims: a.Value}, Err: a.Err})
	}
	var broken []driver.Entry
	for _, e := range s.merge(name, views).Claims {
		if e.State == driver.Holding {
			broken = append(broken, e)
		}
	}
	return broken, nil
}

// Ask tells the holders at all nodes: it is a hint.
func (s *store) Ask(ctx context.Context, name string) error {
	out := each(s, s.order(s.primary(name)), func(n *node) (struct{}, error) {
		return request(s, n, func(ctx context.Context) (struct{}, error) { return struct{}{}, n.Ask(ctx, name) })
	})
	_, err := majority.Collect(ctx, s.Group, out, s.slowest, func(answers[struct{}]) bool { return true })
	return err
}
