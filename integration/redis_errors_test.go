package integration

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// runCluster starts a server that is a whole cluster: each name would work.
func runCluster(t *testing.T) *servers.Redis {
	t.Helper()
	// Its second port, the first one's plus 10000, may be taken or none.
	var r *servers.Redis
	var err error
	for range 4 {
		if r, err = servers.StartRedis(t.TempDir(), servers.RedisOptions{Args: []string{"--cluster-enabled", "yes"}}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	c := dialRedis(t, r)
	if err := c.Do(t.Context(), c.B().Arbitrary("CLUSTER", "ADDSLOTSRANGE", "0", "16383").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	return r
}

// listed answers the error that List ends with.
func listed(ctx context.Context, s driver.Store, prefix string) error {
	for _, err := range s.List(ctx, prefix) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestRedisCluster(t *testing.T) {
	r := runCluster(t)
	admin := dialRedis(t, r)
	ctx := within(t, patience)
	do := func(args ...string) {
		t.Helper()
		if err := admin.Do(ctx, admin.B().Arbitrary(args...).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
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
			ctx := within(t, patience)
			m := mutex("x", time.Minute)
			_, entered := s.Enter(ctx, m)
			_, renewed := renew(ctx, s, m)
			_, loaded := s.Load(ctx, "x")
			for what, err := range map[string]error{
				"enter": entered, "renew": renewed, "load": loaded,
				"list": listed(ctx, s, ""), "listen": s.Listen(ctx, func(driver.Notice) {}),
			} {
				if !errors.Is(err, driver.ErrUnsupported) || !driver.IsPermanent(err) ||
					!strings.Contains(err.Error(), addr+" is part of a cluster, which is not supported yet") {
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
	ctx := within(t, patience)
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
		_, entered := s.Enter(ctx, mutex("x", time.Minute))
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
	fails(s, err, r.Addr()+"/3 answered: WRONGPASS")
	s, err = open("unix://:wr0ng@" + socket)
	fails(s, err, socket+" answered: WRONGPASS")
	s, err = open("unix://:wr0ng@" + socket + "?db=2")
	fails(s, err, socket+"?db=2 answered: WRONGPASS")
	s, err = open("redis://" + r.Addr())
	fails(s, err, "the server at "+r.Addr()+" wants a password", "URL", "PAWL_STORE", "NOAUTH")
	s, err = open("redis://barred:s3cret@" + r.Addr())
	fails(s, err, r.Addr()+" answered: NOPERM")
	s, err = open(r.URL() + "/999")
	fails(s, err, r.Addr()+"/999 answered: ERR DB index is out of range")
	do("CONFIG", "SET", "maxmemory", "1")
	s, err = open(r.URL())
	fails(s, err, r.Addr()+" answered: OOM")
	s, err = rueidis.New(c, nil)
	fails(s, err, r.Addr()+" answered: OOM")
	do("CONFIG", "SET", "maxmemory", "0")
	do("REPLICAOF", "127.0.0.1", "1")
	s, err = open(r.URL())
	fails(s, err, r.Addr()+" answered: READONLY")
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
		if err := listed(within(t, patience), s, ""); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	stores["opened later"] = openRedis(t, r)
	r.Kill()
	for what, s := range stores {
		ctx := within(t, patience)
		// The first attempt may be told that the connection it had is lost.
		err := listed(ctx, s, "jobs/[a")
		if ctx.Err() == nil {
			err = listed(ctx, s, "jobs/[a")
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
