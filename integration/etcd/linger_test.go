package etcd

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// A claim that another store has left to linger stays, whatever its own store does.
func TestEtcdLeftElsewhere(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	a, b := openEtcd(t, e), openEtcd(t, e)
	ctx := await.Context(t)
	c := storetest.Mutex("n", time.Minute)
	storetest.Enter(t, a, c, driver.Holding)
	r := storetest.Ref(c)
	r.Linger = time.Minute
	if was, err := b.Leave(ctx, r); was != driver.Holding || err != nil {
		t.Fatal(was, err)
	}
	if was := storetest.Leave(t, a, c); was != driver.Holding {
		t.Errorf("it was %v", was)
	}
	q, err := b.Inspect(ctx, "n")
	if err != nil || len(q.Claims) != 1 || !q.Claims[0].Lingering {
		t.Errorf("the queue is %+v, %v", q, err)
	}
}
