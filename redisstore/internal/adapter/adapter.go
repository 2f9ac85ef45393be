// Package adapter has what adapters for different clients of Redis have in
// common: it makes a redisstore.Conn of the little in which the clients differ.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

// Client is what each client does in its own way. No method sends a request again
// after a fault.
type Client interface {
	// Script sends EVALSHA with a script's SHA, or EVAL with its source: on a cluster to the
	// primary of the keys' slot, or where MOVED and ASK say.
	Script(ctx context.Context, command, body string, keys, args []string) (string, error)

	// Confirm is Script, and WAIT behind it on the same connection: for so many replicas,
	// that long at the most. It goes to the server at addr if that is not "", and nowhere
	// else whatever the reply.
	Confirm(ctx context.Context, addr, command, body string, keys, args []string, replicas int, timeout time.Duration) (Confirmed, error)

	// Scanners returns one for the server, or, on a cluster, for each primary.
	Scanners(ctx context.Context) ([]Scanner, error)

	// Mode sends HELLO, and returns the field mode of the reply, "" if that has none. It is
	// not called for a cluster.
	Mode(ctx context.Context) (string, error)

	// Subscribe is that of redisstore.Conn.
	Subscribe(ctx context.Context, channel string, up func(), message func(string)) error

	// Reply returns the text of an error that the server replied, beginning with its
	// code, or "" if it is no such error.
	Reply(err error) string

	// Addr returns the server's address, "" if that is not known, and the database as
	// errors show it: "/3", or "" for the first one.
	Addr() (addr, db string)
}

// Scanner sends SCAN to one server, and returns the next cursor.
type Scanner func(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error)

// Options of a Conn.
type Options struct {
	// Cluster: the client is one of a cluster.
	Cluster bool

	// ErrClosed is what the client's calls fail with once it is closed.
	ErrClosed error

	// Prompt: a call whose context has a deadline is made by the caller's goroutine,
	// and ends by then, whatever the server does; see Proof.
	Prompt bool
}

// Conn implements redisstore.Conn.
type Conn struct {
	client Client
	opts   Options
	loads  Loads
	proof  *Proof

	close  func()
	closed chan struct{}

	alone atomic.Bool // the server is known not to be one of a cluster
}

// New makes a Conn of a client that is the caller's: closing the Conn does not close it.
func New(client Client, o Options) *Conn {
	c := &Conn{client: client, opts: o, closed: make(chan struct{}), proof: NewProof()}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return c
}

// Script implements redisstore.Conn.
func (c *Conn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	if c.opts.Prompt && c.proof.Proven() {
		reply, err := c.script(Nearer(ctx), s, keys, args)
		return reply, c.Failed(Ending(ctx, err))
	}
	if err := c.checkAlone(ctx); err != nil {
		return "", err
	}
	reply, err := guard(ctx, c, func(ctx context.Context) (string, error) { return c.script(ctx, s, keys, args) })
	return reply, c.Failed(err)
}

func (c *Conn) script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	reply, err := c.loads.Run(ctx, s, func(command, body string) (string, error) {
		return c.client.Script(ctx, command, body, keys, args)
	}, c.client.Reply)
	c.proof.Seen(err)
	return reply, err
}

// checkAlone refuses a server that is one of a cluster, before anything is
// written there. It asks by HELLO, which the client itself needs the right to,
// until there was a reply.
func (c *Conn) checkAlone(ctx context.Context) error {
	if c.opts.Cluster || c.alone.Load() {
		return nil
	}
	mode, err := guard(ctx, c, c.client.Mode)
	switch {
	case err != nil && c.client.Reply(err) != "":
		// It doesn't tell, as a proxy may not. What is asked next shows what is
		// wrong, and a cluster's node says so where it has to.
		return nil
	case err != nil:
		return c.Failed(err)
	case mode == "cluster":
		addr, _ := c.client.Addr()
		return &redisstore.ClusterError{Addr: addr}
	case mode == "sentinel":
		return driver.Permanent(c.Failed(errors.New("this is a Sentinel, which keeps no data: make a client that asks it for the primary")))
	}
	c.alone.Store(true)
	return nil
}

// Subscribe implements redisstore.Conn.
func (c *Conn) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	err := c.client.Subscribe(ctx, channel, up, message)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("listen to %s: %w", channel, c.Failed(err))
}

// Scan implements redisstore.Conn.
func (c *Conn) Scan(ctx context.Context, match string, key func(string) bool) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	scanners, err := guard(ctx, c, c.client.Scanners)
	more := true
	for i := 0; i < len(scanners) && err == nil && more; i++ {
		more, err = c.scan(ctx, scanners[i], match, key)
	}
	return c.Failed(Ending(ctx, err))
}

// scan reports whether key wants more.
func (c *Conn) scan(ctx context.Context, scan Scanner, match string, key func(string) bool) (bool, error) {
	type page struct {
		keys []string
		next uint64
	}
	var cursor uint64
	for {
		p, err := guard(ctx, c, func(ctx context.Context) (p page, err error) {
			p.keys, p.next, err = scan(ctx, cursor, match)
			return p, err
		})
		if err != nil {
			return false, err
		}
		for _, k := range p.keys {
			if !key(k) {
				return false, nil
			}
		}
		if cursor = p.next; cursor == 0 {
			return true, nil
		}
	}
}

// Cluster implements redisstore.Conn.
func (c *Conn) Cluster() bool { return c.opts.Cluster }

// Close implements redisstore.Conn.
func (c *Conn) Close() error {
	c.close()
	return nil
}

// ignored reports whether an error is not the server's doing.
func (c *Conn) ignored(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, c.opts.ErrClosed)
}
