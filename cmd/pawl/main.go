// Command pawl runs commands under a distributed lock, and shows who holds and
// waits for one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/cmd/pawl/internal/sigquit"
	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
)

// Exit statuses of pawl itself. Those below 79 have the numbers of
// sysexits.h that come closest.
const (
	exitUsage       = 64
	exitBadName     = 65
	exitNoLeader    = 68
	exitUnreachable = 69
	exitWrite       = 74
	exitBusy        = 75
	exitBroken      = 76
	exitLost        = 79
)

// How long a store may take to reply: a run for the first time, and one
// question.
const (
	contactTimeout = 5 * time.Second
	requestTimeout = contactTimeout // errNoContact tells which
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// app is what the commands share.
type app struct {
	out, err   io.Writer
	storeURL   string
	storeGiven func() bool // --store was
	json       bool
}

// failure is an error with the exit status it leads to. An err of nil says
// nothing: the command that ran has spoken for itself.
type failure struct {
	status int
	err    error
	queue  *queueJSON // when busy
	place  int        // when busy, 0: unknown
	key    os.Signal  // by which the user ended the whole job
	signal os.Signal  // that ended this process, or the command in its place
}

func (f *failure) Error() string { return fmt.Sprint(f.err) }
func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) error {
	return &failure{status: exitUsage, err: fmt.Errorf(format, args...)}
}

// run is main without the process around it.
func run(args []string, stdout, stderr io.Writer) int {
	out := &checked{w: stdout}
	a := &app{out: out, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if out.err != nil {
		err = &failure{status: exitWrite, err: fmt.Errorf("write to standard output: %w", out.err)}
	}
	if err == nil {
		return 0
	}
	f := classify(err)
	if f.err != nil {
		a.report(f, cmd.CommandPath())
	}
	switch {
	case f.key != nil:
		sigquit.DieAll(f.key)
	case f.signal != nil:
		// Not just the status: a shell's loop goes on unless it sees this.
		sigquit.Die(f.signal)
	}
	return f.status
}

// checked remembers that a write failed, for those who print without looking.
type checked struct {
	w   io.Writer
	err error
}

func (c *checked) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// classify finds the exit status of an error.
func classify(err error) *failure {
	var (
		f       *failure
		cannot  *child.Error
		other   *pawl.MismatchError
		stopped *child.Interrupted
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &stopped):
		return &failure{status: stopped.Status(), err: err, signal: stopped.Signal}
	case errors.As(err, &cannot):
		return &failure{status: cannot.Status, err: err}
	case errors.As(err, &other):
		return &failure{status: exitUsage, err: mixed(other, false)}
	case errors.Is(err, pawl.ErrInvalid):
		return &failure{status: exitUsage, err: err}
	case errors.Is(err, pawl.ErrBroken):
		return &failure{status: exitBroken, err: err}
	case errors.Is(err, pawl.ErrNoLeader):
		return &failure{status: exitNoLeader, err: err}
	case errors.Is(err, pawl.ErrHeld):
		return &failure{status: exitBusy, err: err}
	case errors.Is(err, pawl.ErrLost):
		return &failure{status: exitLost, err: err}
	case errors.Is(err, errEngine):
		return &failure{status: exitUnreachable, err: err}
	}
	// What the flag parser and cobra say about a wrong call.
	return &failure{status: exitUsage, err: err}
}

// errEngine marks errors of the store.
var errEngine = errors.New("store")

type engineError struct{ err error }

func (e *engineError) Error() string        { return e.err.Error() }
func (e *engineError) Unwrap() error        { return e.err }
func (e *engineError) Is(target error) bool { return target == errEngine }

// engine marks an error that came from the store.
func engine(err error) error {
	if err == nil {
		return nil
	}
	if os.Getenv("PAWL_CLAIM") != "" && wantsUser(err.Error()) {
		err = fmt.Errorf("%w; 'pawl run' does not pass the store's password on to its COMMAND: set PAWL_STORE there, or use --pass-store", err)
	}
	return &engineError{err}
}

// wantsUser tells whether an engine refuses who gives no user and password, by
// what Redis, etcd, ZooKeeper, PostgreSQL and MySQL say then.
func wantsUser(text string) bool {
	return slices.ContainsFunc([]string{"NOAUTH", "user name is empty", "not authenticated", "SQLSTATE 28", "no password", "Error 1045"},
		func(part string) bool { return strings.Contains(text, part) })
}

func (a *app) report(f *failure, command string) {
	text := a.explain(f)
	if a.json {
		a.printJSON(a.err, errorJSON{Error: text, Exit: f.status, Queue: f.queue, Place: f.place})
		return
	}
	fmt.Fprintf(a.err, "pawl: %s\n", printable(text))
	if f.status == exitUsage && f.queue == nil {
		fmt.Fprintf(a.err, "See '%s --help'.\n", command)
	}
}

type errorJSON struct {
	Error string     `json:"error"`
	Exit  int        `json:"exit"`
	Queue *queueJSON `json:"queue,omitempty"`
	Place int        `json:"place,omitempty"`
}

