package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// server is the Redis under all peers, seen by the bench itself.
type server struct {
	addr   string
	client rueidis.Client
}

func openServer(addr string) (*server, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	return &server{addr, client}, nil
}

func (s *server) close() { s.client.Close() }

// flush removes all keys; scripts stay known.
func (s *server) flush(ctx context.Context) error {
	return s.client.Do(ctx, s.client.B().Flushall().Sync().Build()).Error()
}

// info answers the numbers and texts of INFO, of all its sections.
func (s *server) info(ctx context.Context) (map[string]string, error) {
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

// usage is what the server has done so far.
type usage struct {
	Commands map[string]float64 // calls by name, those inside scripts too
	Scripts  float64            // seconds in EVALSHA
	CPU      float64            // seconds
	Memory   float64            // bytes
}

func (s *server) usage(ctx context.Context) (usage, error) {
	info, err := s.info(ctx)
	if err != nil {
		return usage{}, err
	}
	u := usage{Commands: make(map[string]float64)}
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
