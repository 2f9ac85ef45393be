package goredis

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// single is the adapter.Client of a client of one server.
type single struct{ client *redis.Client }

// once is a command that the client sends once, whatever its MaxRetries: a script
// whose reply was lost may have run.
type once struct{ redis.Cmder }

func (once) NoRetry() bool { return true }

func (o once) Clone() redis.Cmder { return once{o.Cmder.Clone()} }

func (s *single) Script(ctx context.Context, command, body string, keys, args []string) (string, error) {
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
	err := s.client.Process(ctx, once{cmd})
	return cmd.Val(), err
}

func (s *single) Scan(ctx context.Context, cursor uint64, match string) ([]string, uint64, error) {
	cmd := redis.NewScanCmd(ctx, nil, "SCAN", strconv.FormatUint(cursor, 10), "MATCH", match, "COUNT", "1000")
	if err := s.client.Process(ctx, once{cmd}); err != nil {
		return nil, 0, err
	}
	keys, next := cmd.Val()
	return keys, next, nil
}

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

func (s *single) Reply(err error) string {
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

// sentinel reports whether it is the Sentinels that know the address.
func (s *single) sentinel() bool { return s.client.Options().Addr == "FailoverClient" }

// How long a subscription is silent before it is asked for a sign of life, and how
// long that is waited for.
const silence = 3 * time.Second

// Subscribe lets a goroutine receive, for the client does not heed a context then.
// It ends when the client closes the connection, or gives up making one.
func (s *single) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, end := make(chan any), make(chan error, 1)
	go func() { end <- s.receive(ctx, channel, events) }()
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
func (s *single) receive(ctx context.Context, channel string, events chan<- any) error {
	sub := s.client.Subscribe(ctx)
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
			if err := s.misled(ctx, channel); err != nil {
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
