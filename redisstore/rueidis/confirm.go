package rueidis

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// ScriptConfirmed implements [redisstore.Confirmer].
func (c *conn) ScriptConfirmed(ctx context.Context, s *redisstore.Script, keys, args []string, replicas int, timeout time.Duration) (string, int, error) {
	client, err := c.ready(ctx)
	if err != nil {
		return "", 0, err
	}
	got, err := guard(ctx, c.closed, func(ctx context.Context) (adapter.Confirmed, error) {
		near, cancel := context.WithTimeout(ctx, timeout+adapter.Bound)
		defer cancel()
		return adapter.Confirm(s, func(addr, command, _ string) (got adapter.Confirmed, err error) {
			on := client
			if addr != "" {
				if on = client.Nodes()[addr]; on == nil {
					return got, adapter.ErrNoServer
				}
			}
			cmd := evalsha
			if command == "EVAL" {
				cmd = eval
			}
			d, release := on.Dedicate()
			defer release()
			rs := d.DoMulti(near, cmd(on, s, keys, args), d.B().Wait().Numreplicas(int64(replicas)).Timeout(timeout.Milliseconds()).Build())
			if got.Reply, err = rs[0].ToString(); err != nil {
				return got, err
			}
			n, err := rs[1].AsInt64()
			got.Replicas = int(n)
			return got, err
		}, replied)
	})
	return got.Reply, got.Replicas, c.failed(c.seen(adapter.Ending(ctx, err)))
}
