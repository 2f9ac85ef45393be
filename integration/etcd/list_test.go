package etcd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// copies puts the claim of a name under n others, as many processes would have.
func copies(t testing.TB, raw *clientv3.Client, name string, n int, to func(i int) string) {
	t.Helper()
	ctx := await.Context(t)
	res, err := raw.Get(ctx, "pawl/q/"+name+"/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != 1 {
		t.Fatal(res, err)
	}
	kv := res.Kvs[0]
	var all []clientv3.Op
	for i := range n {
		key := strings.Replace(string(kv.Key), "/"+name+"/", "/"+to(i)+"/", 1)
		all = append(all, clientv3.OpPut(key, string(kv.Value), clientv3.WithLease(clientv3.LeaseID(kv.Lease))))
	}
	for part := range slices.Chunk(all, 100) {
		if _, err := raw.Txn(ctx).Then(part...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// A list takes a request for thousands of claims, not one for each name; a queue is
// shown whole wherever a page ends; and it writes nothing.
func TestEtcdListReadsManyAtATime(t *testing.T) {
	t.Parallel()
	const n = 4500
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	var m meddler
	s := m.store(t, e)
	storetest.Enter(t, s, storetest.Mutex("name", 10*time.Minute), driver.Holding)
	copies(t, raw, "name", n, func(i int) string { return fmt.Sprintf("name%05d", i) })
	for i := range 5 { // one that stands at the end of the first page
		c := storetest.Mutex("name03998", 10*time.Minute)
		if st, err := s.Enter(await.Context(t), c); err != nil || st.Ahead != i {
			t.Fatal(st, err)
		}
	}
	before, err := raw.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	m.set(func(_ any, send func() error) error {
		requests.Add(1)
		return send()
	})
	names := make(map[string]int)
	for q, err := range s.List(await.Context(t), "name") {
		if err != nil {
			t.Fatal(err)
		}
		if names[q.Name] != 0 {
			t.Errorf("%q is listed twice", q.Name)
		}
		names[q.Name] = len(q.Claims)
	}
	if len(names) != n+1 || names["name03998"] != 6 || names["name"] != 1 {
		t.Errorf("%d names are listed, want %d; of 6 claims %d", len(names), n+1, names["name03998"])
	}
	// Two pages, the queue at the end of the first, and two leases.
	if requests.Load() > 5 {
		t.Errorf("%d names took %d requests", n, requests.Load())
	}
	after, err := raw.Get(t.Context(), "x")
	if err != nil || after.Header.Revision != before.Header.Revision {
		t.Errorf("a list has written: revision %d after %d, %v", after.Header.Revision, before.Header.Revision, err)
	}
}

// A list shows what it can read, and says of the rest what is the matter.
func TestEtcdListPassesOverWhatItCannotRead(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	s := openEtcd(t, e)
	for _, name := range []string{"a", "b", "c"} {
		storetest.Enter(t, s, storetest.Mutex(name, time.Minute), driver.Holding)
	}
	for _, key := range []string{"b/note", "bad{name}/m1/x", "b2"} {
		if _, err := raw.Put(t.Context(), "pawl/q/"+key, "by hand"); err != nil {
			t.Fatal(err)
		}
	}
	good, bad := make(map[string]bool), make(map[string]bool)
	for q, err := range s.List(await.Context(t), "") {
		var name *driver.NameError
		switch {
		case err == nil:
			good[q.Name] = true
		case errors.As(err, &name) && strings.Contains(err.Error(), "by hand") || strings.Contains(err.Error(), "pawl/q/"):
			bad[name.Name] = true
		default:
			t.Errorf("list: %v", err)
		}
	}
	if g, b := slices.Sorted(maps.Keys(good)), slices.Sorted(maps.Keys(bad)); !slices.Equal(g, []string{"a", "c"}) ||
		!slices.Equal(b, []string{"b", "bad{name}", "pawl/q/b2"}) {
		t.Errorf("listed are %q, reported %q", g, b)
	}
}
