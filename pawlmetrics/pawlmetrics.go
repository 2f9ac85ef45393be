// Package pawlmetrics counts what the locks of a program do, for Prometheus and what
// else reads its text format:
//
//	metrics, err := pawlmetrics.New(nil)
//	…
//	client := pawl.New(metrics.Store(store), &pawl.Options{Observer: metrics.Observer()})
//	http.Handle("/metrics", metrics)
//
// A program that serves metrics already adds these to its page by [Metrics.WriteTo], or
// is scraped at another path for them. docs/SERVE.md lists all, with those that
// `pawl serve` has.
//
// No name of a lock, holder or claim is a label: there is a label "prefix", with the
// values that [Options] name.
package pawlmetrics

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/meter"
)

// Options of Metrics.
type Options struct {
	// Prefixes of names that are counted apart, at most 20, as "deploy/". A name counts
	// for the longest that it begins with, and under "other" if there is none.
	Prefixes []string
}

// Metrics counts. Its methods may be called from several goroutines at once.
type Metrics struct {
	prefixes *meter.Prefixes
	engine   *meter.Engine
	stores   atomic.Bool // it counts some
	clients  atomic.Bool

	held, grants, losses, gaveUp, retries, forced *meter.Vec
	wait, hold                                    *meter.Histogram
}

// New returns metrics that have counted nothing; nil options are the defaults. A prefix
// that is not allowed is pawl.ErrInvalid.
func New(opts *Options) (*Metrics, error) {
	if opts == nil {
		opts = new(Options)
	}
	prefixes, err := meter.NewPrefixes(opts.Prefixes)
	if err != nil {
		return nil, err
	}
	m := &Metrics{
		prefixes: prefixes, engine: meter.NewEngine(),
		held:    meter.NewGauge("pawl_client_leases_held", "Leases that this process holds.", "prefix"),
		grants:  meter.NewCounter("pawl_client_grants_total", "Leases that this process was granted.", "prefix"),
		losses:  meter.NewCounter("pawl_client_losses_total", "Leases of this process that ended before it gave them up.", "prefix"),
		gaveUp:  meter.NewCounter("pawl_client_gave_up_total", "Calls of this process that ended without the lock: it was held and they do not wait (held), their context or client ended (ended), or the engine failed or refused (error).", "prefix", "reason"),
		retries: meter.NewCounter("pawl_client_retries_total", "Requests of waiting calls that failed and were to be repeated.", "prefix"),
		forced:  meter.NewCounter("pawl_client_forced_releases_total", "Claims that this process has taken from their holders by force.", "prefix"),
		wait:    meter.NewHistogram("pawl_client_wait_seconds", "From the call of Lock to the grant.", meter.Long, "prefix"),
		hold:    meter.NewHistogram("pawl_client_hold_seconds", "From the grant to the end of a lease.", meter.Long, "prefix"),
	}
	for _, prefix := range prefixes.All() {
		for _, v := range []*meter.Vec{m.held, m.grants, m.losses, m.retries, m.forced} {
			v.Add(0, prefix)
		}
		for _, reason := range []string{"held", "ended", "error"} {
			m.gaveUp.Add(0, prefix, reason)
		}
		m.wait.Declare(prefix)
		m.hold.Declare(prefix)
	}
	return m, nil
}

// Observer returns what counts the locks of clients: their Options.Observer, or a part of
// it. Without it there is no pawl_client_….
func (m *Metrics) Observer() pawl.Observer {
	m.clients.Store(true)
	return m.observe
}

func (m *Metrics) observe(e pawl.Event) {
	prefix := m.prefixes.Of(e.Name)
	switch e.Kind {
	case pawl.EventAcquired:
		m.held.Add(1, prefix)
		m.grants.Add(1, prefix)
		m.wait.Observe(e.Waited, prefix)
	case pawl.EventLost:
		m.losses.Add(1, prefix)
		fallthrough
	case pawl.EventReleased:
		m.held.Add(-1, prefix)
		m.hold.Observe(e.Held, prefix)
	case pawl.EventGaveUp:
		m.gaveUp.Add(1, prefix, reasonOf(e.Err))
	case pawl.EventRetrying:
		m.retries.Add(1, prefix)
	case pawl.EventRemoved:
		m.forced.Add(float64(len(e.Removed)), prefix)
	}
}

// reasonOf returns why a call ended without the lock.
func reasonOf(err error) string {
	waited := new(pawl.WaitError)
	switch {
	case errors.Is(err, pawl.ErrHeld):
		return "held"
	case errors.As(err, &waited) && waited.Engine != nil:
		return "error"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, pawl.ErrClosed):
		return "ended"
	}
	return "error"
}

// Store returns s, with what the engine takes for replies, and its errors, counted: pass
// it to pawl.New. The caller closes s, or what was returned, as ever. Of a quorum it is
// the whole that is counted, not its nodes.
func (m *Metrics) Store(s driver.Store) driver.Store {
	m.stores.Store(true)
	return m.engine.Store(s)
}

// Prefix returns what a name is counted under, for metrics of the program's own.
func (m *Metrics) Prefix(name string) string { return m.prefixes.Of(name) }

// Prefixes returns all that Prefix may return.
func (m *Metrics) Prefixes() []string { return m.prefixes.All() }

// WriteTo writes all metrics. It implements io.WriterTo.
func (m *Metrics) WriteTo(w io.Writer) (int64, error) {
	var text []byte
	if m.clients.Load() {
		text = meter.Append(text, m.held, m.grants, m.losses, m.gaveUp, m.retries, m.forced, m.wait, m.hold)
	}
	if m.stores.Load() {
		text = m.engine.Append(text)
	}
	n, err := w.Write(text)
	return int64(n), err
}

// ServeHTTP implements http.Handler: it replies with all metrics. Who may read them is up
// to the program.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method "+strconv.Quote(r.Method)+": allowed are GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	w.Header().Set("Content-Type", meter.ContentType)
	_, _ = m.WriteTo(w) // who has gone does not want it
}
