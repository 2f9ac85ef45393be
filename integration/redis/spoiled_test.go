package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/queue"
)

// admin runs a command on the server, and fails the test if it does.
func admin(t testing.TB, c client.Client, args ...string) client.RedisResult {
	t.Helper()
	r := c.Do(await.Context(t), c.B().Arbitrary(args...).Build())
	if err := r.Error(); err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return r
}

// calls returns how often the server has run a command since CONFIG RESETSTAT.
func calls(t testing.TB, c client.Client, command string) int {
	t.Helper()
	info, err := admin(t, c, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !ok {
		return 0
	}
	text, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hold has s hold n names.
func hold(t testing.TB, s driver.Store, n int) (held []driver.Claim) {
	t.Helper()
	for i := range n {
		m := storetest.Mutex(fmt.Sprint("held ", i), time.Minute)
		storetest.Enter(t, s, m, driver.Holding)
		held = append(held, m)
	}
	return held
}

// What is wrong with one name concerns no other claim of a renewal, and no other
// name of a list.
func TestRedisSpoiledName(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	const bad = 50
	refuse := func(name string) { // after that the queue is a hash
		m := storetest.Mutex(name, time.Minute)
		m.Try = true
		storetest.Enter(t, s, m, driver.Refused)
	}
	for what, spoil := range map[string]func(key string, m driver.Claim){
		"a string":                func(key string, _ driver.Claim) { admin(t, c, "SET", key, "oops") },
		"text of a later version": func(key string, _ driver.Claim) { admin(t, c, "SET", key, "v9 BUSY OOM\n{}") },
		"a list": func(key string, _ driver.Claim) {
			admin(t, c, "DEL", key)
			admin(t, c, "RPUSH", key, "oops")
		},
		"a state of a later version": func(key string, m driver.Claim) {
			refuse(m.Name)
			admin(t, c, "HSET", key, "s", "v9 BUSY OOM\n{}")
		},
		"a claim of a later version": func(key string, m driver.Claim) {
			refuse(m.Name)
			admin(t, c, "HSET", key, m.ID, "v9 LOADING\r\n")
		},
		"no claim that waits": func(key string, m driver.Claim) {
			storetest.Enter(t, s, storetest.Mutex(m.Name, time.Minute), driver.Waiting)
			admin(t, c, "SET", key+":q", "oops")
		},
	} {
		t.Run(what, func(t *testing.T) {
			admin(t, c, "FLUSHALL")
			held := hold(t, s, 101)
			refs := make([]driver.Ref, len(held))
			for i, m := range held {
				refs[i] = storetest.Ref(m)
			}
			spoil("pawl:{"+held[bad].Name+"}", held[bad])
			for _, ttl := range []time.Duration{time.Minute, time.Hour} { // the latter needs more than to write the claim
				told := make([]int, len(refs))
				for i := range refs {
					refs[i].TTL = ttl
				}
				s.Renew(await.Context(t), refs, func(i int, st driver.Status, err error) {
					told[i]++
					switch {
					case i != bad && (err != nil || st.State != driver.Holding):
						t.Errorf("%s: %v, %v", refs[i].Name, st.State, err)
					case i == bad && err == nil && what != "no claim that waits":
						t.Errorf("%s is spoiled, and renewed: %v", refs[i].Name, st.State)
					case i == bad && err != nil && !driver.IsPermanent(err):
						t.Errorf("%v: it will not pass", err)
					}
				})
				for i, n := range told {
					if n != 1 {
						t.Errorf("%s: %d reports", refs[i].Name, n)
					}
				}
			}
			if what == "no claim that waits" {
				return // those who hold can be listed
			}
			seen := make(map[string]bool)
			errs := 0
			for q, err := range s.List(await.Context(t), "held ") {
				if err != nil {
					errs++
					if q.Name != held[bad].Name || !strings.Contains(err.Error(), held[bad].Name) {
						t.Errorf("list: %q: %v", q.Name, err)
					}
					continue
				}
				seen[q.Name] = true
			}
			if len(seen) != 100 || errs != 1 {
				t.Errorf("%d names are listed, %d errors", len(seen), errs)
			}
		})
	}
}

// A server that is out of memory lets nobody in. Who is in goes on.
func TestRedisOutOfMemory(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	ctx := await.Context(t)
	units := func(name string, units int64) driver.Claim {
		m := storetest.Mutex(name, time.Minute)
		m.Units, m.Limit = units, 2
		return m
	}
	held := hold(t, s, 10)
	first, second, third := storetest.Mutex("queue", time.Minute), storetest.Mutex("queue", time.Minute), storetest.Mutex("queue", time.Minute)
	storetest.Enter(t, s, first, driver.Holding)
	storetest.Enter(t, s, second, driver.Waiting)
	storetest.Enter(t, s, third, driver.Waiting)
	lingers, large, broken := storetest.Mutex("lingers", time.Minute), units("large", 2), storetest.Mutex("broken", time.Minute)
	storetest.Enter(t, s, lingers, driver.Holding)
	storetest.Enter(t, s, large, driver.Holding)
	storetest.Enter(t, s, broken, driver.Holding)
	alone := storetest.Mutex("alone", time.Minute) // as it came
	storetest.Enter(t, s, alone, driver.Holding)
	admin(t, c, "CONFIG", "SET", "maxmemory", "1")

	renewed := append(held, first, second, third)
	refs := make([]driver.Ref, len(renewed))
	for i, m := range renewed {
		refs[i] = storetest.Ref(m)
	}
	s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
		if err != nil {
			t.Errorf("renew %s: %v", refs[i].Name, err)
		}
	})
	for i := range refs {
		refs[i].TTL = time.Hour // the keys must live longer, too
	}
	s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
		if err != nil {
			t.Errorf("renew %s for longer: %v", refs[i].Name, err)
		}
	})
	storetest.Enter(t, s, first, driver.Holding) // repeated
	if _, err := s.Inspect(ctx, "queue"); err != nil {
		t.Error(err)
	}
	if err := storetest.List(ctx, s, ""); err != nil {
		t.Error(err)
	}
	if err := s.Ask(ctx, "queue"); err != nil {
		t.Error(err)
	}
	if st, err := s.Resize(ctx, storetest.Ref(large), 1); err != nil || st.State != driver.Holding {
		t.Errorf("resize to less: %v, %v", st.State, err)
	}
	l := storetest.Ref(lingers)
	l.Linger = time.Minute
	if was, err := s.Leave(ctx, l); err != nil || was != driver.Holding {
		t.Errorf("leave and linger: %v, %v", was, err)
	}
	if es, err := s.Break(ctx, "broken"); err != nil || len(es) != 1 {
		t.Errorf("break: %v, %v", es, err)
	}
	if was, err := s.Leave(ctx, driver.Ref{Name: "broken", ID: broken.ID}); err != nil || was != driver.Gone {
		t.Errorf("leave what is gone: %v, %v", was, err)
	}
	if was, err := s.Leave(ctx, storetest.Ref(second)); err != nil || was != driver.Waiting {
		t.Errorf("leave while waiting: %v, %v", was, err)
	}
	if was, err := s.Leave(ctx, storetest.Ref(first)); err != nil || was != driver.Holding {
		t.Errorf("leave: %v, %v", was, err)
	}
	st, err := storetest.Renew(ctx, s, third)
	if err != nil || st.State != driver.Holding {
		t.Errorf("the next one: %v, %v", st.State, err)
	}
	spent := storetest.Ref(third)
	spent.Used = st.Token + queue.Spare
	if was, err := s.Leave(ctx, spent); err != nil || was != driver.Holding {
		t.Errorf("leave after spare tokens were used: %v, %v", was, err)
	}
	if _, err := s.Enter(ctx, storetest.Mutex("new", time.Minute)); err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("enter: %v; want an error that passes", err)
	}
	for _, try := range []driver.Claim{storetest.Mutex(held[1].Name, time.Minute), storetest.Mutex("alone", time.Minute)} {
		if _, err := s.Enter(ctx, try); err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("enter where one holds: %v; want an error that passes", err)
		}
	}
	storetest.Enter(t, s, alone, driver.Holding) // repeated
	for _, m := range append(held, alone) {
		if was, err := s.Leave(ctx, storetest.Ref(m)); err != nil || was != driver.Holding {
			t.Errorf("leave: %v, %v", was, err)
		}
	}
}

