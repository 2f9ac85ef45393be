//go:build unix

package fence

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	client "github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/redisfence"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/goredis"
	"github.com/pawl-go/pawl/redisstore/rueidis"
	"github.com/pawl-go/pawl/redisstore/valkeygo"
)

func TestRedis(t *testing.T) {
	t.Parallel()
	r := servers.RunRedis(t, servers.RedisOptions{})
	opened, err := open("redis", r.Addr(), "n")
	if err != nil {
		t.Fatal(err)
	}
	k := opened.(*key)
	t.Cleanup(k.close)
	testRedis(t, k)
	t.Run("keep", func(t *testing.T) { testRedisKeep(t, k.client) })
	testPaused(t, "redis", r.Addr(), noMiddle, set(t, "redis", r.Addr()))
}

func testRedis(t *testing.T, k *key) {
	t.Run("set", func(t *testing.T) { testRedisSet(t, k) })
	t.Run("eval", func(t *testing.T) { testRedisEval(t, k) })
}

// Other clients, on Valkey.
func TestValkey(t *testing.T) {
	t.Parallel()
	addr := servers.RunRedis(t, servers.RedisOptions{Valkey: true}).Addr()
	opened, err := open("redis", addr, "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.close)
	reader := opened.(*key).client
	for name, dial := range map[string]func(*testing.T) (redisstore.Conn, error){
		"goredis": func(t *testing.T) (redisstore.Conn, error) {
			c := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { c.Close() })
			return goredis.NewConn(c)
		},
		"valkeygo": func(t *testing.T) (redisstore.Conn, error) {
			c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
			if err != nil {
				return nil, err
			}
			t.Cleanup(c.Close)
			return valkeygo.NewConn(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := reader.Do(await.Context(t), reader.B().Flushall().Build()).Error(); err != nil {
				t.Fatal(err)
			}
			conn, err := dial(t)
			if err != nil {
				t.Fatal(err)
			}
			f, err := redisfence.New(conn, nil)
			if err != nil {
				t.Fatal(err)
			}
			testRedis(t, &key{f, reader, "n"})
		})
	}
}

func testRedisSet(t *testing.T, k *key) {
	ctx := await.Context(t)
	// Beyond 2^53 numbers of Lua are not exact; 10 is greater than 9.
	for _, token := range []int64{9, 10, 10, 1<<53 + 1, math.MaxInt64 - 1} {
		if err := k.Set(ctx, tokens("n", token), "k", fmt.Sprint(token), 0); err != nil {
			t.Errorf("%d: %v", token, err)
		}
		if err := k.Set(ctx, tokens("n", token-1), "k", "late", 0); token != 10 && err == nil {
			t.Errorf("%d after %d", token-1, token)
		}
	}
	wantStale(t, k.Set(ctx, tokens("n", 11), "k", "late", 0), fence.StaleError{Name: "n", Token: 11, Seen: math.MaxInt64 - 1})
	get := func(key string) string {
		t.Helper()
		v, err := k.client.Do(ctx, k.client.B().Get().Key(key).Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got := get("k"); got != fmt.Sprint(math.MaxInt64-1) {
		t.Errorf("the value is %q", got)
	}
	if got := get("pawl:fence:{n}"); got != fmt.Sprint(math.MaxInt64-1) {
		t.Errorf("%q is kept", got)
	}
	both := []fence.Token{{Name: "m", Value: 3}, {Name: "n", Value: 3}}
	wantStale(t, k.Check(ctx, both), fence.StaleError{Name: "n", Token: 3, Seen: math.MaxInt64 - 1})
	if err := k.Set(ctx, tokens("m", 2), "k2", "v", time.Minute); err != nil {
		t.Errorf("a token was kept though another of the lease was refused: %v", err)
	}
	if ttl, err := k.client.Do(ctx, k.client.B().Pttl().Key("k2").Build()).AsInt64(); err != nil || ttl < 1 || ttl > 60_000 {
		t.Errorf("TTL %d, %v", ttl, err)
	}
	if err := k.client.Do(ctx, k.client.B().Set().Key("pawl:fence:{x}").Value("08").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := k.Check(ctx, tokens("x", 9)); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "pawl:fence:{x}") {
		t.Errorf("a key that holds no token: %v", err)
	}
}

func testRedisEval(t *testing.T, k *key) {
	ctx := await.Context(t)
	both := []fence.Token{{Name: "e", Value: 5}, {Name: "f", Value: 5}}
	for source, want := range map[string]string{
		"return #KEYS .. KEYS[1] .. #ARGV .. ARGV[2]": "1k2b",
		"return 1764000000000017":                     "1764000000000017",
		"return 0.5":                                  "0.5",
		"return redis.call('SET', KEYS[1], ARGV[1])":  "OK",
		"return redis.call('GET', 'no such key')":     "",
		"return {1, 'x'}":                             `[1,"x"]`,
		"return true":                                 "1",
		"return":                                      "",
	} {
		if got, err := k.Eval(ctx, both, redisfence.NewScript(source), []string{"k"}, "a", "b"); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
	}
	for _, source := range []string{"return redis.error_reply('ERR mine')", "error('mine')", "mine", "return redis.pcall('mine')"} {
		if _, err := k.Eval(ctx, both, redisfence.NewScript(source), nil); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v", source, err)
		}
	}
	wantStale(t, k.Check(ctx, tokens("f", 4)), fence.StaleError{Name: "f", Token: 4, Seen: 5})
}

// A token is kept for as long as the options say, and longer with each write.
func testRedisKeep(t *testing.T, c client.Client) {
	ctx := await.Context(t)
	conn, err := rueidis.NewConn(c)
	if err != nil {
		t.Fatal(err)
	}
	f, err := redisfence.New(conn, &redisfence.Options{Keep: time.Hour, Key: func(name string) string { return "kept " + name }})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []int64{4, 4, 5} {
		if err := f.Check(ctx, tokens("k", token)); err != nil {
			t.Error(err)
		}
		ttl, err := c.Do(ctx, c.B().Pttl().Key("kept k").Build()).AsInt64()
		if left := time.Duration(ttl) * time.Millisecond; err != nil || left <= 0 || left > time.Hour {
			t.Errorf("kept for %v, %v", left, err)
		}
		if err := c.Do(ctx, c.B().Persist().Key("kept k").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
}
