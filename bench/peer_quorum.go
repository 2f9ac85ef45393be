package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/quorum"
	pawlrueidis "github.com/pawl-go/pawl/redisstore/rueidis"
)

func openPawlQuorum(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
	var clients []rueidis.Client
	closeAll := func() {
		for _, c := range clients {
			c.Close()
		}
	}
	var nodes []driver.Store
	for _, a := range strings.Split(addr, ",") {
		c, err := rueidis.NewClient(rueidisOption(a, sent))
		if err == nil {
			clients = append(clients, c)
			var node driver.Store
			node, err = pawlrueidis.New(c, nil)
			nodes = append(nodes, node)
		}
		if err != nil {
			closeAll()
			return nil, err
		}
	}
	store, err := quorum.New(nodes, nil)
	if err != nil {
		closeAll()
		return nil, err
	}
	return newPawl(store, ttl, closeAll), nil
}

type redsyncQuorum struct {
	*redsyncLocker
	clients []*redis.Client
}

func openRedsyncQuorum(more ...redsync.Option) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
		var l redsyncQuorum
		var pools []syncredis.Pool
		for _, a := range strings.Split(addr, ",") {
			c := newGoRedis(a, sent)
			l.clients, pools = append(l.clients, c), append(pools, goredis.NewPool(c))
		}
		l.redsyncLocker = &redsyncLocker{locks: redsync.New(pools...), opts: append(more, redsync.WithExpiry(ttl))}
		return l, nil
	}
}

func (l redsyncQuorum) Close() error {
	var errs []error
	for _, c := range l.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// quorumFloor is the least that a lock on several servers can be: one request to each of
// them at the same time, to lock and to unlock, until a majority has replied.
type quorumFloor struct {
	clients []rueidis.Client
	to      []chan func(rueidis.Client) // for each server, in order
	sending sync.WaitGroup
	unlock  *rueidis.Lua
	id      atomic.Int64
}

// behind is how many requests wait for a server that does not reply. Further ones fail.
const behind = 1024

func openQuorumFloor(addr string, sent *wire.Counter, _ time.Duration) (Locker, error) {
	l := &quorumFloor{unlock: rueidis.NewLuaScript(compareAndDelete)}
	for _, a := range strings.Split(addr, ",") {
		c, err := rueidis.NewClient(rueidisOption(a, sent))
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		to := make(chan func(rueidis.Client), behind)
		l.clients, l.to = append(l.clients, c), append(l.to, to)
		l.sending.Go(func() {
			for f := range to {
				f(c)
			}
		})
	}
	return l, nil
}

// all sends a request to each server, and returns when a majority has done it.
func (l *quorumFloor) all(ctx context.Context, f func(rueidis.Client) error) error {
	replies := make(chan error, len(l.to))
	for _, to := range l.to {
		select {
		case to <- func(c rueidis.Client) { replies <- f(c) }:
		default:
			replies <- errors.New("the server is behind")
		}
	}
	most, good := len(l.to)/2+1, 0
	var err error
	for range l.to {
		select {
		case e := <-replies:
			if e != nil {
				err = e
			} else if good++; good == most {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (l *quorumFloor) Lock(ctx context.Context, name string) (Held, error) {
	id := strconv.FormatInt(l.id.Add(1), 36)
	err := l.all(ctx, func(c rueidis.Client) error {
		return c.Do(context.Background(), c.B().Set().Key(name).Value(id).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
	})
	if err != nil {
		return nil, err
	}
	return &quorumFloorHeld{l, name, id}, nil
}

// Close ends the requests under way first: one of a server that is stopped has no end.
func (l *quorumFloor) Close() error {
	for _, to := range l.to {
		close(to)
	}
	for _, c := range l.clients {
		c.Close()
	}
	l.sending.Wait()
	return nil
}

type quorumFloorHeld struct {
	l        *quorumFloor
	name, id string
}

func (h *quorumFloorHeld) Unlock() error {
	return h.l.all(context.Background(), func(c rueidis.Client) error {
		return h.l.unlock.Exec(context.Background(), c, []string{h.name}, []string{h.id}).Error()
	})
}
