package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/integration/servers"
)

type etcdServer struct {
	addr   string
	client *clientv3.Client
}

func startEtcd(dir string) (string, func(), error) {
	e, err := servers.StartEtcd(dir, servers.EtcdOptions{})
	if err != nil {
		return "", nil, err
	}
	return e.Addr(), e.Stop, nil
}

func connectEtcd(addr string) (server, error) {
	c, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	return &etcdServer{addr, c}, nil
}

func (s *etcdServer) close() { s.client.Close() }

func (s *etcdServer) flush(ctx context.Context) error {
	_, err := s.client.Delete(ctx, "\x00", clientv3.WithFromKey())
	return err
}

func (s *etcdServer) version(ctx context.Context) (string, error) {
	st, err := s.client.Status(ctx, s.addr)
	if err != nil {
		return "", err
	}
	return "etcd " + st.Version, nil
}

// usage reads the server's own metrics: each message that a client sent counts
// as a request, on a stream too.
func (s *etcdServer) usage(ctx context.Context) (usage, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/metrics", nil)
	if err != nil {
		return usage{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return usage{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return usage{}, err
	}
	u := usage{Commands: make(map[string]float64), Scripts: math.NaN()}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || strings.HasPrefix(key, "#") {
			continue
		}
		switch {
		case strings.HasPrefix(key, "grpc_server_msg_received_total"):
			u.Requests += n
			_, method, _ := strings.Cut(key, `grpc_method="`)
			method, _, _ = strings.Cut(method, `"`)
			u.Commands[method] += n
		case key == "process_cpu_seconds_total":
			u.CPU = n
		case key == "process_resident_memory_bytes":
			u.Memory = n
		}
	}
	return u, nil
}

func (s *etcdServer) trips(ctx context.Context, d time.Duration) ([]trip, error) {
	var reads, writes measure.Hist
	for end := time.Now().Add(d); time.Now().Before(end); {
		t := time.Now()
		if _, err := s.client.Get(ctx, "trips"); err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
		reads.Record(time.Since(t))
		t = time.Now()
		if _, err := s.client.Put(ctx, "trips", "x"); err != nil {
			return nil, fmt.Errorf("put: %w", err)
		}
		writes.Record(time.Since(t))
	}
	return []trip{{"Get", reads.Micros(0.5)}, {"Put", writes.Micros(0.5)}}, nil
}
