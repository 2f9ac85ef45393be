package meter

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Engine counts what stores take for what they are asked, and what goes wrong.
type Engine struct {
	latency *Histogram
	errors  *Vec
}

// operations of a store that have a latency; "wait", "wait_change" and "listen" wait for
// others.
var operations = []string{
	"enter", "enter_all", "adopt", "renew", "leave", "resize", "break", "set_limit", "ask", "inspect", "list", "load", "compare_and_swap",
	"wait", "wait_change", "listen",
}

// NewEngine returns one that has counted nothing.
func NewEngine() *Engine {
	e := &Engine{
		latency: NewHistogram("pawl_engine_request_seconds",
			"What this process has waited for replies of the engine, by operation. Waiting for a grant is no part of it.", Short, "operation"),
		errors: NewCounter("pawl_engine_errors_total",
			"Requests of this process that the engine did not carry out, or is not known to have carried out. Classes unavailable, timeout and permanent are the engine's trouble, the others the callers'.",
			"operation", "class"),
	}
	for _, operation := range operations {
		for _, class := range []string{"unavailable", "timeout", "permanent"} {
			e.errors.Add(0, operation, class)
		}
	}
	return e
}

// Append implements Metric.
func (e *Engine) Append(text []byte) []byte { return Append(text, e.latency, e.errors) }

// classOf returns whose trouble an error is; nothing for none, and where the caller has
// gone.
func classOf(err error) string {
	for _, c := range []struct {
		is    error
		class string
	}{
		{context.Canceled, ""},
		{driver.ErrConflict, ""}, // somebody else was first
		{driver.ErrInvalid, "invalid"},
		{driver.ErrMismatch, "mismatch"},
		{driver.ErrFull, "full"},
		{driver.ErrUnsupported, "unsupported"},
		{driver.ErrClosed, "closed"},
		{context.DeadlineExceeded, "timeout"},
	} {
		if errors.Is(err, c.is) {
			return c.class
		}
	}
	switch {
	case err == nil:
		return ""
	case driver.IsPermanent(err):
		return "permanent"
	}
	return "unavailable"
}

// replied counts a request that was sent then.
func (e *Engine) replied(operation string, sent time.Time, err error) {
	e.took(operation, time.Since(sent), err)
}

func (e *Engine) took(operation string, d time.Duration, err error) {
	if !errors.Is(err, context.Canceled) {
		e.latency.Observe(d, operation)
	}
	e.failed(operation, err)
}

func (e *Engine) failed(operation string, err error) {
	if class := classOf(err); class != "" {
		e.errors.Add(1, operation, class)
	}
}

// waited counts a wait, which the caller ends when he likes.
func (e *Engine) waited(ctx context.Context, operation string, err error) {
	if ctx.Err() == nil {
		e.failed(operation, err)
	}
}

// Store returns s, with what it is asked counted. It is a driver.AllEnterer if s is one.
func (e *Engine) Store(s driver.Store) driver.Store {
	m := &store{s, e}
	if all, ok := s.(driver.AllEnterer); ok {
		return &allStore{m, all}
	}
	return m
}

type store struct {
	driver.Store
	engine *Engine
}

type allStore struct {
	*store
	all driver.AllEnterer
}

func (s *allStore) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	sent := time.Now()
	sts, err := s.all.EnterAll(ctx, cs)
	s.engine.replied("enter_all", sent, err)
	return sts, err
}

func (s *store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	sent := time.Now()
	st, err := s.Store.Enter(ctx, c)
	s.engine.replied("enter", sent, err)
	return st, err
}

func (s *store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	st, err := s.Store.Wait(ctx, r)
	s.engine.waited(ctx, "wait", err)
	return st, err
}

func (s *store) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	sent := time.Now()
	st, err := s.Store.Adopt(ctx, a)
	s.engine.replied("adopt", sent, err)
	return st, err
}

// Renew counts a batch as one request, and each class of its errors once.
func (s *store) Renew(ctx context.Context, rs []driver.Ref, report func(i int, st driver.Status, err error)) {
	var mu sync.Mutex
	var classes []string
	sent := time.Now()
	s.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
		if class := classOf(err); class != "" {
			mu.Lock()
			if !slices.Contains(classes, class) {
				classes = append(classes, class)
			}
			mu.Unlock()
		}
		report(i, st, err)
	})
	s.engine.replied("renew", sent, nil)
	for _, class := range classes {
		s.engine.errors.Add(1, "renew", class)
	}
}

func (s *store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	sent := time.Now()
	was, err := s.Store.Leave(ctx, r)
	s.engine.replied("leave", sent, err)
	return was, err
}

func (s *store) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	sent := time.Now()
	st, err := s.Store.Resize(ctx, r, units)
	s.engine.replied("resize", sent, err)
	return st, err
}

func (s *store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	sent := time.Now()
	removed, err := s.Store.Break(ctx, name)
	s.engine.replied("break", sent, err)
	return removed, err
}

func (s *store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	sent := time.Now()
	err := s.Store.SetLimit(ctx, name, kind, was, limit)
	s.engine.replied("set_limit", sent, err)
	return err
}

func (s *store) Ask(ctx context.Context, name string) error {
	sent := time.Now()
	err := s.Store.Ask(ctx, name)
	s.engine.replied("ask", sent, err)
	return err
}

func (s *store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	sent := time.Now()
	q, err := s.Store.Inspect(ctx, name)
	s.engine.replied("inspect", sent, err)
	return q, err
}

// List counts what the store takes, without what is done with each name.
func (s *store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		var took time.Duration
		var failed error
		from := time.Now()
		for q, err := range s.Store.List(ctx, prefix) {
			took += time.Since(from)
			if one := new(driver.NameError); err != nil && !errors.As(err, &one) {
				failed = err
			}
			if !yield(q, err) {
				from = time.Now()
				break
			}
			from = time.Now()
		}
		s.engine.took("list", took+time.Since(from), failed)
	}
}

func (s *store) Listen(ctx context.Context, f func(driver.Notice)) error {
	err := s.Store.Listen(ctx, f)
	s.engine.waited(ctx, "listen", err)
	return err
}

func (s *store) Load(ctx context.Context, name string) (driver.Record, error) {
	sent := time.Now()
	r, err := s.Store.Load(ctx, name)
	s.engine.replied("load", sent, err)
	return r, err
}

func (s *store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	sent := time.Now()
	now, err := s.Store.CompareAndSwap(ctx, r)
	s.engine.replied("compare_and_swap", sent, err)
	return now, err
}

func (s *store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	r, err := s.Store.WaitChange(ctx, name, version)
	s.engine.waited(ctx, "wait_change", err)
	return r, err
}
