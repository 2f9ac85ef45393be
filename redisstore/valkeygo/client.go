package valkeygo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// conn is the adapter.Client of a client, of one server or of a cluster.
type conn struct{ client valkey.Client }

func (c *conn) Script(ctx context.Context, command, body string, keys, args []string) (string, error) {
	return script(ctx, c.client, command, body, keys, args)
}

func script(ctx context.Context, c valkey.CoreClient, command, body string, keys, args []string) (string, error) {
	return c.Do(ctx, scriptCmd(c, command, body, keys, args)).ToString()
}

func scriptCmd(c valkey.CoreClient, command, body string, keys, args []string) valkey.Completed {
	b, n := c.B(), int64(len(keys))
	if command == "EVALSHA" {
		return b.Evalsha().Sha1(body).Numkeys(n).Key(keys...).Arg(args...).Build()
	}
	return b.Eval().Script(body).Numkeys(n).Key(keys...).Arg(args...).Build()
}

func (c *conn) Confirm(ctx context.Context, addr, command, body string, keys, args []string, replicas int, timeout time.Duration) (got adapter.Confirmed, err error) {
	on := c.client
	if addr != "" {
		if on = on.Nodes()[addr]; on == nil {
			return got, adapter.ErrNoServer
		}
	}
	d, release := on.Dedicate()
	defer release()
	rs := d.DoMulti(ctx, scriptCmd(on, command, body, keys, args),
		d.B().Wait().Numreplicas(int64(replicas)).Timeout(timeout.Milliseconds()).Build())
	if got.Reply, err = rs[0].ToString(); err != nil {
		return got, err
	}
	n, err := rs[1].AsInt64()
	got.Replicas = int(n)
	return got, err
}

func (c *conn) Scanners(ctx context.Context) (all []adapter.Scanner, err error) {
	if c.client.Mode() != valkey.ClientModeCluster {
		return []adapter.Scanner{scanner(c.client)}, nil
	}
	for addr, node := range c.client.Nodes() {
		role, err := hello(ctx, node, "role")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
		if is, _ := role.ToString(); is == "master" {
			all = append(all, scanner(node))
		}
	}
	return all, nil
}

func scanner(c valkey.Client) adapter.Scanner {
	return func(ctx context.Context, cursor uint64, match string) ([]string, uint64, error) {
		// Built by hand, SCAN is not marked as one to repeat after a fault, which
		// would hide the fault until the context ends.
		scan := c.B().Arbitrary("SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", "1000").Build()
		page, err := c.Do(ctx, scan).AsScanEntry()
		return page.Elements, page.Cursor, err
	}
}

func (c *conn) Mode(ctx context.Context) (string, error) {
	mode, err := hello(ctx, c.client, "mode")
	if err != nil {
		return "", err
	}
	return mode.ToString()
}

// hello returns a field of the reply to HELLO, an empty message if there is none.
func hello(ctx context.Context, c valkey.CoreClient, field string) (valkey.ValkeyMessage, error) {
	reply, err := c.Do(ctx, c.B().Arbitrary("HELLO").Build()).AsMap()
	if valkey.IsParseErr(err) {
		err = nil
	}
	return reply[field], err
}

func (c *conn) Reply(err error) string {
	if e, ok := errors.AsType[*valkey.ValkeyError](err); ok && !e.IsNil() {
		return adapter.Coded(e.Error())
	}
	return ""
}

func (c *conn) Addr() (addr, db string) {
	nodes := c.client.Nodes()
	if len(nodes) != 1 { // one of them it was
		return "", ""
	}
	for addr = range nodes {
	}
	return addr, ""
}

func (c *conn) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	d, err := c.dedicate(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	primary, _ := c.Addr()
	lost := d.SetPubSubHooks(valkey.PubSubHooks{
		OnSubscription: func(s valkey.PubSubSubscription) {
			if s.Kind == "subscribe" && s.Channel == channel {
				up()
			}
		},
		OnMessage: func(m valkey.PubSubMessage) { message(m.Message) },
	})
	if err := d.Do(ctx, d.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		return err
	}
	moved := time.NewTicker(time.Second)
	defer moved.Stop()
	for {
		select {
		case err := <-lost:
			if err == nil {
				err = errors.New("connection lost")
			}
			return err
		case <-moved.C:
			// An old primary may live on, cut off, and keep this connection.
			if now, _ := c.Addr(); c.client.Mode() == valkey.ClientModeSentinel && now != primary {
				return fmt.Errorf("the primary was %s, and is %s", primary, now)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sharded is the Conn of a client, which can listen to sharded channels, too.
type sharded struct {
	*adapter.TrackingConn
	client valkey.Client
}

// SubscribeShard implements [redisstore.ShardSubscriber], on the connections that
// everything else uses, too.
func (s *sharded) SubscribeShard(ctx context.Context, channel string, up func(), message func(string)) error {
	hooked := valkey.WithOnSubscriptionHook(ctx, func(s valkey.PubSubSubscription) {
		if s.Kind == "ssubscribe" && s.Channel == channel {
			up()
		}
	})
	err := s.client.Receive(hooked, s.client.B().Ssubscribe().Channel(channel).Build(), func(m valkey.PubSubMessage) { message(m.Message) })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return fmt.Errorf("listen to %s: the server has ended it, as it does when the slot moves", channel)
	}
	return fmt.Errorf("listen to %s: %w", channel, s.Failed(err))
}

// dedicate makes a connection.
func (c *conn) dedicate(ctx context.Context) (valkey.DedicatedClient, error) {
	return adapter.Dedicate(ctx, func() valkey.DedicatedClient {
		d, _ := c.client.Dedicate()
		return d
	})
}

func (c *conn) Dedicate(ctx context.Context) (adapter.Dedicated, error) {
	d, err := c.dedicate(ctx)
	return &dedicated{d}, err
}

// dedicated is the adapter.Dedicated of a connection.
type dedicated struct{ conn valkey.DedicatedClient }

func (d *dedicated) Script(ctx context.Context, command, body string, keys, args []string) (string, error) {
	return script(ctx, d.conn, command, body, keys, args)
}

func (d *dedicated) Do(ctx context.Context, words ...string) error {
	return d.conn.Do(ctx, d.conn.B().Arbitrary(words...).Build()).Error()
}

func (d *dedicated) Protocol(ctx context.Context) (int64, error) {
	proto, err := hello(ctx, d.conn, "proto")
	n, none := proto.AsInt64()
	if none != nil {
		n = 2
	}
	return n, err
}

func (d *dedicated) OnInvalidations(f func(keys []string)) <-chan error {
	return d.conn.SetOnInvalidations(func(ms []valkey.ValkeyMessage) {
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
