package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// conn is the redisstore.Conn of a client.
type conn struct {
	source  *source
	cluster bool
	closed  chan struct{} // closed before the client is
	close   func()
	opened  *target // nil for a caller's client
	dialed  *dialed // its connections; nil for a caller's client
	loads   adapter.Loads
	proof   *adapter.Proof

	alone atomic.Bool // the server is known to be of the kind that was asked for
}

var (
	_ redisstore.Confirmer       = (*conn)(nil)
	_ redisstore.ShardSubscriber = (*conn)(nil)
)

func newConn(from *source, cluster bool, opened *target, conns *dialed) *conn {
	c := &conn{source: from, cluster: cluster, opened: opened, dialed: conns, closed: make(chan struct{}), proof: adapter.NewProof()}
	c.close = sync.OnceFunc(func() {
		close(c.closed)
		from.close()
	})
	return c
}

func (c *conn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	if !c.proof.Proven() {
		client, err := c.ready(ctx)
		if err != nil {
			return "", err
		}
		reply, err := guard(ctx, c.closed, func(ctx context.Context) (string, error) { return c.script(ctx, client, s, keys, args) })
		return reply, c.failed(err)
	}
	reply, err := c.script(adapter.Nearer(ctx), c.source.client(), s, keys, args)
	return reply, c.failed(adapter.Ending(ctx, err))
}

// ready returns the client. It refuses a server that is not of the kind that was asked
// for, before anything is written there. It asks by HELLO, which the client itself needs
// the right to, until there was a reply.
func (c *conn) ready(ctx context.Context) (rueidis.Client, error) {
	client, err := c.source.get(ctx, c.closed)
	if err != nil {
		return nil, c.failed(err)
	}
	if c.cluster || c.alone.Load() {
		return client, nil
	}
	mode, err := guard(ctx, c.closed, func(ctx context.Context) (string, error) { return hello(ctx, client, "mode") })
	_, refused := rueidis.IsRedisErr(err)
	switch {
	case refused, rueidis.IsParseErr(err):
		// It doesn't tell, as a proxy may not. What is asked next shows what is
		// wrong, and a cluster's node says so where it has to.
		return client, nil
	case err != nil:
		return nil, c.failed(err)
	case mode == "cluster":
		return nil, &redisstore.ClusterError{Addr: c.addr()}
	case mode == "sentinel":
		return nil, driver.Permanent(fmt.Errorf("%s is a Sentinel, which keeps no data: write redis+sentinel://%s/NAME", c.addr(), c.addr()))
	}
	c.alone.Store(true)
	return client, nil
}

// hello returns a field of the reply to HELLO, "" if that has no such field.
func hello(ctx context.Context, client rueidis.Client, field string) (string, error) {
	reply, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return "", err
	}
	value, ok := reply[field]
	if !ok {
		return "", nil
	}
	return value.ToString()
}

// guard is adapter.Guard for a client: with a deadline, that takes another way.
func guard[T any](ctx context.Context, closed <-chan struct{}, f func(context.Context) (T, error)) (T, error) {
	return adapter.Guard(ctx, closed, rueidis.ErrClosing, func() (T, error) { return f(context.WithoutCancel(ctx)) })
}

func (c *conn) script(ctx context.Context, client rueidis.Client, s *redisstore.Script, keys, args []string) (string, error) {
	reply, err := c.loads.Run(ctx, s, func(command, _ string) (string, error) {
		if command == "EVAL" {
			return client.Do(ctx, eval(client, s, keys, args)).ToString()
		}
		return client.Do(ctx, evalsha(client, s, keys, args)).ToString()
	}, replied)
	return reply, c.seen(err)
}

func evalsha(client rueidis.CoreClient, s *redisstore.Script, keys, args []string) rueidis.Completed {
	return client.B().Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

func eval(client rueidis.CoreClient, s *redisstore.Script, keys, args []string) rueidis.Completed {
	return client.B().Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// seen notes how a script has ended.
func (c *conn) seen(err error) error {
	c.proof.Seen(err)
	if err != nil && (&redisstore.ServerError{Text: replied(err)}).Readonly() {
		c.dialed.drop()
	}
	return err
}

func (c *conn) Cluster() bool { return c.cluster }

func (c *conn) Close() error {
	c.close()
	return nil
}

// addr returns where the server is, "" if that is not known.
func (c *conn) addr() string {
	client := c.source.client()
	if c.opened != nil && (client == nil || !c.opened.sentinel()) {
		return c.opened.addr
	}
	nodes := client.Nodes()
	if len(nodes) != 1 { // one of them it was
		return ""
	}
	for addr := range nodes {
		return addr
	}
	return ""
}

// failed says which server it was, and marks what that replied.
func (c *conn) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, rueidis.ErrClosing):
		return err // not the server's doing
	}
	addr := c.addr()
	full := addr
	if c.opened != nil {
		full += c.opened.db
	}
	reply := replied(err)
	switch {
	case strings.HasPrefix(reply, "NOAUTH "):
		text := "the server wants a password"
		if addr != "" {
			text = "the server at " + addr + " wants a password"
		}
		if c.opened != nil {
			text += ", which goes into the URL (also that in PAWL_STORE), as in redis://:PASSWORD@HOST:PORT"
		}
		return fmt.Errorf("%s: %w", text, &redisstore.ServerError{Text: reply, Err: err})
	case reply != "":
		return &redisstore.ServerError{Text: reply, Addr: full, Err: err}
	case certificates(err):
		return driver.Permanent(fmt.Errorf("%s: %w", full, err))
	case addr == "" || strings.Contains(err.Error(), addr): // as errors of net do
		return err
	}
	return fmt.Errorf("%s: %w", full, err)
}

// certificates reports whether those of the two sides do not fit, or one shows none.
func certificates(err error) bool {
	_, own := errors.AsType[*tls.CertificateVerificationError](err)
	return own || strings.Contains(err.Error(), "remote error: tls: ")
}
