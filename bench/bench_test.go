package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pawl-go/pawl/bench/internal/wire"
)

// The bench starts itself for its workers.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		if err := worker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWholeRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	var out bytes.Buffer
	err := start(t.Context(), []string{"-rounds", "1", "-time", "100ms", "-procs", "2", "-goroutines", "2", "-waiters", "3",
		"-held", "300", "-ttl", "900ms", "-peers", "pawl,floor,redsync-5ms", "-json", file}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var results struct {
		Machine machine
		Runs    []run
	}
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	if results.Machine.Redis == "" || results.Machine.PingMicros <= 0 {
		t.Errorf("machine: %+v", results.Machine)
	}
	got := make(map[string]metrics)
	for _, r := range results.Runs {
		if r.Failure != "" {
			t.Errorf("%s, %s failed: %s", r.Scenario, r.Peer, r.Failure)
		}
		got[r.Scenario+" "+r.Peer] = r.Metrics
	}
	for key, exact := range map[string]metrics{
		"one pawl":              {"commands": 2},
		"one floor":             {"commands": 2, "in_scripts": 2},
		"many pawl":             {"commands": 2},
		"many floor":            {"commands": 2, "in_scripts": 2},
		"process pawl":          {"violations": 0},
		"process redsync-5ms":   {"violations": 0},
		"processes ring":        {"violations": 0, "commands": 1},
		"processes pawl":        {"violations": 0},
		"processes redsync-5ms": {"violations": 0},
		"pass sync.Mutex":       {"commands": 0},
		"held pawl":             {"lost": 0},
	} {
		m := got[key]
		if m == nil {
			t.Errorf("%s did not run", key)
		}
		for name, want := range exact {
			// Who is stopped in the middle of a cycle has sent half of it.
			if v := m.get(name); math.IsNaN(v) || math.Abs(v-want) > 0.05*want {
				t.Errorf("%s: %s = %g, want %g", key, name, v, want)
			}
		}
	}
	if m := got["pass pawl"]; m["handovers"] < 10 || m["commands"] > 0.2 {
		t.Errorf("pass pawl: %v", m)
	}
	if m := got["held pawl"]; m["commands_per_s"] <= 0 || m["heap_bytes"] <= 0 || m["goroutines"] > 50 {
		t.Errorf("held pawl: %v", m)
	}
	if m := got["processes redsync-5ms"]; m["commands"] < 2 {
		t.Errorf("a poller with %g commands for each hand-over", m["commands"])
	}
}

func TestRefusesNonsense(t *testing.T) {
	for _, args := range []string{"-only all", "-peers redisson", "-rounds 0", "-time 0s", "-work -1s", "more"} {
		if err := start(t.Context(), strings.Fields(args), new(bytes.Buffer)); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

// careless is a lock that everybody has at once.
type careless struct{}

func (careless) Lock(ctx context.Context, _ string) (Held, error) { return careless{}, ctx.Err() }
func (careless) Unlock() error                                    { return nil }
func (careless) Close() error                                     { return nil }

func TestSeesTwoHolders(t *testing.T) {
	all := peers
	defer func() { peers = all }()
	peers = append(peers[:len(peers):len(peers)], peer{name: "careless", open: func(string, *wire.Counter) (Locker, error) { return careless{}, nil }})
	a := new(arena)
	c := crew{Peer: "careless", Name: "a", Goroutines: 4, Work: time.Millisecond}
	time.AfterFunc(200*time.Millisecond, func() { a.stop.Store(1) })
	a.start.Store(1)
	seen, err := c.run(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	m := metrics{"elapsed_s": 0.2}
	if err := m.contended(a, []*tally{seen}); err != nil {
		t.Fatal(err)
	}
	b := bench{runs: []run{{Scenario: "process", Peer: "careless", Metrics: m}}}
	if m["violations"] == 0 || b.verdict() == nil {
		t.Errorf("%g violations, verdict %v", m["violations"], b.verdict())
	}
}

func TestNumber(t *testing.T) {
	for want, got := range map[string]string{
		"-":            number("%.1f", math.NaN()),
		"999.5":        number("%.1f", 999.5),
		"1,000":        number("%.0f", 1000),
		"-12,345.67":   number("%.2f", -12345.67),
		"-100":         number("%.0f", -100),
		"1,234,567":    number("%.0f", 1234567),
		"1,234,567.89": number("%.2f", 1234567.89),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
