package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/redisstore"
)

// counted counts the requests to enter claims.
type counted struct {
	*redisstore.Store
	enters, alls atomic.Int64
}

func (c *counted) Enter(ctx context.Context, cl driver.Claim) (driver.Status, error) {
	c.enters.Add(1)
	return c.Store.Enter(ctx, cl)
}

func (c *counted) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	c.alls.Add(1)
	return c.Store.EnterAll(ctx, cs)
}

// Names that are free cost one request, however many they are, and that is one
// script.
func TestRedisLockAll(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	ctx := await.Context(t)
	s := &counted{Store: openRedis(t, r)}
	c := pawl.New(s, nil)
	defer c.Close(context.Background())
	for i, n := range []int{2, 1000} {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("name ", i)
		}
		set, err := c.LockAll(ctx, names...)
		if err != nil {
			t.Fatal(err)
		}
		if enters, alls := s.enters.Load(), s.alls.Load(); enters != 0 || alls != int64(i)+1 {
			t.Errorf("%d names: entered %d times singly, %d times together", n, enters, alls)
		}
		if err := set.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for q, err := range s.List(ctx, "") {
		t.Errorf("left: %+v, %v", q, err)
	}

	conn := newClockConn(t, dialRedis(t, r), func() int64 { return time.Now().UnixMicro() })
	bare, err := redisstore.New(conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	for i := range 2 { // free, and with a name that is taken
		cs := []driver.Claim{storetest.Mutex(fmt.Sprint("x", i), time.Minute), storetest.Mutex("y", time.Minute), storetest.Mutex("z", time.Minute)}
		before := conn.calls.Load()
		if _, err := bare.EnterAll(ctx, cs); err != nil {
			t.Fatal(err)
		}
		if calls := conn.calls.Load() - before; calls != 1 {
			t.Errorf("EnterAll ran %d scripts", calls)
		}
	}
}

// Clients on connections of their own take overlapping sets in any order.
func TestRedisLockAllOverlapping(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	ctx := await.Context(t)
	const names = 4
	var holders [names]atomic.Int32
	var work sync.WaitGroup
	for i := range 4 {
		c := pawl.New(openRedis(t, r), nil)
		t.Cleanup(func() { c.Close(context.Background()) })
		for u := range 2 {
			work.Go(func() {
				for round := range 30 {
					a, b := (i+u+round)%names, (i+3*round)%names
					set, err := c.LockAll(ctx, fmt.Sprint(a), fmt.Sprint(b))
					if err != nil {
						t.Error(err)
						return
					}
					for _, name := range set.Names() {
						if holders[name[0]-'0'].Add(1) != 1 {
							t.Errorf("%s is held twice", name)
						}
					}
					time.Sleep(time.Millisecond)
					for _, name := range set.Names() {
						holders[name[0]-'0'].Add(-1)
					}
					if err := set.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
}

// What a cluster's servers could not do in one step is refused, as everything.
func TestRedisEnterAllCluster(t *testing.T) {
	r := runCluster(t)
	s := openRedis(t, r)
	ctx := await.Context(t)
	cs := []driver.Claim{storetest.Mutex("a", time.Minute), storetest.Mutex("b", time.Minute)}
	if _, err := s.EnterAll(ctx, cs); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("EnterAll: %v", err)
	}
}
