package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	goclient "github.com/redis/go-redis/v9"
	client "github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/goredis"
	"github.com/pawl-go/pawl/redisstore/rueidis"
	"github.com/pawl-go/pawl/redisstore/valkeygo"
)

// adapter makes a Conn of a client of its own of the server at a URL, which ends
// with the test; but for rueidis, whose own Open does so, also of a cluster and of the
// primary that Sentinels name.
type adapter struct {
	name string
	conn func(t testing.TB, url string) redisstore.Conn
}

var adapters = []adapter{
	{"rueidis", func(t testing.TB, url string) redisstore.Conn {
		o, err := client.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		o.DisableCache, o.ForceSingleClient = true, true
		c, err := client.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		conn, err := rueidis.NewConn(c)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}},
	{"go-redis", func(t testing.TB, url string) redisstore.Conn {
		var c goclient.UniversalClient
		switch at := parse(t, url); at.scheme {
		case "redis+cluster":
			c = goclient.NewClusterClient(&goclient.ClusterOptions{Addrs: at.addrs, Username: at.user, Password: at.password})
		case "redis+sentinel":
			c = goclient.NewFailoverClient(&goclient.FailoverOptions{SentinelAddrs: at.addrs, MasterName: at.primary})
		default:
			o, err := goclient.ParseURL(url)
			if err != nil {
				t.Fatal(err)
			}
			c = goclient.NewClient(o)
		}
		t.Cleanup(func() { c.Close() })
		conn, err := goredis.NewConn(c)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}},
	{"valkey-go", func(t testing.TB, url string) redisstore.Conn {
		at := parse(t, url)
		o := valkey.ClientOption{InitAddress: at.addrs, Username: at.user, Password: at.password}
		switch at.scheme {
		case "redis+cluster":
		case "redis+sentinel":
			o.Sentinel.MasterSet = at.primary
		default:
			var err error
			if o, err = valkey.ParseURL(url); err != nil {
				t.Fatal(err)
			}
			o.ForceSingleClient = true
		}
		o.DisableCache = true
		c, err := valkey.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		conn, err := valkeygo.NewConn(c)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}},
}

// place is what a URL says of servers.
type place struct {
	scheme, user, password string
	addrs                  []string
	primary                string // its name
}

func parse(t testing.TB, raw string) (p place) {
	t.Helper()
	scheme, rest, _ := strings.Cut(raw, "://")
	if login, servers, ok := strings.Cut(rest, "@"); ok {
		p.user, p.password, _ = strings.Cut(login, ":")
		rest = servers
	}
	hosts, primary, _ := strings.Cut(rest, "/")
	p.scheme, p.addrs, p.primary = scheme, strings.Split(hosts, ","), primary
	return p
}

// open makes a store of a client of its own. It knows one parameter.
func (a adapter) open(t testing.TB, url string) *redisstore.Store {
	t.Helper()
	o := new(redisstore.Options)
	url, confirmed := strings.CutSuffix(url, "?replicas=1")
	if confirmed {
		o.Replicas = 1
	}
	s, err := redisstore.New(a.conn(t, url), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// opener makes a store on the server at a URL, that ends with the test.
type opener func(t testing.TB, url string) *redisstore.Store

// eachAdapter runs a test for each adapter, and for the client that Open makes.
func eachAdapter(t *testing.T, run func(t *testing.T, open opener)) {
	t.Run("Open", func(t *testing.T) {
		t.Parallel()
		run(t, openAt)
	})
	for _, a := range adapters[1:] { // the first one is what Open uses
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			run(t, a.open)
		})
	}
}

// eachServer runs a test on Redis, and on Valkey.
func eachServer(t *testing.T, run func(t *testing.T, r *servers.Redis)) {
	for name, valkey := range map[string]bool{"redis": false, "valkey": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, servers.RunRedis(t, servers.RedisOptions{Valkey: valkey}))
		})
	}
}

// openAs is openAt by the i-th of the adapters, in turn: who uses different ones works together.
func openAs(t testing.TB, i int, url string) *redisstore.Store {
	t.Helper()
	if i %= len(adapters); i > 0 {
		return adapters[i].open(t, url)
	}
	return openAt(t, url)
}

// Each adapter passes what every store has to, and so does what Open makes, on both servers, by a
// user with no more rights than the documentation asks for.
func TestRedisConformance(t *testing.T) {
	for name, on := range map[string]struct {
		open   opener
		valkey bool
	}{
		"redis, Open":       {openAt, false},
		"valkey, Open":      {openAt, true},
		"redis, go-redis":   {adapters[1].open, false},
		"valkey, valkey-go": {adapters[2].open, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servers.RunRedis(t, servers.RedisOptions{Valkey: on.valkey}) // each its own: some names are the same in each run
			admin(t, dialRedis(t, r), append([]string{"ACL", "SETUSER", "locks", "reset", "on", ">p"}, strings.Fields(rights)...)...)
			conform(t, on.open, "redis://locks:p@"+r.Addr())
		})
	}
}

func conform(t *testing.T, open opener, url string) {
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: 500 * time.Millisecond,
		Missing:  missing,
		New: func(t testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) { return open(t, url), nil }}
		},
	})
}

// A request whose reply is lost, or whose connection breaks under way, is not sent
// again by the client, however often that repeats other requests.
func TestAdaptersSendOnce(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	count := redisstore.NewScript("return tostring(redis.call('INCR', KEYS[1]))")
	for _, a := range adapters {
		for fault, lose := range map[string]func(*servers.Proxy){
			"reply lost": func(p *servers.Proxy) { p.Swallow(false, true) },
			"connection cut": func(p *servers.Proxy) {
				p.Swallow(false, true)
				time.AfterFunc(200*time.Millisecond, p.Drop)
			},
		} {
			t.Run(a.name+", "+fault, func(t *testing.T) {
				t.Parallel()
				p := servers.RunProxy(t, r.Addr())
				conn := a.conn(t, "redis://"+p.Addr()+"?read_timeout=1s&write_timeout=1s")
				key := a.name + fault
				const before = 50 // several connections
				for range before {
					if _, err := conn.Script(await.Context(t), count, []string{key}, nil); err != nil {
						t.Fatal(err)
					}
				}
				lose(p)
				if reply, err := conn.Script(context.WithoutCancel(t.Context()), count, []string{key}, nil); err == nil {
					t.Fatalf("script: %q; want an error", reply)
				}
				p.Drop() // what comes now arrives
				time.Sleep(500 * time.Millisecond)
				if n, err := admin(t, c, "GET", key).AsInt64(); err != nil || n != before+1 {
					t.Errorf("the script ran %d times, %v; want once", n-before, err)
				}
			})
		}
	}
}
