// Package memstore keeps claims and records in the memory of this process: for
// unit tests of programs that use pawl, and as the model of what a store is.
package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/internal/wake"
)

// Store is a [driver.Store] in memory. Clients of one Store exclude each other.
type Store struct {
	start time.Time

	mu      sync.Mutex
	ahead   time.Duration // moved by Advance
	queues  map[string]*queue.Queue
	records map[string]*record
	version int64 // the highest of any record so far
	next    int   // key of the next listener
	listen  map[int]func(driver.Notice)

	claims wake.Hub // by claim id
	values wake.Hub // by record name
	closed chan struct{}
	close  func()
}

type record struct {
	driver.Record
	expires int64 // 0: never
}

// New makes an empty store.
func New() *Store {
	s := &Store{
		start:   time.Now(),
		queues:  make(map[string]*queue.Queue),
		records: make(map[string]*record),
		listen:  make(map[int]func(driver.Notice)),
		closed:  make(chan struct{}),
	}
	s.close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

// Advance moves the store's clock forward, as a test's way to let claims run
// out: their holders' own clocks do not know.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	s.ahead += d
	s.mu.Unlock()
	s.claims.RingAll()
	s.values.RingAll()
}

// now starts at the wall clock and then runs on the monotonic one.
func (s *Store) now() int64 {
	return (s.start.UnixNano() + int64(time.Since(s.start)+s.ahead)) / 1000
}

// begin checks that the call may go on; ctx first, then the store.
func (s *Store) begin(ctx context.Context, what, name string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %q: %w", what, name, err)
	}
	select {
	case <-s.closed:
		return fmt.Errorf("%s %q: %w", what, name, driver.ErrClosed)
	default:
		return nil
	}
}

// do runs f on the queue of name and then tells those whom it concerns.
func (s *Store) do(name string, f func(q *queue.Queue, o *queue.Op)) {
	s.mu.Lock()
	q, o := s.get(name), &queue.Op{Now: s.now()}
	f(q, o)
	s.put(name, q, o.Now)
	listeners := slices.Collect(maps.Values(s.listen))
	s.mu.Unlock()
	s.tell(listeners, o.Signals)
}

func (s *Store) get(name string) *queue.Queue {
	if q := s.queues[name]; q != nil {
		return q
	}
	return new(queue.Queue)
}

func (s *Store) put(name string, q *queue.Queue, now int64) {
	if !q.InUse() && q.Last < now { // this clock never goes back
		delete(s.queues, name)
	} else {
		s.queues[name] = q
	}
}

func (s *Store) tell(listeners []func(driver.Notice), signals []queue.Signal) {
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

func (s *Store) Enter(ctx context.Context, c driver.Claim) (st driver.Status, err error) {
	if err := c.Check(); err != nil {
		return st, fmt.Errorf("enter: %w", err)
	}
	if err := s.begin(ctx, "enter", c.Name); err != nil {
		return st, err
	}
	sent := time.Now()
	s.do(c.Name, func(q *queue.Queue, o *queue.Op) { st, err = enter(q, o, c, sent) })
	return st, err
}

func enter(q *queue.Queue, o *queue.Op, c driver.Claim, sent time.Time) (driver.Status, error) {
	state, err := o.Enter(q, &c)
	return q.Status(c.ID, state, o.Now, sent, c.TTL), queue.NameLimit(err, c.Name)
}

// EnterAll implements driver.AllEnterer.
func (s *Store) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	if err := driver.CheckAll(cs); err != nil {
		return nil, fmt.Errorf("enter all: %w", err)
	}
	for _, c := range cs {
		if err := s.begin(ctx, "enter", c.Name); err != nil {
			return nil, err
		}
	}
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
	if err != nil {
		return nil, err
	}
	return sts, nil
}

func (s *Store) Wait(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	if err := r.Check(); err != nil {
		return st, fmt.Errorf("wait: %w", err)
	}
	bell, done := s.claims.Subscribe(r.ID)
	defer done()
	for first := true; ; first = false {
		if err := s.begin(ctx, "wait for", r.Name); err != nil {
			return st, err
		}
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
		case <-s.closed:
		}
	}
}

func (s *Store) Adopt(ctx context.Context, a driver.Adoption) (st driver.Status, err error) {
	if err := a.Check(); err != nil {
		return st, fmt.Errorf("adopt: %w", err)
	}
	if err := s.begin(ctx, "adopt", a.Name); err != nil {
		return st, err
	}
	sent := time.Now()
	s.do(a.Name, func(q *queue.Queue, o *queue.Op) {
		var state driver.State
		state, err = o.Adopt(q, &a)
		st = q.AdoptStatus(&a, state, o.Now, sent)
	})
	s.claims.Ring(a.ID)
	return st, queue.NameLimit(err, a.Name)
}

func (s *Store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	for i, r := range rs {
		st, err := s.renew(ctx, r)
		report(i, st, err)
	}
}

