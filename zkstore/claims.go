package zkstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// status is what a call that was sent at sent returns for a claim. ttl is what
// it gave the claim, 0 if it renewed nothing. Recheck stays zero: who waits is
// told of everything that ends in front of it.
func (t *turn) status(id string, state driver.State, sent time.Time, ttl time.Duration) driver.Status {
	st := t.q.Status(id, state, t.Now, sent, 0)
	if st.Token != 0 {
		st.Token += t.offset
	}
	st.Spare = 0
	if m := t.l.More[id]; m != nil && m.Alone && st.State == driver.Holding {
		st.Spare = spare
	}
	if st.Blocker != nil {
		*st.Blocker = t.entry(*st.Blocker)
	}
	if ttl > 0 && (state == driver.Waiting || state == driver.Holding) {
		st.Deadline = t.pulse.deadline(sent, ttl)
	}
	return st
}

// entry puts the times and the token right that package queue cannot know.
func (t *turn) entry(e driver.Entry) driver.Entry {
	m := t.l.More[e.ID]
	if m == nil {
		m = t.olds[e.ID]
	}
	since := func(ms int64) time.Duration { return time.Duration(max(0, t.now-ms)) * time.Millisecond }
	e.Age, e.Held, e.TTL = since(m.Came), 0, time.Duration(m.TTL)*time.Millisecond
	if e.State == driver.Holding {
		e.Held = min(e.Age, since(m.Held))
		e.Token += t.offset
	}
	if e.Lingering {
		e.TTL = time.Duration(m.Linger) * time.Millisecond
		if m.Until != 0 {
			e.TTL = time.Duration(min(m.Linger, max(0, m.Until-t.now))) * time.Millisecond
		}
	}
	return e
}

func (t *turn) view() driver.Queue {
	v := t.q.View(t.name, t.Now)
	for i := range v.Claims {
		v.Claims[i] = t.entry(v.Claims[i])
	}
	return v
}

func (s *store) Enter(ctx context.Context, c driver.Claim) (st driver.Status, err error) {
	key := ownKey{id: c.ID}
	n, known, err := s.sessionFor(key, c.TTL)
	if err != nil {
		return st, err
	}
	sent := time.Now()
	s.own(key, c.Name, n.class, sent, c.TTL)
	var state driver.State
	var guess func(*slot) (*view, error)
	if !known {
		guess = func(sl *slot) (*view, error) {
			v := s.seen(c.Name, young)
			if v != nil && v.held {
				sl.expect(ctx)
			}
			if v == nil && s.wasBusy(c.Name) {
				return s.loadList(ctx, n, c.Name)
			}
			return cmp.Or(v, new(view)), nil // nobody is there
		}
	}
	t, err := s.change(ctx, n, c.Name, guess, func(t *turn) error {
		var err error
		t.Session = t.session(c.ID)
		state, err = t.Enter(t.q, &c)
		if state == driver.Holding || state == driver.Waiting {
			t.ttls[c.ID] = c.TTL
		}
		t.confirm = state != driver.Refused
		return queue.NameLimit(err, c.Name)
	})
	if err != nil {
		if driver.IsPermanent(err) && !known {
			s.disown(key)
		}
		return st, err
	}
	if state != driver.Holding {
		s.setBusy(c.Name)
	}
	if state == driver.Holding || state == driver.Waiting {
		s.own(key, c.Name, n.class, sent, c.TTL) // again: a Leave that came between has let go of it
	} else {
		s.disown(key)
	}
	return t.status(c.ID, state, sent, c.TTL), nil
}

// session is the mark of the session that a claim has, if that is this Store's
// and does not end sooner, or else gets.
func (t *turn) session(id string) string {
	if c := t.q.Find(id); c != nil {
		if class, ok := t.s.classOf(c.Session); ok && class >= t.n.class {
			return c.Session
		}
	}
	return t.n.mark
}

func (s *store) Leave(ctx context.Context, r driver.Ref) (was driver.State, err error) {
	n, _, err := s.sessionFor(keyOf(r), 0)
	if err == nil {
		was, err = s.leave(ctx, n, r)
	}
	if err == nil {
		s.disown(keyOf(r))
	}
	return was, err
}

