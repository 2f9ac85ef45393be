// Package checked does once what all engines would do alike: a [Store] checks
// arguments, refuses calls under a context that is done or after Close, and says
// of errors what was tried on what.
//
// So an engine is a driver.Store that may rely on good arguments and returns
// errors as they come to it, marked with driver.Permanent where that fits.
package checked

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"

	"github.com/pawl-go/pawl/driver"
)

// Store is a driver.Store around an engine's. What comes with an error is dropped,
// but for the record that comes with driver.ErrConflict.
type Store struct {
	inner   driver.Store
	prefix  string // of errors
	explain func(error) error
	close   func() error

	// calls counts those under way; closing is added to it once Close was called.
	calls atomic.Int64
	idle  chan struct{} // has one in it when the last call after that has ended
}

const closing = math.MinInt64

// Ender is implemented by stores whose Close must not run beside their calls: End
// ends those that are under way, and Close is called when none is left.
type Ender interface{ End() }

// Explainer is implemented by stores whose errors say more when they have been
// looked at as a whole: Explain marks what repeating cannot mend, and adds what
// would. It is called once for each error of a call, or of one claim or name.
type Explainer interface{ Explain(error) error }

// New puts a Store around one of an engine, whose name, which may be empty, begins
// all errors.
func New(engine string, inner driver.Store) *Store {
	s := &Store{inner: inner, idle: make(chan struct{}, 1)}
	if engine != "" {
		s.prefix = engine + ": "
	}
	s.explain = func(err error) error { return err }
	if e, ok := inner.(Explainer); ok {
		s.explain = e.Explain
	}
	s.close = sync.OnceValue(func() error {
		under := s.calls.Add(closing) != closing
		if e, ok := inner.(Ender); ok {
			e.End()
			if under {
				<-s.idle
			}
		}
		return inner.Close()
	})
	return s
}

// AllStore is a Store around an engine that can enter several claims in one step.
type AllStore struct {
	*Store
	inner driver.AllEnterer
}

// NewAll is New for such an engine.
func NewAll[S interface {
	driver.Store
	driver.AllEnterer
}](engine string, inner S) *AllStore {
	return &AllStore{New(engine, inner), inner}
}

// begin returns why a call is refused: an argument that is invalid, then ctx, then
// Close. Otherwise the call ends with end.
func (s *Store) begin(ctx context.Context, what, name string, invalid error) error {
	if invalid != nil {
		return refused(what, name, invalid)
	}
	if err := s.admit(ctx); err != nil {
		return s.wrap(what, name, err)
	}
	return nil
}

func refused(what, name string, invalid error) error {
	if driver.CheckName(name) == nil { // else invalid names it
		what = about(what, name)
	}
	return fmt.Errorf("%s: %w", what, invalid)
}

// admit counts a call, which ends with end, unless it returns why it is refused.
func (s *Store) admit(ctx context.Context) error {
	s.calls.Add(1)
	err := s.ended(ctx)
	if err != nil {
		s.end()
	}
	return err
}

// ended returns why calls are to end: ctx first, then Close.
func (s *Store) ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.calls.Load() < 0 {
		return driver.ErrClosed
	}
	return nil
}

