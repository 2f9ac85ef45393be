package checked

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
)

// fake is an engine that notes its calls, and fails all with err.
type fake struct {
	mu     sync.Mutex
	calls  []string
	err    error
	have   driver.Record // what CompareAndSwap and Load return
	refs   []driver.Ref  // of the last Renew
	bad    map[string]error
	listed []error               // what List yields
	hook   func(context.Context) // runs in each call, if not nil
}

func (f *fake) call(ctx context.Context, what string) error {
	f.mu.Lock()
	f.calls = append(f.calls, what)
	f.mu.Unlock()
	if f.hook != nil {
		f.hook(ctx)
	}
	return f.err
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// grant comes with every error, which it must not reach the caller with.
var grant = driver.Status{State: driver.Holding, Token: 7}

func (f *fake) Enter(ctx context.Context, _ driver.Claim) (driver.Status, error) {
	return grant, f.call(ctx, "Enter")
}

func (f *fake) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	return make([]driver.Status, len(cs)), f.call(ctx, "EnterAll")
}

func (f *fake) Wait(ctx context.Context, _ driver.Ref) (driver.Status, error) {
	return grant, f.call(ctx, "Wait")
}

func (f *fake) Adopt(ctx context.Context, _ driver.Adoption) (driver.Status, error) {
	return grant, f.call(ctx, "Adopt")
}

func (f *fake) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	err := f.call(ctx, "Renew")
	f.refs = rs
	for i := range rs {
		if bad := f.bad[rs[i].ID]; bad != nil {
			report(i, grant, bad)
		} else {
			report(i, driver.Status{State: driver.Holding, Token: int64(len(rs[i].Name))}, err)
		}
	}
}

func (f *fake) Leave(ctx context.Context, _ driver.Ref) (driver.State, error) {
	return driver.Holding, f.call(ctx, "Leave")
}

func (f *fake) Resize(ctx context.Context, _ driver.Ref, _ int64) (driver.Status, error) {
	return grant, f.call(ctx, "Resize")
}

func (f *fake) Break(ctx context.Context, _ string) ([]driver.Entry, error) {
	return make([]driver.Entry, 1), f.call(ctx, "Break")
}

func (f *fake) SetLimit(ctx context.Context, _ string, _ driver.Kind, _, _ int64) error {
	return f.call(ctx, "SetLimit")
}

func (f *fake) Ask(ctx context.Context, _ string) error { return f.call(ctx, "Ask") }

func (f *fake) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return driver.Queue{Name: name}, f.call(ctx, "Inspect")
}

func (f *fake) List(ctx context.Context, _ string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		if err := f.call(ctx, "List"); err != nil {
			yield(driver.Queue{}, err)
			return
		}
		for i, err := range f.listed {
			if !yield(driver.Queue{Name: fmt.Sprint(i)}, err) {
				return
			}
		}
	}
}

func (f *fake) Listen(ctx context.Context, _ func(driver.Notice)) error { return f.call(ctx, "Listen") }

func (f *fake) Load(ctx context.Context, _ string) (driver.Record, error) {
	return f.have, f.call(ctx, "Load")
}

func (f *fake) CompareAndSwap(ctx context.Context, _ driver.Record) (driver.Record, error) {
	return f.have, f.call(ctx, "CompareAndSwap")
}

func (f *fake) WaitChange(ctx context.Context, _ string, _ int64) (driver.Record, error) {
	return f.have, f.call(ctx, "WaitChange")
}

func (f *fake) Close() error { return f.call(context.Background(), "Close") }

// args are what the calls of one test are made with.
type args struct {
	c      driver.Claim
	r      driver.Ref
	a      driver.Adoption
	rec    driver.Record
	name   string
	kind   driver.Kind
	was    int64
	limit  int64
	units  int64
	others []driver.Claim
}

