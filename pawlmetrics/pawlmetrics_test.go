package pawlmetrics_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlmetrics"
)

func newMetrics(t *testing.T, prefixes ...string) *pawlmetrics.Metrics {
	t.Helper()
	m, err := pawlmetrics.New(&pawlmetrics.Options{Prefixes: prefixes})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func page(t *testing.T, m *pawlmetrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if kind := w.Header().Get("Content-Type"); w.Code != 200 || !strings.HasPrefix(kind, "text/plain; version=0.0.4") {
		t.Fatalf("%d %q: %s", w.Code, kind, w.Body)
	}
	return w.Body.String()
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, " ")
			t.Errorf("want %s in", line)
			for l := range strings.Lines(text) {
				if strings.HasPrefix(l, name) {
					t.Errorf("\t%s", l)
				}
			}
		}
	}
}

// What an observer is told is counted, under its prefix.
func TestCounts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMetrics(t, "deploy/")
		network := &faultstore.Store{Store: memstore.New()}
		c := pawl.New(m.Store(network), &pawl.Options{Observer: m.Observer()})
		lock := func(name string) *pawl.Lease {
			t.Helper()
			l, err := c.Mutex(name).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		first := lock("deploy/x")
		second := make(chan *pawl.Lease)
		go func() { second <- lock("deploy/x") }()
		time.Sleep(3 * time.Second)
		if err := first.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := <-second
		if _, err := c.Mutex("deploy/x").TryLock(t.Context()); !errors.Is(err, pawl.ErrHeld) {
			t.Fatal(err)
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Mutex("deploy/x").Lock(brief); err == nil {
			t.Fatal("two hold")
		}
		lock("other")
		time.Sleep(time.Second)
		has(t, page(t, m),
			`pawl_client_grants_total{prefix="deploy/"} 2`, `pawl_client_grants_total{prefix="other"} 1`,
			`pawl_client_leases_held{prefix="deploy/"} 1`, `pawl_client_leases_held{prefix="other"} 1`,
			`pawl_client_wait_seconds_sum{prefix="deploy/"} 3`, `pawl_client_wait_seconds_bucket{prefix="deploy/",le="2.5"} 1`,
			`pawl_client_hold_seconds_sum{prefix="deploy/"} 3`, `pawl_client_hold_seconds_count{prefix="deploy/"} 1`,
			`pawl_client_gave_up_total{prefix="deploy/",reason="held"} 1`, `pawl_client_gave_up_total{prefix="deploy/",reason="ended"} 1`,
			`pawl_client_losses_total{prefix="deploy/"} 0`,
		)

		if _, err := c.ForceRelease(t.Context(), "deploy/x"); err != nil {
			t.Fatal(err)
		}
		<-next.Lost()
		network.Set(func() { network.Err = faultstore.ErrNetwork })
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Mutex("deploy/x").Lock(short); err == nil {
			t.Fatal("a lock without a store")
		}
		network.Set(func() { network.Err = nil })
		c.Close(t.Context())
		text := page(t, m)
		has(t, text,
			`pawl_client_losses_total{prefix="deploy/"} 1`, `pawl_client_forced_releases_total{prefix="deploy/"} 1`,
			`pawl_client_gave_up_total{prefix="deploy/",reason="error"} 1`,
			`pawl_client_leases_held{prefix="deploy/"} 0`, `pawl_client_leases_held{prefix="other"} 0`,
			`pawl_engine_request_seconds_count{operation="break"} 1`,
		)
		for _, never := range []string{`pawl_client_retries_total{prefix="deploy/"} 0` + "\n", `errors_total{operation="enter",class="unavailable"} 0` + "\n", "deploy/x"} {
			if strings.Contains(text, never) {
				t.Errorf("there is %s in\n%s", never, text)
			}
		}
	})
}

// Several names are several leases.
func TestLockAll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := newMetrics(t, "a", "b")
		store := memstore.New()
		c := pawl.New(store, &pawl.Options{Observer: m.Observer(), Reentrant: true})
		l, err := c.LockAll(t.Context(), "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Mutex("a").Lock(l.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		has(t, page(t, m), `pawl_client_leases_held{prefix="b"} 1`)
		for _, l := range []*pawl.Lease{again, l} {
			if err := l.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		c.Close(t.Context())
		has(t, page(t, m), `pawl_client_leases_held{prefix="a"} 0`, `pawl_client_leases_held{prefix="b"} 0`, `pawl_client_grants_total{prefix="b"} 1`)
	})
}

func TestServeHTTP(t *testing.T) {
	m := newMetrics(t)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("POST", "/metrics", nil))
	if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("a POST: %d, %v", w.Code, w.Header())
	}
	if text := page(t, m); text != "" {
		t.Errorf("where nothing is counted: %s", text)
	}
	if _, err := pawlmetrics.New(&pawlmetrics.Options{Prefixes: []string{"a", "a"}}); !errors.Is(err, pawl.ErrInvalid) {
		t.Errorf("a prefix that is there twice: %v", err)
	}
	if p := newMetrics(t, "a").Prefix("b"); p != "other" {
		t.Errorf("the prefix of another name is %q", p)
	}
}
