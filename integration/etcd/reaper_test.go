package etcd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// deletes reports whether a request deletes a key of that prefix.
func deletes(req any, prefix string) bool {
	r, ok := req.(*pb.TxnRequest)
	if !ok || !touches(req, prefix) {
		return false
	}
	for _, op := range r.Success {
		if op.GetRequestPut() != nil {
			return false
		}
	}
	return true
}

// While claims whose TTL is over are being deleted, however long that takes, the
// others on their lease are renewed, and new ones get in. They are deleted many at
// a time.
func TestEtcdReapingDelaysNobody(t *testing.T) {
	t.Parallel()
	const n, ttl = 120, 2 * time.Second
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s, near := m.store(t, e), openEtcd(t, e)
	held := storetest.Mutex("held", ttl)
	storetest.Enter(t, s, held, driver.Holding)
	reaping, reap := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var requests atomic.Int64
	m.set(func(req any, send func() error) error {
		if deletes(req, "pawl/q/plain") {
			requests.Add(1)
			once.Do(func() { close(reaping) })
			<-reap
		}
		return send()
	})
	release := sync.OnceFunc(func() { close(reap) })
	t.Cleanup(release)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			// On the same lease, which lasts for 2 s at least.
			if _, err := s.Enter(await.Context(t), storetest.Mutex(fmt.Sprint("plain", i), driver.MinTTL)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	await.Value(t, "the reaper", reaping)
	time.Sleep(ttl/6 + 50*time.Millisecond) // the lease is to be kept alive then
	ctx := await.Context(t)
	if _, err := storetest.Renew(ctx, s, held); err != nil {
		t.Errorf("renew while others are being deleted: %v", err)
	}
	if st, err := s.Enter(ctx, storetest.Mutex("new", ttl)); err != nil || st.State != driver.Holding {
		t.Errorf("enter while others are being deleted: %v, %v", st.State, err)
	}
	release()
	await.That(t, "all that have run out are deleted", func() bool {
		for _, err := range near.List(await.Context(t), "plain") {
			return err != nil
		}
		return true
	})
	if most := int64(n / 4); requests.Load() > most {
		t.Errorf("%d claims were deleted by %d requests, want %d at most", n, requests.Load(), most)
	}
}

// A claim's TTL is over and its deletion is under way, slowly, when a late renewal
// comes: either the claim is gone for both, or it stays.
func TestEtcdLateRenewalWhileBuried(t *testing.T) {
	t.Parallel()
	const name = "buried"
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var m meddler
	s, near := m.store(t, e), openEtcd(t, e)
	ctx := await.Context(t)
	burying, moved := make(chan struct{}), make(chan struct{})
	bury, reply := make(chan struct{}), make(chan struct{})
	var first, move atomic.Bool
	m.set(func(req any, send func() error) error {
		switch {
		case !touches(req, "pawl/q/"+name):
		case deletes(req, "pawl/q/"+name):
			if first.CompareAndSwap(false, true) {
				close(burying)
				<-bury
			}
		case first.Load() && move.CompareAndSwap(false, true): // it is put on the lease anew
			err := send()
			close(moved)
			<-reply
			return err
		}
		return send()
	})
	c := storetest.Mutex(name, driver.MinTTL)
	storetest.Enter(t, s, c, driver.Holding)
	await.Value(t, "the reaper", burying)
	late := c
	late.TTL = 2 * time.Second
	var st driver.Status
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		if st, err = storetest.Renew(ctx, s, late); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-moved:
	case <-done:
	}
	close(bury)
	time.Sleep(200 * time.Millisecond) // what it deletes, if it is to, it deletes now
	close(reply)
	await.Value(t, "the renewal", done)
	got, err := near.Enter(ctx, storetest.Mutex(name, 2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if st.State == driver.Holding && got.State == driver.Holding && time.Now().Before(st.Deadline) {
		t.Errorf("renewed for another %v, and another one holds", time.Until(st.Deadline))
	}
}

// spoil makes a name unreadable in one way or another.
var spoil = map[string]func(ctx context.Context, raw *clientv3.Client, name string) error{
	"a key by hand": func(ctx context.Context, raw *clientv3.Client, name string) error {
		_, err := raw.Put(ctx, "pawl/q/"+name+"/note", "by hand")
		return err
	},
	"its claim": func(ctx context.Context, raw *clientv3.Client, name string) error {
		res, err := raw.Get(ctx, "pawl/q/"+name+"/", clientv3.WithPrefix())
		if err == nil {
			_, err = raw.Put(ctx, string(res.Kvs[0].Key), `{"id":1}`, clientv3.WithIgnoreLease())
		}
		return err
	},
	"its limit": func(ctx context.Context, raw *clientv3.Client, name string) error {
		_, err := raw.Put(ctx, "pawl/q/"+name+"/~", "[]")
		return err
	},
}

// A name that cannot be read costs that name: 100 others are renewed in the same
// request, and listed, and the error says which name it is.
func TestEtcdSpoiledNameCostsNoOther(t *testing.T) {
	t.Parallel()
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	raw := dialEtcd(t, e.Addr())
	for how, spoil := range spoil {
		s := openEtcd(t, e)
		const ttl = 10 * time.Minute
		var refs []driver.Ref
		for i := range 101 {
			name := fmt.Sprint("held/", i)
			if i == 50 {
				name = "spoiled"
			}
			c := storetest.Mutex(name, ttl)
			storetest.Enter(t, s, c, driver.Holding)
			refs = append(refs, storetest.Ref(c))
		}
		if err := spoil(await.Context(t), raw, "spoiled"); err != nil {
			t.Fatal(err)
		}
		spoiled := 0
		for range 4 { // not each name is read each time
			s.Renew(await.Context(t), refs, func(i int, st driver.Status, err error) {
				switch {
				case i == 50:
					if err != nil {
						spoiled++
					}
				case err != nil || st.State != driver.Holding:
					t.Errorf("%s: renew %q: %v, %v", how, refs[i].Name, st.State, err)
				}
			})
		}
		if spoiled == 0 {
			t.Errorf("%s: the name that is spoiled was renewed as if nothing were the matter", how)
		}
		if _, err := raw.Delete(t.Context(), "pawl/q/", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
}
