package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	client "github.com/redis/rueidis"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/crew"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// Clients count while Sentinels make another server the primary: because the first does
// not reply for a while, and then because the next one is killed. One replica has what
// counts, so no lock is held twice.
func TestRedisSentinelFailover(t *testing.T) {
	t.Parallel()
	s := servers.RunRedisSentinels(t, 2, servers.RedisOptions{})
	first := s.Primary(t, nil)
	cr := crew.New(t)
	for i := range 3 {
		cr.Hire(fmt.Sprint("client ", i), openAs(t, i, s.URL()+"?replicas=1"), crew.TTL)
	}
	free := cr.Client(openAt(t, s.URL()+"?replicas=1"), crew.TTL)
	cr.GoOn(2)
	cr.Draw(free)

	pinned := cr.Client(openAt(t, first.URL()), crew.TTL)
	steady := cr.Client(openAt(t, s.URL()+"?replicas=1"), crew.SteadyTTL)
	lease, err := steady.Mutex("kept").Lock(cr.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	cr.Hold("pinned", pinned, func(lease *pawl.Lease) {
		first.Pause()
		cr.Told(lease)
	})
	next := s.Primary(t, first)
	cr.Extended(lease)
	cr.GoOn(2)
	cr.Draw(free)

	first.Resume()
	follows(t, first, next)
	cr.GoOn(2)
	next.Kill()
	s.Primary(t, next)
	cr.Extended(lease)
	cr.GoOn(2)
	cr.Draw(free)
	token := lease.Token()
	if err := lease.Unlock(cr.Ctx); err != nil {
		t.Error(err)
	}
	if again, err := steady.Mutex("kept").Lock(cr.Ctx); err != nil || again.Token() <= token {
		t.Errorf("token %d after %d, %v", again.Token(), token, err)
	}
	cr.End()
}

// follows waits until a server is a replica of another.
func follows(t *testing.T, replica, primary *servers.Redis) {
	t.Helper()
	_, port, _ := strings.Cut(primary.Addr(), ":")
	await.That(t, "the old primary follows the new one", func() bool { return replica.Follows(port) })
}

// All ways to name a primary lead to it, also a client that the user brings. A wrong name,
// and the address of a Sentinel where that of a server belongs, are told for good.
func TestRedisSentinelAddresses(t *testing.T) {
	t.Parallel()
	s := servers.RunRedisSentinels(t, 1, servers.RedisOptions{Password: "open-sesame"})
	var addrs []string
	for _, r := range s.Sentinels {
		addrs = append(addrs, r.Addr())
	}
	user, err := client.NewClient(client.ClientOption{
		InitAddress: addrs, Password: "open-sesame", DisableCache: true, Sentinel: client.SentinelOption{MasterSet: servers.PrimaryName},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	brought, err := rueidis.New(user, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer brought.Close()
	m := storetest.Mutex("m", time.Minute)
	storetest.Enter(t, brought, m, driver.Holding)
	for _, url := range []string{
		s.URL(), s.URL() + "/0?dial_timeout=2",
		"redis://:open-sesame@" + addrs[0] + "?master_set=" + servers.PrimaryName,
		"redis://:open-sesame@127.0.0.1:1?master_name=" + servers.PrimaryName + "&addr=" + addrs[1] + "&addr=" + addrs[2],
	} {
		if st, err := storetest.Renew(await.Context(t), openAt(t, url), m); err != nil || st.State != driver.Holding {
			t.Errorf("%s: %v, %v", url, st.State, err)
		}
	}
	for url, says := range map[string]string{
		"redis+sentinel://" + strings.Join(addrs, ",") + "/nobody": "No such master with that name",
		"redis://" + addrs[0]: "is a Sentinel, which keeps no data: write redis+sentinel://" + addrs[0] + "/NAME",
		strings.Replace(s.URL(), "open-sesame", "wrong-word", 1): "WRONGPASS",
	} {
		_, err := openAt(t, url).Enter(await.Context(t), storetest.Mutex("x", time.Minute))
		if !driver.IsPermanent(err) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "wrong-word") {
			t.Errorf("%s: %v; want a permanent error that says %q", url, err, says)
		}
	}
	for _, r := range s.Sentinels {
		r.Kill()
	}
	_, err = openAt(t, s.URL()).Enter(await.Context(t), storetest.Mutex("x", time.Minute))
	if err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("no Sentinel is there: %v", err)
	}
	// Who knows the primary needs none.
	if st, err := storetest.Renew(await.Context(t), brought, m); err != nil || st.State != driver.Holding {
		t.Errorf("without Sentinels: %v, %v", st.State, err)
	}
}
