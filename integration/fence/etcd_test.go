//go:build unix

package fence

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/etcdfence"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// etcdKey is a key in etcd. A transaction has no middle.
type etcdKey struct {
	*etcdfence.Fence
	client *clientv3.Client
	key    string
}

func openEtcd(addr, name string) (*etcdKey, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &etcdKey{etcdfence.New(c, nil), c, "state/" + name}, nil
}

func (k *etcdKey) close() { k.client.Close() }

func (k *etcdKey) check(ctx context.Context, tokens []fence.Token) error { return k.Check(ctx, tokens) }

func (k *etcdKey) write(ctx context.Context, tokens []fence.Token, value string, middle func()) error {
	middle()
	return k.Put(ctx, tokens, k.key, value)
}

func (k *etcdKey) read(ctx context.Context) (string, error) {
	res, err := k.client.Get(ctx, k.key)
	if err != nil || len(res.Kvs) == 0 {
		return "", err
	}
	return string(res.Kvs[0].Value), nil
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	k, err := openEtcd(e.Addr(), "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.close)
	t.Run("check", func(t *testing.T) { testChecks(t, k) })
	t.Run("crowd", func(t *testing.T) { testWriters(t, k) })
	t.Run("txn", func(t *testing.T) { testEtcdTxn(t, k) })
	testPaused(t, "etcd", e.Addr(), noMiddle, set(t, "etcd", e.Addr()))
}

// A condition of one's own is a transaction within; the response is that of the
// operations alone.
func testEtcdTxn(t *testing.T, k *etcdKey) {
	ctx := await.Context(t)
	both := []fence.Token{{Name: "t1", Value: 3}, {Name: "t2", Value: 4}}
	if err := k.Check(ctx, both[1:]); err != nil { // one is new, and the other is not
		t.Fatal(err)
	}
	for i := range 2 {
		res, err := k.Txn(ctx, both, clientv3.OpGet("counter"), clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("counter"), "=", 0)},
			[]clientv3.Op{clientv3.OpPut("counter", "1")}, nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Responses[0].GetResponseRange().Count; len(res.Responses) != 2 || got != int64(i) || res.Responses[1].GetResponseTxn().Succeeded == (i == 1) {
			t.Errorf("%v", res.Responses)
		}
	}
	if _, err := k.client.Put(ctx, etcdfence.DefaultPrefix+"x", "something"); err != nil {
		t.Fatal(err)
	}
	if err := k.Check(ctx, tokens("x", 9)); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a key that holds no token: %v", err)
	}
}

// testChecks checks what a fence takes and refuses.
func testChecks(t *testing.T, r resource) {
	ctx := await.Context(t)
	for _, token := range []int64{9, 10, 10, math.MaxInt64 - 1, math.MaxInt64} {
		if err := r.write(ctx, tokens("n", token), fmt.Sprint(token), func() {}); err != nil {
			t.Errorf("%d: %v", token, err)
		}
	}
	wantStale(t, r.write(ctx, tokens("n", math.MaxInt64-1), "late", func() {}), fence.StaleError{Name: "n", Token: math.MaxInt64 - 1, Seen: math.MaxInt64})
	if got, err := r.read(ctx); got != fmt.Sprint(math.MaxInt64) {
		t.Errorf("%q, %v", got, err)
	}
	both := []fence.Token{{Name: "m", Value: 3}, {Name: "n", Value: 3}}
	wantStale(t, r.check(ctx, both), fence.StaleError{Name: "n", Token: 3, Seen: math.MaxInt64})
	if err := r.check(ctx, tokens("m", 2)); err != nil {
		t.Errorf("a token was kept though another of the lease was refused: %v", err)
	}
}

// testWriters has many write at once, the first ones of a name. The last one is the greatest.
func testWriters(t *testing.T, r resource) {
	ctx := await.Context(t)
	var wg sync.WaitGroup
	for token := range int64(8) {
		wg.Go(func() {
			err := r.write(ctx, tokens("crowd", token+1), fmt.Sprint(token+1), func() {})
			if err != nil && (token == 7 || !errors.Is(err, fence.ErrStale)) {
				t.Errorf("%d: %v", token+1, err)
			}
		})
	}
	wg.Wait()
	if got, err := r.read(ctx); got != "8" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
