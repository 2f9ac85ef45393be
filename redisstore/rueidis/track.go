package rueidis

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// Track implements [redisstore.Tracker].
func (c *conn) Track(ctx context.Context, changed func(keys []string), use func(context.Context, redisstore.ScriptRunner) error) error {
	client, err := c.ready(ctx)
	if err != nil {
		return err
	}
	d, err := dedicate(ctx, client)
	if err != nil {
		return err
	}
	return adapter.Track(ctx, &dedicated{d}, replied, c.failed, changed, use)
}

// replied returns the text of an error that the server replied, or "".
func replied(err error) string {
	if e, ok := rueidis.IsRedisErr(err); ok {
		return adapter.Coded(e.Error())
	}
	return ""
}

// dedicate makes a connection.
func dedicate(ctx context.Context, client rueidis.Client) (rueidis.DedicatedClient, error) {
	return adapter.Dedicate(ctx, func() rueidis.DedicatedClient {
		d, _ := client.Dedicate()
		return d
	})
}

// dedicated is the adapter.Dedicated of a connection.
type dedicated struct{ conn rueidis.DedicatedClient }

func (d *dedicated) Script(ctx context.Context, command, body string, keys, args []string) (string, error) {
	b, n := d.conn.B(), int64(len(keys))
	if command == "EVALSHA" {
		return d.conn.Do(ctx, b.Evalsha().Sha1(body).Numkeys(n).Key(keys...).Arg(args...).Build()).ToString()
	}
	return d.conn.Do(ctx, b.Eval().Script(body).Numkeys(n).Key(keys...).Arg(args...).Build()).ToString()
}

func (d *dedicated) Do(ctx context.Context, words ...string) error {
	return d.conn.Do(ctx, d.conn.B().Arbitrary(words...).Build()).Error()
}

func (d *dedicated) Protocol(ctx context.Context) (int64, error) {
	hello, err := d.conn.Do(ctx, d.conn.B().Arbitrary("HELLO").Build()).AsMap()
	proto := hello["proto"]
	n, none := proto.AsInt64()
	if none != nil {
		n = 2
	}
	return n, err
}

func (d *dedicated) OnInvalidations(f func(keys []string)) <-chan error {
	return d.conn.SetOnInvalidations(func(ms []rueidis.RedisMessage) {
		var keys []string
		for i := range ms {
			if key, err := ms[i].ToString(); err == nil {
				keys = append(keys, key)
			}
		}
		f(keys)
	})
}

func (d *dedicated) Close() { d.conn.Close() }
