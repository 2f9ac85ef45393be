package pawlhttp

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/pawlmetrics"
)

// Options of a Server. The zero value of a field means its default.
type Options struct {
	// Access says who may do what. nil: whoever can connect may read and lock all
	// names, and nobody may take a lock from its holder.
	Access *Access

	// Hosts are the names by which the server is called, without ports. A request for
	// another one is refused: so a page of some other site cannot read what is here by
	// having its own name lead to this address. nil: all are served.
	Hosts []string

	// MaxWait is how long an acquire may wait for its reply; default 1 minute.
	MaxWait time.Duration

	// MaxWaiting is how many acquires may wait at a time; default 10,000.
	MaxWaiting int

	// MaxStreams is how many streams of events there may be at a time; default 1,000.
	MaxStreams int

	// Poll is how often the store is read for all streams of events together;
	// default 1 second.
	Poll time.Duration

	// AllowActions lets those who have the right Admin release by force, ask holders to
	// give way, and change limits. Without Access everybody has it then.
	AllowActions bool

	// Title is what the page calls the store.
	Title string

	// Metrics are served as /metrics, beside those of the server itself, whose names are
	// counted apart by the prefixes of these. nil: there are no prefixes.
	Metrics *pawlmetrics.Metrics

	// CountEvery is how often, at the most, all names of the store are read for
	// /metrics; default 15 seconds. Nobody reads them while nobody asks.
	CountEvery time.Duration

	// Log is told of requests that were refused or failed. nil: nobody is.
	Log *slog.Logger

	// Audit is told of every action, also those that were refused. nil: Log is.
	Audit *slog.Logger
}

const (
	defaultMaxWait    = time.Minute
	defaultMaxWaiting = 10_000
	defaultMaxStreams = 1_000
	defaultPoll       = time.Second
	defaultCountEvery = 15 * time.Second

	maxBody = 64 << 10

	// How long a client may take to send the body of a request, and to take a reply.
	bodyTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
)

// Server is the http.Handler. It keeps nothing of leases: several of one store serve
// the same ones.
type Server struct {
	store  driver.Store
	client *pawl.Client // for what it does for operators
	opts   Options
	cross  http.CrossOriginProtection
	routes map[string]route
	watch  *watch
	counts *counts
	probe  probe

	tied    atomic.Bool // the store has no HandOver
	waiting atomic.Int64
	streams atomic.Int64

	open  context.Context // until Close
	close context.CancelFunc
}

// route is what is served at a path.
type route struct {
	method string
	public bool // for those who have not said who they are, too
	serve  func(*call) error
}

// New returns a Server of store; nil options are the defaults. It does no I/O.
// The caller closes the store, after the Server.
func New(store driver.Store, opts *Options) *Server {
	s := new(Server)
	if opts != nil {
		s.opts = *opts
	}
	s.opts.setDefaults()
	s.store = s.opts.Metrics.Store(store)
	s.client = pawl.New(s.store, nil)
	s.open, s.close = context.WithCancel(context.Background())
	s.counts = newCounts(s)
	s.probe.turn = make(chan struct{}, 1)
	s.watch = &watch{client: s.client, every: s.opts.Poll, turn: make(chan struct{}, 1)}
	s.routes = map[string]route{
		"/v1/acquire":       {"POST", false, (*call).acquire},
		"/v1/renew":         {"POST", false, (*call).renew},
		"/v1/release":       {"POST", false, (*call).release},
		"/v1/adopt":         {"POST", false, (*call).adopt},
		"/v1/inspect":       {"GET", false, (*call).inspect},
		"/v1/list":          {"GET", false, (*call).list},
		"/v1/events":        {"GET", false, (*call).events},
		"/v1/names":         {"GET", false, (*call).names},
		"/v1/history":       {"GET", false, (*call).history},
		"/v1/whoami":        {"GET", false, (*call).whoAmI},
		"/v1/force-release": {"POST", false, (*call).forceRelease},
		"/v1/request-yield": {"POST", false, (*call).requestYield},
		"/v1/set-limit":     {"POST", false, (*call).setLimit},
		"/openapi.json":     {"GET", true, (*call).openAPI},
		"/metrics":          {"GET", false, (*call).metrics},
		"/healthz":          {"GET", true, (*call).health},
		"/readyz":           {"GET", true, (*call).ready},
	}
	return s
}

