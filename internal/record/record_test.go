package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/internal/record"
	"github.com/pawl-go/pawl/memstore"
)

// list is the value of the tests: who has written.
type list struct {
	Names []string `json:"names"`
}

// interrupted is the error of a call whose context has ended.
type interrupted struct {
	record.Interrupted
	error
}

// fixture is a client of records, and what it was told.
type fixture struct {
	*record.Client
	store   *memstore.Store
	faults  *faultstore.Store // in front of store
	close   context.CancelFunc
	retries []int // the failures in a row
}

func newFixture(t *testing.T) *fixture {
	store := memstore.New()
	f := &fixture{store: store, faults: &faultstore.Store{Store: store}}
	f.Client = &record.Client{
		Store:   f.faults,
		TTL:     15 * time.Second,
		Backoff: func(failures int, _ error) (time.Duration, bool) { return time.Second, failures < 5 },
		Retrying: func(_ context.Context, name string, failures int, err error) {
			if name != "x" || err == nil {
				t.Errorf("told of %q, %v", name, err)
			}
			f.retries = append(f.retries, failures)
		},
		Usable: func() error { return nil },
		Ended: func(ctx context.Context, i record.Interrupted) error {
			return interrupted{i, context.Cause(ctx)}
		},
	}
	var running sync.WaitGroup
	f.Go = func(g func()) bool { running.Go(g); return true }
	f.Closed, f.close = context.WithCancel(t.Context())
	t.Cleanup(func() {
		f.close()
		running.Wait()
	})
	return f
}

func (f *fixture) handle(expiry time.Duration) *record.Handle[list] {
	return &record.Handle[list]{Client: f.Client, Kind: driver.KindLatch, Name: "x", Expiry: expiry}
}

func begin(t *testing.T, h *record.Handle[list]) (context.Context, *record.Call[list]) {
	t.Helper()
	ctx, c, err := h.Begin(t.Context(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.End)
	return ctx, c
}

// add adds a name unless it is there.
func add(name string) func(record.Snapshot[list]) (*list, error) {
	return func(now record.Snapshot[list]) (*list, error) {
		var l list
		if now.Value != nil {
			if slices.Contains(now.Value.Names, name) {
				return now.Value, nil
			}
			l = *now.Value
		}
		return &list{append(slices.Clip(l.Names), name)}, nil
	}
}

func mustAdd(t *testing.T, h *record.Handle[list], name string) record.Snapshot[list] {
	t.Helper()
	ctx, c := begin(t, h)
	now, err := c.Change(ctx, add(name))
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// names checks who has written.
func names(t *testing.T, h *record.Handle[list], want ...string) record.Snapshot[list] {
	t.Helper()
	ctx, c := begin(t, h)
	now, err := c.Load(ctx)
	var got []string
	if now.Value != nil {
		got = now.Value.Names
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the record has %q, %v, want %q", got, err, want)
	}
	return now
}

func isError(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error is %v, want %v", err, target)
	}
}

func TestChange(t *testing.T) {
	f := newFixture(t)
	h := f.handle(time.Hour)
	if now := names(t, h); now.Value != nil || now.Version != 0 {
		t.Errorf("before it is created: %+v", now)
	}
	first := mustAdd(t, h, "a")
	second := mustAdd(t, h, "b")
	if first.Version == 0 || second.Version <= first.Version || second.TTL != time.Hour || second.NearlyExpired {
		t.Errorf("created %+v, changed %+v", first, second)
	}
	if now := names(t, h, "a", "b"); now.Version != second.Version {
		t.Errorf("version %d, written %d", now.Version, second.Version)
	}
	if again := mustAdd(t, h, "b"); again.Version != second.Version {
		t.Error("no change has made a new version")
	}
	ctx, c := begin(t, h)
	reason := errors.New("reason")
	if _, err := c.Change(ctx, func(record.Snapshot[list]) (*list, error) { return nil, reason }); !errors.Is(err, reason) || err.Error() != `test latch "x": reason` {
		t.Errorf("an error of the change became %v", err)
	}
	names(t, h, "a", "b")
	now, err := c.Change(ctx, func(record.Snapshot[list]) (*list, error) { return nil, nil })
	if err != nil || now.Value != nil || now.Version != 0 {
		t.Errorf("deleted: %+v, %v", now, err)
	}
	names(t, h)
}

// The record is changed by somebody else between the reading and the writing.
func TestConflict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		other := *f.Client
		other.Store = f.store
		for i, name := range []string{"other 1", "other 2", "other 3"} {
			f.faults.Swaps(1, func() error {
				mustAdd(t, &record.Handle[list]{Client: &other, Kind: driver.KindLatch, Name: "x"}, name)
				return nil
			}, nil)
			mustAdd(t, f.handle(0), fmt.Sprint("own ", i+1))
		}
		names(t, f.handle(0), "other 1", "own 1", "other 2", "own 2", "other 3", "own 3")
		if f.retries != nil {
			t.Errorf("conflicts were told as failures: %v", f.retries)
		}
	})
}

