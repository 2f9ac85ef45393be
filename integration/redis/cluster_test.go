package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/internal/crew"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// clusterRights are the same on a cluster.
var clusterRights = strings.Join(redisstore.Rights(nil, true), " ") + " +hello +ping +client +cluster|slots +cluster|shards +asking +command"

// userOf makes a user on all servers of a cluster, and returns the URL as that one.
func userOf(t testing.TB, c *servers.RedisCluster, name, rights string) string {
	t.Helper()
	for _, r := range c.Servers {
		if _, err := r.CLI(append([]string{"ACL", "SETUSER", name, "reset", "on", ">p"}, strings.Fields(rights)...)...); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Replace(c.URL(), "://", "://"+name+":p@", 1)
}

// oneByOne hides EnterAll, which a cluster has not.
type oneByOne struct{ driver.Store }

// A cluster without replicas, for all that breaks nothing.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := servers.RunRedisCluster(t, 3, 0, servers.RedisOptions{})
	t.Run("Conformance", func(t *testing.T) { clusterConformance(t, c) })
	t.Run("Clients", func(t *testing.T) { clusterClients(t, c) })
	t.Run("LockAll", func(t *testing.T) { clusterLockAll(t, c) })
	t.Run("Quiet", func(t *testing.T) { clusterQuiet(t, c) })
	t.Run("Moving", func(t *testing.T) { clusterMoving(t, c) })
}

// Messages come by one channel, by channels of shards where a service does not let scripts
// publish to another slot; to what Open makes, and to clients of the caller's.
func clusterConformance(t *testing.T, c *servers.RedisCluster) {
	rights := strings.Replace(clusterRights, "&pawl:", "&pawl:*:", 1) // of a longer prefix
	all, shy := userOf(t, c, "locks", rights), userOf(t, c, "shy", rights+" -publish")
	for way, open := range map[string]func(t testing.TB, o *redisstore.Options) (*redisstore.Store, error){
		"Channel": func(_ testing.TB, o *redisstore.Options) (*redisstore.Store, error) { return rueidis.Open(all, o) },
		"Shards":  func(_ testing.TB, o *redisstore.Options) (*redisstore.Store, error) { return rueidis.Open(shy, o) },
		"GoRedis": func(t testing.TB, o *redisstore.Options) (*redisstore.Store, error) {
			return redisstore.New(adapters[1].conn(t, all), o)
		},
		"ValkeyGo": func(t testing.TB, o *redisstore.Options) (*redisstore.Store, error) {
			return redisstore.New(adapters[2].conn(t, shy), o)
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, drivertest.Harness{
				ShortTTL: 500 * time.Millisecond,
				Missing:  missing,
				New: func(t testing.TB) drivertest.Backing {
					return drivertest.Backing{Open: func() (driver.Store, error) {
						s, err := open(t, &redisstore.Options{Prefix: "pawl:" + way})
						return oneByOne{s}, err
					}}
				},
			})
		})
	}
}

