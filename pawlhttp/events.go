package pawlhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// heartbeat is how often a stream writes something at the least, so that who has gone
// is noticed.
const heartbeat = 15 * time.Second

// events streams how names stand, and what changes, as server-sent events: "queue" for
// each name, then "ready", then "queue" for each that changes. "trouble" says that the
// store could not be read; the stream goes on. Who comes back begins anew.
func (c *call) events() error {
	prefix, err := c.prefix()
	if err != nil {
		return err
	}
	leave, err := c.admit(&c.streams, c.opts.MaxStreams, "streams of events")
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	stop := context.AfterFunc(c.open, cancel)
	defer stop()

	all, at, err := c.watch.begin(ctx)
	if err != nil {
		return errAway
	}
	s := &stream{call: c, prefix: prefix}
	c.begun = true
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.WriteHeader(http.StatusOK)
	for _, u := range all {
		if err := s.add(u); err != nil {
			return errAway
		}
	}
	s.event("ready", []byte("{}"))
	s.trouble(at)
	for {
		if s.text.Len() > 0 {
			if err := s.flush(); err != nil {
				return errAway
			}
		}
		n, err := c.watch.next(ctx, at, time.After(heartbeat))
		switch {
		case err != nil:
			return errAway
		case n == nil:
			s.text.WriteString(": \n\n")
			continue
		}
		at = n
		for _, u := range n.changed {
			if err := s.add(u); err != nil {
				return errAway
			}
		}
		s.trouble(n)
	}
}

// stream is one that is being written.
type stream struct {
	*call
	prefix string
	text   bytes.Buffer
}

// add adds a name, if it is one of those that were asked for and may be seen. Many are
// written in parts: a stream keeps no more than one of them.
func (s *stream) add(u *update) error {
	if !strings.HasPrefix(u.name, s.prefix) || s.caller.right(u.name) < Read {
		return nil
	}
	s.event("queue", u.data)
	if s.text.Len() < listPart {
		return nil
	}
	return s.flush()
}

func (s *stream) trouble(n *news) {
	if n.err == "" {
		return
	}
	if b, err := json.Marshal(errorReply{Error: n.err, Code: "unavailable"}); err == nil {
		s.event("trouble", b)
	}
}

func (s *stream) event(kind string, data []byte) {
	s.text.WriteString("event: " + kind + "\ndata: ")
	s.text.Write(data)
	s.text.WriteString("\n\n")
}

func (s *stream) flush() error {
	_ = s.out.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := s.w.Write(s.text.Bytes())
	s.text.Reset()
	if err == nil {
		err = s.out.Flush()
	}
	return err
}
