package rueidis

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// confirmed is the reply of a script, and how many replicas have what it wrote.
type confirmed struct {
	reply    string
	replicas int
}

// ScriptConfirmed implements [redisstore.Confirmer], on a connection that nobody else
// uses meanwhile: WAIT blocks it.
func (c *conn) ScriptConfirmed(ctx context.Context, s *redisstore.Script, keys, args []string, replicas int, timeout time.Duration) (string, int, error) {
	client, err := c.ready(ctx)
	if err != nil {
		return "", 0, err
	}
	got, err := guard(ctx, c.closed, func(ctx context.Context) (confirmed, error) {
		near, cancel := context.WithTimeout(ctx, timeout+adapter.Bound)
		defer cancel()
		wait := func(on rueidis.Client) (confirmed, error) {
			d, release := on.Dedicate()
			defer release()
			send := func(cmd rueidis.Completed) (got confirmed, err error) {
				rs := d.DoMulti(near, cmd, d.B().Wait().Numreplicas(int64(replicas)).Timeout(timeout.Milliseconds()).Build())
				if got.reply, err = rs[0].ToString(); err != nil {
					return got, err
				}
				n, err := rs[1].AsInt64()
				got.replicas = int(n)
				return got, err
			}
			got, err := send(evalsha(on, s, keys, args))
			if noScript(err) {
				got, err = send(eval(on, s, keys, args))
			}
			return got, err
		}
		got, err := wait(client)
		if e, ok := rueidis.IsRedisErr(err); ok {
			// Of its own the client would send the script elsewhere, but not the WAIT.
			if addr, moved := e.IsMoved(); moved && client.Nodes()[addr] != nil {
				got, err = wait(client.Nodes()[addr])
			}
		}
		return got, err
	})
	return got.reply, got.replicas, c.failed(c.seen(adapter.Ending(ctx, err)))
}
