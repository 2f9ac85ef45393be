package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"

	"github.com/redis/rueidis"
)

// machine is what one must know to read the figures. It names no machine.
type machine struct {
	When    time.Time
	System  string
	CPU     string `json:",omitempty"`
	Cores   int
	Load    string `json:",omitempty"` // the averages of 1, 5 and 15 minutes
	Go      string
	Redis   string
	Modules map[string]string
	// Medians through one client of rueidis, while nothing else happens.
	PingMicros    float64 // round trip
	MessageMicros float64 // from publishing to the waiting subscriber
}

func (b *bench) lookAround(ctx context.Context) (m machine, err error) {
	m = machine{When: time.Now().UTC().Truncate(time.Second), System: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Modules: make(map[string]string)}
	info, err := b.server.info(ctx)
	if err != nil {
		return m, err
	}
	m.Redis = info["redis_version"]
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	if cpu, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, model, _ := strings.Cut(string(cpu), "model name")
		model, _, _ = strings.Cut(model, "\n")
		m.CPU = strings.Trim(model, "\t: ")
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, d := range build.Deps {
			for _, known := range []string{"bsm/redislock", "redsync/v4", "redis/rueidis", "redis/go-redis/v9"} {
				if strings.HasSuffix(d.Path, known) && d.Replace == nil {
					m.Modules[d.Path] = d.Version
				}
			}
		}
	}
	m.PingMicros, m.MessageMicros, err = b.trips(ctx)
	return m, err
}

// trips measures the bare way to the server and back.
func (b *bench) trips(ctx context.Context) (ping, message float64, err error) {
	client, err := rueidis.NewClient(rueidisOption(b.server.addr, new(wire.Counter)))
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	got, lost, release, err := listen(ctx, client, "trips")
	if err != nil {
		return 0, 0, err
	}
	defer release()
	var pings, messages measure.Hist
	for end := time.Now().Add(b.duration); time.Now().Before(end); {
		t := time.Now()
		if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
			return 0, 0, err
		}
		pings.Record(time.Since(t))
		t = time.Now()
		if err := client.Do(ctx, client.B().Publish().Channel("trips").Message("go").Build()).Error(); err != nil {
			return 0, 0, err
		}
		select {
		case <-got:
		case err := <-lost:
			return 0, 0, err
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		}
		messages.Record(time.Since(t))
	}
	return pings.Micros(0.5), messages.Micros(0.5), nil
}

func (m machine) print(w io.Writer) {
	fmt.Fprintf(w, "%s, %d cores, %s, redis-server %s", m.System, m.Cores, m.Go, m.Redis)
	if m.Load != "" {
		fmt.Fprintf(w, ", load %s", m.Load)
	}
	fmt.Fprintf(w, "\nPING %.1f µs, PUBLISH to a subscriber %.1f µs (medians)\n", m.PingMicros, m.MessageMicros)
	for _, p := range peers {
		fmt.Fprintf(w, "  %-14s %s\n", p.name, p.about)
	}
}

// write writes everything as JSON, and answers where.
func (b *bench) write(file string, m machine) (string, error) {
	if file == "" {
		dir := "results"
		if _, err := os.Stat(filepath.Join("bench", "go.mod")); err == nil {
			dir = filepath.Join("bench", dir)
		}
		file = filepath.Join(dir, m.When.Format("2006-01-02T150405")+".json")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", err
		}
	}
	text, err := json.MarshalIndent(struct {
		Machine  machine
		Settings map[string]any
		Runs     []run
	}{m, map[string]any{
		"rounds": b.rounds, "time": b.duration.String(), "waiters": b.waiters, "procs": b.procs, "goroutines": b.goroutines,
		"own-clients": b.ownClients, "work": b.work.String(), "held": b.locks, "ttl": b.ttl.String(),
	}, b.runs}, "", "\t")
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, append(text, '\n'), 0o644)
}
