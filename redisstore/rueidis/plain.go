package rueidis

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/plain"
)

var errPlainCluster = fmt.Errorf("redis: plain locks on a cluster: %w", driver.ErrUnsupported)

// NewPlain makes a store of plain locks on a client, as [New] makes one of queues. o may
// be nil.
func NewPlain(client rueidis.Client, o *plain.Options) (*plain.Store, error) {
	c, err := NewPlainConn(client)
	if err != nil {
		return nil, err
	}
	return plain.New(c, o)
}

// OpenPlain makes a store of plain locks on the servers that a URL names, as [Open] makes
// one of queues. These parameters it has beside those of Open; they are for URLs in
// settings, and an option that o has, too, is an error:
//
//	recipe=plain        says what it is; pawl's command wants it
//	prefix, marks=true  Options.Prefix and Marks
//	max_pause=50ms      Options.MaxPause
func OpenPlain(rawURL string, o *plain.Options) (*plain.Store, error) {
	rest, opts, err := plainOptions(rawURL, o)
	if err != nil {
		return nil, fmt.Errorf("%w redis URL: %w", driver.ErrInvalid, err)
	}
	c, err := open(rest)
	if err != nil {
		return nil, err
	}
	if c.cluster {
		c.Close()
		return nil, errPlainCluster
	}
	s, err := plain.New(c, opts)
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// plainOptions takes the parameters of OpenPlain out of a URL.
func plainOptions(rawURL string, o *plain.Options) (rest string, opts *plain.Options, err error) {
	opts = &plain.Options{}
	if o != nil {
		*opts = *o
	}
	given := *opts
	head, query, _ := strings.Cut(rawURL, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		return rawURL, opts, nil // parse says what is wrong
	}
	for name, read := range map[string]func(string) error{
		"recipe": func(v string) error {
			if v != "plain" {
				return errors.New("there is plain")
			}
			return nil
		},
		"prefix": func(v string) error { opts.Prefix = v; return alreadySet(given.Prefix != "") },
		"marks": func(v string) (err error) {
			if opts.Marks, err = strconv.ParseBool(v); err != nil {
				return errors.New("it is true or false")
			}
			return alreadySet(given.Marks)
		},
		"max_pause": func(v string) (err error) {
			if opts.MaxPause, err = time.ParseDuration(v); err != nil || opts.MaxPause == 0 {
				return errors.New("it is a time above 0, such as 50ms")
			}
			return alreadySet(given.MaxPause != 0)
		},
	} {
		values := q[name]
		if q.Del(name); len(values) == 0 {
			continue
		}
		if err := read(values[0]); err != nil {
			return "", nil, fmt.Errorf("parameter %s=%.20q: %w", name, values[0], err)
		}
		if len(values) > 1 {
			return "", nil, fmt.Errorf("parameter %s: it is there %d times", name, len(values))
		}
	}
	if len(q) > 0 {
		head += "?" + q.Encode()
	}
	return head, opts, nil
}

func alreadySet(set bool) error {
	if set {
		return errors.New("the options have it, too")
	}
	return nil
}

// NewPlainConn is the adapter alone, for those who put something between it and
// [plain.New].
func NewPlainConn(client rueidis.Client) (plain.Conn, error) {
	c, err := NewConn(client)
	if err != nil {
		return nil, err
	}
	if c.Cluster() {
		return nil, errPlainCluster
	}
	return c.(*conn), nil
}

// Pipe implements [plain.Conn].
func (c *conn) Pipe(ctx context.Context, key string, commands ...[]string) ([]plain.Reply, error) {
	client, err := c.ready(ctx)
	if err != nil {
		return nil, err
	}
	rs, err := guard(ctx, c.closed, func(ctx context.Context) ([]plain.Reply, error) {
		return c.replies(client.DoMulti(ctx, c.commands(client, key, commands)...))
	})
	return rs, c.failed(err)
}

// Own implements [plain.Conn].
func (c *conn) Own(ctx context.Context, key string, f func(plain.Pipe) error) error {
	client, err := c.ready(ctx)
	if err != nil {
		return err
	}
	// Dedicate connects, and knows no context.
	type dedicated struct {
		rueidis.DedicatedClient
		release func()
	}
	d, err := guard(ctx, c.closed, func(context.Context) (*dedicated, error) {
		d, release := client.Dedicate()
		if ctx.Err() != nil {
			release()
			return nil, ctx.Err()
		}
		return &dedicated{d, release}, nil
	})
	if err != nil {
		return c.failed(err)
	}
	err = f(func(ctx context.Context, commands ...[]string) ([]plain.Reply, error) {
		rs, err := guard(ctx, c.closed, func(ctx context.Context) ([]plain.Reply, error) {
			return c.replies(d.DoMulti(ctx, c.commands(client, key, commands)...))
		})
		return rs, c.failed(err)
	})
	if err != nil {
		d.Close() // there may be a transaction that has begun
		return err
	}
	d.release()
	return nil
}

// commands builds commands by hand: so none is sent again after a fault.
func (c *conn) commands(client rueidis.Client, key string, commands [][]string) []rueidis.Completed {
	all := make([]rueidis.Completed, len(commands))
	for i, words := range commands {
		b := client.B().Arbitrary(words[0])
		for _, word := range words[1:] {
			if word == key {
				b = b.Keys(word)
			} else {
				b = b.Args(word)
			}
		}
		all[i] = b.Build()
	}
	return all
}

// replies are what the server replied, or the error of the connection.
func (c *conn) replies(results []rueidis.RedisResult) ([]plain.Reply, error) {
	rs := make([]plain.Reply, len(results))
	for i := range results {
		if err := results[i].NonRedisError(); err != nil {
			return nil, err
		}
		m, err := results[i].ToMessage()
		rs[i] = c.reply(&m, err)
	}
	return rs, nil
}

func (c *conn) reply(m *rueidis.RedisMessage, err error) (r plain.Reply) {
	switch {
	case rueidis.IsRedisNil(err) || err == nil && m.IsNil():
		r.Null = true
	case err != nil:
		r.Err = c.failed(err)
		if e, ok := errors.AsType[*redisstore.ServerError](r.Err); ok && e.Readonly() {
			c.dialed.drop()
		}
	case m.IsArray():
		list, err := m.ToArray()
		if err != nil {
			r.Err = c.failed(err)
			return r
		}
		r.List = make([]plain.Reply, len(list))
		for i := range list {
			r.List[i] = c.reply(&list[i], list[i].Error())
		}
	case m.IsInt64():
		n, err := m.AsInt64()
		r.Text, r.Err = strconv.FormatInt(n, 10), err
	default:
		r.Text, r.Err = m.ToString()
	}
	return r
}

var _ plain.Conn = (*conn)(nil)
