//go:build unix

package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

type finding struct{ Level, About, Text, Do string }

type report struct {
	Engine, Version string
	RoundTrip       *struct {
		P50 int64 `json:"p50_us"`
	} `json:"round_trip"`
	Clock    *struct{}
	Findings []finding
}

// doctor examines the store.
func (b *bundle) doctor(status int, flags ...string) (r report) {
	b.T.Helper()
	b.Run(append([]string{"doctor", "--json"}, flags...)...).Want(status).JSON(&r)
	return r
}

// want checks that something was found about a thing.
func (r report) want(t *testing.T, level, about, text string) {
	t.Helper()
	if !slices.ContainsFunc(r.Findings, func(f finding) bool {
		return f.Level == level && f.About == about && strings.Contains(f.Text, text) &&
			(f.Do != "" || level == "ok" || level == "note")
	}) {
		t.Errorf("not found: %s %s %q, with what to do, in\n%+v", level, about, text, r.Findings)
	}
}

// healthy checks that all was looked at and is well.
func (r report) healthy(t *testing.T) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Level == "warn" || f.Level == "fail" {
			t.Errorf("%+v", f)
		}
	}
	r.want(t, "ok", "lock", "taken and released")
	if r.Version == "" || r.RoundTrip == nil || r.RoundTrip.P50 == 0 {
		t.Errorf("%+v", r)
	}
}

// everySecond is what doctor finds nothing wrong with; other tests do without.
var everySecond = []string{"--appendfsync", "everysec"}

func TestDoctorRedis(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{AppendOnly: true, Args: everySecond})
	r := b.doctor(0)
	r.healthy(t)
	r.want(t, "ok", "reachable", "Redis ")
	r.want(t, "ok", "topology", "one server")
	r.want(t, "ok", "messages", "scripts tell who is next")
	r.want(t, "note", "rights", "user default")
	if r.Clock == nil {
		t.Error("the clock was not compared")
	}

	b.configure("maxmemory", "100mb")
	b.doctor(0).want(t, "ok", "memory", "of 100 MB")
	b.configure("maxmemory-policy", "volatile-lru")
	b.doctor(78).want(t, "fail", "memory", "volatile-lru")
	b.configure("maxmemory-policy", "noeviction")
	b.configure("maxmemory", "1")
	r = b.doctor(78)
	r.want(t, "warn", "memory", "of 0 MB")
	r.want(t, "fail", "lock", "OOM")
	b.configure("maxmemory", "0")

	b.configure("appendonly", "no")
	b.doctor(1).want(t, "warn", "persistence", "forgets every lock")
	b.configure("save", `"60 1"`)
	b.doctor(1).want(t, "warn", "persistence", "snapshots")

	b.redis.Pause()
	b.doctor(69).want(t, "fail", "reachable", "no reply within 5s")
}

func TestDoctorRedisReplica(t *testing.T) {
	primary := newRedis(t, servers.RedisOptions{AppendOnly: true, Args: append([]string{"--repl-diskless-sync-delay", "0"}, everySecond...)})
	addr := strings.Split(primary.redis.Addr(), ":")
	replica := servers.RunRedis(t, servers.RedisOptions{AppendOnly: true, Args: []string{"--replicaof", addr[0] + " " + addr[1]}})
	r := newBundle(t, replica.URL()).doctor(78)
	r.want(t, "fail", "replication", "replica")
	r.want(t, "fail", "lock", "READONLY")
	await.That(t, "the replica is online", func() bool {
		info, err := primary.redis.CLI("INFO", "replication")
		return err == nil && strings.Contains(info, "state=online")
	})
	primary.doctor(1).want(t, "warn", "replication", "1 replica connected")
	newBundle(t, primary.redis.URL()+"?replicas=1").doctor(0, "--ttl", "1m").want(t, "ok", "replication", "a lock counts when 1 of them")
	newBundle(t, primary.redis.URL()+"?replicas=2").doctor(78).want(t, "fail", "replication", "no lock is granted")
}

