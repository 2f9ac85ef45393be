package rueidis

import (
	"context"
	"errors"
	"fmt"
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

	// Calls that succeeded in a row, and when the last one did, for proven.
	streak  atomic.Int64
	success atomic.Int64 // nanoseconds since start
	start   time.Time
}

// newConn makes the adapter; end is called when it is closed.
func newConn(client rueidis.Client, end func()) *conn {
	c := &conn{client: client, closed: make(chan struct{}), start: time.Now()}
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
// when a proven server stops to answer may end that much late, but no other is.
type bounded struct {
	context.Context
	deadline time.Time
}

const bound = time.Second

var errNoAnswer = errors.New("the server did not answer in time")

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

func (c *conn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	if !c.proven() {
		return guard(ctx, c.closed, func(ctx context.Context) (string, error) { return c.script(ctx, s, keys, args) })
	}
	near := &bounded{ctx, time.Now().Add(bound)}
	own, ok := ctx.Deadline()
	if ok && own.Before(near.deadline) {
		near.deadline = own
	}
	reply, err := c.script(near, s, keys, args)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, context.DeadlineExceeded) && ok && !time.Now().Before(own): // ctx's own timer is late
		return "", context.DeadlineExceeded
	case errors.Is(err, context.DeadlineExceeded): // of this call, or of one that shared the connection
		return "", errNoAnswer
	}
	return reply, err
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
	b := c.client.B()
	reply, err := c.client.Do(ctx, b.Evalsha().Sha1(s.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToString()
	if e, ok := rueidis.IsRedisErr(err); ok && e.IsNoScript() {
		reply, err = c.client.Do(ctx, b.Eval().Script(s.Source).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).ToString()
	}
	if err != nil {
		c.streak.Store(0)
		return "", convert(err)
	}
	c.success.Store(int64(time.Since(c.start)))
	if c.streak.Load() < enough {
		c.streak.Add(1)
	}
	return reply, nil
}

func (c *conn) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	// Dedicate connects, and knows no context.
	got := make(chan rueidis.DedicatedClient, 1)
	go func() {
		d, _ := c.client.Dedicate()
		got <- d
	}()
	var d rueidis.DedicatedClient
	select {
	case d = <-got:
	case <-ctx.Done():
		go func() { (<-got).Close() }()
		return ctx.Err()
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
		return fmt.Errorf("subscribe to %s: %w", channel, convert(err))
	}
	select {
	case err := <-lost:
		if err == nil {
			err = errors.New("connection lost")
		}
		return fmt.Errorf("listen to %s: %w", channel, convert(err))
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conn) Scan(ctx context.Context, match string, key func(string) bool) error {
	var cursor uint64
	for {
		page, err := guard(ctx, c.closed, func(ctx context.Context) (rueidis.ScanEntry, error) {
			return c.client.Do(ctx, c.client.B().Scan().Cursor(cursor).Match(match).Count(1000).Build()).AsScanEntry()
		})
		if err != nil {
			return convert(err)
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

// convert marks what the server replied.
func convert(err error) error {
	if e, ok := rueidis.IsRedisErr(err); ok {
		return &redisstore.ServerError{Text: e.Error(), Err: err}
	}
	return err
}
