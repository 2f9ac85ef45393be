package redis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// dialRedis makes a client that ends with the test.
func dialRedis(t testing.TB, r *servers.Redis) client.Client {
	t.Helper()
	c, err := client.NewClient(client.ClientOption{
		InitAddress: []string{r.Addr()}, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openRedis(t testing.TB, r *servers.Redis) *redisstore.Store {
	t.Helper()
	return openAt(t, r.URL())
}

// clockConn lets the scripts take the time from a test instead of the server.
type clockConn struct {
	redisstore.Conn
	now  func() int64 // microseconds
	deaf bool         // never subscribes: its claims are out of reach

	calls atomic.Int64 // of Script

	mu       sync.Mutex
	channel  string
	scripts  map[string]*redisstore.Script
	messages []string
}

func newClockConn(t testing.TB, c client.Client, now func() int64) *clockConn {
	t.Helper()
	conn, err := rueidis.NewConn(c)
	if err != nil {
		t.Fatal(err)
	}
	return &clockConn{Conn: conn, now: now, scripts: make(map[string]*redisstore.Script)}
}

func (c *clockConn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	const call = "redis.call('TIME')"
	if strings.Count(s.Source, call) != 1 {
		return "", errors.New("the script asks for the time other than once")
	}
	c.mu.Lock()
	timed := c.scripts[s.SHA]
	if timed == nil {
		source := "local fake = {table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}\n" + strings.Replace(s.Source, call, "fake", 1)
		source = strings.Replace(source, "call('PTTL', key) > 60001",
			"math.ceil((sub(text, 1, 16) + sub(text, 18, 29) - fake[1] * 1000000 - fake[2]) / 1000) > 1", 1)
		// The server's own time decides when it forgets a key: not before the test ends.
		source = strings.ReplaceAll(source, "'PX', 2000", "'PX', 3600000")
		timed = redisstore.NewScript(source)
		c.scripts[s.SHA] = timed
	}
	c.mu.Unlock()
	now := c.now()
	c.calls.Add(1)
	return c.Conn.Script(ctx, timed, keys, append(args[:len(args):len(args)], num(now/1e6), num(now%1e6)))
}

func (c *clockConn) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	if c.deaf {
		return errors.New("deaf")
	}
	c.mu.Lock()
	c.channel = channel
	c.mu.Unlock()
	return c.Conn.Subscribe(ctx, channel, up, func(text string) {
		c.mu.Lock()
		c.messages = append(c.messages, text)
		c.mu.Unlock()
		message(text)
	})
}

func (c *clockConn) channelName() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.channel
}

func (c *clockConn) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.messages
	c.messages = nil
	return m
}
