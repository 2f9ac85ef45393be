package pawlhttp

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/internal/meter"
)

// counts are the server's own metrics.
type counts struct {
	*tally
	census   *census
	requests *meter.Vec
}

func newCounts(s *Server) *counts {
	return &counts{
		tally: newTally(s.opts.Metrics),
		census: &census{
			client: s.client, metrics: s.opts.Metrics, every: s.opts.CountEvery, open: s.open,
			reads:    meter.NewCounter("pawl_store_reads_total", "How often this server has read all names of the store for its metrics."),
			failures: meter.NewCounter("pawl_store_read_failures_total", "How often that failed."),
		},
		requests: meter.NewCounter("pawl_server_requests_total",
			"Requests to this server that have ended, by path and status. Code away: the caller had gone. Route other: there is nothing.", "route", "code"),
	}
}

// recorder knows the status of a reply.
type recorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// served counts the request, whose reply may be written yet.
func (c *call) served(err error) {
	code := strconv.Itoa(c.w.status)
	switch {
	case c.w.status != 0:
	case errors.Is(err, errAway), c.r.Context().Err() != nil:
		code = "away"
	case err != nil:
		code = strconv.Itoa(problemOf(err).status)
	default:
		code = "200" // without a body
	}
	c.counts.requests.Add(1, c.route(), code)
}

// route is the label of the request's path, of which there are few.
func (c *call) route() string {
	path := c.r.URL.Path
	if _, ok := c.routes[path]; ok {
		return path
	}
	if strings.HasPrefix(path, terraformPath) {
		return terraformPath
	}
	return "other"
}

// metrics replies with all metrics. They tell of all names together: so the right to
// read all of them is needed.
func (c *call) metrics() error {
	if err := c.mayAll(Read); err != nil {
		return err
	}
	if _, err := c.query(); err != nil {
		return err
	}
	stands := c.counts.census.stands(c.r.Context())
	text := bytes.NewBuffer(c.counts.census.text(nil, stands))
	text.Write(c.counts.tally.text(nil))
	text.Write(meter.Append(nil, c.counts.requests,
		meter.NewGauge("pawl_server_acquires_waiting", "Requests of acquire that wait for a grant at this server.").Set(float64(c.waiting.Load())),
		meter.NewGauge("pawl_server_streams_open", "Streams of events of this server.").Set(float64(c.streams.Load())),
	))
	if _, err := c.opts.Metrics.WriteTo(text); err != nil {
		return err
	}
	c.begun = true
	_ = c.out.SetWriteDeadline(time.Now().Add(writeTimeout))
	c.w.Header().Set("Content-Type", meter.ContentType)
	_, _ = c.w.Write(text.Bytes()) // who has gone does not want it
	return nil
}