// A client of the caller's and one of pawl's exclude each other; a client of one server is told
// how a cluster is opened.
func clusterClients(t *testing.T, c *servers.RedisCluster) {
	own, err := client.NewClient(client.ClientOption{InitAddress: []string{c.Servers[1].Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	brought, err := rueidis.New(own, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer brought.Close()
	opened := openAt(t, strings.Replace(c.URL(), "redis+cluster://", "valkey+cluster://", 1))
	heard(t, opened)
	for i := range 20 {
		m := storetest.Mutex(fmt.Sprint("client ", i), time.Minute)
		w := storetest.Mutex(m.Name, time.Minute)
		storetest.Enter(t, brought, m, driver.Holding)
		storetest.Enter(t, opened, w, driver.Waiting)
		storetest.Leave(t, brought, m)
		if st, err := opened.Wait(await.Context(t), storetest.Ref(w)); err != nil || st.State != driver.Holding {
			t.Errorf("%s: %v, %v", m.Name, st.State, err)
		}
	}
	n := 0
	for q, err := range opened.List(await.Context(t), "client ") {
		if err != nil || len(q.Claims) != 1 {
			t.Errorf("%+v, %v", q, err)
		}
		n++
	}
	if n != 20 {
		t.Errorf("%d of 20 names are listed", n)
	}
	_, err = openAt(t, c.Servers[0].URL()).Enter(await.Context(t), storetest.Mutex("x", time.Minute))
	if !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "redis+cluster://") {
		t.Errorf("a client of one server: %v", err)
	}
}

// Names of several slots are taken one after the other; crossed sets neither deadlock
// nor hold together.
func clusterLockAll(t *testing.T, c *servers.RedisCluster) {
	t.Parallel()
	names := []string{"all a", "all b", "all c", "all d", "all e"}
	var inside sync.Mutex
	var work sync.WaitGroup
	for i := range 4 {
		locks := pawl.New(openAt(t, c.URL()), nil)
		t.Cleanup(func() { locks.Close(context.Background()) })
		work.Go(func() {
			for k := range 10 {
				mine := append([]string{"all z"}, names[(i+k)%3:(i+k)%3+3]...)
				set, err := locks.LockAll(await.Context(t), mine...)
				if err != nil {
					t.Error(err)
					return
				}
				if !inside.TryLock() {
					t.Error("two hold a set")
				} else {
					inside.Unlock()
				}
				if err := set.Unlock(await.Context(t)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
}

// A service that lets scripts tell nobody: locks work, by heartbeat.
func clusterQuiet(t *testing.T, c *servers.RedisCluster) {
	t.Parallel()
	s := openAt(t, userOf(t, c, "quiet", clusterRights+" -publish -spublish"))
	locks := pawl.New(s, &pawl.Options{TTL: 3 * time.Second})
	t.Cleanup(func() { locks.Close(context.Background()) })
	first, err := locks.Mutex("quiet").Lock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	other := pawl.New(openAt(t, userOf(t, c, "quiet", clusterRights+" -publish -spublish")), &pawl.Options{TTL: 3 * time.Second})
	t.Cleanup(func() { other.Close(context.Background()) })
	go func() {
		l, err := other.Mutex("quiet").Lock(await.Context(t))
		if err == nil {
			err = l.Unlock(await.Context(t))
		}
		got <- err
	}()
	await.That(t, "the other one waits", func() bool {
		q, err := s.Inspect(await.Context(t), "quiet")
		return err == nil && len(q.Claims) == 2
	})
	if err := first.Unlock(await.Context(t)); err != nil {
		t.Error(err)
	}
	if err := await.Value(t, "the lock", got); err != nil {
		t.Error(err)
	}
}

// Clients count while the slot of their lock moves from server to server, in steps: while a
// part of its keys is here and a part there, all wait, and nothing is lost.
func clusterMoving(t *testing.T, c *servers.RedisCluster) {
	rounds := 3
	if await.Soak() {
		rounds = 300
	}
	cr := crew.New(t)
	for i := range 3 {
		cr.Hire(fmt.Sprint("client ", i), openAs(t, i, c.URL()), crew.SteadyTTL)
	}
	steady := cr.Client(openAt(t, c.URL()), crew.SteadyTTL)
	slot := servers.Slot("count")
	lease, err := steady.Mutex(sameSlot(slot)).Lock(cr.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	cr.GoOn(2)
	for i := range rounds {
		owner := c.Owner(t, slot, nil)
		to := c.Servers[(i+1)%3]
		if to == owner {
			to = c.Servers[(i+2)%3]
		}
		m := c.Move(t, slot, to)
		// The mark is there always.
		if i%2 == 0 {
			m.Keys(markOf(list(t, owner, slot))...)
		}
		time.Sleep(20 * time.Millisecond)
		m.End()
		cr.Extended(lease)
		cr.GoOn(2)
	}
	if err := lease.Unlock(cr.Ctx); err != nil {
		t.Error(err)
	}
	cr.End()
}

// markOf finds the mark among keys.
func markOf(keys string) (found []string) {
	for key := range strings.FieldsSeq(keys) {
		if strings.Contains(key, ":mark:") {
			found = append(found, key)
		}
	}
	return found
}

// sameSlot returns a name of that slot.
func sameSlot(slot int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("n", i); servers.Slot(name) == slot {
			return name
		}
	}
}
