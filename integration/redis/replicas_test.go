package redis

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// pair is a primary, its replica, and the name of whoever is the primary.
type pair struct {
	primary, replica *servers.Redis
	link             *servers.Proxy // by which the replica hears of what is written
	url              string
	to               atomic.Pointer[string]
}

func runPair(t *testing.T) *pair {
	t.Helper()
	p := new(pair)
	p.primary = servers.RunRedis(t, servers.RedisOptions{Args: []string{"--repl-diskless-sync-delay", "0"}})
	p.link = servers.RunProxy(t, p.primary.Addr())
	p.replica = servers.RunRedis(t, servers.RedisOptions{Args: []string{"--replicaof", strings.Replace(p.link.Addr(), ":", " ", 1)}})
	addr := p.primary.Addr()
	p.to.Store(&addr)
	p.url = "redis://" + runName(t, &p.to)
	p.linked(t)
	return p
}

func (p *pair) linked(t *testing.T) {
	t.Helper()
	await.That(t, "the replica hears of everything", func() bool {
		info, err := p.replica.CLI("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

// promote kills the primary and makes the replica the next one.
func (p *pair) promote(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	if _, err := p.replica.CLI("REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	addr := p.replica.Addr()
	p.to.Store(&addr)
}

// client opens a store and makes a client on it.
func (p *pair) client(t *testing.T, params string, ttl time.Duration) *pawl.Client {
	t.Helper()
	c := pawl.New(openAt(t, p.url+params), &pawl.Options{TTL: ttl})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

// A grant that a replica has confirmed is there when that becomes the primary, also one
// that was told by a message.
func TestRedisReplicasKeepGrants(t *testing.T) {
	t.Parallel()
	p := runPair(t)
	ctx := await.Context(t)
	a, b := p.client(t, "?replicas=1", time.Minute), p.client(t, "?replicas=1", time.Minute)
	entered, err := a.Mutex("entered").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.Mutex("told").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan *pawl.Lease, 1)
	go func() {
		l, err := b.Mutex("told").Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		told <- l
	}()
	await.That(t, "somebody waits", func() bool {
		q, err := openAt(t, p.url).Inspect(ctx, "told")
		return err == nil && len(q.Claims) == 2
	})
	if err := first.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	second := await.Value(t, "the lock that was handed on", told)
	p.promote(t)
	for name, lease := range map[string]*pawl.Lease{"entered": entered, "told": second} {
		if _, err := p.client(t, "", time.Minute).Mutex(name).TryLock(ctx); !errors.Is(err, pawl.ErrHeld) {
			t.Errorf("%s: another one gets it from the new primary: %v", name, err)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// It has no replica: nothing new counts, and what is held cannot be renewed.
	await.That(t, "it is told that there is no replica", func() bool { // old connections are gone
		_, err = b.Mutex("new").TryLock(ctx)
		short, ok := errors.AsType[*redisstore.ReplicasError](err)
		return ok && short.Want == 1 && short.Have == 0 && strings.Contains(err.Error(), "0 of 1 replicas have confirmed it")
	})
}

// While the replica hears nothing, no grant counts: the claim leaves, and whoever waits goes on
// waiting, until it hears again.
func TestRedisReplicasMissing(t *testing.T) {
	t.Parallel()
	p := runPair(t)
	ctx := await.Context(t)
	s := openAt(t, p.url)
	a, b := p.client(t, "?replicas=1", 10*time.Second), p.client(t, "?replicas=1", 10*time.Second)
	held, err := a.Mutex("m").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := b.Mutex("m").Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		got <- err
	}()
	await.That(t, "somebody waits", func() bool {
		q, err := s.Inspect(ctx, "m")
		return err == nil && len(q.Claims) == 2
	})
	p.link.Swallow(true, true)
	short := func(what string, err error) {
		t.Helper()
		if _, ok := errors.AsType[*redisstore.ReplicasError](err); !ok || driver.IsPermanent(err) {
			t.Errorf("%s: %v; want that no replica has confirmed it", what, err)
		}
	}
	_, err = a.Mutex("new").TryLock(ctx)
	short("TryLock", err)
	_, err = a.LockAll(await.Brief(t, 3*time.Second), "set 1", "set 2")
	if held := new(pawl.WaitError); !errors.As(err, &held) { // its own claims, on their way out, may be what it waits for
		short("LockAll", err)
	}
	for _, name := range []string{"new", "set 1", "set 2"} {
		await.That(t, name+" is free again", func() bool {
			q, err := s.Inspect(ctx, name)
			return err == nil && len(q.Claims) == 0
		})
	}
	short("Extend", held.Extend(ctx, 0))
	if err := held.Unlock(ctx); err != nil {
		t.Errorf("to unlock waits for no replica: %v", err)
	}
	select {
	case err := <-got:
		t.Errorf("a grant that was told counts without a replica: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	p.link.Drop()
	if err := await.Value(t, "the lock, once the replica hears again", got); err != nil {
		t.Error(err)
	}
}

// Without waiting for replicas a failover can lose a grant, and this test can tell: two
// hold at a time, the first is told by its next renewal, and the token tells them apart.
func TestRedisLostGrantIsDetected(t *testing.T) {
	t.Parallel()
	p := runPair(t)
	ctx := await.Context(t)
	b := p.client(t, "", 10*time.Second)
	way := servers.RunProxy(t, strings.TrimPrefix(p.url, "redis://"))
	p.url = "redis://" + way.Addr()
	a := p.client(t, "", 10*time.Second)
	p.link.Swallow(true, true)
	first, err := a.Mutex("m").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	way.Swallow(true, true) // it does not see that the primary is another
	p.promote(t)
	second, err := b.Mutex("m").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if first.Err() != nil || second.Err() != nil {
		t.Errorf("no two hold: %v, %v; what is lost without replicas was not lost", first.Err(), second.Err())
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d", second.Token(), first.Token())
	}
	way.Drop()
	await.Value(t, "that the first lease is lost", first.Lost())
	if err := second.Err(); err != nil {
		t.Errorf("the second one: %v", err)
	}
}

// The whole suite, with every grant and every renewal confirmed by a replica.
func TestRedisReplicasConformance(t *testing.T) {
	t.Parallel()
	p := runPair(t)
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: 500 * time.Millisecond,
		Missing:  missing,
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) { return rueidis.Open(p.url+"?replicas=1", nil) }}
		},
	})
}

// What cannot be is refused before anything is sent.
func TestRedisReplicasRefused(t *testing.T) {
	t.Parallel()
	r := servers.RunRedis(t, servers.RedisOptions{})
	if _, err := rueidis.Open(r.URL(), &redisstore.Options{Replicas: -1}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("-1 replicas: %v", err)
	}
	conn := newClockConn(t, dialRedis(t, r), func() int64 { return 0 }) // it cannot wait
	if _, err := redisstore.New(conn, &redisstore.Options{Replicas: 1}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a client that cannot wait: %v", err)
	}
	// The user has no right to WAIT: for good.
	if _, err := r.CLI("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-wait"); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, strings.Replace(r.URL(), "://", "://u:p@", 1)+"?replicas=1")
	if _, err := s.Enter(await.Context(t), storetest.Mutex("x", time.Minute)); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "wait") {
		t.Errorf("without the right to WAIT: %v", err)
	}
}
