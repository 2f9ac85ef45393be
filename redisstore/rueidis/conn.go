package rueidis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/redisstore"
)

// conn is the redisstore.Conn of a client.
type conn struct {
	client rueidis.Client
	close  func()        // closes the client if it is this adapter's
	closed chan struct{} // closed before that
	opened *target       // nil for a caller's client
	dialed *dialed       // its connections; nil for a caller's client
	loads  loads

	alone atomic.Bool // the server is known not to be one of a cluster

	// Calls that succeeded in a row, and when the last one did, for proven.
	streak  atomic.Int64
	success atomic.Int64 // nanoseconds since start
	start   time.Time
}

// newConn makes the adapter; end is called when it is closed.
func newConn(client rueidis.Client, opened *target, conns *dialed, end func()) *conn {
	c := &conn{client: client, opened: opened, dialed: conns, closed: make(chan struct{}), start: time.Now()}
	c.close = sync.OnceFunc(func() {
		close(c.closed)
		end()
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
		if err := c.checkAlone(ctx); err != nil {
			return "", err
		}
		reply, err := guard(ctx, c.closed, func(ctx context.Context) (string, error) { return c.script(ctx, s, keys, args) })
		return reply, c.failed(err)
	}
	near, end := ctx, time.Now().Add(bound)
	if own, ok := ctx.Deadline(); !ok || own.After(end) {
		near = &bounded{ctx, end}
	}
	reply, err := c.script(near, s, keys, args)
	return reply, c.failed(ending(ctx, err))
}

// checkAlone refuses a server that is one of a cluster, before anything is
// written there. It asks by HELLO, which the client itself needs the right to,
// until there was a reply.
func (c *conn) checkAlone(ctx context.Context) error {
	if c.alone.Load() {
		return nil
	}
	mode, err := guard(ctx, c.closed, func(ctx context.Context) (string, error) {
		hello, err := c.client.Do(ctx, c.client.B().Arbitrary("HELLO").Build()).AsMap()
		if err != nil {
			return "", err
		}
		mode, ok := hello["mode"]
		if !ok {
			return "", nil
		}
		return mode.ToString()
	})
	_, refused := rueidis.IsRedisErr(err)
	switch {
	case refused, rueidis.IsParseErr(err):
		// It doesn't tell, as a proxy may not. What is asked next shows what is
		// wrong, and a cluster's node says so where it has to.
		return nil
	case err != nil:
		return c.failed(err)
	case mode == "cluster":
		return &redisstore.ClusterError{Addr: c.addr()}
	}
	c.alone.Store(true)
	return nil
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

func (c *conn) script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	known := func() (string, error) {
		return c.client.Do(ctx, c.client.B().Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToString()
	}
	reply, err := known()
	if noScript(err) {
		// After a restart all find the script missing at once: one sends it.
		var first bool
		if first, err = c.loads.begin(ctx, s.SHA); first {
			reply, err = c.client.Do(ctx, c.client.B().Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToString()
			c.loads.end(s.SHA)
		} else if err == nil {
			if reply, err = known(); noScript(err) { // it was not successful, perhaps
				reply, err = c.client.Do(ctx, c.client.B().Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToString()
			}
		}
	}
	if err != nil {
		c.streak.Store(0)
		if e, ok := rueidis.IsRedisErr(err); ok && (&redisstore.ServerError{Text: coded(e.Error())}).Readonly() {
			c.dialed.drop()
		}
		return "", err
	}
	c.success.Store(int64(time.Since(c.start)))
	if c.streak.Load() < enough {
		c.streak.Add(1)
	}
	return reply, nil
}

func noScript(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}

// loads are the scripts that are being sent to a server that does not know them.
type loads struct {
	mu    sync.Mutex
	under map[string]chan struct{} // by SHA; closed at the end
}

// begin reports whether the caller is the one that sends the script, and calls
// end then. If another does, it waits until that one has.
func (l *loads) begin(ctx context.Context, sha string) (bool, error) {
	l.mu.Lock()
	done := l.under[sha]
	if done == nil {
		if l.under == nil {
			l.under = make(map[string]chan struct{})
		}
		l.under[sha] = make(chan struct{})
	}
	l.mu.Unlock()
	if done == nil {
		return true, nil
	}
	select {
	case <-done:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (l *loads) end(sha string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.under[sha])
	delete(l.under, sha)
}

// dialed are the connections of a client that this package made.
type dialed struct {
	mu    sync.Mutex
	conns map[*tracked]struct{}
	last  time.Time // that they were dropped
}

type tracked struct {
	net.Conn
	all *dialed
}

func (d *dialed) track(c net.Conn) net.Conn {
	t := &tracked{c, d}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		d.conns = make(map[*tracked]struct{})
	}
	d.conns[t] = struct{}{}
	return t
}

func (t *tracked) Close() error {
	t.all.mu.Lock()
	delete(t.all.conns, t)
	t.all.mu.Unlock()
	return t.Conn.Close()
}

// drop ends all connections, once in a second: the server that they lead to is
// not the primary any more, and the name it was found by may lead to another by
// now. The client makes new ones by itself.
func (d *dialed) drop() {
	if d == nil {
		return
	}
	d.mu.Lock()
	var old []*tracked
	if time.Since(d.last) > time.Second {
		d.last = time.Now()
		old = slices.Collect(maps.Keys(d.conns))
	}
	d.mu.Unlock()
	for _, t := range old {
		t.Close()
	}
}

func (c *conn) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	d, err := dedicate(ctx, c.client)
	if err != nil {
		return err
	}
	defer d.Close()
	lost := d.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" && s.Channel == channel {
				up()
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) { message(m.Message) },
	})
	if err := d.Do(ctx, d.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		return fmt.Errorf("subscribe to %s: %w", channel, c.failed(err))
	}
	select {
	case err := <-lost:
		if err == nil {
			err = errors.New("connection lost")
		}
		return fmt.Errorf("listen to %s: %w", channel, c.failed(err))
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conn) Scan(ctx context.Context, match string, key func(string) bool) error {
	if err := c.checkAlone(ctx); err != nil {
		return err
	}
	var cursor uint64
	for {
		// Built by hand, SCAN is not marked as one to repeat after a fault, which
		// would hide the fault until the context ends.
		scan := c.client.B().Arbitrary("SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", "1000").Build()
		page, err := guard(ctx, c.closed, func(ctx context.Context) (rueidis.ScanEntry, error) {
			return c.client.Do(ctx, scan).AsScanEntry()
		})
		if err != nil {
			return c.failed(ending(ctx, err))
		}
		for _, k := range page.Elements {
			if !key(k) {
				return nil
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}

func (c *conn) Cluster() bool { return false }

func (c *conn) Close() error {
	c.close()
	return nil
}

// target is what a URL names, as errors show it: without user and password.
type target struct {
	addr string // host and port, or a socket's path
	db   string // "/3", or "" for the first one
}

// addr returns where the server is, "" if that is not known.
func (c *conn) addr() string {
	if c.opened != nil {
		return c.opened.addr
	}
	nodes := c.client.Nodes()
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
	case addr == "" || strings.Contains(err.Error(), addr): // as errors of net do
		return err
	}
	return fmt.Errorf("%s: %w", full, err)
}

// coded puts back the code ERR, which the client cuts off: where the text is one
// of Redis. Other texts without a code are a proxy's, as in "upstream failure".
func coded(text string) string {
	for _, start := range []string{
		"unknown command", "wrong number of arguments", "user_script", "Error running script", "Error compiling script",
		"Script attempted", "The user executing the script can't", "ACL failure in script", "DB index", "SELECT is not allowed", "AUTH <password>", "max number of clients",
	} {
		if strings.HasPrefix(text, start) {
			return "ERR " + text
		}
	}
	return text
}
