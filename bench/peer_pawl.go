package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/driver"
	pawlrueidis "github.com/pawl-go/pawl/redisstore/rueidis"
)

// pawlLocker is pawl on some store.
type pawlLocker struct {
	store  driver.Store
	client *pawl.Client
	close  func() // of what the store was made of
}

func newPawl(store driver.Store, ttl time.Duration, close func()) *pawlLocker {
	return &pawlLocker{store, pawl.New(store, &pawl.Options{TTL: ttl}), close}
}

func openPawlRedis(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
	c, err := rueidis.NewClient(rueidisOption(addr, sent))
	if err != nil {
		return nil, err
	}
	store, err := pawlrueidis.New(c, nil)
	if err != nil {
		c.Close()
		return nil, err
	}
	return newPawl(store, ttl, c.Close), nil
}

func (l *pawlLocker) Lock(ctx context.Context, name string) (Held, error) {
	lease, err := l.client.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return pawlHeld{lease}, nil
}

func (l *pawlLocker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := l.client.Close(ctx)
	if err != nil {
		err = fmt.Errorf("close pawl's client: %w", err)
	}
	err = errors.Join(err, l.store.Close())
	l.close()
	return err
}

type pawlHeld struct{ *pawl.Lease }

func (h pawlHeld) Unlock() error { return h.Lease.Unlock(context.Background()) }
