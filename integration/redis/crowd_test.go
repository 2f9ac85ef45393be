package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// A name has room for 20,000 claims: more would keep the server from all else for
// too long. Who holds or waits there goes on.
func TestRedisCrowd(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	ctx := await.Context(t)
	holder := storetest.Mutex("crowd", time.Hour)
	token := storetest.Enter(t, s, holder, driver.Holding).Token
	first := storetest.Mutex("crowd", time.Hour)
	storetest.Enter(t, s, first, driver.Waiting)

	// The other claims that wait are copies of the first.
	admin(t, c, "EVAL", `
		local key, id = KEYS[1], ARGV[1]
		local text = redis.call('HGET', key, id)
		local last, rest = string.match(redis.call('HGET', key, 's'), '^(%d+ %d+ %l %d+ %d+) 1 0 2 (.*)$')
		for i = 3, ARGV[2] + 0 do
			redis.call('HSET', key, string.format('claim-%08d', i), text)
			redis.call('ZADD', key .. ':q', i, string.format('claim-%08d', i))
		end
		redis.call('HSET', key, 's', last .. ' ' .. ARGV[2] - 1 .. ' 0 ' .. ARGV[2] .. ' ' .. rest)
		return 'o'`, "1", "pawl:{crowd}", first.ID, "20000")

	for _, try := range []bool{false, true} {
		m := storetest.Mutex("crowd", time.Hour)
		m.Try = try
		st, err := s.Enter(ctx, m)
		if try && (err != nil || st.State != driver.Refused) {
			t.Errorf("one who does not want to wait: %v, %v", st.State, err)
		}
		if !try && (!errors.Is(err, driver.ErrFull) || !driver.IsPermanent(err) || !strings.Contains(err.Error(), `"crowd"`)) {
			t.Errorf("one more: %v, %v; want ErrFull", st.State, err)
		}
	}
	storetest.Enter(t, s, first, driver.Waiting) // repeated
	if q, err := s.Inspect(ctx, "crowd"); err != nil || len(q.Claims) != 20000 {
		t.Errorf("inspect: %d claims, %v", len(q.Claims), err)
	}
	if was, err := s.Leave(ctx, storetest.Ref(holder)); err != nil || was != driver.Holding {
		t.Errorf("leave: %v, %v", was, err)
	}
	st, err := storetest.Renew(ctx, s, first)
	if err != nil || st.State != driver.Holding || st.Token <= token {
		t.Errorf("the next one: %+v, %v", st, err)
	}
	more := storetest.Mutex("crowd", time.Hour)
	if st := storetest.Enter(t, s, more, driver.Waiting); st.Ahead != 19998 {
		t.Errorf("after one has left: %d ahead", st.Ahead)
	}
	if _, err := s.Enter(ctx, storetest.Mutex("crowd", time.Hour)); !errors.Is(err, driver.ErrFull) {
		t.Errorf("one more: %v; want ErrFull", err)
	}

	// Holders may be as many: one name of several that are entered at once.
	permit := func(name string) driver.Claim {
		m := storetest.Mutex(name, time.Hour)
		m.Kind, m.Limit = driver.KindSemaphore, driver.MaxLimit
		return m
	}
	a := permit("permits")
	storetest.Enter(t, s, a, driver.Holding)
	storetest.Enter(t, s, permit("permits"), driver.Holding)
	admin(t, c, "EVAL", `
		local text = redis.call('HGET', KEYS[1], ARGV[1])
		for i = 3, 20000 do redis.call('HSET', KEYS[1], string.format('claim-%08d', i), text) end
		local head, rest = string.match(redis.call('HGET', KEYS[1], 's'), '^(%d+ %d+ %l %d+) %d+ (.*)$')
		redis.call('HSET', KEYS[1], 's', head .. ' 20000 ' .. rest)
		return 'o'`, "1", "pawl:{permits}", a.ID)
	cs := []driver.Claim{permit("apart"), permit("permits")}
	if _, err := s.EnterAll(ctx, cs); !errors.Is(err, driver.ErrFull) || !strings.Contains(err.Error(), `"permits"`) {
		t.Errorf("with others: %v; want ErrFull", err)
	}
	if q, err := s.Inspect(ctx, "apart"); err != nil || len(q.Claims) != 0 {
		t.Errorf("%d claims of the other name, %v", len(q.Claims), err)
	}

	// A reply has the claims of one such name, and a list has them all.
	admin(t, c, "CONFIG", "RESETSTAT")
	found := make(map[string]int)
	for q, err := range s.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		found[q.Name] = len(q.Claims)
	}
	if len(found) != 2 || found["crowd"] != 20000 || found["permits"] != 20000 {
		t.Errorf("listed: %v", found)
	}
	if n := calls(t, c, "evalsha") + calls(t, c, "eval"); n < 2 {
		t.Errorf("%d claims came by %d requests", 40000, n)
	}
}

