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

// written is what a run of the bench writes.
type written struct {
	Machine machine
	Runs    []run
}

// measured runs the bench, and returns what it printed and wrote.
func measured(t *testing.T, args ...string) (printed string, got written) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "results.json")
	var out bytes.Buffer
	if err := start(t.Context(), append(args, "-json", file), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Runs {
		if r.Failure != "" {
			t.Errorf("%s, %s failed: %s", r.Scenario, r.Peer, r.Failure)
		}
	}
	return out.String(), got
}

func TestWholeRun(t *testing.T) {
	printed, results := measured(t, "-rounds", "1", "-time", "100ms", "-procs", "2", "-goroutines", "2", "-waiters", "3",
		"-held", "300", "-ttl", "3s", "-peers", "pawl,floor,redsync-5ms")
	narrow(t, printed)
	if results.Machine.Server == "" || len(results.Machine.Trips) != 2 {
		t.Errorf("machine: %+v", results.Machine)
	}
	got := make(map[string]metrics)
	for _, r := range results.Runs {
		got[r.Scenario+" "+r.Peer] = r.Metrics
	}
	for key, exact := range map[string]metrics{
		"one pawl":              {"commands": 2},
		"one floor":             {"commands": 2, "in_scripts": 2},
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
	if m := got["many pawl"]; m["commands"] == 0 || m["commands"] > 2.1 { // less where requests go together
		t.Errorf("many pawl: %v", m)
	}
	if m := got["pass pawl"]; m["handovers"] == 0 || m["commands"] > 0.2 {
		t.Errorf("pass pawl: %v", m)
	}
	if m := got["held pawl"]; m["commands_per_s"] <= 0 || m["heap_bytes"] <= 0 || m["goroutines"] > 50 {
		t.Errorf("held pawl: %v", m)
	}
	if m := got["processes redsync-5ms"]; m["handovers_per_s"] > 0 && m["commands"] < 2 { // pollers may starve
		t.Errorf("a poller with %g commands for each hand-over", m["commands"])
	}
}

// Every engine is measured in the same way: its peers take part, and nobody
// holds together with somebody else.
func TestEngines(t *testing.T) {
	for engine, others := range map[string]string{
		"etcd": "concurrency", "zookeeper": "go-zk", "postgres": "floor,pglock-5ms,advisory", "mariadb": "floor,get_lock",
	} {
		t.Run(engine, func(t *testing.T) {
			with := func(scenarios, peers string, d time.Duration) []run {
				_, results := measured(t, "-engine", engine, "-only", scenarios, "-rounds", "1", "-time", d.String(),
					"-procs", "2", "-goroutines", "2", "-waiters", "3", "-held", "50", "-ttl", "3s", "-peers", peers)
				return results.Runs
			}
			const short = 200 * time.Millisecond
			for _, r := range with("one,process,processes,held", "pawl,"+others, short) {
				if n := r.Metrics["commands"]; r.Scenario == "one" && n < 1 {
					t.Errorf("%s sent %g commands for a lock and its release", r.Peer, n)
				}
				if r.Peer != "pawl" || !strings.HasPrefix(r.Scenario, "process") { // pollers may starve
					continue
				}
				for d := 4 * short; r.Metrics["handovers_per_s"] == 0; d *= 4 { // on a busy machine it takes long
					if d > time.Minute {
						t.Fatalf("%s: no hand-over", r.Scenario)
					}
					r = with(r.Scenario, "pawl", d)[0]
				}
			}
		})
	}
}

// One of several servers fails, and comes back.
func TestQuorum(t *testing.T) {
	printed, results := measured(t, "-engine", "quorum", "-only", "one,stopped,killed", "-rounds", "1", "-time", "50ms", "-peers", "pawl,floor")
	narrow(t, printed)
	for _, r := range results.Runs {
		if n := r.Metrics["commands"]; r.Scenario == "one" && n < 5 {
			t.Errorf("%s sent %g commands to five servers", r.Peer, n)
		}
		if r.Scenario != "one" && (r.Metrics["p99_up"] == 0 || r.Metrics["p99_us"] == 0) {
			t.Errorf("%s, %s: %v", r.Scenario, r.Peer, r.Metrics)
		}
	}
	if len(results.Runs) != 6 {
		t.Errorf("%d runs", len(results.Runs))
	}
}

// narrow fails if a terminal would break a line.
func narrow(t *testing.T, printed string) {
	t.Helper()
	for line := range strings.Lines(printed) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestRefusesNonsense(t *testing.T) {
	for _, args := range []string{"-only all", "-peers redisson", "-engine consul", "-engine etcd -peers redsync", "-rounds 0", "-time 0s", "-work -1s", "more"} {
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
	all := engines
	defer func() { engines = all }()
	engines = []engine{{name: "none", peers: []peer{{name: "careless", openTTL: func(string, *wire.Counter, time.Duration) (Locker, error) { return careless{}, nil }}}}}
	a := new(arena)
	c := crew{Engine: "none", Peer: "careless", Name: "a", Goroutines: 4, Work: time.Millisecond}
	time.AfterFunc(200*time.Millisecond, func() { a.stop.Store(1) })
	a.start.Store(1)
	seen, err := c.run(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	m := metrics{"elapsed_s": 0.2, "requests": math.NaN()}
	if err := m.contended(a, []*tally{seen}); err != nil {
		t.Fatal(err)
	}
	b := bench{runs: []run{{Scenario: "process", Peer: "careless", Metrics: m}}}
	if m["violations"] == 0 || b.verdict() == nil {
		t.Errorf("%g violations, verdict %v", m["violations"], b.verdict())
	}
}

// slow is a server that takes its time to tell what it has done.
type slow struct{ server }

func (slow) usage(ctx context.Context) (usage, error) {
	select {
	case <-time.After(200 * time.Millisecond):
		return usage{}, nil
	case <-ctx.Done():
		return usage{}, ctx.Err()
	}
}

// polite is a lock of the process.
type polite struct{ free chan struct{} }

func (p polite) Lock(ctx context.Context, _ string) (Held, error) {
	select {
	case p.free <- struct{}{}:
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (p polite) Unlock() error { <-p.free; return nil }
func (polite) Close() error    { return nil }

func TestAsksTheServerAfterTheCrewHasEnded(t *testing.T) {
	all := engines
	defer func() { engines = all }()
	p := peer{name: "polite", openTTL: func(string, *wire.Counter, time.Duration) (Locker, error) {
		return polite{make(chan struct{}, 1)}, nil
	}}
	engines = []engine{{name: "slow", peers: []peer{p}}}
	b := bench{engine: engines[0], server: slow{}, waiters: 2, duration: 10 * time.Millisecond, work: time.Millisecond}
	if _, err := b.oneProcess(t.Context(), p); err != nil {
		t.Error(err)
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
