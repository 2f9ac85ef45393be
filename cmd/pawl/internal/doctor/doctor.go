// Package doctor examines a store: whether it replies, how fast, whether a lock
// can be taken there, and which of its settings break locks.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
)

// Level says how bad a finding is.
type Level string

const (
	OK   Level = "ok"
	Note Level = "note" // good to know; nothing has to be done
	Warn Level = "warn" // locks work, but not after every fault
	Fail Level = "fail" // locks don't work, or don't exclude
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level  `json:"level"`
	About string `json:"about"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // what mends it
}

// Report is the result. Spans are in microseconds.
type Report struct {
	Store     string       `json:"store"` // without the password
	Engine    string       `json:"engine"`
	Version   string       `json:"version,omitempty"`
	Reachable bool         `json:"reachable"`
	RoundTrip *RoundTrip   `json:"round_trip,omitempty"`
	Clock     *ClockOffset `json:"clock,omitempty"`
	Worst     Level        `json:"worst"`
	Findings  []Finding    `json:"findings"`
}

// RoundTrip is how long the smallest request takes.
type RoundTrip struct {
	P50    int64 `json:"p50_us"`
	P99    int64 `json:"p99_us"`
	Probes int   `json:"probes"`
}

// ClockOffset is how far the engine's clock is ahead of this machine's.
type ClockOffset struct {
	Ahead     int64 `json:"ahead_us"`
	PlusMinus int64 `json:"plus_minus_us"`
}

// step bounds each thing that is looked at.
const step = 5 * time.Second

// exam is an examination under way.
type exam struct {
	*Report
	by    examiner
	raw   string
	url   *url.URL
	store driver.Store
	ttl   time.Duration // that locks shall have
}

// examiner looks at one engine.
type examiner struct {
	engine string
	// examine returns false if the engine is out of reach, which it says then:
	// nothing else is looked at.
	examine func(*exam, context.Context) bool
	// remedy says what to do about an error of the store; "" if it says so
	// itself.
	remedy func(error) string
}

func examinerOf(scheme string) examiner {
	switch scheme {
	case "file":
		return examiner{"folder", (*exam).folder, nil}
	case "mem":
		return examiner{"memory", (*exam).memory, nil}
	}
	return serverExaminerOf(scheme)
}

// Examine looks at the store of a URL, for locks with this TTL. The error is
// about the URL; what is wrong with the store is in the report.
func Examine(ctx context.Context, raw string, ttl time.Duration) (*Report, error) {
	u, err := storeurl.Parse(raw)
	if err != nil {
		return nil, err
	}
	public, err := storeurl.Public(raw)
	if err != nil {
		return nil, err
	}
	by := examinerOf(u.Scheme)
	e := &exam{Report: &Report{Store: public, Engine: by.engine, Worst: OK}, by: by, raw: raw, url: u, ttl: ttl}
	e.store, err = storeurl.Open(raw)
	switch {
	case errors.Is(err, driver.ErrInvalid):
		return nil, err
	case err != nil:
		e.unreachable(err, e.remedy(err))
		return e.Report, nil
	}
	if e.Reachable = by.examine(e, ctx); e.Reachable {
		e.tryLock(ctx)
	}
	if err := e.store.Close(); err != nil {
		e.note("close", "%v", err)
	}
	return e.Report, nil
}

func (e *exam) find(level Level, about, do, format string, args ...any) {
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ") // some errors have several lines
	e.Findings = append(e.Findings, Finding{level, about, text, do})
	if rank[level] > rank[e.Worst] {
		e.Worst = level
	}
}

var rank = map[Level]int{OK: 0, Note: 0, Warn: 1, Fail: 2}

func (e *exam) ok(about, format string, args ...any)       { e.find(OK, about, "", format, args...) }
func (e *exam) note(about, format string, args ...any)     { e.find(Note, about, "", format, args...) }
func (e *exam) warn(about, do, format string, args ...any) { e.find(Warn, about, do, format, args...) }
func (e *exam) fail(about, do, format string, args ...any) { e.find(Fail, about, do, format, args...) }

// longOpen tells of somebody's transaction that has been open for so long, and what
// else is known of it.
func (e *exam) longOpen(d time.Duration, more, do string) {
	const long = 5 * time.Minute
	if d < long {
		e.ok("transactions", "none has been open for long%s", more)
		return
	}
	e.warn("transactions", "end it; "+do, "one has been open for %v%s: rows that it has locked can't be used, and old versions of rows are kept, which makes locks slow", d, more)
}

// unreachable is the last finding about an engine that does not let us in.
func (e *exam) unreachable(err error, do string) bool {
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		text = fmt.Sprintf("no reply within %v", step)
		do = cmp.Or(do, "is it stopped or overloaded, or does a firewall swallow the packets?")
	case strings.Contains(text, "refused"):
		do = cmp.Or(do, "nothing listens there: is the server running, and are host and port right?")
	case strings.Contains(text, "no such host"):
		do = cmp.Or(do, "check the host's name")
	}
	e.fail("reachable", do, "%s", text)
	return false
}

// remedy says what to do about an error of the store.
func (e *exam) remedy(err error) string {
	if e.by.remedy == nil {
		return ""
	}
	return e.by.remedy(err)
}

func (e *exam) memory(context.Context) bool {
	e.note("scope", "locks exclude each other within one process only, and end with it: for trying out")
	return true
}

// withPort completes a host of a URL to an address.
func withPort(host, port string) string {
	u, err := url.Parse("//" + host)
	if err != nil || u.Port() != "" {
		return host
	}
	return net.JoinHostPort(u.Hostname(), port)
}
