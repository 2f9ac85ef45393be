package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/crew"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
)

// Clients count while the primary of their lock's shard is killed, and then the next one
// stopped. A replica has what counts, so no lock is held twice.
func TestRedisClusterFailover(t *testing.T) {
	t.Parallel()
	// A user who outlives restarts; those who are it tell each other by channels of shards.
	shyUser := strings.Fields("--user shy on >p " + clusterRights + " +wait -publish")
	c := servers.RunRedisCluster(t, 3, 3, servers.RedisOptions{Args: shyUser})
	cr := crew.New(t)
	shy := strings.Replace(c.URL(), "://", "://shy:p@", 1)
	for i := range 3 {
		cr.Hire(fmt.Sprint("client ", i), openAs(t, i, shy+"?replicas=1"), crew.TTL)
	}
	slot := servers.Slot("count")
	steady := cr.Client(openAt(t, c.URL()+"?replicas=1"), crew.SteadyTTL)
	lease, err := steady.Mutex(sameSlot(slot)).Lock(cr.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	cr.GoOn(2)
	first := c.Owner(t, slot, nil)
	first.Kill()
	next := c.Owner(t, slot, first)
	if err := first.Restart(true); err != nil {
		t.Fatal(err)
	}
	follows(t, first, next)
	cr.Extended(lease)
	cr.GoOn(2)

	next.Pause()
	if got := c.Owner(t, slot, next); got != first {
		t.Errorf("the primary is %s, not the one that came back, %s", got.Addr(), first.Addr())
	}
	next.Resume()
	follows(t, next, first)
	cr.Extended(lease)
	cr.GoOn(2)
	token := lease.Token()
	if err := lease.Unlock(cr.Ctx); err != nil {
		t.Error(err)
	}
	if again, err := steady.Mutex(sameSlot(slot)).Lock(cr.Ctx); err != nil || again.Token() <= token {
		t.Errorf("token %d after %d, %v", again.Token(), token, err)
	}
	cr.End()
}

// What servers of a cluster reply in trouble, to the client of a cluster and to one that knows
// of none.
func TestRedisClusterTrouble(t *testing.T) {
	t.Parallel()
	c := servers.RunRedisCluster(t, 2, 0, servers.RedisOptions{})
	slot := servers.Slot("trouble")
	from := c.Owner(t, slot, nil)
	to := c.Servers[0]
	if to == from {
		to = c.Servers[1]
	}
	ctx := await.Context(t)
	s := openAt(t, c.URL())
	held := storetest.Mutex("trouble", time.Minute)
	storetest.Enter(t, s, held, driver.Holding)
	said := func(code string, err error) {
		t.Helper()
		e, ok := errors.AsType[*redisstore.ServerError](err)
		if !ok || !strings.HasPrefix(e.Text, code+" ") || !e.NotApplied() || driver.IsPermanent(err) {
			t.Errorf("%v; want %s, which passes, and certainly not applied", err, code)
		}
	}
	// What a client of a cluster follows is seen by one that does not.
	bare := func(code string, r *servers.Redis, keys ...string) {
		t.Helper()
		own := dialRedis(t, r)
		err := own.Do(ctx, own.B().Eval().Script("return 1").Numkeys(int64(len(keys))).Key(keys...).Build()).Error()
		if err == nil || !strings.HasPrefix(err.Error(), code+" ") || !(&redisstore.ServerError{Text: err.Error()}).NotApplied() {
			t.Errorf("%v; want %s", err, code)
		}
	}
	bare("MOVED", to, "pawl:{trouble}")

	m := c.Move(t, slot, to)
	m.Keys(markOf(list(t, from, slot))...)
	_, err := storetest.Renew(ctx, s, held) // a part of its keys is here
	said("TRYAGAIN", err)
	fresh := storetest.Mutex(sameSlot(slot), time.Minute)
	bare("ASK", from, "pawl:{"+fresh.Name+"}") // none of its keys is
	if _, err := s.Enter(ctx, fresh); err != nil {
		said("TRYAGAIN", err) // there it is of several keys of which some are missing
	}
	m.End()
	storetest.Renewed(t, s, held)
	storetest.Enter(t, s, fresh, driver.Holding)

	// A slot without a server.
	for _, r := range c.Servers {
		if _, err := r.CLI("CLUSTER", "DELSLOTS", fmt.Sprint(slot)); err != nil {
			t.Fatal(err)
		}
	}
	// A client that has looked since who has which slots may know it without asking; or it
	// looked at a server that another one has told of the slot again.
	for _, of := range []*redisstore.Store{s, openAt(t, c.URL())} {
		if _, err = storetest.Renew(ctx, of, held); !errors.Is(err, client.ErrNoSlot) {
			said("CLUSTERDOWN", err)
		} else if driver.IsPermanent(err) {
			t.Errorf("%v; want it to pass", err)
		}
	}
	if _, err := to.CLI("CLUSTER", "ADDSLOTS", fmt.Sprint(slot)); err != nil {
		t.Fatal(err)
	}
	if st := storetest.Renewed(t, s, held); st.State != driver.Holding {
		t.Errorf("once it has one again: %v", st.State)
	}
}

// list returns the keys of a slot.
func list(t *testing.T, r *servers.Redis, slot int) string {
	t.Helper()
	keys, err := r.CLI("CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot), "100")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}
