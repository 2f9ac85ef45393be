// Package memstore keeps claims and records in the memory of this process: for
// unit tests of programs that use pawl, and as the model of what a store is.
package memstore

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/internal/wake"
)

// Store is a [driver.Store] in memory. Clients of one Store exclude each other.
type Store struct {
	*checked.NodeStore
	in *store
}

type store struct {
	start time.Time

	mu      sync.Mutex
	ahead   time.Duration // moved by Advance
	queues  map[string]*queue.Queue
	sweep   int      // number of queues at which to look for those that nobody needs
	op      queue.Op // under way
	memory  memory
	records map[string]*record
	version int64 // the highest of any record so far
	next    int   // key of the next listener
	listen  map[int]func(driver.Notice)

	claims wake.Hub // by claim id
	values wake.Hub // by record name
	closed chan struct{}
}

type record struct {
	driver.Record
	expires int64 // 0: never
}

// New makes an empty store.
func New() *Store {
	s := &store{
		start:   time.Now(),
		queues:  make(map[string]*queue.Queue),
		records: make(map[string]*record),
		listen:  make(map[int]func(driver.Notice)),
		closed:  make(chan struct{}),
	}
	return &Store{checked.NewNode("", s), s}
}

// Advance moves the store's clock forward, as a test's way to let claims run
// out: their holders' own clocks do not know.
func (s *Store) Advance(d time.Duration) {
	s.in.mu.Lock()
	s.in.ahead += d
	s.in.mu.Unlock()
	s.in.claims.RingAll()
	s.in.values.RingAll()
}

// now starts at the wall clock and then runs on the monotonic one.
func (s *store) now() int64 {
	return (s.start.UnixNano() + int64(time.Since(s.start)+s.ahead)) / 1000
}

// do runs f on the queue of name and then tells those whom it concerns.
func (s *store) do(name string, f func(q *queue.Queue, o *queue.Op)) {
	s.mu.Lock()
	q, o := s.get(name), &s.op
	*o = queue.Op{Now: s.now()}
	f(q, o)
	s.put(name, q, o.Now)
	signals, listeners := o.Signals, slices.Collect(maps.Values(s.listen))
	s.mu.Unlock()
	s.tell(listeners, signals)
}

func (s *store) get(name string) *queue.Queue {
	if q := s.queues[name]; q != nil {
		return q
	}
	return new(queue.Queue)
}

func (s *store) put(name string, q *queue.Queue, now int64) {
	s.memory.high = max(s.memory.high, q.Last)
	past := func(_ string, q *queue.Queue) bool { return !q.InUse() && q.Last < now } // this clock never goes back
	if past(name, q) {
		delete(s.queues, name)
		return
	}
	s.queues[name] = q
	if len(s.queues) > s.sweep { // tokens of a quorum are ahead of the clock
		maps.DeleteFunc(s.queues, past)
		s.sweep = max(64, 2*len(s.queues))
	}
}

func (s *store) tell(listeners []func(driver.Notice), signals []queue.Signal) {
	for _, sig := range signals {
		n := driver.Notice{ID: sig.Claim.ID}
		switch sig.Kind {
		case queue.Granted:
			s.claims.Ring(sig.Claim.ID)
			continue
		case queue.Wanted:
			n.Kind = driver.Wanted
		}
		for _, f := range listeners {
			f(n)
		}
	}
}

func (s *store) Enter(_ context.Context, c driver.Claim) (st driver.Status, err error) {
	sent := time.Now()
	s.do(c.Name, func(q *queue.Queue, o *queue.Op) { st, err = enter(q, o, c, sent) })
	return st, err
}

func enter(q *queue.Queue, o *queue.Op, c driver.Claim, sent time.Time) (driver.Status, error) {
	state, err := o.Enter(q, &c)
	return q.Status(c.ID, state, o.Now, sent, c.TTL), queue.NameLimit(err, c.Name)
}

func (s *store) EnterAll(_ context.Context, cs []driver.Claim) ([]driver.Status, error) {
	sent, es, sts := time.Now(), make([]*queue.Entering, len(cs)), make([]driver.Status, len(cs))
	s.mu.Lock()
	now := s.now()
	for i, c := range cs {
		es[i] = &queue.Entering{Op: &queue.Op{Now: now}, Queue: s.get(c.Name), Claim: c}
	}
	err := queue.EnterAll(es)
	var signals []queue.Signal
	for i, e := range es {
		s.put(e.Claim.Name, e.Queue, now)
		signals = append(signals, e.Signals...)
		sts[i] = e.Status(sent)
	}
	listeners := slices.Collect(maps.Values(s.listen))
	s.mu.Unlock()
	s.tell(listeners, signals)
	return sts, err
}

func (s *store) Wait(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	bell, done := s.claims.Subscribe(r.ID)
	defer done()
	for first := true; ; first = false {
		s.do(r.Name, func(q *queue.Queue, o *queue.Op) {
			o.Look(q)
			st = q.Status(r.ID, q.State(r), o.Now, time.Time{}, 0)
		})
		if st.State != driver.Waiting || !first {
			return st, nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return st, ctx.Err()
		case <-s.closed:
			return st, driver.ErrClosed
		}
	}
}