func (o *Options) setDefaults() {
	if o.MaxWait <= 0 {
		o.MaxWait = defaultMaxWait
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = defaultMaxWaiting
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = defaultMaxStreams
	}
	if o.Poll <= 0 {
		o.Poll = defaultPoll
	}
	if o.CountEvery <= 0 {
		o.CountEvery = defaultCountEvery
	}
	if o.Metrics == nil {
		o.Metrics, _ = pawlmetrics.New(nil) // only prefixes can be wrong
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Audit == nil {
		o.Audit = o.Log
	}
}

// Close ends what waits: an acquire replies that its claim waits still, and streams of
// events end. It takes nothing from anybody. New requests of these kinds are refused.
// When it returns, the store is read for no metrics any more.
func (s *Server) Close() { s.counts.census.end(s.close) }

// call is one request.
type call struct {
	*Server
	w       *recorder
	r       *http.Request
	out     *http.ResponseController
	caller  caller
	arrived time.Time
	begun   bool // the reply has
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{Server: s, w: &recorder{ResponseWriter: w}, r: r, out: http.NewResponseController(w), arrived: time.Now()}
	err := c.dispatch()
	c.served(err)
	if err != nil {
		c.fail(err)
	}
}

func (c *call) dispatch() error {
	h := c.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if !c.calledByName() {
		return &problem{status: http.StatusMisdirectedRequest, code: "host", text: fmt.Sprintf("host %q: allowed are %s", c.r.Host, strings.Join(c.opts.Hosts, ", "))}
	}
	if err := c.cross.Check(c.r); err != nil {
		return &problem{status: http.StatusForbidden, code: "forbidden", text: "a page of another site may not do this"}
	}
	if body, contentType := pageFile(c.r.URL.Path); body != nil {
		return c.page(body, contentType)
	}
	to, ok := c.routes[c.r.URL.Path]
	if strings.HasPrefix(c.r.URL.Path, terraformPath) {
		to, ok = route{method: c.r.Method, serve: (*call).terraform}, true
	}
	if !ok {
		return &problem{status: http.StatusNotFound, code: "not_found", text: fmt.Sprintf("there is nothing at %q; see /openapi.json", c.r.URL.Path)}
	}
	if c.r.Method != to.method && !(c.r.Method == "HEAD" && to.method == "GET" && to.public) {
		h.Set("Allow", to.method)
		return &problem{status: http.StatusMethodNotAllowed, code: "method", text: fmt.Sprintf("method %s: allowed is %s", c.r.Method, to.method)}
	}
	if !to.public {
		var err error
		if c.caller, err = c.opts.Access.identify(c.r); err != nil {
			return err
		}
		if c.opts.Access == nil && c.opts.AllowActions {
			c.caller.all = Admin
		}
	}
	if to.method == "GET" {
		if c.r.ContentLength != 0 {
			return invalid("a GET has no body")
		}
		// Else the server would take the end of that time for the end of the client.
		_ = c.out.SetReadDeadline(time.Time{}) // not of every ResponseWriter
	}
	return to.serve(c)
}

// calledByName reports whether the request is for one of the server's names.
func (c *call) calledByName() bool {
	if c.opts.Hosts == nil {
		return true
	}
	host := c.r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return slices.Contains(c.opts.Hosts, strings.ToLower(strings.Trim(host, "[]")))
}

// body reads the body of the request.
func (c *call) body() ([]byte, error) {
	_ = c.out.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(c.w.ResponseWriter, c.r.Body, maxBody))
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		return nil, &problem{status: http.StatusRequestEntityTooLarge, code: "too_large", text: fmt.Sprintf("the body is too large: allowed are %d bytes", maxBody)}
	}
	if err != nil {
		return nil, invalid("the body could not be read: %v", err)
	}
	_ = c.out.SetReadDeadline(time.Time{})
	return body, nil
}

// decode reads the body into v: one JSON value without unknown fields.
func (c *call) decode(v any) error {
	body, err := c.body()
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return invalid("the body is not the JSON that is expected: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("the body has more than one JSON value")
	}
	return nil
}

// reply writes v as JSON.
func (c *call) reply(status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.begun = true
	_ = c.out.SetWriteDeadline(time.Now().Add(writeTimeout))
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(append(b, '\n')) // who has gone does not want it
	return nil
}

//go:embed openapi.json
var openAPI []byte

func (c *call) openAPI() error { return c.reply(http.StatusOK, json.RawMessage(openAPI)) }

type statusReply struct {
	Status string `json:"status"`
}

// health reports that the process lives.
func (c *call) health() error { return c.reply(http.StatusOK, statusReply{"ok"}) }
