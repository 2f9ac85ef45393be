package redis

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// runCluster starts a server that is a whole cluster: each name would work.
func runCluster(t *testing.T) *servers.Redis {
	t.Helper()
	r := servers.RunRedis(t, servers.RedisOptions{Cluster: true})
	c := dialRedis(t, r)
	if err := c.Do(t.Context(), c.B().Arbitrary("CLUSTER", "ADDSLOTSRANGE", "0", "16383").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRedisNodeOfCluster(t *testing.T) {
	r := runCluster(t)
	admin := dialRedis(t, r)
	ctx := await.Context(t)
	do := func(args ...string) {
		t.Helper()
		if err := admin.Do(ctx, admin.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(await.Limit); ; time.Sleep(10 * time.Millisecond) {
		info, err := admin.Do(ctx, admin.B().Arbitrary("CLUSTER", "INFO").Build()).ToString()
		if err == nil && strings.Contains(info, "cluster_state:ok") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cluster does not come up: %q, %v", info, err)
		}
	}
	do(append([]string{"ACL", "SETUSER", "locks", "reset", "on", ">p"}, strings.Fields(rights)...)...)

	open := func(url string) func(t *testing.T) *redisstore.Store {
		return func(t *testing.T) *redisstore.Store {
			s, err := rueidis.Open(url, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}
	stores := map[string]func(t *testing.T) *redisstore.Store{
		"opened":             open(r.URL()),
		"user of few rights": open("redis://locks:p@" + r.Addr()),
		"database":           open(r.URL() + "/1"),
		"client, RESP2": func(t *testing.T) *redisstore.Store {
			c, err := client.NewClient(client.ClientOption{InitAddress: []string{r.Addr()}, DisableCache: true, ForceSingleClient: true, AlwaysRESP2: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			s, err := rueidis.New(c, nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
	for name, store := range stores {
		addr := r.Addr()
		if name == "database" {
			addr += "/1"
		}
		t.Run(name, func(t *testing.T) {
			s := store(t)
			defer s.Close()
			ctx := await.Context(t)
			m := storetest.Mutex("x", time.Minute)
			_, entered := s.Enter(ctx, m)
			_, renewed := storetest.Renew(ctx, s, m)
			_, loaded := s.Load(ctx, "x")
			for what, err := range map[string]error{
				"enter": entered, "renew": renewed, "load": loaded,
				"list": storetest.List(ctx, s, ""), "listen": s.Listen(ctx, func(driver.Notice) {}),
			} {
				if !errors.Is(err, driver.ErrUnsupported) || !driver.IsPermanent(err) ||
					!strings.Contains(err.Error(), addr+" is part of a cluster: open that as redis+cluster://HOST") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	if n, err := admin.Do(ctx, admin.B().Dbsize().Build()).AsInt64(); err != nil || n != 0 {
		t.Errorf("%d keys were written there, %v", n, err)
	}
}

// Errors say which server it was, and never by which password.
func TestRedisErrorsNameTheServer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "r.sock")
	r := servers.RunRedis(t, servers.RedisOptions{Password: "s3cret", Args: []string{"--unixsocket", socket}})
	c, err := client.NewClient(client.ClientOption{InitAddress: []string{r.Addr()}, Password: "s3cret", DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := await.Context(t)
	do := func(args ...string) {
		t.Helper()
		if err := c.Do(ctx, c.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	do("ACL", "SETUSER", "barred", "on", ">s3cret", "~other:*", "&*", "+@all")

	fails := func(s driver.Store, err error, says ...string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, entered := s.Enter(ctx, storetest.Mutex("x", time.Minute))
		if entered == nil {
			t.Errorf("no error; want %q", says)
			return
		}
		for _, text := range says {
			if !strings.Contains(entered.Error(), text) {
				t.Errorf("%v; want %q in it", entered, text)
			}
		}
		for _, text := range []string{"s3cret", "wr0ng", "barred@"} {
			if strings.Contains(entered.Error(), text) {
				t.Errorf("%v; shows %q", entered, text)
			}
		}
	}
	open := func(url string) (driver.Store, error) { return rueidis.Open(url, nil) }

	s, err := open("redis://:wr0ng@" + r.Addr() + "/3")
	fails(s, err, r.Addr()+"/3 replied: WRONGPASS")
	s, err = open("unix://:wr0ng@" + socket)
	fails(s, err, socket+" replied: WRONGPASS")
	s, err = open("unix://:wr0ng@" + socket + "?db=2")
	fails(s, err, socket+"?db=2 replied: WRONGPASS")
	s, err = open("redis://" + r.Addr())
	fails(s, err, "the server at "+r.Addr()+" wants a password", "URL", "PAWL_STORE", "NOAUTH")
	s, err = open("redis://barred:s3cret@" + r.Addr())
	fails(s, err, r.Addr()+" replied: NOPERM")
	s, err = open(r.URL() + "/999")
	fails(s, err, r.Addr()+"/999 replied: ERR DB index is out of range")
	do("CONFIG", "SET", "maxmemory", "1")
	s, err = open(r.URL())
	fails(s, err, r.Addr()+" replied: OOM")
	s, err = rueidis.New(c, nil)
	fails(s, err, r.Addr()+" replied: OOM")
	do("CONFIG", "SET", "maxmemory", "0")
	do("REPLICAOF", "127.0.0.1", "1")
	s, err = open(r.URL())
	fails(s, err, r.Addr()+" replied: READONLY")
}

// Nobody is there: that is said at once, not when the context ends, and in the
// words of who asked.
func TestRedisListsNothingOfNobody(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	given, err := rueidis.New(dialRedis(t, r), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	stores := map[string]driver.Store{"opened": openRedis(t, r), "caller's client": given}
	for what, s := range stores { // the server is known by now
		if err := storetest.List(await.Context(t), s, ""); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	stores["opened later"] = openRedis(t, r)
	r.Kill()
	for what, s := range stores {
		ctx := await.Context(t)
		// The first attempt may be told that the connection it had is lost.
		err := storetest.List(ctx, s, "jobs/[a")
		if ctx.Err() == nil {
			err = storetest.List(ctx, s, "jobs/[a")
		}
		if ctx.Err() != nil || err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: %v; want to be told that the connection was refused, before the context ends (%v)", what, err, ctx.Err())
			continue
		}
		if text := err.Error(); !strings.Contains(text, `"jobs/[a"`) || !strings.Contains(text, r.Addr()) {
			t.Errorf("%s: %v; want the prefix and the server in it", what, err)
		}
	}
}

func TestRedisForgetsScripts(t *testing.T) { eachAdapter(t, sendsScriptAgain) }

func sendsScriptAgain(t *testing.T, open opener) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	s := open(t, r.URL())
	for range 3 {
		m := storetest.Mutex("scripts", time.Minute)
		storetest.Enter(t, s, m, driver.Holding)
		if err := c.Do(t.Context(), c.B().ScriptFlush().Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if was, err := s.Leave(await.Context(t), storetest.Ref(m)); err != nil || was != driver.Holding {
			t.Fatalf("leave: %v, %v", was, err)
		}
	}
}

func TestRedisPermanentErrors(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{Password: "right"})
	ctx := await.Context(t)
	for url, want := range map[string]string{
		"redis://:wrong@" + r.Addr():       "WRONGPASS",
		"redis://nobody:wrong@" + r.Addr(): "WRONGPASS",
		"redis://" + r.Addr():              "NOAUTH",
	} {
		s, err := rueidis.Open(url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, err = s.Enter(ctx, storetest.Mutex("a name", time.Minute))
		if !driver.IsPermanent(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"a name"`) {
			t.Errorf("%s: %v; want a permanent error that has %s and the name", url, err, want)
		}
		if se, ok := errors.AsType[*redisstore.ServerError](err); !ok || se.Err == nil {
			t.Errorf("%s: the client's error is not reachable in %v", url, err)
		}
		// Whoever listens is told, not left to wait.
		if err := s.Listen(ctx, func(driver.Notice) {}); !driver.IsPermanent(err) {
			t.Errorf("%s: Listen: %v", url, err)
		}
	}
	c, err := client.NewClient(client.ClientOption{InitAddress: []string{r.Addr()}, Password: "right", DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	do := func(args ...string) {
		t.Helper()
		if err := c.Do(ctx, c.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	// Somebody else's key, and a user who may not.
	do("LPUSH", "pawl:{taken}", "x")
	do("SET", "pawl:{text}", "x")
	do("ACL", "SETUSER", "poor", "on", ">p", "~other:*", "&*", "+@all")
	good, err := rueidis.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	if _, err := good.Enter(ctx, storetest.Mutex("taken", time.Minute)); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("a key of another kind: %v", err)
	}
	if _, err := good.Enter(ctx, storetest.Mutex("text", time.Minute)); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "cannot read the state of pawl:{text}") {
		t.Errorf("a text of somebody else's: %v", err)
	}
	poor, err := rueidis.Open("redis://poor:p@"+r.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer poor.Close()
	if _, err := poor.Enter(ctx, storetest.Mutex("x", time.Minute)); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without permission: %v", err)
	}
	// Without the right to channels locks work, by heartbeat.
	do("ACL", "SETUSER", "mute", "on", ">p", "~pawl:*", "resetchannels", "+@all")
	mute, err := rueidis.Open("redis://mute:p@"+r.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	h, w := storetest.Mutex("mute", time.Minute), storetest.Mutex("mute", time.Minute)
	storetest.Enter(t, mute, h, driver.Holding)
	storetest.Enter(t, mute, w, driver.Waiting)
	if was, err := mute.Leave(ctx, storetest.Ref(h)); err != nil || was != driver.Holding {
		t.Errorf("leave: %v, %v", was, err)
	}
	if st, err := storetest.Renew(ctx, mute, w); err != nil || st.State != driver.Holding {
		t.Errorf("renew: %v, %v", st.State, err)
	}
	if err := mute.Listen(ctx, func(driver.Notice) {}); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Listen without the right to: %v", err)
	}
}

// What passes is not told for good, and a waiting Lock outlasts it. docs/ERRORS.md
// has the whole table.
func TestRedisPassingErrors(t *testing.T) {
	for code, row := range map[string]struct {
		provoke func(t *testing.T, r *servers.Redis, c client.Client) (end func())
	}{
		"OOM": {func(t *testing.T, _ *servers.Redis, c client.Client) func() {
			admin(t, c, "CONFIG", "SET", "maxmemory", "1")
			return func() { admin(t, c, "CONFIG", "SET", "maxmemory", "0") }
		}},
		"NOREPLICAS": {func(t *testing.T, _ *servers.Redis, c client.Client) func() {
			admin(t, c, "CONFIG", "SET", "min-replicas-to-write", "1")
			return func() { admin(t, c, "CONFIG", "SET", "min-replicas-to-write", "0") }
		}},
		"READONLY": {func(t *testing.T, _ *servers.Redis, c client.Client) func() {
			admin(t, c, "REPLICAOF", "127.0.0.1", "1")
			return func() { admin(t, c, "REPLICAOF", "NO", "ONE") }
		}},
		"MASTERDOWN": {func(t *testing.T, _ *servers.Redis, c client.Client) func() {
			admin(t, c, "CONFIG", "SET", "replica-serve-stale-data", "no")
			admin(t, c, "REPLICAOF", "127.0.0.1", "1")
			return func() { admin(t, c, "REPLICAOF", "NO", "ONE") }
		}},
		"MISCONF": {func(t *testing.T, r *servers.Redis, c client.Client) func() {
			admin(t, c, "CONFIG", "SET", "save", "3600 1000000")
			place := filepath.Join(configured(t, c, "dir"), configured(t, c, "dbfilename"))
			if err := os.MkdirAll(filepath.Join(place, "taken by a folder"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := c.Do(t.Context(), c.B().Bgsave().Build()).Error(); err != nil {
				t.Fatal(err)
			}
			await.That(t, "the server has failed to save", func() bool {
				info, err := admin(t, c, "INFO", "persistence").ToString()
				return err == nil && strings.Contains(info, "rdb_last_bgsave_status:err")
			})
			return func() { admin(t, c, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no") }
		}},
		"BUSY": {func(t *testing.T, r *servers.Redis, c client.Client) func() {
			admin(t, c, "CONFIG", "SET", "lua-time-limit", "1")
			slow, end := dialRedis(t, r), make(chan struct{})
			go func() {
				slow.Do(context.WithoutCancel(t.Context()), slow.B().Eval().Script("while true do end").Numkeys(0).Build())
				close(end)
			}()
			await.That(t, "the server is busy", func() bool {
				err := c.Do(t.Context(), c.B().Ping().Build()).Error()
				return err != nil && strings.HasPrefix(err.Error(), "BUSY")
			})
			return func() {
				admin(t, c, "SCRIPT", "KILL")
				await.Value(t, "the end of the slow script", end)
			}
		}},
		"LOADING": {func(t *testing.T, r *servers.Redis, c client.Client) func() {
			admin(t, c, "EVAL", "for i = 1, 20000 do redis.call('SET', 'load' .. i, 'x') end return 1", "0")
			admin(t, c, "SAVE")
			if err := r.Restart(true); err != nil { // and loads for four seconds
				t.Fatal(err)
			}
			return func() {}
		}},
		// So a script of somebody's that has written: SCRIPT KILL is told UNKILLABLE, and
		// the others that the server is BUSY.
		"BUSY ": {func(t *testing.T, r *servers.Redis, c client.Client) func() {
			admin(t, c, "CONFIG", "SET", "lua-time-limit", "1")
			slow, end := dialRedis(t, r), make(chan struct{})
			go func() {
				const script = `redis.call('SET', 'x', 1)
					local e = redis.call('TIME')[1] + 4
					while redis.call('TIME')[1] + 0 < e do end`
				slow.Do(context.WithoutCancel(t.Context()), slow.B().Eval().Script(script).Numkeys(0).Build())
				close(end)
			}()
			await.That(t, "the script cannot be killed", func() bool {
				err := c.Do(t.Context(), c.B().ScriptKill().Build()).Error()
				return err != nil && strings.HasPrefix(err.Error(), "UNKILLABLE")
			})
			return func() { await.Value(t, "the end of the script", end) }
		}},
		"max number of clients": {func(t *testing.T, _ *servers.Redis, c client.Client) func() {
			admin(t, c, "CONFIG", "SET", "maxclients", "1")
			return func() { admin(t, c, "CONFIG", "SET", "maxclients", "1000") }
		}},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			r := servers.RunRedis(t, servers.RedisOptions{Args: []string{"--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"}})
			c := dialRedis(t, r)
			admin(t, c, "PING") // it is connected
			s := openRedis(t, r)
			if code != "max number of clients" {
				storetest.Enter(t, s, storetest.Mutex("before", time.Minute), driver.Holding)
			}
			end := row.provoke(t, r, c)
			_, err := s.Enter(await.Context(t), storetest.Mutex("x", time.Minute))
			for code == "LOADING" && err != nil && strings.HasSuffix(err.Error(), "EOF") { // an old connection
				_, err = s.Enter(await.Context(t), storetest.Mutex("x", time.Minute))
			}
			// A connection too many is closed, and the reason may be lost.
			closed := code == "max number of clients" && err != nil
			if err == nil || driver.IsPermanent(err) || !closed && !strings.Contains(err.Error(), code) {
				t.Errorf("enter: %v; want an error that passes and has the code", err)
			}
			if e, ok := errors.AsType[*redisstore.ServerError](err); !closed && (!ok || !e.NotApplied()) {
				t.Errorf("enter: %v: the server has done nothing, and that is not known", err)
			}
			locks := pawl.New(s, nil)
			t.Cleanup(func() { locks.Close(context.Background()) })
			got := make(chan error, 1)
			go func() {
				l, err := locks.Mutex("y").Lock(await.Context(t))
				if err == nil {
					err = l.Unlock(await.Context(t))
				}
				got <- err
			}()
			time.Sleep(50 * time.Millisecond) // it has tried
			end()
			if err := await.Value(t, "the lock", got); err != nil {
				t.Errorf("Lock: %v", err)
			}
		})
	}
}

// configured returns a setting of the server.
func configured(t *testing.T, c client.Client, name string) string {
	t.Helper()
	m, err := admin(t, c, "CONFIG", "GET", name).AsStrMap()
	if err != nil {
		t.Fatal(err)
	}
	return m[name]
}

func TestRedisUnreachableServer(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	r.Kill()
	s := openRedis(t, r)
	m := storetest.Mutex("x", time.Minute)
	if _, err := s.Enter(await.Context(t), m); err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), r.Addr()) {
		t.Errorf("enter: %v; want an error that passes and names the server", err)
	}
	if err := r.Restart(false); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Get(await.Context(t), s, m); err != nil {
		t.Errorf("once the server is there: %v", err)
	}
}
