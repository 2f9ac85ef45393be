package redis

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/redisstore"
)

// rights are those that redisstore asks for, and what the client needs for itself.
var rights = strings.Join(redisstore.Rights(nil, false), " ") + " +hello +ping +client"

// missing is what Redis has not.
var missing = map[drivertest.Feature]string{
	drivertest.Drawn: "Inspect only reads: the token of a grant that time brought about is drawn by the next who asks",
}

// The conformance suite with the scripts' time moved by hand, and a client that is shared.
func TestRedisConformanceInMovedTime(t *testing.T) { eachServer(t, conformsInMovedTime) }

func conformsInMovedTime(t *testing.T, r *servers.Redis) {
	c := dialRedis(t, r)
	drivertest.Run(t, drivertest.Harness{
		Missing: missing,
		New: func(t testing.TB) drivertest.Backing {
			var ahead atomic.Int64
			prefix := "t" + driver.NewID() // time is moved for this test alone
			return drivertest.Backing{
				Open: func() (driver.Store, error) {
					conn := newClockConn(t, c, func() int64 { return time.Now().UnixMicro() + ahead.Load() })
					return redisstore.New(conn, &redisstore.Options{Prefix: prefix})
				},
				Advance: func(d time.Duration) { ahead.Add(d.Microseconds()) },
			}
		},
	})
}