func (s *store) leave(ctx context.Context, n *session, r driver.Ref) (was driver.State, err error) {
	var l *leaving
	if r.Linger == 0 {
		l = &leaving{ref: r, done: make(chan struct{})}
	}
	sl, taken, err := s.lock(ctx, n, r.Name, l)
	if taken {
		return l.was, l.err
	}
	if err != nil {
		return was, err
	}
	_, err = s.changeLocked(ctx, n, sl, func(*slot) (*view, error) {
		oldest := driver.MaxTTL
		if s.missedLately(r.Name) {
			oldest = young
		}
		if v := s.seen(r.Name, oldest); v != nil {
			return v, nil
		}
		return s.loadList(ctx, n, r.Name)
	}, func(t *turn) error {
		t.linger = r.Linger
		was = t.Leave(t.q, driver.Ref{ID: r.ID, Mark: r.Mark, Used: t.used(r), Linger: min(r.Linger, time.Microsecond)})
		// It may have been entered through another server, or an Enter whose reply
		// was lost.
		t.confirm = was == driver.Gone
		return nil
	})
	return was, err
}

// Adopt: the claim gets a child of the adopter's session in
// the very change that gives it the mark, so it ends with that session from then on,
// and no longer with the one of its last owner.
//
// Invariant: the list alone says whose the claim is. A change of another's comes
// later, and finds the mark, or fails on the list's version and is made again; so
// nothing that an earlier owner has sent moves the claim or its child back. What a
// Store knows of its claims it knows by id and mark, for the same reason.
func (s *store) Adopt(ctx context.Context, a driver.Adoption) (st driver.Status, err error) {
	key := ownKey{id: a.ID, mark: a.Mark}
	n, known, err := s.sessionFor(key, a.TTL)
	if err != nil {
		return st, err
	}
	sent := time.Now()
	s.own(key, a.Name, n.class, sent, a.TTL)
	var state driver.State
	t, err := s.change(ctx, n, a.Name, nil, func(t *turn) error {
		var err error
		t.Session = t.session(a.ID)
		state, err = t.adopt(a)
		if state == driver.Holding {
			t.ttls[a.ID] = a.TTL
		}
		// It may have been entered or handed over through another server.
		t.confirm = true
		return queue.NameLimit(err, a.Name)
	})
	if err != nil {
		if driver.IsPermanent(err) && !known {
			s.disown(key)
		}
		return st, err
	}
	switch state {
	case driver.Holding:
		s.own(key, a.Name, n.class, sent, a.TTL)
	case driver.Refused:
		c := t.q.Find(a.ID)
		if c.Mark != a.Mark { // else it is this owner's, who asks for other units
			s.disown(key)
		}
		blocker := t.entry(c.Entry(t.Now))
		return driver.Status{State: state, Blocker: &blocker}, nil
	default:
		s.disown(key)
	}
	return t.status(a.ID, state, sent, a.TTL), nil
}

// adopt is package queue's, which counts tokens as this list does and has other
// spare ones.
func (t *turn) adopt(a driver.Adoption) (driver.State, error) {
	a.Token -= t.offset
	if c := t.q.Find(a.ID); c != nil && c.Mark != a.Mark && a.Token > t.spent(c) {
		a.Token = 0 // it cannot exist: as one that is over
	}
	return t.Op.Adopt(t.q, &a)
}

func (s *store) Resize(ctx context.Context, r driver.Ref, units int64) (st driver.Status, err error) {
	n, _, err := s.sessionFor(keyOf(r), 0)
	if err != nil {
		return st, err
	}
	var state driver.State
	t, err := s.change(ctx, n, r.Name, nil, func(t *turn) error {
		state = t.Resize(t.q, driver.Ref{ID: r.ID, Mark: r.Mark, Used: t.used(r)}, units)
		return nil
	})
	if err != nil {
		return st, err
	}
	return t.status(r.ID, state, time.Time{}, 0), nil
}

