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

// single is the adapter.Client of a client of one server.
type single struct{ client valkey.Client }

func (s *single) Script(ctx context.Context, command, body string, keys, args []string) (string, error) {
	return script(ctx, s.client, command, body, keys, args)
}

func script(ctx context.Context, c valkey.CoreClient, command, body string, keys, args []string) (string, error) {
	b, n := c.B(), int64(len(keys))
	if command == "EVALSHA" {
		return c.Do(ctx, b.Evalsha().Sha1(body).Numkeys(n).Key(keys...).Arg(args...).Build()).ToString()
	}
	return c.Do(ctx, b.Eval().Script(body).Numkeys(n).Key(keys...).Arg(args...).Build()).ToString()
}

func (s *single) Scan(ctx context.Context, cursor uint64, match string) ([]string, uint64, error) {
	// Built by hand, SCAN is not marked as one to repeat after a fault, which
	// would hide the fault until the context ends.
	scan := s.client.B().Arbitrary("SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", "1000").Build()
	page, err := s.client.Do(ctx, scan).AsScanEntry()
	return page.Elements, page.Cursor, err
}

func (s *single) Mode(ctx context.Context) (string, error) {
	mode, err := hello(ctx, s.client, "mode")
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

func (s *single) Reply(err error) string {
	if e, ok := errors.AsType[*valkey.ValkeyError](err); ok && !e.IsNil() {
		return adapter.Coded(e.Error())
	}
	return ""
}

func (s *single) Addr() (addr, db string) {
	nodes := s.client.Nodes()
	if len(nodes) != 1 { // one of them it was
		return "", ""
	}
	for addr = range nodes {
	}
	return addr, ""
}

func (s *single) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	d, err := s.dedicate(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	primary, _ := s.Addr()
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
			if now, _ := s.Addr(); s.client.Mode() == valkey.ClientModeSentinel && now != primary {
				return fmt.Errorf("the primary was %s, and is %s", primary, now)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dedicate makes a connection.
func (s *single) dedicate(ctx context.Context) (valkey.DedicatedClient, error) {
	return adapter.Dedicate(ctx, func() valkey.DedicatedClient {
		d, _ := s.client.Dedicate()
		return d
	})
}

func (s *single) Dedicate(ctx context.Context) (adapter.Dedicated, error) {
	d, err := s.dedicate(ctx)
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