func (s *Store) end() {
	if s.calls.Add(-1) == closing {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// failed says what was tried on what. What a call fails with once the store is
// closed is due to that. A MismatchError says it all itself.
func (s *Store) failed(ctx context.Context, what, name string, err error) error {
	if mismatch, ok := err.(*driver.MismatchError); ok {
		return mismatch
	}
	switch {
	case errors.Is(err, driver.ErrConflict):
	case s.ended(ctx) == driver.ErrClosed:
		err = driver.ErrClosed
	default:
		err = s.explain(err)
	}
	return s.wrap(what, name, err)
}

func (s *Store) wrap(what, name string, err error) error {
	return fmt.Errorf("%s%s: %w", s.prefix, about(what, name), err)
}

// about returns what is done to what; no name is empty but that of a call that
// has none.
func about(what, name string) string {
	if name == "" {
		return what
	}
	return fmt.Sprintf("%s %q", what, name)
}

// Do is one call: f is called if invalid is nil, ctx is not done and the store not
// closed. It is exported for what a store can do beside the contract.
func Do[T any](ctx context.Context, s *Store, what, name string, invalid error, f func() (T, error)) (v T, err error) {
	if err := s.begin(ctx, what, name, invalid); err != nil {
		return v, err
	}
	defer s.end()
	if v, err = f(); err == nil {
		return v, nil
	}
	if !errors.Is(err, driver.ErrConflict) {
		v = *new(T)
	}
	return v, s.failed(ctx, what, name, err)
}

// do is Do for what returns no value.
func do(ctx context.Context, s *Store, what, name string, invalid error, f func() error) error {
	_, err := Do(ctx, s, what, name, invalid, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Enter implements driver.Store.
func (s *Store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	return Do(ctx, s, "enter", c.Name, c.Check(), func() (driver.Status, error) { return s.inner.Enter(ctx, c) })
}

// EnterAll implements driver.AllEnterer.
func (s *AllStore) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	if len(cs) == 0 {
		return nil, nil
	}
	return Do(ctx, s.Store, "enter, with others,", cs[0].Name, driver.CheckAll(cs), func() ([]driver.Status, error) {
		return s.inner.EnterAll(ctx, cs)
	})
}

// Wait implements driver.Store.
func (s *Store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	return Do(ctx, s, "wait for", r.Name, r.Check(), func() (driver.Status, error) { return s.inner.Wait(ctx, r) })
}

// Adopt implements driver.Store.
func (s *Store) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	return Do(ctx, s, "adopt", a.Name, a.Check(), func() (driver.Status, error) { return s.inner.Adopt(ctx, a) })
}

// Renew implements driver.Store. A ref that is invalid costs itself alone.
func (s *Store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	const what = "renew"
	var bad []bool
	good := len(rs)
	for i := range rs {
		if invalid := cmp.Or(rs[i].Check(), driver.CheckTTL(rs[i].TTL)); invalid != nil {
			if bad == nil {
				bad = make([]bool, len(rs))
			}
			bad[i] = true
			good--
			report(i, driver.Status{}, refused(what, rs[i].Name, invalid))
		}
	}
	if good == 0 {
		return
	}
	if err := s.admit(ctx); err != nil {
		for i := range rs {
			if bad == nil || !bad[i] {
				report(i, driver.Status{}, s.wrap(what, rs[i].Name, err))
			}
		}
		return
	}
	defer s.end()
	tell := func(i int, st driver.Status, err error) {
		if err != nil {
			st, err = driver.Status{}, s.failed(ctx, what, rs[i].Name, err)
		}
		report(i, st, err)
	}
	if bad == nil {
		s.inner.Renew(ctx, rs, tell)
		return
	}
	refs, at := make([]driver.Ref, 0, good), make([]int, 0, good)
	for i := range rs {
		if !bad[i] {
			refs, at = append(refs, rs[i]), append(at, i)
		}
	}
	s.inner.Renew(ctx, refs, func(k int, st driver.Status, err error) { tell(at[k], st, err) })
}

// Leave implements driver.Store.
func (s *Store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	return Do(ctx, s, "leave", r.Name, r.Check(), func() (driver.State, error) { return s.inner.Leave(ctx, r) })
}

// Resize implements driver.Store.
func (s *Store) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	return Do(ctx, s, "resize", r.Name, cmp.Or(r.Check(), driver.CheckUnits(units)), func() (driver.Status, error) {
		return s.inner.Resize(ctx, r, units)
	})
}

// Break implements driver.Store.
func (s *Store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	return Do(ctx, s, "break", name, driver.CheckName(name), func() ([]driver.Entry, error) { return s.inner.Break(ctx, name) })
}

// SetLimit implements driver.Store.
func (s *Store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	invalid := cmp.Or(driver.CheckName(name), kind.Check(), driver.CheckLimit(was), driver.CheckLimit(limit))
	return do(ctx, s, "set the limit of", name, invalid, func() error { return s.inner.SetLimit(ctx, name, kind, was, limit) })
}

// Ask implements driver.Store.
func (s *Store) Ask(ctx context.Context, name string) error {
	return do(ctx, s, "ask for", name, driver.CheckName(name), func() error { return s.inner.Ask(ctx, name) })
}

// Inspect implements driver.Store.
func (s *Store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return Do(ctx, s, "inspect", name, driver.CheckName(name), func() (driver.Queue, error) { return s.inner.Inspect(ctx, name) })
}

// List implements driver.Store. It ends with ctx and with the store also while the
// engine yields.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	what := "list names"
	if prefix != "" {
		what = "list names with prefix"
	}
	return func(yield func(driver.Queue, error) bool) {
		if err := s.begin(ctx, what, prefix, nil); err != nil {
			yield(driver.Queue{}, err)
			return
		}
		defer s.end()
		for q, err := range s.inner.List(ctx, prefix) {
			bad, one := errors.AsType[*driver.NameError](err)
			if err == nil || one {
				if ended := s.ended(ctx); ended != nil {
					err, one = ended, false
				}
			}
			switch {
			case one:
				err = fmt.Errorf("%sread %w", s.prefix, &driver.NameError{Name: bad.Name, Err: s.explain(bad.Err)})
			case err != nil:
				q, err = driver.Queue{}, s.failed(ctx, what, prefix, err)
			}
			if !yield(q, err) || err != nil && !one {
				return
			}
		}
	}
}

// Listen implements driver.Store.
func (s *Store) Listen(ctx context.Context, f func(driver.Notice)) error {
	return do(ctx, s, "listen", "", nil, func() error { return s.inner.Listen(ctx, f) })
}

// Load implements driver.Store.
func (s *Store) Load(ctx context.Context, name string) (driver.Record, error) {
	return Do(ctx, s, "load", name, driver.CheckName(name), func() (driver.Record, error) { return s.inner.Load(ctx, name) })
}

// CompareAndSwap implements driver.Store.
func (s *Store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	return Do(ctx, s, "compare and swap", r.Name, r.Check(), func() (driver.Record, error) { return s.inner.CompareAndSwap(ctx, r) })
}

// WaitChange implements driver.Store.
func (s *Store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	return Do(ctx, s, "wait for a change of", name, driver.CheckName(name), func() (driver.Record, error) {
		return s.inner.WaitChange(ctx, name, version)
	})
}

// Close implements driver.Store. It may be called again.
func (s *Store) Close() error { return s.close() }

var (
	_ driver.Store      = (*Store)(nil)
	_ driver.AllEnterer = (*AllStore)(nil)
)