func TestManyWriters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				ctx, c, err := f.handle(0).Begin(t.Context(), "add to", nil)
				if err == nil {
					_, err = c.Change(ctx, add(fmt.Sprint(i)))
					c.End()
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		ctx, c := begin(t, f.handle(0))
		if now, err := c.Load(ctx); err != nil || len(now.Value.Names) != 100 {
			t.Errorf("%+v, %v", now.Value, err)
		}
	})
}

// A request is lost, or its reply. The change is made once.
func TestLostMessages(t *testing.T) {
	lost := func() error { return faultstore.ErrNetwork }
	silent := func() error {
		time.Sleep(time.Minute)
		return context.DeadlineExceeded
	}
	for name, tt := range map[string]struct{ before, after func() error }{
		"request":                  {lost, nil},
		"request, nothing is said": {silent, nil},
		"reply":                    {nil, lost},
		"reply, nothing is said":   {nil, silent},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := newFixture(t)
				mustAdd(t, f.handle(0), "a")
				f.faults.Swaps(1, tt.before, tt.after)
				mustAdd(t, f.handle(0), "b")
				names(t, f.handle(0), "a", "b")
				if !slices.Equal(f.retries, []int{1}) {
					t.Errorf("told of the failures %v", f.retries)
				}
			})
		})
	}
}

// The reply to a write is lost, and the record was changed since: what is there
// decides, and not the conflict.
func TestLostReplyAndConflict(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		mustAdd(t, f.handle(0), "a")
		other := *f.Client
		other.Store = f.store
		f.faults.Swaps(1, nil, func() error {
			mustAdd(t, &record.Handle[list]{Client: &other, Kind: driver.KindLatch, Name: "x"}, "c")
			return faultstore.ErrNetwork
		})
		mustAdd(t, f.handle(0), "b")
		names(t, f.handle(0), "a", "b", "c")
	})
}

func TestMismatch(t *testing.T) {
	for value, text := range map[string]string{
		"no JSON":                               `"x" cannot be used: its record is not one of pawl's`,
		`{}`:                                    `"x" cannot be used: its record is not one of pawl's`,
		`{"kind":"other","format":1,"data":{}}`: `"x" cannot be used: its record is of kind "other", which this pawl does not know`,
		`{"kind":"election","format":2,"data":{}}`: `"x" is in use as election, asked for as latch: use one kind per name`,
		`{"kind":"latch","format":2,"data":{}}`:    `"x" cannot be used: its record has format 2, written by a newer pawl; this one knows up to 1`,
		`{"kind":"latch","format":1,"data":[]}`:    `"x" cannot be used: its record is damaged: json: cannot unmarshal array`,
	} {
		f := newFixture(t)
		r, err := f.store.CompareAndSwap(t.Context(), driver.Record{Name: "x", Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		check := func(_ record.Snapshot[list], err error) {
			t.Helper()
			m, ok := errors.AsType[*driver.MismatchError](err)
			if !ok || m.Name != "x" || !errors.Is(err, driver.ErrMismatch) || !strings.HasPrefix(err.Error(), `test latch "x": `+text) {
				t.Errorf("%s: %v", value, err)
			}
		}
		ctx, c := begin(t, f.handle(0))
		check(c.Load(ctx))
		check(c.Change(ctx, add("a")))
		check(c.Await(ctx, record.Snapshot[list]{}, time.Hour))
		// It has come between the reading and the writing.
		check(c.ChangeFrom(ctx, record.Snapshot[list]{}, add("a")))
		if now, err := f.store.Load(ctx, "x"); err != nil || now.Version != r.Version {
			t.Errorf("%s became %s, %v", value, now.Value, err)
		}
	}
}
