package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/torture"
)

// Exit statuses of torture. 71 is EX_OSERR of sysexits.h.
const (
	exitFound    = 1
	exitNoSystem = 71
)

// tortureProcess is the command that the processes of a torture run.
const tortureProcess = "torture-process"

type tortureOptions struct {
	torture.Options
	report, history string
	outside         bool
}

func (a *app) tortureCommand() *cobra.Command {
	o := tortureOptions{Options: torture.Options{For: 30 * time.Second, Processes: 8, TTL: 2 * time.Second}}
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Hurt processes that lock, and judge what they believed",
		Long: `Torture starts processes that lock, work and unlock on some names of their own in
the store, and hurts them meanwhile. Everything that they ask, get, believe and
lose is written down and judged: never two held at once what excludes the other,
who lost a lock was told before another had it, tokens rise, a resource that
compares tokens took no stale write, all went on, and nothing is left behind.

Faults (--faults; none: no faults):
  kill    kill -9; another process takes its place
  pause   stopped for longer than the TTL, or half of it
  late    some of its requests have no reply, and are carried out late: when it
          has tried again, given up, or handed over
  cut     its connections are closed or reset, and maybe refused for a while
  slow    what it sends and gets comes late
  dark    requests, replies or both are swallowed while the connection stays up;
          also from the middle of a request on
The last three go through a proxy that torture puts before each process. A folder
has no connection; what goes over TLS can't be led through a proxy if the server's
name is checked.

Do not run it on a server that others need: it keeps it busy. It touches no names
but those that begin with torture- and a random text. Ctrl-C ends it early, and it
is judged; a second one ends it at once.

--break breaks pawl in its processes on purpose, to see that it is found:
` + breaksHelp() + `
Exit status:
  0    nothing is wrong
  1    something is: see the findings
  69   the store can't be reached
  71   the processes can't be started`,
		Example: `  pawl torture --store redis://10.0.0.5
  pawl torture --store etcd://a,b,c --for 10m --crowd 1000 --report out.html
  pawl torture --store file:///tmp/locks --faults kill --kinds mutex --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("torture takes no arguments: name the store with --store or PAWL_STORE")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.For, "for", o.For, "how long it locks and is hurt")
	f.IntVar(&o.Processes, "processes", o.Processes, "how many there are")
	f.StringSliceVar(&o.Faults, "faults", nil, "what is done to them (default: all that the store allows)")
	f.StringSliceVar(&o.Kinds, "kinds", nil, "of locks: mutex, rw, semaphore (default: all that the store has)")
	f.DurationVar(&o.TTL, "ttl", o.TTL, "of the locks")
	f.Uint64Var(&o.Seed, "seed", 0, "of what is drawn by chance (default: random; it is printed)")
	f.IntVar(&o.Crowd, "crowd", 0, "how many wait for one more name all the while")
	f.StringVar(&o.report, "report", "", "write an HTML page to this `FILE`: who believed what, when")
	f.StringVar(&o.history, "history", "", "write all events to this `FILE`, a line of JSON each")
	f.StringVar(&o.Break, "break", "", "break pawl on purpose, `HOW` is one of the above")
	// Faults of the server that whoever runs this makes meanwhile: a line of JSON each.
	f.BoolVar(&o.outside, "outside-faults", false, "")
	f.MarkHidden("outside-faults")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !f.Changed("seed") {
			o.Seed = rand.Uint64N(1_000_000_000)
		}
		if slices.Equal(o.Faults, []string{"none"}) {
			o.Faults = []string{}
		}
		url, err := a.store()
		if err != nil {
			return err
		}
		o.Store = url
		return a.torture(cmd.Context(), &o)
	}
	return cmd
}

func breaksHelp() string {
	var b strings.Builder
	for _, how := range torture.AllBreaks {
		fmt.Fprintf(&b, "  %-9s %s\n", how, torture.BreakText(how))
	}
	return b.String()
}

func (a *app) tortureProcessCommand() *cobra.Command {
	return &cobra.Command{
		Use: tortureProcess, Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := torture.Process(cmd.Context(), os.Stdin, os.Stdout); err != nil {
				return &failure{status: exitFound, err: err}
			}
			return nil
		},
	}
}

// startProcess prepares to start this very program, also when its file has been
// replaced since.
func startProcess() *exec.Cmd {
	self, err := os.Executable()
	if runtime.GOOS == "linux" {
		self = "/proc/self/exe"
	} else if err != nil {
		self = os.Args[0]
	}
	return exec.Command(self, tortureProcess)
}

func (a *app) torture(ctx context.Context, o *tortureOptions) error {
	report, err := create("--report", o.report)
	if err != nil {
		return err
	}
	defer report.Close()
	history, err := create("--history", o.history)
	if err != nil {
		return err
	}
	defer history.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	early := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals:
			close(early)
		case <-ctx.Done():
			return
		}
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("%v", sig))
		case <-ctx.Done():
		}
	}()
	show := a.showProgress(o)
	hooks := torture.Hooks{Start: startProcess, Progress: show.progress, Early: early}
	if o.outside {
		hooks.Outside = outsideFaults(os.Stdin)
	}
	res, err := torture.Run(ctx, o.Options, hooks)
	var (
		unreachable *torture.StoreError
		unstarted   *torture.StartError
	)
	if err != nil {
		show.end()
	}
	switch {
	case errors.As(err, &unreachable):
		return engine(err)
	case errors.As(err, &unstarted):
		return &failure{status: exitNoSystem, err: err}
	case err != nil && context.Cause(ctx) != nil:
		return &failure{status: 130, err: err}
	case err != nil:
		return err
	}
	if err := history.write(func(w io.Writer) error { return writeHistory(w, res.History) }); err != nil {
		return err
	}
	show.progress(torture.Progress{Elapsed: time.Since(res.Started), Phase: "judging what happened"})
	judge := torture.Judge
	if torture.IsQuorum(o.Store) {
		judge = torture.JudgeQuorum
	}
	res.Verdict = judge(res.History)
	show.end()
	if err := report.write(res.WriteHTML); err != nil {
		return err
	}
	return a.printTorture(res)
}

func outsideFaults(in io.Reader) <-chan torture.Event {
	events := make(chan torture.Event)
	go func() {
		defer close(events)
		// What is not understood is not noted: these only explain what is seen.
		_ = torture.Read(in, func(e torture.Event) { events <- e })
	}()
	return events
}

// output is a file that a flag names; nil: it is not given.
type output struct {
	flag string
	*os.File
}

// create makes the file before anything else is done: its name may be wrong.
func create(flag, name string) (*output, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, &failure{status: exitWrite, err: fmt.Errorf("%s: %w", flag, err)}
	}
	return &output{flag, f}, nil
}

func (o *output) Close() error {
	if o == nil {
		return nil
	}
	return o.File.Close()
}

func (o *output) write(f func(io.Writer) error) error {
	if o == nil {
		return nil
	}
	w := bufio.NewWriter(o.File)
	err := f(w)
	if err = cmp.Or(err, w.Flush(), o.File.Close()); err != nil {
		return &failure{status: exitWrite, err: fmt.Errorf("%s: %w", o.flag, err)}
	}
	return nil
}

func writeHistory(w io.Writer, history []torture.Event) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for _, e := range history {
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

// progressLine shows how a torture goes on: in a line of the terminal, or a line now
// and then.
type progressLine struct {
	a        *app
	total    time.Duration
	terminal bool
	last     time.Time
	shown    bool
}

func (a *app) showProgress(o *tortureOptions) *progressLine {
	return &progressLine{a: a, total: o.For, terminal: term.IsTerminal(int(os.Stderr.Fd())), last: time.Now()}
}

func (l *progressLine) progress(p torture.Progress) {
	if l.a.json || !l.terminal && time.Since(l.last) < 5*time.Second {
		return
	}
	l.last = time.Now()
	text := fmt.Sprintf("%v of %v: %d grants, %d lost, %d of %d writes refused; %s",
		p.Elapsed.Round(time.Second), l.total, p.Counts.Grants, p.Counts.Lost, p.Counts.Refused, p.Counts.Writes, or(faultsText(p.Counts.Faults), "no faults"))
	if p.Phase != "" {
		text = fmt.Sprintf("%v: %s", p.Elapsed.Round(time.Second), p.Phase)
	}
	if !l.terminal {
		fmt.Fprintln(l.a.err, text)
		return
	}
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && width > 1 && len(text) >= width {
		text = text[:width-1]
	}
	l.shown = true
	fmt.Fprintf(l.a.err, "\r%s\x1b[K", text)
}

func (l *progressLine) end() {
	if l.shown {
		fmt.Fprint(l.a.err, "\r\x1b[K")
	}
}

func faultsText(faults map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		parts = append(parts, fmt.Sprintf("%d %s", faults[kind], kind))
	}
	return strings.Join(parts, ", ")
}

// tortureJSON is a result for programs. Times are in nanoseconds since the beginning
// of the history's clock.
type tortureJSON struct {
	Store     string   `json:"store"`
	Seed      uint64   `json:"seed"`
	Processes int      `json:"processes"`
	TTLMS     int64    `json:"ttl_ms"`
	TookMS    int64    `json:"took_ms"`
	Kinds     []string `json:"kinds"`
	Broken    string   `json:"break,omitempty"`
	Begin     int64    `json:"begin"`
	*torture.Verdict
}

func (a *app) printTorture(r *torture.Result) error {
	store, err := storeurl.Public(r.Options.Store)
	if err != nil {
		return err
	}
	if a.json {
		if r.Verdict.Findings == nil {
			r.Verdict.Findings = []torture.Finding{}
		}
		err = a.printJSON(a.out, tortureJSON{
			store, r.Options.Seed, r.Options.Processes, r.Options.TTL.Milliseconds(), (r.End - r.Begin) / 1e6, r.Options.Kinds,
			r.Options.Break, r.Begin, r.Verdict,
		})
	} else {
		err = a.printVerdict(store, r)
	}
	if err != nil {
		return err
	}
	if len(r.Verdict.Findings) > 0 {
		return &failure{status: exitFound}
	}
	return nil
}

// mostFindings are printed: one mistake shows in many ways.
const mostFindings = 20

func (a *app) printVerdict(store string, r *torture.Result) error {
	c := r.Verdict.Counts
	fmt.Fprintf(a.out, "%s: %d processes, --ttl %v, %v, --seed %d\n", printable(store), r.Options.Processes, r.Options.TTL,
		time.Duration(r.End-r.Begin).Round(100*time.Millisecond), r.Options.Seed)
	number := func(n int) string { return fmt.Sprint(n) }
	rows := [][]string{
		{"grants", number(c.Grants)},
		{"failed", number(c.Failed), "busy, given up, or the store was out of reach"},
		{"lost", number(c.Lost), "before Unlock"},
		{"hand-overs", number(c.HandOvers), number(c.Adopted) + " adopted"},
		{"up- and downgrades", number(c.Changed)},
		{"limits changed", number(c.Limits)},
		{"forced releases", number(c.Forced)},
		{"writes", number(c.Writes), number(c.Refused) + " refused by the fence"},
		{"faults survived", or(faultsText(c.Faults), "none")},
		{"findings", number(len(r.Verdict.Findings))},
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	for _, note := range r.Verdict.Notes {
		fmt.Fprintf(a.out, "note: %s\n", printable(note))
	}
	for i, f := range r.Verdict.Findings {
		if i == mostFindings {
			fmt.Fprintf(a.out, "\nand %d more\n", len(r.Verdict.Findings)-i)
			break
		}
		fmt.Fprintf(a.out, "\n%d. %s", i+1, f.Rule)
		if f.Name != "" {
			fmt.Fprintf(a.out, " of %s", printable(f.Name))
		}
		fmt.Fprintf(a.out, ", at %.3f s\n   %s\n", time.Duration(f.At-r.Begin).Seconds(), printable(f.Text))
	}
	return nil
}