// onQueue runs f on the queue, through whichever session there is.
func (s *store) onQueue(ctx context.Context, name string, f func(*turn) error) (*turn, error) {
	n, err := s.anySession()
	if err != nil {
		return nil, err
	}
	return s.look(ctx, n, name, f)
}

func (s *store) Break(ctx context.Context, name string) (entries []driver.Entry, err error) {
	var broken []queue.Claim
	t, err := s.onQueue(ctx, name, func(t *turn) error {
		broken = t.Break(t.q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.out.wait(ctx, s)
	for i := range broken {
		entries = append(entries, t.entry(broken[i].Entry(t.Now)))
	}
	return entries, nil
}

func (s *store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	_, err := s.onQueue(ctx, name, func(t *turn) error {
		return queue.NameLimit(t.SetLimit(t.q, kind, was, limit), name)
	})
	return err
}

func (s *store) Ask(ctx context.Context, name string) error {
	var asked []queue.Signal
	if _, err := s.onQueue(ctx, name, func(t *turn) error {
		others := len(t.Signals) // of what has died
		t.Ask(t.q)
		asked = slices.Clone(t.Signals[others:])
		t.Signals = t.Signals[:others]
		return nil
	}); err != nil {
		return err
	}
	var out notices
	for _, sig := range asked {
		s.mail.post(&out, sig.Claim.Session, driver.Notice{Kind: driver.Wanted, ID: sig.Claim.ID})
	}
	out.wait(ctx, s)
	return nil
}

// peek reads a queue, and leaves out what has died. It writes nothing: where claims
// linger and no write has told the server's time lately, it takes this machine's for
// it.
func (s *store) peek(ctx context.Context, n *session, name string) (driver.Queue, error) {
	if _, err := n.prepare(ctx); err != nil {
		return driver.Queue{}, err
	}
	v, _, err := s.load(ctx, n, name, false)
	if err != nil {
		return driver.Queue{}, err
	}
	t, err := s.newTurn(ctx, n, name, v)
	if err != nil {
		return driver.Queue{}, err
	}
	return t.view(), nil
}

func (s *store) Inspect(ctx context.Context, name string) (q driver.Queue, err error) {
	n, err := s.anySession()
	if err != nil {
		return q, err
	}
	return s.peek(ctx, n, name)
}

// atOnce is how many queues are read at the same time by List: requests go out
// without waiting for the replies to those before them.
const atOnce = 512

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		names, err := s.names(ctx, prefix)
		if err != nil {
			yield(driver.Queue{}, err)
			return
		}
		type read struct {
			q   driver.Queue
			err error
		}
		reads := make(chan read)
		called := ctx
		ctx, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		defer work.Wait()
		defer stop()
		var next atomic.Int64
		for range min(atOnce, len(names)) {
			work.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(names)); i = next.Add(1) - 1 {
					var r read
					n, err := s.anySession()
					if err == nil {
						r.q, err = s.peek(ctx, n, names[i])
					}
					if err != nil {
						r.err = nameError(names[i], err)
					}
					select {
					case reads <- r:
					case <-ctx.Done():
						return
					}
				}
			})
		}
		for range names {
			var r read
			select {
			case r = <-reads:
			case <-called.Done():
				r.err = called.Err()
			}
			if (r.err != nil || len(r.q.Claims) > 0) && !yield(r.q, r.err) {
				return
			}
		}
	}
}

// nameError makes a *driver.NameError of an error that concerns one name alone.
func nameError(name string, err error) error {
	if errors.Is(err, errNotAQueue) || errors.Is(err, zk.ErrNoAuth) {
		return &driver.NameError{Name: name, Err: err}
	}
	return err
}

func (s *store) names(ctx context.Context, prefix string) (names []string, err error) {
	n, err := s.anySession()
	if err != nil {
		return nil, err
	}
	if _, err := n.prepare(ctx); err != nil {
		return nil, err
	}
	nodes, err := call(ctx, n, func(c *zk.Conn) ([]string, error) {
		nodes, _, err := c.Children(s.path("q"))
		return nodes, err
	})
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if name, ok := unescape(node); ok && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	return names, nil
}