// What somebody else has filled is not read.
func TestRedisOverfull(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	ctx := await.Context(t)
	m := storetest.Mutex("over", driver.MinTTL)
	storetest.Enter(t, s, m, driver.Holding)
	storetest.Enter(t, s, storetest.Mutex("over", time.Hour), driver.Waiting)
	storetest.Enter(t, s, storetest.Mutex("good", time.Hour), driver.Holding)
	admin(t, c, "EVAL", `
		for i = 1, 50000 do redis.call('HSET', KEYS[1], string.format('claim-%08d', i), '') end
		return 'o'`, "1", "pawl:{over}")
	time.Sleep(m.TTL + 20*time.Millisecond) // so that they would be looked at
	admin(t, c, "CONFIG", "RESETSTAT")
	_, entered := s.Enter(ctx, storetest.Mutex("over", time.Hour))
	_, renewed := storetest.Renew(ctx, s, m)
	_, looked := s.Inspect(ctx, "over")
	_, broken := s.Break(ctx, "over")
	for what, err := range map[string]error{"enter": entered, "renew": renewed, "inspect": looked, "break": broken} {
		if !errors.Is(err, driver.ErrFull) || !driver.IsPermanent(err) || !strings.Contains(err.Error(), "pawl:{over}") {
			t.Errorf("%s: %v; want ErrFull", what, err)
		}
	}
	if n := calls(t, c, "hgetall"); n != 0 {
		t.Errorf("all was read %d times", n)
	}
	listed := 0
	for q, err := range s.List(ctx, "") {
		if q.Name == "over" != errors.Is(err, driver.ErrFull) {
			t.Errorf("list: %q: %v", q.Name, err)
		}
		listed++
	}
	if listed != 2 {
		t.Errorf("%d names are listed", listed)
	}
}

// What a lock that nobody else wants costs the server, and a set of them.
func TestRedisFewCommands(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := adapters[1].open(t, r.URL()) // go-redis: what is held is not watched
	ctx := await.Context(t)
	commands := func(f func()) (n int) {
		f() // scripts are sent
		admin(t, c, "CONFIG", "RESETSTAT")
		f()
		for _, command := range []string{
			"time", "get", "mget", "set", "del", "exists", "hget", "hmget", "hset", "hdel", "hgetall", "hlen",
			"persist", "pexpire", "pttl", "zcard", "zrange",
		} {
			n += calls(t, c, command)
		}
		return n
	}
	leave := func(cs ...driver.Claim) {
		t.Helper()
		for _, m := range cs {
			if was, err := s.Leave(ctx, storetest.Ref(m)); err != nil || was != driver.Holding {
				t.Fatal(was, err)
			}
		}
	}
	one := commands(func() {
		m := storetest.Mutex("m", time.Minute)
		storetest.Enter(t, s, m, driver.Holding)
		leave(m)
	})
	if one > 8 {
		t.Errorf("%d commands in the scripts of an Enter and a Leave", one)
	}
	var cs []driver.Claim
	all := commands(func() {
		leave(cs...)
		cs = nil
		for i := range 1000 {
			cs = append(cs, storetest.Mutex(fmt.Sprint(i), time.Minute))
		}
		if _, err := s.EnterAll(ctx, cs); err != nil {
			t.Fatal(err)
		}
	})
	if all -= 3 * len(cs); all > len(cs)+6 {
		t.Errorf("%d commands in the script that enters %d claims", all, len(cs))
	}
}
