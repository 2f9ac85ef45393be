package redis

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// runName forwards to the server that to names when a connection is made, as the
// name of a service does.
func runName(t testing.TB, to *atomic.Pointer[string]) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", *to.Load())
			if err != nil {
				c.Close()
				continue
			}
			for _, ends := range [][2]net.Conn{{c, s}, {s, c}} {
				go func() {
					io.Copy(ends[0], ends[1])
					ends[0].Close()
					ends[1].Close()
				}()
			}
		}
	}()
	return l.Addr().String()
}

// A primary becomes a replica, and its name leads to the next one: who is connected
// to the old one goes there too.
func TestRedisDemoted(t *testing.T) {
	old, next := servers.RunRedis(t, servers.RedisOptions{}), servers.RunRedis(t, servers.RedisOptions{})
	var to atomic.Pointer[string]
	addr := old.Addr()
	to.Store(&addr)
	s, err := rueidis.Open("redis://"+runName(t, &to), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := pawl.New(s, nil)
	ctx := await.Context(t)
	lock := func() {
		t.Helper()
		l, err := c.Mutex("m").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	for range 100 { // several connections
		lock()
	}
	moved := next.Addr()
	to.Store(&moved)
	host, port, _ := strings.Cut(moved, ":")
	admin(t, dialRedis(t, old), "REPLICAOF", host, port)
	lock()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// Who was refused the channels for a while hears again once that is over, and is
// told that something may have happened meanwhile.
func TestRedisHearsAgain(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	admin(t, c, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
	s, err := rueidis.Open("redis://u:p@"+r.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	checks := make(chan struct{}, 100)
	listen := func(ctx context.Context) <-chan error {
		end := make(chan error, 1)
		go func() {
			end <- s.Listen(ctx, func(n driver.Notice) {
				if n.Kind == driver.Check && n.ID == "" {
					checks <- struct{}{}
				}
			})
		}()
		return end
	}
	end := listen(await.Context(t))
	await.Value(t, "the first check", checks)
	admin(t, c, "ACL", "SETUSER", "u", "resetchannels")
	admin(t, c, "CLIENT", "KILL", "TYPE", "pubsub")
	if err := await.Value(t, "the end of Listen", end); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Listen: %v", err)
	}
	admin(t, c, "ACL", "SETUSER", "u", "&*")
	await.That(t, "it is subscribed again", func() bool {
		channels, err := admin(t, c, "PUBSUB", "CHANNELS").AsStrSlice()
		return err == nil && len(channels) > 0
	})
	listen(await.Context(t)) // begins when the subscription stands already
	await.Value(t, "a check", checks)
}

// The client, too: a forced release is told at once after that.
func TestRedisClientHearsAgain(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	admin(t, c, "ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all")
	s, err := rueidis.Open("redis://u:p@"+r.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	client := pawl.New(s, &pawl.Options{TTL: time.Hour})
	t.Cleanup(func() { client.Close(context.Background()) })
	l, err := client.Mutex("m").Lock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	subscribed := func() bool {
		channels, err := admin(t, c, "PUBSUB", "CHANNELS").AsStrSlice()
		return err == nil && len(channels) > 0
	}
	await.That(t, "it listens", subscribed)
	admin(t, c, "ACL", "SETUSER", "u", "resetchannels")
	admin(t, c, "CLIENT", "KILL", "TYPE", "pubsub")
	time.Sleep(1500 * time.Millisecond) // it is refused
	admin(t, c, "ACL", "SETUSER", "u", "&*")
	await.That(t, "it listens again", subscribed)
	if _, err := openRedis(t, r).Break(await.Context(t), "m"); err != nil {
		t.Fatal(err)
	}
	await.Value(t, "the end of the lease, an hour before its time", l.Lost())
}