func (s *Store) renew(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	if err := cmp.Or(r.Check(), driver.CheckTTL(r.TTL)); err != nil {
		return st, fmt.Errorf("renew %q: %w", r.Name, err)
	}
	if err := s.begin(ctx, "renew", r.Name); err != nil {
		return st, err
	}
	sent := time.Now()
	s.do(r.Name, func(q *queue.Queue, o *queue.Op) {
		state := o.Renew(q, r)
		st = q.Status(r.ID, state, o.Now, sent, r.TTL)
	})
	return st, nil
}

func (s *Store) Leave(ctx context.Context, r driver.Ref) (was driver.State, err error) {
	if err := r.Check(); err != nil {
		return was, fmt.Errorf("leave %q: %w", r.Name, err)
	}
	if err := s.begin(ctx, "leave", r.Name); err != nil {
		return was, err
	}
	s.do(r.Name, func(q *queue.Queue, o *queue.Op) {
		was = o.Leave(q, r)
	})
	s.claims.Ring(r.ID)
	return was, nil
}

func (s *Store) Resize(ctx context.Context, r driver.Ref, units int64) (st driver.Status, err error) {
	if err := cmp.Or(r.Check(), driver.CheckUnits(units)); err != nil {
		return st, fmt.Errorf("resize %q: %w", r.Name, err)
	}
	if err := s.begin(ctx, "resize", r.Name); err != nil {
		return st, err
	}
	s.do(r.Name, func(q *queue.Queue, o *queue.Op) {
		state := o.Resize(q, r, units)
		st = q.Status(r.ID, state, o.Now, time.Time{}, 0)
	})
	return st, nil
}

func (s *Store) Break(ctx context.Context, name string) (broken []driver.Entry, err error) {
	if err := driver.CheckName(name); err != nil {
		return nil, fmt.Errorf("break: %w", err)
	}
	if err := s.begin(ctx, "break", name); err != nil {
		return nil, err
	}
	s.do(name, func(q *queue.Queue, o *queue.Op) {
		for _, c := range o.Break(q) {
			broken = append(broken, c.Entry(o.Now))
		}
	})
	return broken, nil
}

func (s *Store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) (err error) {
	if err := cmp.Or(driver.CheckName(name), kind.Check(), driver.CheckLimit(was), driver.CheckLimit(limit)); err != nil {
		return fmt.Errorf("set limit: %w", err)
	}
	if err := s.begin(ctx, "set limit of", name); err != nil {
		return err
	}
	s.do(name, func(q *queue.Queue, o *queue.Op) { err = o.SetLimit(q, kind, was, limit) })
	return queue.NameLimit(err, name)
}

func (s *Store) Ask(ctx context.Context, name string) error {
	if err := driver.CheckName(name); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if err := s.begin(ctx, "ask", name); err != nil {
		return err
	}
	s.do(name, func(q *queue.Queue, o *queue.Op) { o.Ask(q) })
	return nil
}

func (s *Store) Inspect(ctx context.Context, name string) (v driver.Queue, err error) {
	if err := driver.CheckName(name); err != nil {
		return v, fmt.Errorf("inspect: %w", err)
	}
	if err := s.begin(ctx, "inspect", name); err != nil {
		return v, err
	}
	s.do(name, func(q *queue.Queue, o *queue.Op) {
		o.Look(q)
		v = q.View(name, o.Now)
	})
	return v, nil
}

func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		s.mu.Lock()
		names := slices.Collect(maps.Keys(s.queues))
		s.mu.Unlock()
		for _, name := range names {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			v, err := s.Inspect(ctx, name)
			if err == nil && len(v.Claims) == 0 {
				continue
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

func (s *Store) Listen(ctx context.Context, f func(driver.Notice)) error {
	if err := s.begin(ctx, "listen", ""); err != nil {
		return err
	}
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

func (s *Store) Load(ctx context.Context, name string) (driver.Record, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.Record{Name: name}, fmt.Errorf("load: %w", err)
	}
	if err := s.begin(ctx, "load", name); err != nil {
		return driver.Record{Name: name}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(name), nil
}

func (s *Store) load(name string) driver.Record {
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

func (s *Store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if err := r.Check(); err != nil {
		return driver.Record{}, fmt.Errorf("compare and swap %q: %w", r.Name, err)
	}
	if err := s.begin(ctx, "compare and swap", r.Name); err != nil {
		return driver.Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.load(r.Name)
	if have.Version != r.Version {
		return have, fmt.Errorf("compare and swap %q: %w", r.Name, driver.ErrConflict)
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

func (s *Store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
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
		case <-s.closed:
		}
	}
}

// Close implements driver.Store. The claims are gone with the memory.
func (s *Store) Close() error {
	s.close()
	return nil
}

var (
	_ driver.Store      = (*Store)(nil)
	_ driver.AllEnterer = (*Store)(nil)
)
