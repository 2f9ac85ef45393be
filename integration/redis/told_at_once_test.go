package redis

import (
	"strconv"
	"strings"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// tellers are those adapters whose clients can be told of changed keys.
var tellers = map[string]opener{"Open": openAt, "valkey-go": adapters[2].open}

// eachTeller runs a test on each server for each of them, as a user with no more rights than the
// documentation asks for.
func eachTeller(t *testing.T, run func(t *testing.T, r *servers.Redis, c client.Client, open opener, url string)) {
	for server, valkey := range map[string]bool{"redis": false, "valkey": true} {
		for name, open := range tellers {
			t.Run(server+", "+name, func(t *testing.T) {
				t.Parallel()
				r := servers.RunRedis(t, servers.RedisOptions{Valkey: valkey})
				c := dialRedis(t, r)
				admin(t, c, append([]string{"ACL", "SETUSER", "locks", "reset", "on", ">p"}, strings.Fields(rights)...)...)
				run(t, r, c, open, "redis://locks:p@"+r.Addr())
			})
		}
	}
}

// tracked returns how many keys the server tells of.
func tracked(t testing.TB, c client.Client) int {
	t.Helper()
	info, err := admin(t, c, "INFO", "stats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "tracking_total_keys:")
	text, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A holder whose key is gone is told at once, not with its next renewal in 20 minutes.
func TestToldAtOnce(t *testing.T) {
	eachTeller(t, func(t *testing.T, r *servers.Redis, c client.Client, open opener, url string) {
		locks := clientOf(t, open(t, url), time.Hour)
		other := clientAt(t, r.Addr(), time.Hour)
		for _, fault := range []struct {
			name string
			do   func(key string)
		}{
			{"DEL", func(key string) { admin(t, c, "DEL", key) }},
			{"DEL, and another takes it", func(key string) {
				admin(t, c, "DEL", key)
				if _, err := other.Mutex("DEL, and another takes it").TryLock(await.Context(t)); err != nil {
					t.Error(err)
				}
			}},
			{"renamed", func(key string) { admin(t, c, "RENAME", key, "y") }},
			{"expired", func(key string) { admin(t, c, "PEXPIRE", key, "1") }},
			{"FLUSHALL", func(string) { admin(t, c, "FLUSHALL") }},
			{"evicted", func(string) {
				admin(t, c, "CONFIG", "SET", "maxmemory-policy", "allkeys-random", "maxmemory", "1")
				c.Do(t.Context(), c.B().Set().Key("z").Value("z").Build()) // makes room
				admin(t, c, "CONFIG", "SET", "maxmemory", "0")
			}},
		} {
			before := tracked(t, c)
			l, err := locks.Mutex(fault.name).Lock(await.Context(t))
			if err != nil {
				t.Fatal(fault.name, err)
			}
			await.That(t, fault.name+": the server is to tell", func() bool { return tracked(t, c) > before })
			ctx := l.Context(t.Context())
			start := time.Now()
			fault.do("pawl:{" + fault.name + "}")
			await.Value(t, fault.name+": the end of its context", ctx.Done())
			t.Logf("%s: told after %v", fault.name, time.Since(start))
		}
	})
}

// What holders and those who wait write themselves is not taken for a loss.
func TestNotToldOfItsOwnWrites(t *testing.T) {
	eachTeller(t, func(t *testing.T, r *servers.Redis, c client.Client, open opener, url string) {
		s, other := open(t, url), openRedis(t, r)
		told := make(chan string, 1000)
		go s.Listen(t.Context(), func(n driver.Notice) {
			if n.Kind == driver.Check && n.ID != "" {
				told <- n.ID
			}
		})
		m := storetest.Mutex("busy", time.Minute)
		m.Kind, m.Limit, m.Units = driver.KindSemaphore, 3, 2
		storetest.Enter(t, s, m, driver.Holding)
		looked := func() {
			t.Helper()
			await.That(t, "the server is to tell", func() bool { return tracked(t, c) == 1 })
		}
		looked()
		storetest.Renewed(t, s, m)
		looked()
		w := m
		w.ID = driver.NewID()
		storetest.Enter(t, other, w, driver.Waiting)
		looked()
		storetest.Renewed(t, other, w)
		looked()
		storetest.Leave(t, other, w)
		looked()
		if _, err := s.Resize(await.Context(t), storetest.Ref(m), 1); err != nil {
			t.Fatal(err)
		}
		looked()
		select {
		case id := <-told:
			t.Errorf("%s is told that something has happened; it is %s that holds", id, m.ID)
		default:
		}
		admin(t, c, "DEL", "pawl:{busy}")
		if id := await.Value(t, "it is told", told); id != m.ID {
			t.Errorf("%s is told, want %s", id, m.ID)
		}
	})
}

// What happened while the connection was lost is noticed when there is another.
func TestToldAfterTheConnectionWasLost(t *testing.T) {
	eachTeller(t, func(t *testing.T, r *servers.Redis, c client.Client, open opener, url string) {
		locks := clientOf(t, open(t, url), time.Hour)
		l, err := locks.Mutex("m").Lock(await.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		await.That(t, "the server is to tell", func() bool { return tracked(t, c) == 1 })
		admin(t, c, "ACL", "SETUSER", "locks", "off") // it cannot connect again
		admin(t, c, "CLIENT", "KILL", "USER", "locks")
		admin(t, c, "DEL", "pawl:{m}")
		admin(t, c, "ACL", "SETUSER", "locks", "on")
		await.Value(t, "the end of the lease", l.Lost())
	})
}

// A claim that was granted by message is watched, too, and one that was adopted.
func TestToldHowever(t *testing.T) {
	eachTeller(t, func(t *testing.T, r *servers.Redis, c client.Client, open opener, url string) {
		s, other := open(t, url), openRedis(t, r)
		told := make(chan string, 100)
		go s.Listen(t.Context(), func(n driver.Notice) {
			if n.Kind == driver.Check && n.ID != "" {
				told <- n.ID
			}
		})
		holder, waiter := storetest.Mutex("m", time.Hour), storetest.Mutex("m", time.Hour)
		storetest.Enter(t, other, holder, driver.Holding)
		storetest.Enter(t, s, waiter, driver.Waiting)
		storetest.Leave(t, other, holder)
		await.That(t, "the server is to tell", func() bool { return tracked(t, c) == 1 })
		admin(t, c, "DEL", "pawl:{m}")
		if id := await.Value(t, "it is told", told); id != waiter.ID {
			t.Errorf("%s is told, want %s", id, waiter.ID)
		}

		given := storetest.Mutex("n", time.Hour)
		st := storetest.Enter(t, other, given, driver.Holding)
		if _, err := s.Adopt(await.Context(t), driver.Adoption{
			Name: "n", ID: given.ID, Kind: given.Kind, Units: 1, Token: st.Token, Mark: driver.NewID(), TTL: time.Hour,
		}); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the server is to tell", func() bool { return tracked(t, c) == 2 })
		select {
		case id := <-told:
			t.Errorf("%s is told", id)
		default:
		}
		admin(t, c, "DEL", "pawl:{n}")
		if id := await.Value(t, "it is told", told); id != given.ID {
			t.Errorf("%s is told, want %s", id, given.ID)
		}
	})
}
