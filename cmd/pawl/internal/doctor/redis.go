//go:build !folder

package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	pawlrueidis "github.com/pawl-go/pawl/redisstore/rueidis"
)

// redisExam is an examination of servers of Redis.
type redisExam struct {
	*exam
	opt      rueidis.ClientOption
	client   rueidis.Client
	replicas int64 // that the URL wants to confirm what counts
}

func (e *exam) redis(ctx context.Context) bool {
	opt, err := pawlrueidis.ParseURL(e.raw)
	if err != nil {
		return e.unreachable(err, "")
	}
	opt.DisableRetry = true
	opt.Dialer.Timeout, opt.Sentinel.Dialer.Timeout, opt.ConnWriteTimeout = step, step, step
	c, err := rueidis.NewClient(opt)
	if err != nil {
		return e.unreachable(err, redisRemedy(err))
	}
	defer c.Close()
	x := &redisExam{exam: e, opt: opt, client: c, replicas: number(e.url.Query().Get("replicas"))}
	ok := false
	switch c.Mode() {
	case rueidis.ClientModeCluster:
		ok = x.cluster(ctx)
	case rueidis.ClientModeSentinel:
		ok = x.watched(ctx)
	default:
		ok = x.server(ctx, c)
		if ok {
			x.ok("topology", "one server")
		}
	}
	if !ok {
		return false
	}
	if x.url.Query().Has("recipe") {
		x.note("recipe", "plain: mutexes on the keys of other libraries; no order among those who wait, and tokens that rise with the server's clock")
	}
	if !x.roundTrip(ctx, func(ctx context.Context) error { return c.Do(ctx, c.B().Ping().Build()).Error() }) {
		return true
	}
	x.clock(ctx, func(ctx context.Context) (time.Time, error) {
		t, err := c.Do(ctx, c.B().Time().Build()).AsIntSlice()
		if err != nil || len(t) != 2 {
			return time.Time{}, fmt.Errorf("TIME: %w", err)
		}
		return time.UnixMicro(t[0]*1e6 + t[1]), nil
	})
	x.messages(ctx)
	x.rights(ctx)
	return true
}

// server looks at one server that keeps locks. It returns false if that is out of reach.
func (x *redisExam) server(ctx context.Context, c rueidis.Client) bool {
	info, err := redisInfo(ctx, c)
	switch {
	case err == nil:
		x.redisServer(info)
		x.redisMemory(info)
		x.redisPersistence(ctx, c, info)
		x.replication(info)
	case strings.HasPrefix(err.Error(), "NOPERM"):
		x.ok("reachable", "Redis or Valkey")
		x.note("settings", "this user may not see them (INFO): examine it also as one who may")
	default:
		return x.unreachable(err, redisRemedy(err))
	}
	return true
}

func redisInfo(ctx context.Context, c rueidis.Client) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	text, err := c.Do(ctx, c.B().Info().Build()).ToString()
	if err != nil {
		return nil, err
	}
	return fieldsOf(text, ":"), nil
}

// fieldsOf reads lines of names and values.
func fieldsOf(text, separator string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), separator); ok {
			fields[name] = value
		}
	}
	return fields
}

// redisServer says which server it is. 6.2 is the first that has all that the scripts
// use.
func (e *exam) redisServer(info map[string]string) {
	engine, version := "Redis", info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		engine, version = "Valkey", v
	}
	e.Engine, e.Version = engine, version
	e.ok("reachable", "%s %s", engine, version)
	if engine == "Redis" && !atLeast(version, 6, 2) {
		e.fail("version", "use 6.2 or later", "%s is too old", version)
	}
	cluster := strings.Contains(e.url.Scheme, "cluster") || e.url.Query().Has("addr")
	switch mode := info["redis_mode"]; {
	case mode == "cluster" && !cluster:
		e.fail("mode", "write redis+cluster:// for redis://", "it is a node of a cluster, which the URL does not say")
	case mode == "sentinel":
		e.fail("mode", "write redis+sentinel://HOST/NAME", "it is a Sentinel, which keeps no data")
	}
	if info["loading"] == "1" {
		e.fail("loading", "wait, and look again", "it still loads its data, and refuses everything until then")
	}
}

