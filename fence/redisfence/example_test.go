package redisfence_test

import (
	"context"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/redisfence"
	"github.com/pawl-go/pawl/redisstore"
)

// The adapter of a client, as rueidis.NewConn(client) makes it, runs the scripts.
func ExampleFence_Set() {
	write := func(ctx context.Context, conn redisstore.Conn, lease *pawl.Lease) error {
		f, err := redisfence.New(conn, nil)
		if err != nil {
			return err
		}
		return f.Set(ctx, fence.Of(lease), "price:{prices}", "120", 0)
	}
	_ = write
}

var withdraw = redisfence.NewScript(`
	if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then return 'not enough' end
	return redis.call('DECRBY', KEYS[1], ARGV[1])`)

// A script of your own reads and writes in the step that checks the token.
func ExampleFence_Eval() {
	pay := func(ctx context.Context, f *redisfence.Fence, lease *pawl.Lease) (left string, err error) {
		return f.Eval(ctx, fence.Of(lease), withdraw, []string{"account:{accounts/7}"}, "100")
	}
	_ = pay
}
