package pawlhttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// query returns the parameters of a request, of which only some are allowed.
func (c *call) query(allowed ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, invalid("the query cannot be read: %v", err)
	}
	for key, values := range q {
		if !slices.Contains(allowed, key) {
			return nil, invalid("parameter %q: allowed are %q", key, allowed)
		}
		if len(values) > 1 {
			return nil, invalid("parameter %q is there %d times", key, len(values))
		}
	}
	return q, nil
}

// readable returns the name that the parameters ask for, if the caller may read it.
func (c *call) readable() (string, error) {
	q, err := c.query("name")
	if err != nil {
		return "", err
	}
	name := q.Get("name")
	if err := driver.CheckName(name); err != nil {
		return "", err
	}
	return name, c.may(Read, name)
}

func (c *call) inspect() error {
	name, err := c.readable()
	if err != nil {
		return err
	}
	queue, err := c.client.Inspect(c.r.Context(), name)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, QueueOf(&queue))
}

// prefix returns the parameter of that name: a name, or nothing.
func (c *call) prefix() (string, error) {
	q, err := c.query("prefix")
	if err != nil {
		return "", err
	}
	prefix := q.Get("prefix")
	if prefix != "" {
		err = driver.CheckName(prefix)
	}
	return prefix, err
}

// list writes the queues as they are read. What begins well may end badly: so the last
// field says whether these are all.
func (c *call) list() error {
	prefix, err := c.prefix()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	out := &listReply{call: c}
	for queue, err := range c.client.List(ctx, prefix) {
		stall.Reset(stallTimeout)
		bad := new(pawl.NameError)
		switch {
		case errors.As(err, &bad):
			if c.caller.right(bad.Name) >= Read {
				out.unreadable = append(out.unreadable, bad.Name)
			}
		case err != nil:
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return out.end(err)
		case c.caller.right(queue.Name) >= Read:
			if err := out.add(&queue); err != nil {
				return err
			}
		}
	}
	return out.end(nil)
}

// stallTimeout is how long the next of many names is waited for.
const stallTimeout = 30 * time.Second

var errStalled = errors.New("the store did not go on for 30 s")

// listReply is a list that is being written.
type listReply struct {
	*call
	text       []byte
	unreadable []string
}

// listPart is how much of a list is written at a time.
const listPart = 32 << 10

func (l *listReply) add(q *pawl.Queue) error {
	b, err := json.Marshal(QueueOf(q))
	if err != nil {
		return err
	}
	if len(l.text) == 0 && !l.begun {
		l.text = append(l.text, `{"queues":[`...)
	} else {
		l.text = append(l.text, ',')
	}
	l.text = append(l.text, b...)
	if len(l.text) < listPart {
		return nil
	}
	return l.flush()
}

func (l *listReply) flush() error {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/json")
	}
	_ = l.out.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := l.w.Write(l.text)
	l.text = l.text[:0]
	if err != nil {
		return errAway
	}
	return nil
}

// listEnd is what follows the queues.
type listEnd struct {
	Unreadable []string `json:"unreadable,omitempty"`
	Complete   bool     `json:"complete"`
	Error      string   `json:"error,omitempty"`
}

func (l *listReply) end(err error) error {
	if err != nil && !l.begun {
		return err
	}
	e := listEnd{Unreadable: l.unreadable, Complete: err == nil}
	if err != nil {
		e.Error = err.Error()
	}
	b, merr := json.Marshal(e)
	if merr != nil {
		return merr
	}
	if len(l.text) == 0 && !l.begun {
		l.text = append(l.text, `{"queues":[`...)
	}
	l.text = append(append(append(l.text, "],"...), b[1:]...), '\n')
	return l.flush()
}
