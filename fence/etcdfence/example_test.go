package etcdfence_test

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/etcdfence"
)

func ExampleFence_Put() {
	pay := func(ctx context.Context, etcd *clientv3.Client, lease *pawl.Lease) error {
		return etcdfence.New(etcd, nil).Put(ctx, fence.Of(lease), "orders/42/state", "paid")
	}
	_ = pay
}
