package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/zkstore"
)

var zkPeers = []peer{
	{name: "pawl", about: "this project, zkstore on go-zookeeper/zk", openTTL: openPawlZK},
	{name: "go-zk", about: "the Lock of go-zookeeper/zk", openTTL: openZKLock},
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// zkDialer counts what is written: the library writes each request by itself.
func zkDialer(sent *wire.Counter) zk.Dialer {
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		return sent.Writes(conn), nil
	}
}

func newZK(addr string, sent *wire.Counter, ttl time.Duration) (*zk.Conn, error) {
	conn, events, err := zk.Connect([]string{addr}, ttl, zk.WithLogger(silent{}), zk.WithDialer(zkDialer(sent)))
	if err != nil {
		return nil, err
	}
	for deadline := time.After(10 * time.Second); ; {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn, nil
			}
		case <-deadline:
			conn.Close()
			return nil, errors.New("zookeeper: no session")
		}
	}
}

type zkLocker struct{ conn *zk.Conn }

func openZKLock(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
	conn, err := newZK(addr, sent, ttl)
	if err != nil {
		return nil, err
	}
	return zkLocker{conn}, nil
}

// Lock does not end with ctx: the library's does not. The bench closes the
// connection then.
func (l zkLocker) Lock(_ context.Context, name string) (Held, error) {
	lock := zk.NewLock(l.conn, "/bench/"+name, zk.WorldACL(zk.PermAll))
	if err := lock.Lock(); err != nil {
		return nil, err
	}
	return lock, nil
}

func (l zkLocker) Close() error {
	l.conn.Close()
	return nil
}

func openPawlZK(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error) {
	store, err := zkstore.New([]string{addr}, &zkstore.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return sent.Writes(conn), nil
	}})
	if err != nil {
		return nil, err
	}
	return newPawl(store, ttl, func() {}), nil
}
