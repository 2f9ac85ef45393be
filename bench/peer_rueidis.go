package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/pawl-go/pawl/bench/internal/wire"
)

// rueidisOption is what every user of rueidis here starts from.
func rueidisOption(addr string, sent *wire.Counter) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{addr},
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return sent.Wrap(conn), nil
		},
	}
}

type rueidislockLocker struct{ rueidislock.Locker }

// openRueidislock makes rueidislock as it comes, or as fast as it can be set
// for one server.
func openRueidislock(tuned bool) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
		o := rueidislock.LockerOption{ClientOption: rueidisOption(addr, sent), KeyValidity: ttl}
		if tuned {
			o.KeyMajority, o.NoLoopTracking = 1, true
			// An attempt that takes longer is given up, and without the client's
			// own invalidations nothing wakes it for the next: it would wait for
			// ever where the default, 20 ms, passes on a busy machine.
			o.TryNextAfter = ttl
		}
		l, err := rueidislock.NewLocker(o)
		if err != nil {
			return nil, err
		}
		return rueidislockLocker{l}, nil
	}
}

func (l rueidislockLocker) Lock(ctx context.Context, name string) (Held, error) {
	_, cancel, err := l.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockHeld(cancel), nil
}

func (l rueidislockLocker) Close() error {
	l.Locker.Close()
	return nil
}

type rueidislockHeld context.CancelFunc

func (h rueidislockHeld) Unlock() error {
	h()
	return nil
}

// floorLocker is the least that a lock can be: no waiting, no renewal, nothing
// told, no token.
type floorLocker struct {
	client rueidis.Client
	unlock *rueidis.Lua
	id     atomic.Int64
	cancel bool // requests end when their context does
}

const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

func openFloor(cancel bool) func(string, *wire.Counter, time.Duration) (Locker, error) {
	return func(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
		client, err := rueidis.NewClient(rueidisOption(addr, sent))
		if err != nil {
			return nil, err
		}
		return &floorLocker{client: client, cancel: cancel, unlock: rueidis.NewLuaScript(compareAndDelete)}, nil
	}
}

func (l *floorLocker) Lock(ctx context.Context, name string) (Held, error) {
	if !l.cancel {
		ctx = context.Background()
	}
	id := strconv.FormatInt(l.id.Add(1), 36)
	if err := l.client.Do(ctx, l.client.B().Set().Key(name).Value(id).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error(); err != nil {
		return nil, err
	}
	return &floorHeld{l, ctx, name, id}, nil
}

func (l *floorLocker) Close() error {
	l.client.Close()
	return nil
}

type floorHeld struct {
	l        *floorLocker
	ctx      context.Context
	name, id string
}

func (h *floorHeld) Unlock() error {
	n, err := h.l.unlock.Exec(h.ctx, h.l.client, []string{h.name}, []string{h.id}).AsInt64()
	if err == nil && n != 1 {
		err = errors.New("floor: the key was not there")
	}
	return err
}

// queueLocker is the least that a queue can be: no crash is dealt with, and nobody waits.
type queueLocker struct {
	client       rueidis.Client
	enter, leave *rueidis.Lua
	id           atomic.Int64
}

func openQueue(addr string, sent *wire.Counter, _ time.Duration) (Locker, error) {
	client, err := rueidis.NewClient(rueidisOption(addr, sent))
	if err != nil {
		return nil, err
	}
	return &queueLocker{
		client: client,
		enter:  rueidis.NewLuaScript(`return redis.call('RPUSH', KEYS[1], ARGV[1])`),
		leave: rueidis.NewLuaScript(`redis.call('LPOP', KEYS[1])
local next = redis.call('LINDEX', KEYS[1], 0)
if next then redis.call('PUBLISH', next, KEYS[1]) end
return 1`),
	}, nil
}

func (l *queueLocker) Lock(ctx context.Context, name string) (Held, error) {
	n, err := l.enter.Exec(ctx, l.client, []string{name}, []string{strconv.FormatInt(l.id.Add(1), 36)}).AsInt64()
	if err == nil && n != 1 {
		err = errors.New("queue: somebody else is there")
	}
	return queueHeld{l, ctx, name}, err
}

func (l *queueLocker) Close() error {
	l.client.Close()
	return nil
}

type queueHeld struct {
	l    *queueLocker
	ctx  context.Context
	name string
}

func (h queueHeld) Unlock() error {
	return h.l.leave.Exec(h.ctx, h.l.client, []string{h.name}, nil).Error()
}
