//go:build unix

package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/integration/servers"
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
	primary := newRedis(t, servers.RedisOptions{AppendOnly: true})
	addr := strings.Split(primary.redis.Addr(), ":")
	replica := servers.RunRedis(t, servers.RedisOptions{AppendOnly: true, Args: []string{"--replicaof", addr[0] + " " + addr[1]}})
	r := newBundle(t, replica.URL()).doctor(78)
	r.want(t, "fail", "replication", "replica")
	r.want(t, "fail", "lock", "READONLY")
	primary.doctor(1).want(t, "warn", "replication", "1 replica connected")
}

func TestDoctorRedisCluster(t *testing.T) {
	b := newRedis(t, servers.RedisOptions{AppendOnly: true, Cluster: true})
	b.doctor(78).want(t, "fail", "mode", "cluster")
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
