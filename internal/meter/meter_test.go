package meter_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/meter"
	"github.com/pawl-go/pawl/memstore"
)

func TestText(t *testing.T) {
	c := meter.NewCounter("made_total", "Made \\ by\nhand.", "what", "who")
	c.Add(2, `a "b"`, "x\\\ny")
	c.Add(1, "a", "z")
	c.Add(0, "b", "z")
	c.Add(1e6+1, `a "b"`, "x\\\ny")
	h := meter.NewHistogram("took_seconds", "Took.", []float64{.5, 1, 2.5}, "what")
	for _, d := range []time.Duration{500 * time.Millisecond, 750 * time.Millisecond, time.Second, 3 * time.Second, -time.Second} {
		h.Observe(d, "x")
	}
	h.Declare("y")
	g := meter.NewGauge("there", "There.").Set(-0.25)
	want := `# HELP made_total Made \\ by\nhand.
# TYPE made_total counter
made_total{what="a \"b\"",who="x\\\ny"} 1.000003e+06
made_total{what="a",who="z"} 1
made_total{what="b",who="z"} 0
# HELP took_seconds Took.
# TYPE took_seconds histogram
took_seconds_bucket{what="x",le="0.5"} 2
took_seconds_bucket{what="x",le="1"} 4
took_seconds_bucket{what="x",le="2.5"} 4
took_seconds_bucket{what="x",le="+Inf"} 5
took_seconds_sum{what="x"} 5.25
took_seconds_count{what="x"} 5
took_seconds_bucket{what="y",le="0.5"} 0
took_seconds_bucket{what="y",le="1"} 0
took_seconds_bucket{what="y",le="2.5"} 0
took_seconds_bucket{what="y",le="+Inf"} 0
took_seconds_sum{what="y"} 0
took_seconds_count{what="y"} 0
# HELP there There.
# TYPE there gauge
there -0.25
# HELP none_total None.
# TYPE none_total counter
none_total 0
`
	if got := string(meter.Append(nil, c, h, g, meter.NewCounter("none_total", "None."))); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

func TestTogether(t *testing.T) {
	c := meter.NewCounter("c_total", "C.", "x")
	h := meter.NewHistogram("h_seconds", "H.", meter.Short, "x")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				c.Add(1, "a")
				h.Observe(time.Millisecond, "a")
				meter.Append(nil, c, h)
			}
		})
	}
	wg.Wait()
	text := string(meter.Append(nil, c, h))
	for _, want := range []string{`c_total{x="a"} 2000`, `h_seconds_count{x="a"} 2000`, `le="0.0005"} 0`, `le="0.001"} 2000`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

func TestPrefixes(t *testing.T) {
	p, err := meter.NewPrefixes([]string{"a/", "a/b/", "c"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a/x": "a/", "a/b/x": "a/b/", "a/b": "a/", "a": "other", "c": "c", "cx": "c", "other": "other", "": "other"} {
		if got := p.Of(name); got != want {
			t.Errorf("%q counts under %q, want %q", name, got, want)
		}
		if !slices.Contains(p.All(), p.Of(name)) {
			t.Errorf("%q counts under %q, which is none of %q", name, p.Of(name), p.All())
		}
	}
	many := make([]string, meter.MaxPrefixes+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for want, bad := range map[string][]string{"twice": {"a", "b", "a"}, `"other"`: {"other"}, "braces": {"{"}, "empty": {""}, "allowed are 20": many} {
		if _, err := meter.NewPrefixes(bad); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", bad, err, want)
		}
	}
}

// bad is a store on which everything fails.
type bad struct {
	driver.Store
	err error
}

func (b bad) Enter(context.Context, driver.Claim) (driver.Status, error) {
	return driver.Status{}, b.err
}
func (b bad) Wait(ctx context.Context, _ driver.Ref) (driver.Status, error) {
	return driver.Status{}, b.err
}
func (b bad) Renew(_ context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	for i := range rs {
		report(i, driver.Status{}, b.err)
	}
}
func (b bad) List(context.Context, string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		if yield(driver.Queue{}, &driver.NameError{Name: "x", Err: b.err}) {
			yield(driver.Queue{}, b.err)
		}
	}
}

func TestErrorsByClass(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for class, err := range map[string]error{
		"unavailable": errors.New("connection reset"), "permanent": driver.Permanent(errors.New("password")), "timeout": fmt.Errorf("x: %w", context.DeadlineExceeded),
		"mismatch": &driver.MismatchError{}, "full": driver.ErrFull, "unsupported": driver.ErrUnsupported, "closed": driver.ErrClosed, "invalid": driver.ErrInvalid,
		"": context.Canceled,
	} {
		e := meter.NewEngine()
		s := e.Store(bad{err: err})
		s.Enter(t.Context(), driver.Claim{})
		s.Renew(t.Context(), make([]driver.Ref, 3), func(int, driver.Status, error) {})
		s.Wait(t.Context(), driver.Ref{})
		s.Wait(ended, driver.Ref{}) // the caller has ended that
		for range s.List(t.Context(), "") {
		}
		text := string(e.Append(nil))
		for _, operation := range []string{"enter", "renew", "wait", "list"} {
			line := fmt.Sprintf("pawl_engine_errors_total{operation=%q,class=%q} 1\n", operation, class)
			if strings.Contains(text, line) != (class != "") {
				t.Errorf("%v: is there %s in\n%s", err, line, text)
			}
		}
		if n := strings.Count(text, "} 1\n"); class == "" && strings.Count(text, "errors_total{") != strings.Count(text, `"} 0`+"\n") {
			t.Errorf("%v: %d were counted:\n%s", err, n, text)
		}
	}
}

// What a store can do, it can do when it is counted.
func TestStore(t *testing.T) {
	e := meter.NewEngine()
	inner := memstore.New()
	defer inner.Close()
	s := e.Store(inner)
	if _, ok := s.(driver.AllEnterer); !ok {
		t.Error("a store that enters several does no more")
	}
	if _, ok := e.Store(bad{}).(driver.AllEnterer); ok {
		t.Error("a store that does not enter several says so")
	}
	for range 3 {
		if _, err := s.Inspect(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	if text := string(e.Append(nil)); !strings.Contains(text, `pawl_engine_request_seconds_count{operation="inspect"} 3`+"\n") {
		t.Errorf("three requests are\n%s", text)
	}
}

// The time of a list is the store's, not that of who reads it.
func TestListTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := meter.NewEngine()
		s := e.Store(slowly{names: 3, each: time.Second})
		for range s.List(t.Context(), "") {
			time.Sleep(time.Minute)
		}
		for range s.List(t.Context(), "") {
			time.Sleep(time.Minute)
			break
		}
		want := `pawl_engine_request_seconds_sum{operation="list"} 4` + "\n"
		if text := string(e.Append(nil)); !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	})
}

type slowly struct {
	driver.Store
	names int
	each  time.Duration
}

func (s slowly) List(context.Context, string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		for range s.names {
			time.Sleep(s.each)
			if !yield(driver.Queue{}, nil) {
				return
			}
		}
	}
}
