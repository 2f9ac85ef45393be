package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// busyConn is a conn under which requests about some names have no reply: so all others
// go in groups.
type busyConn struct {
	redisstore.Conn
	under chan struct{} // gets one for each of those requests
}

const noReply = "no reply"

func (c busyConn) Script(ctx context.Context, s *redisstore.Script, keys, args []string) (string, error) {
	if len(keys) > 0 && strings.Contains(keys[0], noReply) {
		c.under <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	}
	return c.Conn.Script(ctx, s, keys, args)
}

// newGrouped makes a store whose requests go in groups.
func newGrouped(t testing.TB, conn redisstore.Conn) *redisstore.Store {
	t.Helper()
	busy := busyConn{conn, make(chan struct{})}
	s, err := redisstore.New(busy, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{" 1", " 2"} {
		go s.Enter(context.Background(), driver.Claim{
			Name: noReply + n, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute, Try: true,
		})
		<-busy.under
	}
	return s
}

// Requests that are sent in groups are carried out as those that go alone.
func TestRedisConformanceInGroups(t *testing.T) {
	t.Parallel()
	r := servers.RunRedis(t, servers.RedisOptions{})
	c := dialRedis(t, r)
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: 500 * time.Millisecond,
		Missing:  missing,
		New: func(t testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) {
				conn, err := rueidis.NewConn(c)
				if err != nil {
					return nil, err
				}
				return newGrouped(t, conn), nil
			}}
		},
	})
}
