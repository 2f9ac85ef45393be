package etcd

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/servers"
)

func TestEtcdConformance(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	drivertest.Run(t, drivertest.Harness{
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) { return etcdstore.Open(e.URL(), nil) }}
		},
		ShortTTL: 2 * time.Second, // the least that etcd grants
		Late:     2 * time.Second, // leases are looked at twice a second
		Missing: map[drivertest.Feature]string{
			drivertest.Recheck: "etcd tells of claims that have run out",
			drivertest.Drawn:   "who holds follows from the order; a token that does not is drawn by the next who asks",
		},
	})
}
