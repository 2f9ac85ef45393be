// Package etcdfence is a fence in etcd: operations with an older token than one that was
// seen are refused, in the same transaction.
//
// The highest token of each name is kept at pawl-fence/NAME, as a number of 20 digits,
// in the cluster that has the data; the locks may be in another engine. If they are in
// the same cluster, etcdstore's Held is stricter: its condition ends as soon as the
// lock does, also if nobody has come after.
package etcdfence

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/fence"
)

// DefaultPrefix is what the keys of tokens begin with where nothing else is given.
const DefaultPrefix = "pawl-fence/"

// Options of a fence.
type Options struct {
	Prefix string // of the keys that keep tokens. Default: DefaultPrefix
}

// Fence guards keys. Any goroutine may use it.
type Fence struct {
	kv     clientv3.KV
	prefix string
}

// New makes a fence on a client; o may be nil. It does no I/O. Its user needs the rights
// to read and write the prefix.
func New(kv clientv3.KV, o *Options) *Fence {
	f := &Fence{kv, DefaultPrefix}
	if o != nil && o.Prefix != "" {
		f.prefix = o.Prefix
	}
	return f
}

// Check notes that the tokens were seen. It is a *[fence.StaleError] if a greater one of
// one of the names was. A holder calls it before it reads what its write depends on.
func (f *Fence) Check(ctx context.Context, tokens []fence.Token) error {
	_, err := f.Txn(ctx, tokens)
	return err
}

// Put puts a key, unless a greater token of one of the names was seen: then it is a
// *[fence.StaleError].
func (f *Fence) Put(ctx context.Context, tokens []fence.Token, key, value string) error {
	_, err := f.Txn(ctx, tokens, clientv3.OpPut(key, value))
	return err
}

// Txn carries out operations in one transaction, unless a greater token of one of the
// names was seen: then it is a *[fence.StaleError]. The response is that of the
// operations. One that depends on a condition is a clientv3.OpTxn.
//
// It costs one request, and one more where a name is new. Each name counts as one of the
// operations that etcd allows in a transaction (--max-txn-ops, 128). After an error of the
// connection the transaction may have been carried out, or may be yet: to repeat it with the
// same tokens is allowed, if the operations can be repeated.
func (f *Fence) Txn(ctx context.Context, tokens []fence.Token, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	tokens, err := fence.Ordered(tokens)
	if err != nil {
		return nil, fmt.Errorf("etcd fence: %w", err)
	}
	absent := make([]bool, len(tokens)) // the key of that token, as far as known
	for {
		res, err := f.commit(ctx, tokens, absent, ops)
		if err != nil {
			return nil, fmt.Errorf("etcd fence %q: write with token %d: %w", tokens[0].Name, tokens[0].Value, err)
		}
		if res.Succeeded {
			res.Responses = res.Responses[len(tokens):]
			return res, nil
		}
		if err := seen(tokens, absent, res); err != nil {
			return nil, err
		}
	}
}

// commit carries the operations out if the tokens that are kept are not greater, and
// absent ones absent. Else it returns them.
func (f *Fence) commit(ctx context.Context, tokens []fence.Token, absent []bool, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	var conditions []clientv3.Cmp
	var puts, gets []clientv3.Op
	for i, t := range tokens {
		key, value := f.prefix+t.Name, text(t.Value)
		if absent[i] {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
		} else { // of a key that is absent the comparison is false
			conditions = append(conditions, clientv3.Compare(clientv3.Value(key), "<", value+"\x00"))
		}
		puts, gets = append(puts, clientv3.OpPut(key, value)), append(gets, clientv3.OpGet(key))
	}
	return f.kv.Txn(ctx).If(conditions...).Then(append(puts, ops...)...).Else(gets...).Commit()
}

// text is a token such that texts are ordered as numbers are.
func text(token int64) string { return fmt.Sprintf("%020d", token) }

var errNotToken = errors.New("the key holds something else than a fencing token")

// seen learns from a transaction that was refused, and says which token is stale, if one
// is.
func seen(tokens []fence.Token, absent []bool, res *clientv3.TxnResponse) error {
	for i, t := range tokens {
		kvs := res.Responses[i].GetResponseRange().GetKvs()
		if absent[i] = len(kvs) == 0; absent[i] {
			continue
		}
		kept, err := strconv.ParseInt(string(kvs[0].Value), 10, 64)
		if err != nil || text(kept) != string(kvs[0].Value) {
			return fmt.Errorf("etcd fence %q: %s: %w", t.Name, kvs[0].Key, errNotToken)
		}
		if kept > t.Value {
			return &fence.StaleError{Name: t.Name, Token: t.Value, Seen: kept}
		}
	}
	return nil
}
