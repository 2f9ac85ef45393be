package rueidis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// Subscribe implements [redisstore.Conn].
func (c *conn) Subscribe(ctx context.Context, channel string, up func(), message func(string)) error {
	client, err := c.ready(ctx)
	if err != nil {
		return err
	}
	d, err := dedicate(ctx, client)
	if err != nil {
		return err
	}
	defer d.Close()
	primary := c.addr()
	lost := d.SetPubSubHooks(rueidis.PubSubHooks{
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" && s.Channel == channel {
				up()
			}
		},
		OnMessage: func(m rueidis.PubSubMessage) { message(m.Message) },
	})
	if err := d.Do(ctx, d.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		return fmt.Errorf("subscribe to %s: %w", channel, c.failed(err))
	}
	var look <-chan time.Time
	if client.Mode() == rueidis.ClientModeSentinel {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case err := <-lost:
			if err == nil {
				err = errors.New("connection lost")
			}
			return fmt.Errorf("listen to %s: %w", channel, c.failed(err))
		case <-look:
			// An old primary may live on, cut off, and keep this connection.
			if now := c.addr(); now != primary {
				return fmt.Errorf("listen to %s: the primary was %s, and is %s", channel, primary, now)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// SubscribeShard implements [redisstore.ShardSubscriber], on the connections that
// everything else uses, too.
func (c *conn) SubscribeShard(ctx context.Context, channel string, up func(), message func(string)) error {
	client, err := c.ready(ctx)
	if err != nil {
		return err
	}
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "ssubscribe" && s.Channel == channel {
			up()
		}
	})
	err = client.Receive(hooked, client.B().Ssubscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) { message(m.Message) })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return fmt.Errorf("listen to %s: the server has ended it, as it does when the slot moves", channel)
	}
	return fmt.Errorf("listen to %s: %w", channel, c.failed(err))
}
