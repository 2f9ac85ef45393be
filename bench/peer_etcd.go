package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/etcdstore"
)

var etcdPeers = []peer{
	{name: "pawl", about: "this project, etcdstore on clientv3", openTTL: openPawlEtcd},
	{name: "concurrency", about: "clientv3/concurrency's Mutex; where they contend, a session for each goroutine", openTTL: openConcurrency},
}

func newEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// concurrencyLocker uses a session for one lock of a name at a time: two that
// share one are the same holder to etcd. Where nobody contends, one serves all.
type concurrencyLocker struct {
	client *clientv3.Client
	ttl    time.Duration

	mu   sync.Mutex
	all  []*concurrency.Session
	busy map[string]int // sessions in use, by name
	free map[string][]*concurrency.Session
}

func openConcurrency(addr string, _ *wire.Counter, ttl time.Duration) (Locker, error) {
	c, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	return &concurrencyLocker{client: c, ttl: ttl, busy: make(map[string]int), free: make(map[string][]*concurrency.Session)}, nil
}

// session returns one that nobody uses for that name.
func (l *concurrencyLocker) session(name string) (*concurrency.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if free := l.free[name]; len(free) > 0 {
		l.free[name] = free[:len(free)-1]
		return free[len(free)-1], nil
	}
	n := l.busy[name]
	l.busy[name]++
	if n == len(l.all) {
		s, err := concurrency.NewSession(l.client, concurrency.WithTTL(int(l.ttl.Seconds())))
		if err != nil {
			return nil, err
		}
		l.all = append(l.all, s)
	}
	return l.all[n], nil
}

func (l *concurrencyLocker) Lock(ctx context.Context, name string) (Held, error) {
	s, err := l.session(name)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, "/concurrency/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return &concurrencyHeld{l, s, m, name}, nil
}

func (l *concurrencyLocker) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, s := range l.all {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, l.client.Close())...)
}

type concurrencyHeld struct {
	l    *concurrencyLocker
	s    *concurrency.Session
	m    *concurrency.Mutex
	name string
}

func (h *concurrencyHeld) Unlock() error {
	err := h.m.Unlock(context.Background())
	h.l.mu.Lock()
	h.l.free[h.name] = append(h.l.free[h.name], h.s)
	h.l.mu.Unlock()
	return err
}

func openPawlEtcd(addr string, _ *wire.Counter, ttl time.Duration) (Locker, error) {
	c, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	store, err := etcdstore.New(c, nil)
	if err != nil {
		c.Close()
		return nil, err
	}
	return newPawl(store, ttl, func() { c.Close() }), nil
}