func (s *store) Adopt(_ context.Context, a driver.Adoption) (st driver.Status, err error) {
	sent := time.Now()
	s.do(a.Name, func(q *queue.Queue, o *queue.Op) {
		var state driver.State
		state, err = o.Adopt(q, &a)
		st = q.AdoptStatus(&a, state, o.Now, sent)
	})
	s.claims.Ring(a.ID)
	return st, queue.NameLimit(err, a.Name)
}

func (s *store) Renew(_ context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	for i, r := range rs {
		var st driver.Status
		sent := time.Now()
		s.do(r.Name, func(q *queue.Queue, o *queue.Op) {
			st = q.Status(r.ID, o.Renew(q, r), o.Now, sent, r.TTL)
		})
		report(i, st, nil)
	}
}

func (s *store) Leave(_ context.Context, r driver.Ref) (was driver.State, err error) {
	s.do(r.Name, func(q *queue.Queue, o *queue.Op) { was = o.Leave(q, r) })
	s.claims.Ring(r.ID)
	return was, nil
}

func (s *store) Resize(_ context.Context, r driver.Ref, units int64) (st driver.Status, err error) {
	s.do(r.Name, func(q *queue.Queue, o *queue.Op) {
		st = q.Status(r.ID, o.Resize(q, r, units), o.Now, time.Time{}, 0)
	})
	return st, nil
}

func (s *store) Break(_ context.Context, name string) (broken []driver.Entry, err error) {
	s.do(name, func(q *queue.Queue, o *queue.Op) {
		for _, c := range o.Break(q) {
			broken = append(broken, c.Entry(o.Now))
		}
	})
	return broken, nil
}

func (s *store) SetLimit(_ context.Context, name string, kind driver.Kind, was, limit int64) (err error) {
	s.do(name, func(q *queue.Queue, o *queue.Op) { err = o.SetLimit(q, kind, was, limit) })
	return queue.NameLimit(err, name)
}

func (s *store) Ask(_ context.Context, name string) error {
	s.do(name, func(q *queue.Queue, o *queue.Op) { o.Ask(q) })
	return nil
}

func (s *store) Inspect(_ context.Context, name string) (v driver.Queue, err error) {
	s.do(name, func(q *queue.Queue, o *queue.Op) {
		o.Look(q)
		v = q.View(name, o.Now)
	})
	return v, nil
}

func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		s.mu.Lock()
		names := slices.Collect(maps.Keys(s.queues))
		s.mu.Unlock()
		for _, name := range names {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			if v, _ := s.Inspect(ctx, name); len(v.Claims) > 0 && !yield(v, nil) {
				return
			}
		}
	}
}

func (s *store) Listen(ctx context.Context, f func(driver.Notice)) error {
	s.mu.Lock()
	key := s.next
	s.next++
	s.listen[key] = f
	s.mu.Unlock()
	f(driver.Notice{Kind: driver.Check})
	defer func() {
		s.mu.Lock()
		delete(s.listen, key)
		s.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return driver.ErrClosed
	}
}

func (s *store) Load(_ context.Context, name string) (driver.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(name), nil
}

func (s *store) load(name string) driver.Record {
	r, now := s.records[name], s.now()
	if r == nil || r.expires != 0 && r.expires <= now {
		return driver.Record{Name: name}
	}
	out := r.Record
	out.Value = bytes.Clone(out.Value)
	if r.expires != 0 {
		out.TTL = queue.Span(r.expires - now)
	}
	return out
}

func (s *store) CompareAndSwap(_ context.Context, r driver.Record) (driver.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.load(r.Name)
	if have.Version != r.Version {
		return have, driver.ErrConflict
	}
	defer s.values.Ring(r.Name)
	if r.Value == nil {
		delete(s.records, r.Name)
		return driver.Record{Name: r.Name}, nil
	}
	now := s.now()
	s.version = max(s.version+1, now)
	w := record{Record: r}
	w.Value, w.Version = bytes.Clone(r.Value), s.version
	if r.TTL > 0 {
		w.expires = now + queue.Micros(r.TTL)
	}
	s.records[r.Name] = &w
	r.Version = s.version
	return r, nil
}

func (s *store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	bell, done := s.values.Subscribe(name)
	defer done()
	for {
		r, err := s.Load(ctx, name)
		if err != nil || r.Version != version {
			return r, err
		}
		var expired <-chan time.Time
		if r.TTL > 0 {
			t := time.NewTimer(r.TTL)
			defer t.Stop()
			expired = t.C
		}
		select {
		case <-bell:
		case <-expired:
		case <-ctx.Done():
			return r, ctx.Err()
		case <-s.closed:
			return r, driver.ErrClosed
		}
	}
}

// Close ends the calls under way. The claims are gone with the memory.
func (s *store) Close() error {
	close(s.closed)
	return nil
}
