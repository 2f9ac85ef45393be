package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// A transaction of the user's own is carried out only while the lock is held.
func TestEtcdHeld(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	c := dialEtcd(t, e.Addr())
	s := etcdStore(t, c)
	p := pawl.New(s, nil)
	defer p.Close(context.Background())
	ctx := await.Context(t)
	lease, err := p.Mutex("fenced").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.Held(ctx, lease.Name(), lease.Handle())
	if err != nil {
		t.Fatal(err)
	}
	write := func() bool {
		res, err := c.Txn(ctx).If(held).Then(clientv3.OpPut("data", "x")).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return res.Succeeded
	}
	if !write() {
		t.Error("refused while the lock was held")
	}
	if _, err := s.Break(ctx, "fenced"); err != nil {
		t.Fatal(err)
	}
	if write() {
		t.Error("written after the lock was broken")
	}
	if _, err := s.Held(ctx, lease.Name(), lease.Handle()); !errors.Is(err, etcdstore.ErrNotHeld) {
		t.Errorf("held: %v", err)
	}
	h, w := storetest.Mutex("fenced too", time.Minute), storetest.Mutex("fenced too", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	storetest.Enter(t, s, w, driver.Waiting)
	if _, err := s.Held(ctx, w.Name, w.ID); !errors.Is(err, etcdstore.ErrNotHeld) {
		t.Errorf("held, of a claim that waits: %v", err)
	}
}