// Leaving what is gone makes nothing slower for the others of that name.
func TestRedisLeaveOfNobody(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	cycle := func() map[string]int {
		t.Helper()
		admin(t, c, "CONFIG", "RESETSTAT")
		m := storetest.Mutex("m", time.Minute)
		storetest.Enter(t, s, m, driver.Holding)
		if _, err := s.Leave(await.Context(t), storetest.Ref(m)); err != nil {
			t.Fatal(err)
		}
		n := make(map[string]int)
		for _, command := range []string{"get", "mget", "set", "del", "hget", "hmget", "hgetall", "hset", "hdel", "pexpire", "persist"} {
			n[command] = calls(t, c, command)
		}
		return n
	}
	cycle()
	before := cycle()
	if was, err := s.Leave(await.Context(t), driver.Ref{Name: "m", ID: "NOTTHERE"}); err != nil || was != driver.Gone {
		t.Fatal(was, err)
	}
	after := cycle()
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("commands of an Enter and a Leave: %v, then %v", before, after)
	}
}

// Semaphores with many permits: a hand-over costs what it costs with few.
func TestRedisManyPermits(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	const limit = 1000
	permit := func() driver.Claim {
		m := storetest.Mutex("permits", time.Hour)
		m.Limit = limit
		return m
	}
	var held []driver.Claim
	for range limit {
		m := permit()
		storetest.Enter(t, s, m, driver.Holding)
		held = append(held, m)
	}
	admin(t, c, "CONFIG", "RESETSTAT")
	const turns = 20
	for i := range turns {
		w := permit()
		if st := storetest.Enter(t, s, w, driver.Waiting); st.Blocker == nil {
			t.Error("nobody is named who holds")
		}
		try := permit()
		try.Try = true
		storetest.Enter(t, s, try, driver.Refused)
		if was, err := s.Leave(await.Context(t), storetest.Ref(held[i])); err != nil || was != driver.Holding {
			t.Fatal(was, err)
		}
		if st := storetest.Renewed(t, s, w); st.State != driver.Holding {
			t.Fatal(st.State)
		}
	}
	if n := calls(t, c, "hgetall"); n != 0 {
		t.Errorf("all claims were read %d times", n)
	}
	if n := calls(t, c, "publish"); n < turns || n > turns*66 {
		t.Errorf("%d messages for %d hand-overs", n, turns)
	}
}