func good() args {
	c := driver.Claim{Name: "n", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
	other := c
	other.Name = "other"
	return args{
		c: c, r: driver.Ref{Name: "n", ID: c.ID, TTL: time.Minute}, others: []driver.Claim{c, other},
		a:   driver.Adoption{Name: "n", ID: c.ID, Kind: c.Kind, Units: 1, Token: 1, Mark: driver.NewID(), TTL: time.Minute},
		rec: driver.Record{Name: "n"}, name: "n", kind: driver.KindSemaphore, was: 1, limit: 2, units: 1,
	}
}

// methods are all calls, by name.
var methods = map[string]func(context.Context, *AllStore, args) error{
	"Enter":    func(ctx context.Context, s *AllStore, a args) error { _, err := s.Enter(ctx, a.c); return err },
	"EnterAll": func(ctx context.Context, s *AllStore, a args) error { _, err := s.EnterAll(ctx, a.others); return err },
	"Wait":     func(ctx context.Context, s *AllStore, a args) error { _, err := s.Wait(ctx, a.r); return err },
	"Adopt":    func(ctx context.Context, s *AllStore, a args) error { _, err := s.Adopt(ctx, a.a); return err },
	"Renew": func(ctx context.Context, s *AllStore, a args) (err error) {
		s.Renew(ctx, []driver.Ref{a.r}, func(_ int, _ driver.Status, e error) { err = e })
		return err
	},
	"Leave": func(ctx context.Context, s *AllStore, a args) error { _, err := s.Leave(ctx, a.r); return err },
	"Resize": func(ctx context.Context, s *AllStore, a args) error {
		_, err := s.Resize(ctx, a.r, a.units)
		return err
	},
	"Break": func(ctx context.Context, s *AllStore, a args) error { _, err := s.Break(ctx, a.name); return err },
	"SetLimit": func(ctx context.Context, s *AllStore, a args) error {
		return s.SetLimit(ctx, a.name, a.kind, a.was, a.limit)
	},
	"Ask":     func(ctx context.Context, s *AllStore, a args) error { return s.Ask(ctx, a.name) },
	"Inspect": func(ctx context.Context, s *AllStore, a args) error { _, err := s.Inspect(ctx, a.name); return err },
	"List": func(ctx context.Context, s *AllStore, a args) error {
		for _, err := range s.List(ctx, "n") {
			return err
		}
		return nil
	},
	"Listen": func(ctx context.Context, s *AllStore, a args) error { return s.Listen(ctx, func(driver.Notice) {}) },
	"Load":   func(ctx context.Context, s *AllStore, a args) error { _, err := s.Load(ctx, a.name); return err },
	"CompareAndSwap": func(ctx context.Context, s *AllStore, a args) error {
		_, err := s.CompareAndSwap(ctx, a.rec)
		return err
	},
	"WaitChange": func(ctx context.Context, s *AllStore, a args) error {
		_, err := s.WaitChange(ctx, a.name, 0)
		return err
	},
}

func TestGoodCallsReachTheEngine(t *testing.T) {
	for what, call := range methods {
		f := new(fake)
		if err := call(t.Context(), NewAll("engine", f), good()); err != nil || !slices.Equal(f.calls, []string{what}) {
			t.Errorf("%s: %v, %v", what, f.calls, err)
		}
	}
}

func TestBadArguments(t *testing.T) {
	inRef := func(change func(*driver.Ref)) func(*args) { return func(a *args) { change(&a.r) } }
	bad := map[string]map[string]func(*args){
		"Enter": {
			"name": func(a *args) { a.c.Name = "" }, "id": func(a *args) { a.c.ID = "x" }, "kind": func(a *args) { a.c.Kind = 0 },
			"TTL": func(a *args) { a.c.TTL = 0 }, "units": func(a *args) { a.c.Units = 2 }, "limit": func(a *args) { a.c.Limit = 0 },
			"label": func(a *args) { a.c.Owner.Label = "a\nb" },
		},
		"EnterAll":       {"name": func(a *args) { a.others[1].Name = "" }, "names": func(a *args) { a.others[1].Name = a.others[0].Name }},
		"Wait":           {"name": inRef(func(r *driver.Ref) { r.Name = "{" }), "mark": inRef(func(r *driver.Ref) { r.Mark = "x" })},
		"Adopt":          {"mark": func(a *args) { a.a.Mark = "" }, "token": func(a *args) { a.a.Token = 0 }, "name": func(a *args) { a.a.Name = "" }},
		"Renew":          {"TTL": inRef(func(r *driver.Ref) { r.TTL = 0 }), "id": inRef(func(r *driver.Ref) { r.ID = "" })},
		"Leave":          {"linger": inRef(func(r *driver.Ref) { r.Linger = -1 }), "name": inRef(func(r *driver.Ref) { r.Name = "" })},
		"Resize":         {"units": func(a *args) { a.units = 0 }, "id": inRef(func(r *driver.Ref) { r.ID = "" })},
		"Break":          {"name": func(a *args) { a.name = "a\x00" }},
		"SetLimit":       {"name": func(a *args) { a.name = "" }, "kind": func(a *args) { a.kind = 0 }, "was": func(a *args) { a.was = 0 }, "limit": func(a *args) { a.limit = -1 }},
		"Ask":            {"name": func(a *args) { a.name = "" }},
		"Inspect":        {"name": func(a *args) { a.name = strings.Repeat("x", driver.MaxName+1) }},
		"Load":           {"name": func(a *args) { a.name = "" }},
		"CompareAndSwap": {"name": func(a *args) { a.rec.Name = "" }, "TTL": func(a *args) { a.rec.TTL = -1 }},
		"WaitChange":     {"name": func(a *args) { a.name = "" }},
	}
	for what, call := range methods {
		if bad[what] == nil && what != "List" && what != "Listen" {
			t.Errorf("%s: nothing bad is tried", what)
		}
		for which, spoil := range bad[what] {
			f, a := new(fake), good()
			spoil(&a)
			err := call(t.Context(), NewAll("engine", f), a)
			if !errors.Is(err, driver.ErrInvalid) || !driver.IsPermanent(err) || f.count() != 0 {
				t.Errorf("%s with a bad %s: %v, and %v reached the engine", what, which, err, f.calls)
			}
		}
	}
	_, err := New("engine", new(fake)).Resize(t.Context(), good().r, 0)
	if got, want := err.Error(), `resize "n": invalid units 0: allowed are 1 to 2147483648`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := New("engine", new(fake)).Ask(t.Context(), "").Error(), "ask for: invalid name: it is empty; allowed are 1 to 512 bytes"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDoneAndClosed(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for what, call := range methods {
		f := new(fake)
		s := NewAll("engine", f)
		if err := call(cancelled, s, good()); !errors.Is(err, context.Canceled) || driver.IsPermanent(err) || f.count() != 0 {
			t.Errorf("%s under a context that is done: %v, and %v reached the engine", what, err, f.calls)
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if err := call(t.Context(), s, good()); !errors.Is(err, driver.ErrClosed) || !driver.IsPermanent(err) || !slices.Equal(f.calls, []string{"Close"}) {
			t.Errorf("%s after Close: %v, and %v reached the engine", what, err, f.calls)
		}
		if err := call(cancelled, s, good()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s after Close under a context that is done: %v", what, err)
		}
	}
	f := &fake{err: io.EOF}
	s := New("engine", f)
	for range 2 {
		if err := s.Close(); err != io.EOF || f.count() != 1 {
			t.Errorf("Close: %v, by %v", err, f.calls)
		}
	}
}

func TestErrors(t *testing.T) {
	says := map[string]string{
		"Enter": `enter "n"`, "EnterAll": `enter, with others, "n"`, "Wait": `wait for "n"`, "Adopt": `adopt "n"`, "Renew": `renew "n"`,
		"Leave": `leave "n"`, "Resize": `resize "n"`, "Break": `break "n"`, "SetLimit": `set the limit of "n"`, "Ask": `ask for "n"`,
		"Inspect": `inspect "n"`, "List": `list names with prefix "n"`, "Listen": "listen", "Load": `load "n"`,
		"CompareAndSwap": `compare and swap "n"`, "WaitChange": `wait for a change of "n"`,
	}
	for what, call := range methods {
		f := &fake{err: driver.Permanent(io.EOF)}
		for engine, prefix := range map[string]string{"engine": "engine: ", "": ""} {
			err := call(t.Context(), NewAll(engine, f), good())
			if want := prefix + says[what] + ": EOF"; err == nil || err.Error() != want || !errors.Is(err, io.EOF) || !driver.IsPermanent(err) {
				t.Errorf("%s: %v, want %s, which is permanent", what, err, want)
			}
		}
		f.err = &driver.MismatchError{Name: "n", Have: 1, Want: 2}
		if err := call(t.Context(), NewAll("engine", f), good()); err != f.err {
			t.Errorf("%s: %v, want %v", what, err, f.err)
		}
	}
	f := &fake{err: io.EOF, have: driver.Record{Version: 3}}
	s := New("engine", f)
	if st, err := s.Enter(t.Context(), good().c); st != (driver.Status{}) || err == nil {
		t.Errorf("%+v comes with %v", st, err)
	}
	if r, err := s.Load(t.Context(), "n"); r.Version != 0 || err == nil {
		t.Errorf("%+v comes with %v", r, err)
	}
	f.err = driver.ErrConflict
	if r, err := s.CompareAndSwap(t.Context(), good().rec); r.Version != 3 || !errors.Is(err, driver.ErrConflict) {
		t.Errorf("%+v comes with %v", r, err)
	}
}

// explainer is an engine that says what its errors mean.
type explainer struct{ *fake }

func (*explainer) Explain(err error) error { return driver.Permanent(fmt.Errorf("%w: no disk", err)) }

func TestExplains(t *testing.T) {
	f := new(fake)
	s := NewAll("engine", &explainer{f})
	explained := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, io.EOF) || !driver.IsPermanent(err) || strings.Count(err.Error(), "no disk") != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, call := range methods {
		f.err = io.EOF
		explained(what, call(t.Context(), s, good()))
		f.err = driver.ErrConflict
		if err := call(t.Context(), s, good()); driver.IsPermanent(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.err, f.listed = nil, []error{&driver.NameError{Name: "bad", Err: io.EOF}}
	for _, err := range s.List(t.Context(), "") {
		explained("a bad name", err)
		if bad, ok := errors.AsType[*driver.NameError](err); !ok || bad.Err.Error() != "EOF: no disk" {
			t.Errorf("a bad name: %v", err)
		}
	}
}

// One bad ref of a batch costs that ref alone, and reports keep to their claims.
func TestRenew(t *testing.T) {
	refs := func() (rs []driver.Ref) {
		for _, name := range []string{"a", "bb", "ccc", "dddd", "eeeee"} {
			rs = append(rs, driver.Ref{Name: name, ID: driver.NewID(), TTL: time.Minute})
		}
		return rs
	}
	renew := func(ctx context.Context, s *Store, rs []driver.Ref) (sts []driver.Status, errs []error) {
		sts, errs = make([]driver.Status, len(rs)), make([]error, len(rs))
		told := make([]int, len(rs))
		s.Renew(ctx, rs, func(i int, st driver.Status, err error) { sts[i], errs[i], told[i] = st, err, told[i]+1 })
		for i, n := range told {
			if n != 1 {
				t.Errorf("index %d is reported %d times", i, n)
			}
		}
		return sts, errs
	}
	rs := refs()
	rs[0].TTL, rs[3].Name = 0, ""
	f := &fake{bad: map[string]error{rs[2].ID: driver.Permanent(io.EOF)}}
	s := New("engine", f)
	sts, errs := renew(t.Context(), s, rs)
	if len(f.refs) != 3 || f.refs[0] != rs[1] || f.refs[1] != rs[2] || f.refs[2] != rs[4] {
		t.Errorf("the engine got %+v", f.refs)
	}
	for i, token := range map[int]int64{1: 2, 4: 5} {
		if errs[i] != nil || sts[i].State != driver.Holding || sts[i].Token != token {
			t.Errorf("index %d: %+v, %v", i, sts[i], errs[i])
		}
	}
	for _, i := range []int{0, 3} {
		if !errors.Is(errs[i], driver.ErrInvalid) || sts[i] != (driver.Status{}) {
			t.Errorf("index %d: %+v, %v", i, sts[i], errs[i])
		}
	}
	if want := `engine: renew "ccc": EOF`; errs[2] == nil || errs[2].Error() != want || !driver.IsPermanent(errs[2]) || sts[2] != (driver.Status{}) {
		t.Errorf("index 2: %+v, %v; want %s", sts[2], errs[2], want)
	}

	f.refs = nil
	s.Renew(t.Context(), nil, nil)
	for i := range rs {
		rs[i].TTL = 0
	}
	if _, errs := renew(t.Context(), s, rs); f.count() != 1 || errs[4] == nil {
		t.Errorf("without a good ref: %v reached the engine, %v", f.calls, errs)
	}

	s.Close()
	rs = refs()
	rs[0].TTL = 0
	_, errs = renew(t.Context(), s, rs)
	for i, err := range errs {
		if want := []error{driver.ErrInvalid, driver.ErrClosed}[min(i, 1)]; !errors.Is(err, want) {
			t.Errorf("index %d of a closed store: %v, want %v", i, err, want)
		}
	}
	if f.refs != nil {
		t.Errorf("a closed store renews %+v", f.refs)
	}
}

func TestList(t *testing.T) {
	type item struct {
		name string
		err  error
	}
	list := func(ctx context.Context, s *Store, each func()) (items []item) {
		for q, err := range s.List(ctx, "") {
			items = append(items, item{q.Name, err})
			each()
		}
		return items
	}
	nothing := func() {}
	f := &fake{listed: []error{nil, &driver.NameError{Name: "bad", Err: driver.Permanent(io.EOF)}, nil, io.EOF, nil}}
	s := New("engine", f)
	got := list(t.Context(), s, nothing)
	if len(got) != 4 || got[0] != (item{"0", nil}) || got[2] != (item{"2", nil}) {
		t.Fatalf("%+v", got)
	}
	bad, ok := errors.AsType[*driver.NameError](got[1].err)
	if want := `engine: read "bad": EOF`; !ok || bad.Name != "bad" || got[1].err.Error() != want || !driver.IsPermanent(got[1].err) {
		t.Errorf("%v, want %s", got[1].err, want)
	}
	if want := "engine: list names: EOF"; got[3].err.Error() != want || got[3].name != "" {
		t.Errorf("%+v, want %s", got[3], want)
	}
	for range s.List(t.Context(), "") {
		break
	}

	ctx, cancel := context.WithCancel(t.Context())
	if got := list(ctx, s, cancel); len(got) != 2 || !errors.Is(got[1].err, context.Canceled) {
		t.Errorf("a list that was cancelled: %+v", got)
	}
	if got := list(t.Context(), s, func() { s.Close() }); len(got) != 2 || !errors.Is(got[1].err, driver.ErrClosed) {
		t.Errorf("a list of a store that was closed: %+v", got)
	}
}

// What the engine says because it is being closed is ErrClosed, unless the caller
// has given up, or it is a reply.
func TestCallsUnderWay(t *testing.T) {
	for _, tt := range []struct {
		err, want error
		gaveUp    bool
	}{
		{err: io.EOF, want: driver.ErrClosed},
		{err: driver.ErrConflict, want: driver.ErrConflict},
		{err: &driver.MismatchError{Name: "n"}, want: driver.ErrMismatch},
		{err: io.EOF, want: io.EOF, gaveUp: true},
	} {
		for what, call := range methods {
			ctx, cancel := context.WithCancel(t.Context())
			f := &fake{err: tt.err}
			s := NewAll("engine", f)
			f.hook = func(context.Context) {
				f.hook = nil
				s.Close()
				if tt.gaveUp {
					cancel()
				}
			}
			if err := call(ctx, s, good()); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", what, err, tt.want)
			}
			cancel()
		}
	}
}

// ender is an engine whose Close must not run beside its calls.
type ender struct {
	*fake
	ended chan struct{}
}

func (e *ender) End() { close(e.ended) }

func TestCloseWaitsForTheCalls(t *testing.T) {
	const calls = 3
	e := &ender{new(fake), make(chan struct{})}
	var mu sync.Mutex
	under, closedBeside := 0, false
	begun, rest, done := make(chan struct{}, calls), make(chan struct{}), make(chan error, calls+1)
	e.hook = func(ctx context.Context) {
		if ctx == context.Background() { // Close
			mu.Lock()
			defer mu.Unlock()
			closedBeside = under != 0
			return
		}
		mu.Lock()
		under++
		mu.Unlock()
		begun <- struct{}{}
		<-e.ended
		<-rest
		mu.Lock()
		under--
		mu.Unlock()
	}
	s := New("engine", e)
	for range calls {
		go func() {
			_, err := s.Inspect(t.Context(), "n")
			done <- err
		}()
	}
	for range calls {
		await.Value(t, "the call has begun", begun)
	}
	go func() { done <- s.Close() }()
	<-e.ended
	if _, err := s.Inspect(t.Context(), "n"); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a call while others end: %v", err)
	}
	close(rest)
	for range calls + 1 {
		if err := await.Value(t, "all have ended", done); err != nil {
			t.Error(err)
		}
	}
	if closedBeside || !slices.Contains(e.calls, "Close") {
		t.Errorf("Close ran beside a call: %v, %v", closedBeside, e.calls)
	}
}

// Without an error nothing is allocated, but what passes the reports of a Renew on.
func TestAllocations(t *testing.T) {
	f := new(fake)
	s, a := New("engine", f), good()
	rs := []driver.Ref{a.r, a.r, a.r, a.r}
	report := func(int, driver.Status, error) {}
	for what, tt := range map[string]struct {
		most float64
		call func()
	}{
		"Enter": {0, func() { s.Enter(t.Context(), a.c) }},
		"Leave": {0, func() { s.Leave(t.Context(), a.r) }},
		"Renew": {1, func() { s.Renew(t.Context(), rs, report) }},
	} {
		if n := testing.AllocsPerRun(100, func() { f.calls = f.calls[:0]; tt.call() }); n > tt.most {
			t.Errorf("%s allocates %v times, want %v", what, n, tt.most)
		}
	}
}

func TestOnlyWhoCanEntersAll(t *testing.T) {
	var s any = New("engine", new(fake))
	if _, ok := s.(driver.AllEnterer); ok {
		t.Error("a Store offers EnterAll, also where the engine does not")
	}
	if sts, err := NewAll("engine", new(fake)).EnterAll(t.Context(), nil); sts != nil || err != nil {
		t.Errorf("EnterAll of nothing: %v, %v", sts, err)
	}
}
