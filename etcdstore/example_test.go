package etcdstore_test

import (
	"context"
	"errors"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/etcdstore"
)

// Programs that have a client of the cluster already go on using it.
func ExampleNew() {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close()
	store, err := etcdstore.New(etcd, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	client := pawl.New(store, nil)
	defer client.Close(context.Background())

	ctx := context.Background()
	lease, err := client.Mutex("orders/42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(ctx)
}

// Data in the same cluster is written only while the lock is held: etcd itself
// looks, in the same transaction.
func ExampleStore_Held() {
	write := func(ctx context.Context, etcd *clientv3.Client, store *etcdstore.Store, lease *pawl.Lease) error {
		held, err := store.Held(ctx, lease.Name(), lease.Handle())
		if err != nil {
			return err
		}
		res, err := etcd.Txn(ctx).If(held).Then(clientv3.OpPut("orders/42/state", "paid")).Commit()
		if err == nil && !res.Succeeded {
			err = errors.New("the lock was lost; nothing was written")
		}
		return err
	}
	_ = write
}
