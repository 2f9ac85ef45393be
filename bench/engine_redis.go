package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
	"github.com/pawl-go/pawl/integration/servers"
)

func startRedis(dir string) (string, func(), error) {
	r, err := servers.StartRedis(dir, servers.RedisOptions{Args: []string{"--maxclients", "20000"}})
	if err != nil {
		return "", nil, err
	}
	return r.Addr(), r.Stop, nil
}

type redisServer struct {
	addr   string
	client rueidis.Client
}

func openRedisServer(addr string) (server, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	return &redisServer{addr, client}, nil
}

func (s *redisServer) close() { s.client.Close() }

// flush removes all keys; scripts stay known.
func (s *redisServer) flush(ctx context.Context) error {
	return s.client.Do(ctx, s.client.B().Flushall().Sync().Build()).Error()
}

// info returns the numbers and texts of INFO, of all its sections.
func (s *redisServer) info(ctx context.Context) (map[string]string, error) {
	text, err := s.client.Do(ctx, s.client.B().Info().Section("everything").Build()).ToString()
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	info := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok {
			info[k] = v
		}
	}
	return info, nil
}

func (s *redisServer) usage(ctx context.Context) (usage, error) {
	info, err := s.info(ctx)
	if err != nil {
		return usage{}, err
	}
	u := usage{Commands: make(map[string]float64), Requests: math.NaN()}
	for k, v := range info {
		if name, ok := strings.CutPrefix(k, "cmdstat_"); ok {
			var calls, usec float64
			if _, err := fmt.Sscanf(v, "calls=%g,usec=%g", &calls, &usec); err != nil {
				return u, fmt.Errorf("INFO: %s:%s: %w", k, v, err)
			}
			u.Commands[name] = calls
			if name == "evalsha" {
				u.Scripts = usec / 1e6
			}
		}
	}
	for name, p := range map[string]*float64{"used_cpu_user": &u.CPU, "used_cpu_sys": &u.CPU, "used_memory": &u.Memory} {
		n, err := strconv.ParseFloat(info[name], 64)
		if err != nil {
			return u, fmt.Errorf("INFO: %s: %w", name, err)
		}
		*p += n
	}
	return u, nil
}

func (s *redisServer) version(ctx context.Context) (string, error) {
	info, err := s.info(ctx)
	return "redis-server " + info["redis_version"], err
}

// trips measures the bare way to the server and back, and from publishing to
// the waiting subscriber.
func (s *redisServer) trips(ctx context.Context, d time.Duration) ([]trip, error) {
	client, err := rueidis.NewClient(rueidisOption(s.addr, new(wire.Counter)))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	got, lost, release, err := listen(ctx, client, "trips")
	if err != nil {
		return nil, err
	}
	defer release()
	var pings, messages measure.Hist
	for end := time.Now().Add(d); time.Now().Before(end); {
		t := time.Now()
		if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
			return nil, err
		}
		pings.Record(time.Since(t))
		t = time.Now()
		if err := client.Do(ctx, client.B().Publish().Channel("trips").Message("go").Build()).Error(); err != nil {
			return nil, err
		}
		select {
		case <-got:
		case err := <-lost:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		messages.Record(time.Since(t))
	}
	return []trip{{"PING", pings.Micros(0.5)}, {"PUBLISH to a subscriber", messages.Micros(0.5)}}, nil
}
