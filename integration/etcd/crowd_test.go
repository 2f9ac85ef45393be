package etcd

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// Those who wait for one name renew their claims without reading each other's, while
// nothing happens; and find what has happened without being woken.
func TestEtcdWaitingIsNotReadToEachOther(t *testing.T) {
	t.Parallel()
	const n = 100
	for _, limit := range []int64{1, 2} {
		e := servers.RunEtcd(t, servers.EtcdOptions{})
		var read atomic.Int64
		raw := dialEtcd(t, e.Addr(), grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoke(ctx, method, req, reply, cc, opts...)
				read.Add(int64(reply.(interface{ Size() int }).Size()))
				return err
			}))
		var stores []driver.Store
		var claims []driver.Claim
		for i := range n {
			c := driver.Claim{Name: "crowd", ID: driver.NewID(), Kind: driver.KindSemaphore, Units: limit, Limit: limit, TTL: time.Hour,
				Owner: driver.Owner{Host: "host-name.example.org", PID: 12345, Label: "some label"}}
			want := driver.Waiting
			if i == 0 {
				want = driver.Holding
			}
			s := etcdStore(t, raw)
			storetest.Enter(t, s, c, want)
			stores, claims = append(stores, s), append(claims, c)
		}
		round := func() {
			t.Helper()
			for i := 1; i < n; i++ {
				st, err := storetest.Renew(await.Context(t), stores[i], claims[i])
				if err != nil || st.State != driver.Waiting || st.Ahead != i-1 || st.Blocker == nil {
					t.Fatalf("limit %d: claim %d: %+v, %v", limit, i, st, err)
				}
			}
		}
		round() // each has seen only those who were there when it came
		read.Store(0)
		round()
		if each := read.Load() / (n - 1); each > 1000 {
			t.Errorf("limit %d: renewing a claim that waits in a crowd of %d reads %d bytes", limit, n, each)
		}
		storetest.Leave(t, stores[0], claims[0])
		st, err := storetest.Renew(await.Context(t), stores[1], claims[1])
		if err != nil || st.State != driver.Holding {
			t.Errorf("limit %d: the next one after the first has left: %v, %v", limit, st.State, err)
		}
		if st, err := storetest.Renew(await.Context(t), stores[n-1], claims[n-1]); err != nil || st.Ahead != n-3 {
			t.Errorf("limit %d: the last one after the first has left: %+v, %v", limit, st, err)
		}
	}
}

// Processes that come for one lock and end leave no more keys to pass by than there
// are places, however many they are.
func TestEtcdProcessesShareKeys(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	keys := make(map[string]bool)
	for range 20 {
		s := etcdStore(t, raw)
		c := storetest.Mutex("cron", time.Minute)
		storetest.Enter(t, s, c, driver.Holding)
		res, err := raw.Get(t.Context(), "pawl/q/cron/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil || len(res.Kvs) != 1 {
			t.Fatal(res, err)
		}
		keys[string(res.Kvs[0].Key)] = true
		storetest.Leave(t, s, c)
		s.Close()
	}
	if len(keys) != 1 {
		t.Errorf("20 processes that held a lock one after the other have left %d keys in etcd's memory", len(keys))
	}
}
