package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/pawl-go/pawl/bench/internal/wire"
)

func newGoRedis(addr string, sent *wire.Counter) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     addr,
		Dialer:                   sent.Dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

type redsyncLocker struct {
	client *redis.Client
	locks  *redsync.Redsync
	opts   []redsync.Option
}

// openRedsync makes redsync with a delay between tries; 0 is its own default.
func openRedsync(delay time.Duration) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
		client := newGoRedis(addr, sent)
		opts := []redsync.Option{redsync.WithExpiry(ttl)}
		if delay > 0 {
			opts = append(opts, redsync.WithRetryDelay(delay))
		}
		return &redsyncLocker{client, redsync.New(goredis.NewPool(client)), opts}, nil
	}
}

func (l *redsyncLocker) Lock(ctx context.Context, name string) (Held, error) {
	for {
		m := l.locks.NewMutex(name, l.opts...)
		err := m.LockContext(ctx)
		if err == nil {
			return redsyncHeld{m}, nil
		}
		var taken *redsync.ErrTaken
		if ctx.Err() != nil || !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			return nil, err
		}
		// It has used up its tries, 32 by default; Lock means to go on.
	}
}

func (l *redsyncLocker) Close() error { return l.client.Close() }

type redsyncHeld struct{ *redsync.Mutex }

func (h redsyncHeld) Unlock() error {
	ok, err := h.Mutex.UnlockContext(context.Background())
	if err == nil && !ok {
		err = errors.New("redsync: not unlocked")
	}
	return err
}

type redislockLocker struct {
	client *redis.Client
	locks  *redislock.Client
	delay  time.Duration
}

func openRedislock(delay time.Duration) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
		client := newGoRedis(addr, sent)
		return &redislockLocker{client, redislock.New(client), delay}, nil
	}
}

func (l *redislockLocker) Lock(ctx context.Context, name string) (Held, error) {
	for {
		lock, err := l.locks.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(l.delay)})
		if err == nil {
			return redislockHeld{lock}, nil
		}
		// Without a deadline in ctx it gives up after the TTL; Lock goes on.
		if ctx.Err() != nil || !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
	}
}

func (l *redislockLocker) Close() error { return l.client.Close() }

type redislockHeld struct{ *redislock.Lock }

func (h redislockHeld) Unlock() error { return h.Release(context.Background()) }
