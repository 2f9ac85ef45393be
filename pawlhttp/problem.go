package pawlhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// problem is an error reply.
type problem struct {
	status int
	code   string // for programs
	text   string // for people
	holder *Claim // who is in the way, if known
	after  int    // seconds after which to try again; 0: does not say
}

func (p *problem) Error() string { return p.text }

func invalid(format string, args ...any) error {
	return &problem{status: http.StatusBadRequest, code: "invalid", text: fmt.Sprintf(format, args...)}
}

// errAway: the request has ended, most likely with its client, and nobody reads the
// reply.
var errAway = errors.New("the request has ended")

var errClosing = &problem{status: http.StatusServiceUnavailable, code: "closing", text: "the server ends", after: 1}

// problemOf says what an error of the store is for who asked.
//
// Invariant: a status below 500 means that nothing was changed, but for "gone", and
// one of 503 that repeating the same request does no harm.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	p := &problem{status: http.StatusServiceUnavailable, code: "unavailable", text: err.Error(), after: 1}
	switch {
	case errors.Is(err, driver.ErrInvalid):
		p.status, p.code, p.after = http.StatusBadRequest, "invalid", 0
	case errors.Is(err, driver.ErrMismatch):
		p.status, p.code, p.after = http.StatusConflict, "mismatch", 0
	case errors.Is(err, driver.ErrFull):
		p.status, p.code = http.StatusTooManyRequests, "full"
	case errors.Is(err, driver.ErrUnsupported):
		p.status, p.code, p.after = http.StatusNotImplemented, "unsupported", 0
	case errors.Is(err, context.DeadlineExceeded):
		p.text = "the store did not reply in time: " + p.text
	case driver.IsPermanent(err):
		p.after = 0
	}
	return p
}

type errorReply struct {
	Error  string `json:"error"`
	Code   string `json:"code"`
	Holder *Claim `json:"holder,omitempty"`
}

// fail writes the reply of a request that ended with an error.
func (c *call) fail(err error) {
	if c.begun {
		return
	}
	p := problemOf(err)
	level := slog.LevelInfo
	if p.status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	if p.code != "held" && c.r.Context().Err() == nil { // which are no trouble
		c.opts.Log.Log(c.r.Context(), level, "refused", "method", c.r.Method, "path", c.r.URL.Path, "from", c.r.RemoteAddr,
			"who", c.caller.who, "status", p.status, "error", p.text)
	}
	h := c.w.Header()
	if p.after > 0 {
		h.Set("Retry-After", strconv.Itoa(p.after))
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="pawl"`)
	}
	_ = c.reply(p.status, errorReply{p.text, p.code, p.holder})
}

func held(text string, holder *pawl.Entry) error {
	return &problem{status: http.StatusConflict, code: "held", text: text, holder: claimOf(holder)}
}