func (a *app) printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pawl",
		Short: "Run a command while holding a lock",
		Long: `pawl runs a command while it holds a lock that other processes, on this machine
or on others, respect.

Without --store the locks are kept in a folder of yours on this machine, and
nothing has to be set up. With --store, or PAWL_STORE, they are kept in:

` + storeurl.Help + `
Put a password into PAWL_STORE, or into a file that PAWL_STORE_PASSWORD_FILE
names: other users can see a command's arguments. PAWL_TTL, PAWL_TIMEOUT and
PAWL_LABEL stand in for the flags of 'pawl run', 'pawl acquire', 'pawl elect', 'pawl barrier' and
'pawl latch wait' that are not given.

Exit status:
  64   the call is wrong
  65   names can't be read (list)
  68   nobody leads
  69   the store can't be reached
  74   the output can't be written
  75   the lock is busy, or the time is up
  76   the barrier or latch is broken
  79   the lock was lost, or held too long
'pawl run' and 'pawl elect' otherwise end as their command does: with its status,
128+N after signal N, 127 if it was not found, 126 if it can't be run, 71 if it
can't be guarded; 'pawl doctor' and 'pawl torture' have some of their own, see their
--help.`,
		Example: `  pawl run backup -- /usr/local/bin/backup.sh
  pawl elect scheduler -- ./scheduler
  pawl show backup
  pawl list`,
		SilenceErrors:              true,
		SilenceUsage:               true,
		Args:                       unknownCommand,
		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asked, _ := cmd.Flags().GetBool("version"); asked {
				return a.printVersion()
			}
			if err := cmd.Help(); err != nil {
				return err
			}
			return &failure{status: exitUsage}
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.storeURL, "store", "", "where the locks are kept (default: PAWL_STORE, else a folder of yours)")
	root.Flags().Bool("version", false, "print the version of pawl")
	a.storeGiven = func() bool { return flags.Changed("store") }
	flags.BoolVar(&a.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(a.acquireCommand(), a.renewCommand(), a.unlockCommand(), a.handoverCommand(), a.adoptCommand(), a.keeperCommand())
	root.AddCommand(a.runCommand(), a.electCommand(), a.leaderCommand(), a.latchCommand(), a.barrierCommand(), a.listCommand(), a.topCommand(), a.showCommand(), a.askCommand(), a.releaseCommand(), a.limitCommand(), a.doctorCommand(), a.serveCommand(), a.tortureCommand(), a.tortureProcessCommand(), a.schemaCommand(), a.quorumCommand(), a.manCommand(), a.versionCommand())
	return root
}

// unknownCommand is what is left when no command has that name.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if like := root.SuggestionsFor(args[0]); len(like) > 0 {
		return usage("unknown command %q: is it %s?", args[0], strings.Join(like, " or "))
	}
	return usage("unknown command %q", args[0])
}

// passwordFile is the variable that names a file with the store's password.
const passwordFile = "PAWL_STORE_PASSWORD_FILE"

// store returns the URL to use.
//
// Invariant: locks that were to be in one place are never kept in another. An
// empty URL is a script's variable that was not set.
func (a *app) store() (string, error) {
	url, given := os.LookupEnv("PAWL_STORE")
	from := "PAWL_STORE"
	if a.storeGiven() {
		url, from, given = a.storeURL, "--store", true
	}
	switch {
	case given && url == "":
		return "", usage("%s is empty: name a store, or leave it away altogether to use a folder of yours", from)
	case !given:
		return storeurl.Default()
	}
	file := os.Getenv(passwordFile)
	if file == "" {
		return url, nil
	}
	password, err := os.ReadFile(file)
	if err != nil {
		return "", usage("%s: %w", passwordFile, err)
	}
	url, err = storeurl.WithPassword(url, strings.TrimRight(string(password), "\r\n"))
	if err != nil {
		return "", fmt.Errorf("%s: %w", passwordFile, err)
	}
	return url, nil
}

func open(url string) (driver.Store, error) {
	s, err := storeurl.Open(url)
	if err != nil {
		return nil, engine(err)
	}
	return s, nil
}

// withStore runs f on a client of the store.
func (a *app) withStore(f func(*pawl.Client) error) error {
	return a.withDriver(func(_ driver.Store, c *pawl.Client) error { return f(c) })
}

// withDriver is withStore for those who need the store, too.
func (a *app) withDriver(f func(driver.Store, *pawl.Client) error) error {
	url, err := a.store()
	if err != nil {
		return err
	}
	s, err := open(url)
	if err != nil {
		return err
	}
	defer s.Close() // nothing was written that Close could lose
	return f(s, pawl.New(s, nil))
}

// with is withStore for commands that ask one question.
func (a *app) with(ctx context.Context, f func(context.Context, *pawl.Client) error) error {
	return a.withStore(func(c *pawl.Client) error {
		ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoContact)
		defer cancel()
		return unanswered(ctx, f(ctx, c))
	})
}

// unanswered says for how long a reply was waited for, if err does not.
func unanswered(ctx context.Context, err error) error {
	waited := new(pawl.WaitError)
	end, _ := ctx.Deadline() // a connection may notice it before the context does
	if errors.Is(err, context.DeadlineExceeded) && time.Until(end) < time.Second && !errors.As(err, &waited) {
		return engine(fmt.Errorf("no reply in %v: %w", requestTimeout, err))
	}
	return err
}

// mostCompleted is how many names a shell is told: nobody reads more.
const mostCompleted = 1000

// completeNames lets the shell complete a NAME.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	err := a.with(context.Background(), func(ctx context.Context, c *pawl.Client) error {
		for q, err := range c.List(ctx, prefix) {
			if bad := new(pawl.NameError); errors.As(err, &bad) {
				continue
			}
			if err != nil {
				return err
			}
			if names = append(names, q.Name); len(names) == mostCompleted {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}
