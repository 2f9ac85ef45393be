package zkfence_test

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/zkfence"
)

func ExampleFence_Set() {
	pay := func(ctx context.Context, conn *zk.Conn, lease *pawl.Lease) error {
		f, err := zkfence.New(conn, nil)
		if err != nil {
			return err
		}
		return f.Set(ctx, fence.Of(lease), "/orders/42", []byte("paid"))
	}
	_ = pay
}
