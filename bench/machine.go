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
)

// machine is what one must know to read the figures. It names no machine.
type machine struct {
	When    time.Time
	System  string
	CPU     string `json:",omitempty"`
	Cores   int
	Load    string `json:",omitempty"` // the averages of 1, 5 and 15 minutes
	Go      string
	Server  string
	Modules map[string]string
	Trips   []trip // while nothing else happens
}

func (b *bench) lookAround(ctx context.Context) (m machine, err error) {
	m = machine{When: time.Now().UTC().Truncate(time.Second), System: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.GOMAXPROCS(0), Go: runtime.Version(), Modules: make(map[string]string)}
	if m.Server, err = b.server.version(ctx); err != nil {
		return m, err
	}
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
			for _, known := range libraries {
				if strings.HasSuffix(d.Path, known) && d.Replace == nil {
					m.Modules[d.Path] = d.Version
				}
			}
		}
	}
	m.Trips, err = b.server.trips(ctx, b.duration)
	return m, err
}

// libraries are those whose versions matter.
var libraries = []string{"bsm/redislock", "redsync/v4", "redis/rueidis", "redis/go-redis/v9", "etcd/client/v3",
	"go-zookeeper/zk", "cirello.io/pglock", "jackc/pgx/v5", "go-sql-driver/mysql"}

func (m machine) print(w io.Writer, peers []peer) {
	fmt.Fprintf(w, "%s, %d cores, %s, %s", m.System, m.Cores, m.Go, m.Server)
	if m.Load != "" {
		fmt.Fprintf(w, ", load %s", m.Load)
	}
	sep := "\n"
	for _, t := range m.Trips {
		fmt.Fprintf(w, "%s%s %.1f µs", sep, t.What, t.Micros)
		sep = ", "
	}
	fmt.Fprintln(w, " (medians)")
	for _, p := range peers {
		fmt.Fprintf(w, "  %-14s %s\n", p.name, p.about)
	}
}

// write writes everything as JSON, and returns where.
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
		"engine": b.engine.name, "rounds": b.rounds, "time": b.duration.String(), "waiters": b.waiters, "procs": b.procs, "goroutines": b.goroutines,
		"own-clients": b.ownClients, "work": b.work.String(), "held": b.locks, "ttl": b.ttl.String(),
	}, b.runs}, "", "\t")
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, append(text, '\n'), 0o644)
}
