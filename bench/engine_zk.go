package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/integration/servers"
)

func startZK(dir string) (string, func(), error) {
	z, err := servers.StartZooKeeper(dir, servers.ZooKeeperOptions{})
	if err != nil {
		return "", nil, err
	}
	return z.Addr(), z.Stop, nil
}

type zkServer struct {
	addr string
	conn *zk.Conn
}

func connectZK(addr string) (server, error) {
	conn, err := newZK(addr, new(wire.Counter), ttl)
	if err != nil {
		return nil, err
	}
	return &zkServer{addr, conn}, nil
}

func (s *zkServer) close() { s.conn.Close() }

func (s *zkServer) flush(context.Context) error {
	tops, _, err := s.conn.Children("/")
	for _, top := range tops {
		if top != "zookeeper" {
			err = errors.Join(err, s.remove("/"+top))
		}
	}
	return err
}

func (s *zkServer) remove(node string) error {
	children, _, err := s.conn.Children(node)
	for _, c := range children {
		if err == nil {
			err = s.remove(path.Join(node, c))
		}
	}
	if err == nil {
		err = s.conn.Delete(node, -1)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

func (s *zkServer) version(ctx context.Context) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	v, _, _ := strings.Cut(strings.TrimPrefix(line, "Zookeeper version: "), "-")
	return "ZooKeeper " + v, err
}

// usage: the requests are counted on their way.
func (s *zkServer) usage(context.Context) (usage, error) {
	return usage{Requests: math.NaN(), Scripts: math.NaN(), CPU: math.NaN(), Memory: math.NaN()}, nil
}

func (s *zkServer) trips(_ context.Context, d time.Duration) ([]trip, error) {
	var reads, writes measure.Hist
	if _, err := s.conn.Create("/trips", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return nil, err
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		t := time.Now()
		if _, _, err := s.conn.Get("/trips"); err != nil {
			return nil, err
		}
		reads.Record(time.Since(t))
		t = time.Now()
		if _, err := s.conn.Set("/trips", []byte("x"), -1); err != nil {
			return nil, err
		}
		writes.Record(time.Since(t))
	}
	return []trip{{"Get", reads.Micros(0.5)}, {"Set", writes.Micros(0.5)}}, nil
}
