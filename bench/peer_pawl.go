package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/redisstore"
	pawlrueidis "github.com/pawl-go/pawl/redisstore/rueidis"
)

type pawlLocker struct {
	rueidis rueidis.Client
	store   *redisstore.Store
	client  *pawl.Client
}

func openPawl(addr string, sent *wire.Counter) (Locker, error) {
	l, err := newPawl(addr, sent, ttl)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func newPawl(addr string, sent *wire.Counter, ttl time.Duration) (*pawlLocker, error) {
	c, err := rueidis.NewClient(rueidisOption(addr, sent))
	if err != nil {
		return nil, err
	}
	store, err := pawlrueidis.New(c, nil)
	if err != nil {
		c.Close()
		return nil, err
	}
	return &pawlLocker{c, store, pawl.New(store, &pawl.Options{TTL: ttl})}, nil
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
	l.rueidis.Close()
	return err
}

type pawlHeld struct{ *pawl.Lease }

func (h pawlHeld) Unlock() error { return h.Lease.Unlock(context.Background()) }
