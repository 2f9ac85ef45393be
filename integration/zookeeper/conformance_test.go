package zookeeper

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/zkstore"
)

func TestZooKeeperConformance(t *testing.T) {
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	drivertest.Run(t, drivertest.Harness{
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) { return zkstore.Open(z.URL(), nil) }}
		},
		ShortTTL: 2 * time.Second,        // a busy disk makes a request take long
		Late:     500 * time.Millisecond, // a claim is removed by a request, at its time
		Tied:     true,
		Missing: map[drivertest.Feature]string{
			drivertest.Recheck: "the server tells who waits of every claim that ends in front of it",
		},
	})
}
