package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/redisstore"
)

// conn is the redisstore.Conn of a client.
type conn struct {
	source  *source
	cluster bool
	closed  chan struct{} // closed before the client is
	close   func()
	opened  *target // nil for a caller's client
	dialed  *dialed // its connections; nil for a caller's client
	loads   loads

	alone atomic.Bool // the server is known to be of the kind that was asked for

	// Calls that succeeded in a row, and when the last one did, for proven.
	streak  atomic.Int64
	success atomic.Int64 // nanoseconds since start
	start   time.Time
}

var (
	_ redisstore.Confirmer       = (*conn)(nil)
	_ redisstore.ShardSubscriber = (*conn)(nil)
)

func newConn(from *source, cluster bool, opened *target, conns *dialed) *conn {
	c := &conn{source: from, cluster: cluster, opened: opened, dialed: conns, closed: make(chan struct{}), start: time.Now()}
	c.close = sync.OnceFunc(func() {
		close(c.closed)
		from.close()
	})
	return c
}

// Bounds for proven. A client opens up to four connections and picks one at
// random.
const (
	enough = 64
	recent = time.Second
)

// proven tells that the client's connections stand, as far as one can know.
func (c *conn) proven() bool {
	return c.streak.Load() >= enough && time.Since(c.start)-time.Duration(c.success.Load()) < recent
}

// bounded is a context whose deadline is near. A call that is alone is written
// and read by its own goroutine, which is the fastest way; the client takes it
// only for a context with a deadline, which becomes that of the connection, and
// then does not see that the context was cancelled. So a call that is under way
// when a proven server stops replying may end that much late, but no other is.
// The bound is not less because a server on a busy machine may take seconds.
type bounded struct {
	context.Context
	deadline time.Time
}

const bound = 4 * time.Second

var errNoReply = errors.New("the server did not reply in time")

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

func (c *conn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	if !c.proven() {
		client, err := c.ready(ctx)
		if err != nil {
			return "", err
		}
		reply, err := guard(ctx, c.closed, func(ctx context.Context) (string, error) { return c.script(ctx, client, s, keys, args) })
		return reply, c.failed(err)
	}
	near, end := ctx, time.Now().Add(bound)
	if own, ok := ctx.Deadline(); !ok || own.After(end) {
		near = &bounded{ctx, end}
	}
	reply, err := c.script(near, c.source.client(), s, keys, args)
	return reply, c.failed(ending(ctx, err))
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

// ending says whose time was up: that of ctx, or that of the connection, which
// may be due to another call that shared it and had less.
func ending(ctx context.Context, err error) error {
	switch own, ok := ctx.Deadline(); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case ok && !time.Now().Before(own): // ctx's own timer is late
		return context.DeadlineExceeded
	default:
		return errNoReply
	}
}

// guard ends when ctx does, also where f does not: while the client connects it
// does not heed the context, and who comes second waits for the first one's
// attempt. f ends at the latest when the client gives up.
func guard[T any](ctx context.Context, closed <-chan struct{}, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(context.WithoutCancel(ctx))
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case <-closed:
		var none T
		return none, rueidis.ErrClosing
	}
}

func (c *conn) script(ctx context.Context, client rueidis.Client, s *redisstore.Script, keys, args []string) (string, error) {
	known := func() (string, error) { return client.Do(ctx, evalsha(client, s, keys, args)).ToString() }
	reply, err := known()
	if noScript(err) {
		// After a restart all find the script missing at once: one sends it.
		var first bool
		if first, err = c.loads.begin(ctx, s.SHA); first {
			reply, err = client.Do(ctx, eval(client, s, keys, args)).ToString()
			c.loads.end(s.SHA)
		} else if err == nil {
			if reply, err = known(); noScript(err) { // it was not successful, perhaps, or another server's
				reply, err = client.Do(ctx, eval(client, s, keys, args)).ToString()
			}
		}
	}
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
	if err != nil {
		c.streak.Store(0)
		if e, ok := rueidis.IsRedisErr(err); ok && (&redisstore.ServerError{Text: coded(e.Error())}).Readonly() {
			c.dialed.drop()
		}
		return err
	}
	c.success.Store(int64(time.Since(c.start)))
	if c.streak.Load() < enough {
		c.streak.Add(1)
	}
	return nil
}

func noScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
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
	e, ok := rueidis.IsRedisErr(err)
	reply := ""
	if ok {
		reply = coded(e.Error())
	}
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
	case ok:
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

// coded puts back the code ERR, which the client cuts off: where the text is one
// of Redis. Other texts without a code are a proxy's, as in "upstream failure".
func coded(text string) string {
	for _, start := range []string{
		"unknown command", "wrong number of arguments", "user_script", "Error running script", "Error compiling script",
		"Script attempted", "No such master", "The user executing the script can't", "ACL failure in script", "DB index", "SELECT is not allowed", "AUTH <password>", "max number of clients",
	} {
		if strings.HasPrefix(text, start) {
			return "ERR " + text
		}
	}
	return text
}
