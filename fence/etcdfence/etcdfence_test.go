package etcdfence_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/etcdfence"
)

// kv has one key, of which it replies that it has this value.
type kv struct {
	clientv3.KV
	value string
	err   error
	txns  int
}

func (k *kv) Txn(context.Context) clientv3.Txn {
	k.txns++
	return txn{k}
}

type txn struct{ *kv }

func (t txn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t txn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t txn) Else(...clientv3.Op) clientv3.Txn { return t }
func (t txn) Commit() (*clientv3.TxnResponse, error) {
	kept := &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("pawl-fence/n"), Value: []byte(t.value)}}}
	return &clientv3.TxnResponse{Responses: []*etcdserverpb.ResponseOp{
		{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: kept}},
	}}, t.err
}

func one(value int64) []fence.Token { return []fence.Token{{Name: "n", Value: value}} }

func TestRefused(t *testing.T) {
	k := &kv{value: "09223372036854775807"}
	f := etcdfence.New(k, nil)
	stale, ok := errors.AsType[*fence.StaleError](f.Check(t.Context(), one(5)))
	if !ok || *stale != (fence.StaleError{Name: "n", Token: 5, Seen: math.MaxInt64}) {
		t.Error(stale)
	}
	for _, value := range []string{"", "9", "00000000000000000x09", "+0000000000000000009", "009223372036854775807"} {
		k.value = value
		if err := f.Check(t.Context(), one(5)); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%q: %v", value, err)
		}
	}
	k.err = errors.New("no connection")
	if err := f.Check(t.Context(), one(5)); !errors.Is(err, k.err) {
		t.Error(err)
	}
	k.txns = 0
	if err := f.Check(t.Context(), one(0)); !errors.Is(err, fence.ErrInvalid) || k.txns != 0 {
		t.Errorf("0: %v, %d requests", err, k.txns)
	}
}
