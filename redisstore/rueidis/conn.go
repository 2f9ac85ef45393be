package rueidis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/redisstore"
)

// conn is the redisstore.Conn of a client.
type conn struct {
	client rueidis.Client
	close  func()

	// Calls that succeeded in a row, and when the last one did, for proven.
	streak  atomic.Int64
	success atomic.Int64 // nanoseconds since start
	start   time.Time
}

func newConn(client rueidis.Client, close func()) *conn {
	return &conn{client: client, close: close, start: time.Now()}
}

// endless hides the deadline of a context, not its end. The client turns a
// deadline into that of the connection, and breaks it for everybody when it
// passes; without one it leaves the call when the context ends.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Time{}, false }

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

func (c *conn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	if c.proven() {
		return c.script(endless{ctx}, s, keys, args)
	}
	// While the client connects it does not heed the context, and who comes
	// second waits for the first one's attempt.
	type result struct {
		reply string
		err   error
	}
	done := make(chan result, 1)
	go func() {
		reply, err := c.script(context.WithoutCancel(ctx), s, keys, args)
		done <- result{reply, err}
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
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
	if err := d.Do(endless{ctx}, d.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
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
		page, err := c.client.Do(endless{ctx}, c.client.B().Scan().Cursor(cursor).Match(match).Count(1000).Build()).AsScanEntry()
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