// A server that has lost its scripts gets each of them once, not with each request
// that finds it missing.
func TestRedisScriptsAreSentOnce(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	run := func() {
		done := make(chan error)
		const n = 300
		for i := range n {
			go func() {
				m := storetest.Mutex(fmt.Sprint("herd ", i), time.Minute)
				_, err := s.Enter(await.Context(t), m)
				if err == nil {
					_, err = s.Leave(await.Context(t), storetest.Ref(m))
				}
				done <- err
			}()
		}
		for range n {
			if err := await.Value(t, "a reply", done); err != nil {
				t.Error(err)
			}
		}
	}
	run()
	admin(t, c, "SCRIPT", "FLUSH")
	admin(t, c, "CONFIG", "RESETSTAT")
	run()
	// One that finds it missing after the others have sent it may send it again.
	if n := calls(t, c, "eval"); n < 1 || n > 20 {
		t.Errorf("%d scripts were sent", n)
	}
}

// Whoever waits for a record to change does not write each time it looks.
func TestRedisIdleWatchersOnlyRead(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	look := func() {
		ctx, cancel := context.WithCancel(await.Context(t))
		defer cancel()
		n := calls(t, c, "hmget")
		done := make(chan error, 1)
		go func() {
			_, err := s.WaitChange(ctx, "record", 0)
			done <- err
		}()
		await.That(t, "it has looked", func() bool { return calls(t, c, "hmget") > n })
		cancel()
		if err := await.Value(t, "the end", done); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	look()
	admin(t, c, "CONFIG", "RESETSTAT")
	look()
	look()
	if n := calls(t, c, "sadd") + calls(t, c, "pexpire"); n != 0 {
		t.Errorf("%d writes", n)
	}
	admin(t, c, "PEXPIRE", "pawl:{record}:w", "20000")
	look()
	if n := calls(t, c, "sadd"); n != 1 {
		t.Errorf("%d times it was said who waits, although that was soon forgotten", n)
	}
}

// A list reads many names with one request, and writes nothing, also where claims
// have run out.
func TestRedisListOnlyReads(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := openRedis(t, r)
	const n = 1500
	for i := range n {
		storetest.Enter(t, s, storetest.Mutex(fmt.Sprint("name ", i), time.Hour), driver.Holding)
	}
	short, next := storetest.Mutex("name 0", 100*time.Millisecond), storetest.Mutex("over", time.Hour)
	storetest.Enter(t, s, short, driver.Waiting)
	over := storetest.Mutex("over", 100*time.Millisecond)
	storetest.Enter(t, s, over, driver.Holding)
	storetest.Enter(t, s, next, driver.Waiting)
	time.Sleep(over.TTL + 20*time.Millisecond)
	admin(t, c, "CONFIG", "RESETSTAT")
	changes := func() string {
		info, err := admin(t, c, "INFO", "persistence").ToString()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "rdb_changes_since_last_save:")
		text, _, _ := strings.Cut(rest, "\r\n")
		return text
	}
	before := changes()
	names := make(map[string]int)
	for q, err := range s.List(await.Context(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		names[q.Name]++
		if len(q.Claims) != 1 || q.Claims[0].State != driver.Holding {
			t.Errorf("%s: %+v", q.Name, q.Claims)
		}
	}
	if len(names) != n+1 {
		t.Errorf("%d names, want %d", len(names), n+1)
	}
	if e := calls(t, c, "evalsha") + calls(t, c, "eval"); e > n/100+10 {
		t.Errorf("%d requests for %d names", e, n)
	}
	if q, err := s.Inspect(await.Context(t), "over"); err != nil || len(q.Claims) != 1 || q.Claims[0].ID != next.ID || q.Claims[0].State != driver.Holding || q.Claims[0].Token != 0 {
		t.Errorf("%+v, %v", q, err)
	}
	if after := changes(); after != before {
		t.Errorf("there were %s changes, now %s", before, after)
	}
	// Who has seen enough stops.
	for _, err := range s.List(await.Context(t), "") {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
}
