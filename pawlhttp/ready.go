package pawlhttp

import (
	"context"
	"net/http"
	"time"
)

const (
	readyTimeout = 5 * time.Second
	// readyFor is how long a reply of the store counts, good or bad: so those who ask
	// cannot burden it.
	readyFor = time.Second
)

// probe is what the store has replied when it was asked last.
type probe struct {
	turn chan struct{} // has one in it while somebody asks; guards the rest
	at   time.Time
	err  error
}

// ready reports whether the store replies. Who asks need not say who he is, so he is
// not told more.
func (c *call) ready() error {
	select {
	case c.probe.turn <- struct{}{}:
	case <-c.open.Done():
		return errClosing
	case <-c.r.Context().Done():
		return errAway
	}
	err := c.ask()
	<-c.probe.turn
	switch {
	case c.open.Err() != nil:
		return errClosing
	case err != nil:
		return &problem{status: http.StatusServiceUnavailable, code: "unavailable", text: "the store does not reply"}
	}
	return c.reply(http.StatusOK, statusReply{"ready"})
}

// ask asks the store, unless that was done a moment ago. It goes on when its client has
// gone: others wait for the reply.
func (s *Server) ask() error {
	p := &s.probe
	if !p.at.IsZero() && time.Since(p.at) < readyFor {
		return p.err
	}
	ctx, cancel := context.WithTimeout(s.open, readyTimeout)
	defer cancel()
	_, p.err = s.client.Inspect(ctx, "pawl/ready/probe")
	if p.at = time.Now(); p.err != nil && s.open.Err() == nil {
		s.opts.Log.Warn("not ready", "error", p.err)
	}
	return p.err
}