func TestDoctorRedisCluster(t *testing.T) {
	t.Parallel()
	c := servers.RunRedisCluster(t, 2, 0, servers.RedisOptions{AppendOnly: true, Args: everySecond})
	r := newBundle(t, c.URL()).doctor(0)
	r.healthy(t)
	r.want(t, "ok", "topology", "a cluster of 2 primaries, 2 servers in all")
	r.want(t, "ok", "messages", "scripts tell who is next")
	newBundle(t, c.Servers[0].URL()).doctor(78).want(t, "fail", "mode", "the URL does not say")

	// The line that is just enough is enough; less is told, and on one server.
	as := enough(t, r, c.URL(), c.Servers...)
	r = newBundle(t, as).doctor(0)
	r.want(t, "note", "rights", "user locks")
	r.want(t, "ok", "lock", "taken and released")
	allow(t, "+info +config|get -publish", c.Servers...)
	newBundle(t, as).doctor(0).want(t, "ok", "messages", "by channels of shards")
	allow(t, "-spublish", c.Servers...)
	newBundle(t, as).doctor(1).want(t, "warn", "messages", "by its heartbeat")
	if _, err := c.Servers[1].CLI("CONFIG", "SET", "appendonly", "no"); err != nil {
		t.Fatal(err)
	}
	newBundle(t, c.URL()).doctor(1).want(t, "warn", "persistence", c.Servers[1].Addr()+": none")
	for _, s := range c.Servers {
		if _, err := s.CLI("CLUSTER", "DELSLOTS", "16383"); err != nil {
			t.Fatal(err)
		}
	}
	newBundle(t, c.URL()).doctor(78).want(t, "fail", "topology", "1 slots have no server")
}

func TestDoctorRedisSentinel(t *testing.T) {
	t.Parallel()
	s := servers.RunRedisSentinels(t, 1, servers.RedisOptions{AppendOnly: true, Args: everySecond})
	r := newBundle(t, s.URL()+"?replicas=1").doctor(0)
	r.healthy(t)
	r.want(t, "ok", "topology", "the primary of "+servers.PrimaryName+" is "+s.Servers[0].Addr())
	r.want(t, "ok", "sentinels", "3 of 3 in the URL reply; they know of 3")
	as := enough(t, r, s.URL()+"?replicas=1", s.Servers[0])
	newBundle(t, as).doctor(0).want(t, "ok", "lock", "taken and released")
	newBundle(t, s.URL()).doctor(1).want(t, "warn", "replication", "1 replica connected")
	newBundle(t, s.URL()+"-typo").doctor(69).want(t, "fail", "reachable", "No such master")
	s.Sentinels[2].Kill()
	newBundle(t, s.URL()+"?replicas=1").doctor(1).want(t, "warn", "sentinels", s.Sentinels[2].Addr())
	newBundle(t, "redis://"+s.Sentinels[0].Addr()).doctor(78).want(t, "fail", "mode", "it is a Sentinel")
}

// enough makes the user that a report names on those servers, and returns the URL as that one.
func enough(t *testing.T, r report, url string, on ...*servers.Redis) string {
	t.Helper()
	for _, f := range r.Findings {
		_, line, ok := strings.Cut(f.Text, "just enough is: ACL SETUSER locks ")
		if f.About != "rights" || !ok {
			continue
		}
		allow(t, strings.Replace(line, ">PASSWORD", ">p", 1), on...)
		return strings.Replace(url, "://", "://locks:p@", 1)
	}
	t.Fatalf("no line for an ACL in %+v", r.Findings)
	return ""
}

// allow changes the rights of the user locks.
func allow(t *testing.T, rules string, on ...*servers.Redis) {
	t.Helper()
	for _, r := range on {
		if _, err := r.CLI(append([]string{"ACL", "SETUSER", "locks"}, strings.Fields(rules)...)...); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDoctorRedisRights(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{AppendOnly: true, Args: everySecond, Password: "open-sesame"})
	b.doctor(0).healthy(t)
	for _, url := range []string{"redis://" + b.redis.Addr(), "redis://:wrong-word@" + b.redis.Addr()} {
		newBundle(t, url).doctor(69).want(t, "fail", "reachable", "")
	}
	b.order("ACL SETUSER reader on >p ~* &* +@read +@connection")
	r := newBundle(t, "redis://reader:p@"+b.redis.Addr()).doctor(78)
	r.want(t, "note", "settings", "INFO")
	r.want(t, "fail", "lock", "NOPERM")
}
