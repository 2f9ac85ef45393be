// Command bench measures pawl beside other lock libraries, on one server of an
// engine that it starts itself, all in one run and by turns: pawl, then each of
// the others, then pawl again. It prints tables and writes everything it measured
// as JSON.
//
// Compare what stands in one table; figures of different runs, let alone of
// different machines, say little. It runs on Linux and macOS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is the settings of a run, and what it has found.
type bench struct {
	peers      []peer
	rounds     int
	duration   time.Duration
	waiters    int
	procs      int
	goroutines int
	ownClients bool
	work       time.Duration
	locks      int
	ttl        time.Duration

	engine engine
	addr   string
	server server
	dir    string // for files of this run
	runs   []run
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		if err := worker(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench worker:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := start(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string, out io.Writer) (err error) {
	b := new(bench)
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	on := f.String("engine", "redis", "the engine to run on: "+names(engines, func(e engine) string { return e.name }))
	only := f.String("only", names(scenarios, func(s scenario) string { return s.name }), "the scenarios to run")
	with := f.String("peers", "", "the libraries to compare (default all of the engine's)")
	f.IntVar(&b.rounds, "rounds", 5, "how often each of them has its turn; the tables show medians")
	f.DurationVar(&b.duration, "time", 500*time.Millisecond, "how long a turn is; twice as long where they contend")
	f.IntVar(&b.waiters, "waiters", 16, "goroutines that contend in one process")
	f.IntVar(&b.procs, "procs", 4, "processes that contend")
	f.IntVar(&b.goroutines, "goroutines", 4, "goroutines in each of them")
	f.BoolVar(&b.ownClients, "own-clients", false, "give each goroutine that contends a client of its own, as if it were a process")
	f.DurationVar(&b.work, "work", 0, "what a holder sleeps while others wait")
	f.IntVar(&b.locks, "held", 20000, "locks to hold at once")
	f.DurationVar(&b.ttl, "ttl", ttl, "TTL of the locks that are held")
	file := f.String("json", "", "file for the results (default a new one in bench/results)")
	profile := f.String("cpuprofile", "", "file for a CPU profile of this process")
	allocs := f.String("memprofile", "", "file for a profile of all that this process allocates, which slows it")
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen, err := pick(scenarios, *only, "scenario", func(s scenario) string { return s.name })
	if err != nil {
		return err
	}
	var ok bool
	if b.engine, ok = engineNamed(*on); !ok {
		return fmt.Errorf("there is no engine %q; there are %s", *on, names(engines, func(e engine) string { return e.name }))
	}
	if b.peers = b.engine.peers; *with != "" {
		if b.peers, err = pick(b.peers, *with, "peer", func(p peer) string { return p.name }); err != nil {
			return err
		}
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case b.rounds < 1 || b.procs < 1 || b.goroutines < 1 || b.waiters < 1 || b.locks < 1:
		return errors.New("-rounds, -procs, -goroutines, -waiters and -held are 1 or more")
	case b.goroutines >= perProcess || b.waiters >= perProcess:
		return fmt.Errorf("-goroutines and -waiters are less than %d", perProcess)
	case b.duration < time.Millisecond || b.work < 0:
		return errors.New("-time is 1ms or more, -work is not negative")
	}

	if b.dir, err = os.MkdirTemp("", "pawl-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	var stopServer func()
	if b.addr, stopServer, err = b.engine.start(b.dir); err != nil {
		return err
	}
	defer stopServer()
	if b.server, err = b.engine.connect(b.addr); err != nil {
		return err
	}
	defer b.server.close()
	machine, err := b.lookAround(ctx)
	if err != nil {
		return err
	}
	if *profile != "" {
		p, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer p.Close()
		if err := pprof.StartCPUProfile(p); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	if *allocs != "" {
		p, err := os.Create(*allocs)
		if err != nil {
			return err
		}
		runtime.MemProfileRate = 1
		defer func() { err = errors.Join(err, pprof.Lookup("allocs").WriteTo(p, 0), p.Close()) }()
	}

	began := time.Now()
	machine.print(out, b.peers)
	for _, s := range chosen {
		if err := b.play(ctx, s, out); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "\n%d rounds in %v", b.rounds, time.Since(began).Round(time.Second))
	if path, err := b.write(*file, machine); err != nil {
		fmt.Fprintln(out)
		return err
	} else {
		fmt.Fprintf(out, ", all numbers in %s\n", path)
	}
	return b.verdict()
}

// play runs the rounds of a scenario and prints its table.
func (b *bench) play(ctx context.Context, s scenario, out io.Writer) error {
	entries := s.entries(b)
	if len(entries) == 0 {
		return nil
	}
	rounds := b.rounds
	if s.once {
		rounds = 1
	}
	for round := range rounds {
		// Who goes first takes turns as well.
		for i := range entries {
			e := entries[(i+round)%len(entries)]
			if err := b.server.flush(ctx); err != nil {
				return err
			}
			r := run{Scenario: s.name, Peer: e.peer, Round: round}
			// No deadline: clients deal with one in ways of their own.
			turn, cancel := context.WithCancelCause(ctx)
			hangs := time.AfterFunc(b.limit(s), func() { cancel(errHangs) })
			m, err := e.run(turn)
			hangs.Stop()
			cancel(nil)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if r.Metrics = m; err != nil {
				r.Failure = err.Error()
			}
			b.runs = append(b.runs, r)
		}
	}
	fmt.Fprintf(out, "\n%s\n", s.title(b))
	gatherResults(b.runs, s.name).table(out, b.columns(s))
	fmt.Fprintln(out, s.note)
	for _, r := range b.runs {
		if r.Scenario == s.name && r.Failure != "" {
			fmt.Fprintf(out, "%s failed in round %d: %s\n", r.Peer, r.Round+1, r.Failure)
		}
	}
	return nil
}

// columns are those of the scenario's table, on this engine.
func (b *bench) columns(s scenario) []column {
	cs := slices.Clone(s.columns)
	for i := range cs {
		if cs[i].by == byBase {
			cs[i].by, cs[i].head = b.engine.base, "×"+b.engine.base
		}
	}
	return cs
}

var errHangs = errors.New("it hangs")

// limit is how long a turn may take until it is given up: much longer than
// it should, for one that hangs must not stop the bench.
func (b *bench) limit(s scenario) time.Duration {
	d := 10*b.duration + 20*time.Second
	if s.name == heldScenario {
		d += 2*b.ttl + time.Duration(b.locks)*time.Millisecond
	}
	return d
}

// verdict is an error if a lock had two holders, held locks were lost, or pawl
// failed.
func (b *bench) verdict() error {
	var errs []error
	for _, r := range b.runs {
		if n := r.Metrics["violations"]; n > 0 {
			errs = append(errs, fmt.Errorf("%s, %s, round %d: %.0f times there were two holders at once", r.Scenario, r.Peer, r.Round+1, n))
		}
		if r.Failure != "" && r.Peer == "pawl" {
			errs = append(errs, fmt.Errorf("%s, %s, round %d: %s", r.Scenario, r.Peer, r.Round+1, r.Failure))
		}
		if n := r.Metrics["lost"]; n > 0 {
			errs = append(errs, fmt.Errorf("%s, %s: %.0f locks were lost", r.Scenario, r.Peer, n))
		}
	}
	return errors.Join(errs...)
}

func (b *bench) workTitle() string {
	if b.work == 0 {
		return ", no work in the section"
	}
	return ", " + b.work.String() + " of work in the section"
}

func count(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "s"):
		what += "es"
	default:
		what += "s"
	}
	return number("%.0f", float64(n)) + " " + what
}

func names[T any](all []T, name func(T) string) string {
	var ns []string
	for _, x := range all {
		ns = append(ns, name(x))
	}
	return strings.Join(ns, ",")
}

// pick returns those of all whose names are in the list, in their own order.
func pick[T any](all []T, list, what string, name func(T) string) (chosen []T, err error) {
	wanted := strings.Split(list, ",")
	for _, w := range wanted {
		if !slices.ContainsFunc(all, func(x T) bool { return name(x) == w }) {
			return nil, fmt.Errorf("there is no %s %q; there are %s", what, w, names(all, name))
		}
	}
	for _, x := range all {
		if slices.Contains(wanted, name(x)) {
			chosen = append(chosen, x)
		}
	}
	return chosen, nil
}
