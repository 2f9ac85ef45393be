package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/quorum"
	pawlrueidis "github.com/pawl-go/pawl/redisstore/rueidis"
)

// five is servers of Redis that know nothing of each other. Their addresses, with commas,
// are the engine's.
type five struct{ servers []*servers.Redis }

func newQuorumEngine() engine {
	f := new(five)
	return engine{name: "quorum", base: "floor", peers: quorumPeers, start: f.start, connect: f.connect, fail: f.fail}
}

func (f *five) start(dir string) (string, func(), error) {
	f.servers = nil
	stop := func() {
		for _, r := range f.servers {
			r.Stop()
		}
	}
	var addrs []string
	for i := range 5 {
		own := filepath.Join(dir, strconv.Itoa(i))
		err := os.Mkdir(own, 0o755)
		if err == nil {
			var r *servers.Redis
			if r, err = servers.StartRedis(own, servers.RedisOptions{}); err == nil {
				f.servers = append(f.servers, r)
				addrs = append(addrs, r.Addr())
			}
		}
		if err != nil {
			stop()
			return "", nil, err
		}
	}
	return strings.Join(addrs, ","), stop, nil
}

// fail stops or kills one of the servers, and returns what brings it back, without data.
func (f *five) fail(how string) (mend func() error, err error) {
	r := f.servers[2]
	switch how {
	case "stopped":
		r.Pause()
		return func() error { r.Resume(); return nil }, nil
	case "killed":
		r.Kill()
		return func() error { return r.Restart(false) }, nil
	}
	return nil, fmt.Errorf("a server cannot be %s", how)
}

func (f *five) connect(addr string) (server, error) {
	s := new(quorumServer)
	for _, a := range strings.Split(addr, ",") {
		one, err := openRedisServer(a)
		if err != nil {
			s.close()
			return nil, err
		}
		s.addrs = append(s.addrs, a)
		s.each = append(s.each, one.(*redisServer))
	}
	return s, nil
}

// quorumServer is all of them.
type quorumServer struct {
	addrs []string
	each  []*redisServer
}

func (s *quorumServer) close() {
	for _, one := range s.each {
		one.close()
	}
}

// flush removes all keys, and makes pawl's nodes vote again.
func (s *quorumServer) flush(ctx context.Context) (err error) {
	var nodes []driver.Store
	for i, one := range s.each {
		err := one.flush(ctx)
		if err != nil { // by a connection to the server before it was killed
			err = one.flush(ctx)
		}
		if err != nil {
			return err
		}
		node, err := pawlrueidis.Open("redis://"+s.addrs[i], nil)
		if err != nil {
			return err
		}
		defer node.Close()
		nodes = append(nodes, node)
	}
	return quorum.Init(ctx, nodes, nil)
}

func (s *quorumServer) usage(ctx context.Context) (usage, error) {
	all := usage{Commands: make(map[string]float64)}
	for _, one := range s.each {
		u, err := one.usage(ctx)
		if err != nil {
			return all, err
		}
		for name, n := range u.Commands {
			all.Commands[name] += n
		}
		all.Requests += u.Requests // NaN
		all.Scripts += u.Scripts
		all.CPU += u.CPU
		all.Memory += u.Memory
	}
	all.Commands["info"] -= float64(len(s.each) - 1) // this look is one
	return all, nil
}

func (s *quorumServer) version(ctx context.Context) (string, error) {
	v, err := s.each[0].version(ctx)
	return "5 × " + v, err
}

func (s *quorumServer) trips(ctx context.Context, d time.Duration) ([]trip, error) {
	return s.each[0].trips(ctx, d)
}

// struck measures p while all servers are up, and from the moment in which one is stopped
// or killed.
func (b *bench) struck(ctx context.Context, p peer, how string) (m metrics, err error) {
	l, err := p.open(b.addr, new(wire.Counter))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	name := p.name + "-" + how
	if _, err := timed(ctx, l, name, b.duration/5); err != nil {
		return nil, err
	}
	up, err := timed(ctx, l, name, b.duration)
	if err != nil {
		return nil, err
	}
	mend, err := b.engine.fail(how)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, mend()) }()
	down, err := timed(ctx, l, name, b.duration)
	if err != nil {
		return nil, err
	}
	m = metrics{"p50_up": up.Micros(0.5), "p99_up": up.Micros(0.99), "p50_us": down.Micros(0.5), "p99_us": down.Micros(0.99),
		"longest_ms": float64(down.Max().Microseconds()) / 1000}
	m["times_p99"] = m["p99_us"] / m["p99_up"]
	return m, nil
}

// timed locks and unlocks for d.
func timed(ctx context.Context, l Locker, name string, d time.Duration) (*measure.Hist, error) {
	h := new(measure.Hist)
	return h, cycle(ctx, l, name, d, h)
}