func (e *exam) redisMemory(info map[string]string) {
	limit, policy := number(info["maxmemory"]), info["maxmemory_policy"]
	used := number(info["used_memory"])
	switch {
	case limit == 0:
		e.ok("memory", "no limit (maxmemory 0)")
	case policy != "noeviction":
		e.fail("memory", "CONFIG SET maxmemory-policy noeviction, and in redis.conf; or use a server for locks alone",
			"maxmemory-policy is %s: when memory is full it forgets locks that are held", policy)
	case used > limit*9/10:
		e.warn("memory", "raise maxmemory: when it is full no lock can be taken or renewed",
			"%d of %d MB (maxmemory) are used", used>>20, limit>>20)
	default:
		e.ok("memory", "%d of %d MB used, nothing is evicted", used>>20, limit>>20)
	}
}

func (e *exam) redisPersistence(ctx context.Context, c rueidis.Client, info map[string]string) {
	const turnOn = "CONFIG SET appendonly yes, and in redis.conf"
	if info["aof_enabled"] == "1" {
		switch fsync, _ := redisSetting(ctx, c, "appendfsync"); {
		case info["aof_last_write_status"] == "err":
			e.fail("persistence", "make room on its disk", "it can't write its append-only file, and refuses writes meanwhile")
		case fsync == "always":
			e.ok("persistence", "append-only file, appendfsync always")
		case fsync == "no":
			e.warn("persistence", "CONFIG SET appendfsync everysec, or always", "append-only file with appendfsync no: a power cut forgets the locks of half a minute")
		default:
			e.ok("persistence", "append-only file; a power cut forgets the last second, a killed server nothing")
		}
		return
	}
	switch save, seen := redisSetting(ctx, c, "save"); {
	case seen && save == "":
		e.warn("persistence", turnOn, "none: a restart forgets every lock")
	case info["rdb_last_bgsave_status"] == "err":
		e.fail("persistence", "make room on its disk, then "+turnOn, "its last snapshot failed: it refuses writes until one works, unless told otherwise")
	default:
		e.warn("persistence", turnOn, "snapshots at the most: a restart forgets the locks taken since the last one")
	}
}

// replication says what a failover may lose.
func (x *redisExam) replication(info map[string]string) {
	if info["role"] == "slave" {
		x.fail("replication", "use the primary: "+info["master_host"]+":"+info["master_port"], "it is a replica, and takes no locks")
		return
	}
	n := int64(0) // without those that still get the data
	for i := range number(info["connected_slaves"]) {
		if strings.Contains(info[fmt.Sprintf("slave%d", i)], "state=online") {
			n++
		}
	}
	switch {
	case n < x.replicas:
		x.fail("replication", "start more, or lower replicas in the URL: it is best below the number there is",
			"%s online, and the URL has replicas=%d: no lock is granted", count(n, "replica"), x.replicas)
	case n == 0:
		x.ok("replication", "no replica: no failover can lose a lock")
	case x.replicas == 0:
		x.warn("replication", "add replicas=1 to the URL, so that a lock counts only when one has it; or let what the lock protects refuse older tokens (PAWL_TOKEN)",
			"%s connected: after a failover the new primary may not know the last locks, and grant them again", count(n, "replica"))
	default:
		x.ok("replication", "%s connected; a lock counts when %d of them have it", count(n, "replica"), x.replicas)
	}
}

// redisRemedy says what to do about a server that refuses.
func redisRemedy(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "NOPERM"):
		return "give the user the rights that the line 'rights' names"
	case strings.Contains(text, "NOAUTH"):
		return "give user and password in PAWL_STORE: redis://USER:PASSWORD@HOST"
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "invalid password"):
		return "check user and password; special characters are written %XX"
	case strings.Contains(text, "No such master"):
		return "check the name that follows the hosts: SENTINEL MASTERS lists those there are"
	case strings.Contains(text, "READONLY"):
		return "use the address of the primary"
	case strings.Contains(text, "OOM"):
		return "make room: raise maxmemory"
	case strings.Contains(text, "MISCONF"):
		return "make room on its disk: it refuses writes because it can't save"
	case strings.Contains(text, "x509"), strings.Contains(text, "tls: "):
		return "check ca, cert, key and server_name in the URL"
	}
	return ""
}

// redisSetting returns a setting, if this user may see it.
func redisSetting(ctx context.Context, c rueidis.Client, name string) (value string, seen bool) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	m, err := c.Do(ctx, c.B().ConfigGet().Parameter(name).Build()).AsStrMap()
	if err != nil {
		return "", false
	}
	value, seen = m[name]
	return value, seen
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64) // what is not there is 0
	return n
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// atLeast compares the first two numbers of a version.
func atLeast(version string, major, minor int64) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	return number(a) > major || number(a) == major && number(b) >= minor
}
