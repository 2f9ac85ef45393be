package goredis

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pawl-go/pawl/redisstore/internal/adapter"
)

// single is the adapter.Client of a client of one server.
type single struct{ client *redis.Client }

// cluster is the adapter.Client of a client of a cluster.
type cluster struct{ client *redis.ClusterClient }

// once is a command that the client sends once, whatever its MaxRetries: a script
// whose reply was lost may have run.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }

func (o once) Clone() redis.Cmder { return once{o.Cmder.Clone()} }

func (s *single) Script(ctx context.Context, command, body string, keys, args []string) (string, error) {
	return script(ctx, s.client, command, body, keys, args)
}

func (c *cluster) Script(ctx context.Context, command, body string, keys, args []string) (string, error) {
	return script(ctx, c.client, command, body, keys, args)
}

// processor sends commands.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func script(ctx context.Context, p processor, command, body string, keys, args []string) (string, error) {
	cmd := scriptCmd(ctx, command, body, keys, args)
	err := p.Process(ctx, once{cmd})
	return cmd.Val(), err
}

func scriptCmd(ctx context.Context, command, body string, keys, args []string) *redis.StringCmd {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, command, body, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	for _, a := range args {
		words = append(words, a)
	}
	cmd := redis.NewStringCmd(ctx, words...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

func (s *single) Confirm(ctx context.Context, _, command, body string, keys, args []string, replicas int, timeout time.Duration) (adapter.Confirmed, error) {
	return confirm(ctx, s.client, command, body, keys, args, replicas, timeout)
}

func (c *cluster) Confirm(ctx context.Context, addr, command, body string, keys, args []string, replicas int, timeout time.Duration) (adapter.Confirmed, error) {
	server, err := c.client.MasterForKey(ctx, keys[0])
	if addr != "" {
		c.client.ReloadState(ctx)
		server, err = c.at(ctx, addr)
	}
	if err != nil {
		return adapter.Confirmed{}, err
	}
	return confirm(ctx, server, command, body, keys, args, replicas, timeout)
}

// confirm sends a pipeline, which has a connection for itself.
func confirm(ctx context.Context, client *redis.Client, command, body string, keys, args []string, replicas int, timeout time.Duration) (adapter.Confirmed, error) {
	cmd := scriptCmd(ctx, command, body, keys, args)
	wait := redis.NewIntCmd(ctx, "WAIT", replicas, timeout.Milliseconds())
	pipe := client.WithTimeout(timeout + readTimeout).Pipeline()
	err := pipe.BatchProcess(ctx, once{cmd}, once{wait})
	if err == nil {
		_, err = pipe.Exec(ctx)
	}
	return adapter.Confirmed{Reply: cmd.Val(), Replicas: int(wait.Val())}, err
}

// at returns the client of the server at an address.
func (c *cluster) at(ctx context.Context, addr string) (*redis.Client, error) {
	var mu sync.Mutex
	var found *redis.Client
	err := c.client.ForEachShard(ctx, func(_ context.Context, server *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if server.Options().Addr == addr {
			found = server
		}
		return nil
	})
	if err == nil && found == nil {
		err = adapter.ErrNoServer
	}
	return found, err
}

func (s *single) Scanners(context.Context) ([]adapter.Scanner, error) {
	return []adapter.Scanner{scanner(s.client)}, nil
}

func (c *cluster) Scanners(ctx context.Context) (all []adapter.Scanner, err error) {
	var mu sync.Mutex
	err = c.client.ForEachMaster(ctx, func(_ context.Context, server *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, scanner(server))
		return nil
	})
	return all, err
}

func scanner(client *redis.Client) adapter.Scanner {
	return func(ctx context.Context, cursor uint64, match string) ([]string, uint64, error) {
		cmd := redis.NewScanCmd(ctx, nil, "SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", "1000")
		if err := client.Process(ctx, once{cmd}); err != nil {
			return nil, 0, err
		}
		keys, next := cmd.Val()
		return keys, next, nil
	}
}

func (*cluster) Mode(context.Context) (string, error) { return "cluster", nil }

func (s *single) Mode(ctx context.Context) (string, error) {
	cmd := redis.NewCmd(ctx, "HELLO")
	if err := s.client.Process(ctx, once{cmd}); err != nil {
		return "", err
	}
	mode := ""
	switch hello := cmd.Val().(type) {
	case map[any]any: // RESP3
		mode, _ = hello["mode"].(string)
	case []any: // RESP2
		for i := 0; i+1 < len(hello); i += 2 {
			if hello[i] == "mode" {
				mode, _ = hello[i+1].(string)
			}
		}
	}
	return mode, nil
}

func (*single) Reply(err error) string { return replied(err) }

func (*cluster) Reply(err error) string { return replied(err) }

func replied(err error) string {
	if e, ok := errors.AsType[redis.Error](err); ok && !errors.Is(err, redis.Nil) {
		return e.Error()
	}
	return ""
}

func (s *single) Addr() (addr, db string) {
	o := s.client.Options()
	if s.sentinel() {
		return "", ""
	}
	if o.DB != 0 {
		db = "/" + strconv.Itoa(o.DB)
	}
	return o.Addr, db
}

// Addr is that of one of them.
func (*cluster) Addr() (addr, db string) { return "", "" }

// sentinel reports whether it is the Sentinels that know the address.
func (s *single) sentinel() bool { return s.client.Options().Addr == "FailoverClient" }

// How long a subscription is silent before it is asked for a sign of life, and how
// long that is waited for.
const silence = 3 * time.Second

func (s *single) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	return subscribe(ctx, s.client.Subscribe(ctx), channel, up, message, func() error { return s.misled(ctx, channel) })
}

func (c *cluster) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	return subscribe(ctx, c.client.Subscribe(ctx), channel, up, message, func() error { return nil })
}

// subscribe lets a goroutine receive, for the client does not heed a context then.
// It ends when the client closes the connection, or gives up making one.
func subscribe(ctx context.Context, sub *redis.PubSub, channel string, up func(), message func(string), misled func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, end := make(chan any), make(chan error, 1)
	go func() { end <- receive(ctx, sub, channel, events, misled) }()
	for {
		select {
		case e := <-events:
			switch e := e.(type) {
			case *redis.Subscription:
				if e.Kind == "subscribe" && e.Channel == channel {
					up()
				}
			case *redis.Message:
				message(e.Payload)
			}
		case err := <-end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// receive subscribes, and gives what comes to events until an error or the end of ctx.
func receive(ctx context.Context, sub *redis.PubSub, channel string, events chan<- any, misled func() error) error {
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	if err := sub.Subscribe(ctx, channel); err != nil {
		return err
	}
	asked := false
	for {
		event, err := sub.ReceiveTimeout(ctx, silence)
		switch timeout, ok := errors.AsType[net.Error](err); {
		case err == nil:
			asked = false
		case ok && timeout.Timeout() && !asked:
			asked = true
			if err := misled(); err != nil {
				return err
			}
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		select {
		case events <- event:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// misled reports that the primary knows nothing of a subscription: with Sentinel, an
// old one may live on, cut off, and keep that connection.
func (s *single) misled(ctx context.Context, channel string) error {
	if !s.sentinel() {
		return nil
	}
	receivers, err := s.client.PubSubNumSub(ctx, channel).Result()
	if err != nil || receivers[channel] > 0 {
		return nil // if that cannot be asked, nothing is known
	}
	return errors.New("the connection leads to another server than the primary")
}
