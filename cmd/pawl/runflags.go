package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
	"github.com/pawl-go/pawl/driver"
)

// runOptions are the flags of run, and what they lead to.
type runOptions struct {
	name    string
	command child.Command

	ttl, timeout, minHold time.Duration
	limits                child.Limits
	noWait, quiet         bool
	passStore, passNotify bool
	label                 string
	seconds               float64 // --wait
	conflict              int     // exit status if the lock is busy
	shell                 string  // --command
	onLost                string
	logging

	kind
	kinds  bool // the command has the flags of kind
	elects bool // it is pawl elect
	take   func(context.Context, *pawl.Client) (held, error)
}

func (a *app) runCommand() *cobra.Command {
	o := &runOptions{kinds: true}
	o.take = o.lock
	cmd := &cobra.Command{
		Use:   "run [flags] NAME [--] COMMAND [ARG...]",
		Short: "Run a command while holding a lock",
		Long: `Run waits for its turn to hold NAME, first come, first served, runs COMMAND, and
releases NAME when COMMAND and the processes it started in its group are gone.

NAME is 1 to 512 bytes of text without control characters and braces. How it is
held, all who use it decide in the same way:
  pawl run NAME ...              one at a time
  pawl run --shared NAME ...     beside others with --shared,
  pawl run --exclusive NAME ...  but alone with --exclusive: readers and writers
  pawl run --limit 5 NAME ...    five at a time; with -u 2 this one counts as two
Whoever waits stops those who come later, so nobody waits for ever. On a terminal,
or with --json, pawl says for whom it waits, and that the store fails meanwhile;
where standard error is a file it keeps silent until the end.

The letters -n, -w, -s, -x, -E and -c are those of flock(1); -c runs its argument
by /bin/sh. Unlike there, those who use -s or -x must not meet others without:
pawl refuses that.

COMMAND runs without a shell, in a process group of its own. It gets the
terminal, if there is one, and the signals TERM, INT, HUP, QUIT, USR1, USR2 and
WINCH that pawl receives. It finds in its environment
  PAWL_NAME    the name that is held
  PAWL_TOKEN   a number greater than that of every earlier holder of NAME; let
               what COMMAND writes to refuse smaller ones
  PAWL_CLAIM   the handle of this lease, which begins with what 'pawl show' names
               it by; a program may Adopt it to renew and check it, but must
               not unlock it
  PAWL_STORE   the store; if it has a password, without that and the user: a
               pawl that COMMAND calls needs it set anew, or --pass-store here

The lock ends after --ttl unless it is renewed, which pawl does all the time. If
that fails for too long, COMMAND's group gets SIGTERM and, --kill-after later,
SIGKILL, so that it is gone before anybody else can hold the lock. It gets them
too when somebody takes the lock away ('pawl release'), but then the next one
holds at once. A small second process (pawl-guard) sends SIGKILL to the group
when pawl itself is killed, or stopped until the lock ends. A job stopped with
Ctrl-Z can't renew: it is killed when its lock ends, and 'fg' then tells so.
With --on-lost=warn COMMAND goes on without the lock, and pawl says so and ends
with 79 in the end; with --on-lost=ignore it says nothing, and ends as COMMAND does.

As a service of systemd (Type=notify) pawl is ready when COMMAND runs, asks for more
time while it waits, and says in 'systemctl status' for how many it waits, or which
token it holds. With WatchdogSec= systemd kills a pawl that hangs: it hears of pawl
as long as pawl believes in the lock and would end COMMAND in time. COMMAND does not
see systemd's socket, for what it says there would count for pawl; with --pass-notify
(and NotifyAccess=all) it does, and says itself that it is ready and alive.

Exit status: that of COMMAND, 128+N if signal N ended it or pawl while it waited.
  64   the call is wrong
  69   the store can't be reached
  71   the system lets pawl start no process that guards COMMAND
  75   the lock is busy (-n), or was all the time (--timeout, -w); -E changes this
  79   COMMAND was ended, or its protection had ended before it: the lock was
       lost, or held for --max-hold
  126  COMMAND can't be run
  127  COMMAND was not found`,
		Example: `  # one at a time on this machine
  pawl run backup -- /usr/local/bin/backup.sh

  # cron on several machines: whoever comes first does it, once an hour
  0 * * * *  PAWL_STORE=redis://10.0.0.5 pawl run --no-wait --quiet --min-hold 30m report -- report.sh

  # a deployment waits for the one before it, but not for ever
  pawl run --timeout 10m --label "$USER" deploy/prod -- ./migrate --to latest

  # any number of reports at a time, but none while the data are loaded
  pawl run --shared data -- ./report.sh
  pawl run --exclusive data -- ./load.sh

  # three downloads at a time on all machines; a big one counts as two
  pawl run --limit 3 downloads -- curl -O https://example.com/small
  pawl run --limit 3 -u 2 downloads -- curl -O https://example.com/big

  # never longer than an hour
  pawl run --max-hold 1h --kill-after 5s sync -- rsync -a src/ dst/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			if err := o.kind.check(cmd.Flags().Changed("units"), cmd.Flags().Changed("limit")); err != nil {
				return err
			}
			return a.hold(cmd.Context(), o)
		},
		ValidArgsFunction: a.completeNames,
	}
	o.commonFlags(cmd.Flags())
	f := cmd.Flags()
	o.takingFlags(f)
	f.StringVarP(&o.shell, "command", "c", "", "run this by /bin/sh in place of COMMAND, also after NAME")
	f.StringVar(&o.onLost, "on-lost", onLostKill, "what becomes of COMMAND when the lock is lost: kill, warn or ignore")
	f.DurationVar(&o.minHold, "min-hold", 0, "keep the lock taken for at least so long, even if COMMAND ends earlier")
	f.DurationVar(&o.limits.MaxHold, "max-hold", 0, "end COMMAND after so long")
	return cmd
}

// takingFlags say how a lock is taken.
func (o *runOptions) takingFlags(f *pflag.FlagSet) {
	f.BoolVarP(&o.shared, "shared", "s", false, "hold NAME beside others with --shared")
	f.BoolVarP(&o.exclusive, "exclusive", "x", false, "hold NAME alone, where others use --shared")
	f.Int64VarP(&o.units, "units", "u", 1, "with --limit: as how many this one counts")
	f.Int64Var(&o.limit, "limit", 0, "hold NAME beside others, this many in all")
	f.BoolVarP(&o.noWait, "no-wait", "n", false, "exit with 75 if the lock is busy")
	f.DurationVar(&o.timeout, "timeout", 0, "wait so long for the lock, then exit with 75 (default: PAWL_TIMEOUT, else for ever)")
	f.Float64VarP(&o.seconds, "wait", "w", 0, "the same in seconds; 0 is --no-wait")
	f.IntVarP(&o.conflict, "conflict-exit-code", "E", exitBusy, "exit with this status, 0 to 255, in place of 75")
}

// commonFlags are those of all commands that run one under a lease.
func (o *runOptions) commonFlags(f *pflag.FlagSet) {
	f.SetInterspersed(false) // COMMAND's flags are its own
	f.DurationVar(&o.ttl, "ttl", pawl.DefaultTTL, "how long the lock outlives a pawl that can't renew it, or PAWL_TTL")
	f.DurationVar(&o.limits.KillAfter, "kill-after", 0, "between SIGTERM and SIGKILL when COMMAND must end (default: 5s, or a third of the TTL)")
	f.StringVar(&o.label, "label", "", "what others see as holder (default: PAWL_LABEL, else the name of COMMAND)")
	f.BoolVar(&o.passStore, "pass-store", false, "let COMMAND see the store's user and password")
	f.BoolVar(&o.passNotify, "pass-notify", false, "let COMMAND tell the service manager that it is ready, and alive")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "don't say that the lock is busy, or for whom pawl waits")
	o.logging.flags(f)
}

// parse checks everything that can be checked without the store.
func (o *runOptions) parse(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("NAME and COMMAND are missing")
	}
	flags := cmd.Flags()
	if err := fromEnvironment(flags); err != nil {
		return err
	}
	o.name = args[0]
	if err := driver.CheckName(o.name); err != nil {
		return err
	}
	argv, err := o.argv(flags, args[1:])
	if err != nil {
		return err
	}
	if err := o.checkTimes(flags); err != nil {
		return err
	}
	if err := o.checkTaking(flags); err != nil {
		return err
	}
	if o.onLost != "" && o.onLost != onLostKill && o.onLost != onLostWarn && o.onLost != onLostIgnore {
		return usage("--on-lost %q: allowed are kill, warn and ignore", o.onLost)
	}
	o.limits.Keep = o.onLost == onLostWarn || o.onLost == onLostIgnore

	path, err := child.Find(argv[0])
	if err != nil {
		return err
	}
	o.command = child.Command{Path: path, Args: argv}
	if !flags.Changed("label") {
		o.label = filepath.Base(argv[0])
		if driver.CheckLabel(o.label) != nil {
			o.label = ""
		}
	}
	return o.checkLabel(flags)
}

// What becomes of COMMAND when the lock is lost.
const (
	onLostKill   = "kill"
	onLostWarn   = "warn"
	onLostIgnore = "ignore"
)

// shell is what runs the argument of -c.
const shell = "/bin/sh"

// argv returns COMMAND, of what stands after NAME.
func (o *runOptions) argv(flags *pflag.FlagSet, argv []string) ([]string, error) {
	given := flags.Changed("command")
	if len(argv) > 0 && o.kinds && (argv[0] == "-c" || argv[0] == "--command") { // where flock has it
		if given || len(argv) != 2 {
			return nil, usage("%s after NAME takes one argument, the whole command, and is last: %s 'COMMAND ARG...'", argv[0], argv[0])
		}
		o.shell, given, argv = argv[1], true, nil
	}
	switch {
	case given && len(argv) > 0:
		return nil, usage("-c and COMMAND exclude each other; there is %q after NAME", argv[0])
	case given && o.shell == "":
		return nil, usage("-c is empty: what shall run while %q is held?", o.name)
	case given:
		return []string{shell, "-c", o.shell}, nil
	case len(argv) > 0 && argv[0] == "--":
		argv = argv[1:]
	case len(argv) > 0 && strings.HasPrefix(argv[0], "-"):
		return nil, usage("%q after NAME: pawl's flags go before NAME; write -- before a COMMAND that starts with a dash", argv[0])
	}
	if len(argv) == 0 {
		return nil, usage("COMMAND is missing: what shall run while %q is held?", o.name)
	}
	return argv, nil
}

// checkTimes checks the times of a command that runs one.
func (o *runOptions) checkTimes(flags *pflag.FlagSet) error {
	if o.ttl < child.MinTTL || o.ttl > driver.MaxTTL {
		return usage("%s %v: allowed are %v to %v", called(flags, "ttl"), o.ttl, child.MinTTL, driver.MaxTTL)
	}
	o.limits.TTL = o.ttl
	if !flags.Changed("kill-after") {
		o.limits.KillAfter = child.DefaultKillAfter(o.ttl)
	}
	for name, d := range map[string]time.Duration{"min-hold": o.minHold, "max-hold": o.limits.MaxHold} {
		if flags.Changed(name) && d <= 0 {
			return usage("--%s %v: it must be above 0", name, d)
		}
	}
	if o.minHold > driver.MaxTTL {
		return usage("--min-hold %v: allowed are up to %v", o.minHold, driver.MaxTTL)
	}
	if err := o.limits.Check(); err != nil {
		if from := called(flags, "ttl"); from != "--ttl" {
			return usage("%w; --ttl is %s here", err, from)
		}
		return usage("%w", err)
	}
	return nil
}

// checkTaking checks how long is waited for a lock, and what is said then.
func (o *runOptions) checkTaking(flags *pflag.FlagSet) error {
	var given []string
	for _, name := range []string{"no-wait", "timeout", "wait"} {
		if flags.Changed(name) {
			given = append(given, called(flags, name))
		}
	}
	switch {
	case len(given) > 1:
		return usage("%s exclude each other", strings.Join(given, " and "))
	case flags.Changed("timeout") && o.timeout <= 0:
		return usage("%s %v: it must be above 0", called(flags, "timeout"), o.timeout)
	case flags.Changed("wait") && !(o.seconds >= 0 && o.seconds <= mostSeconds):
		return usage("--wait %v: allowed are 0 to %v seconds", o.seconds, mostSeconds)
	case o.conflict < 0 || o.conflict > 255:
		return usage("--conflict-exit-code %d: allowed are 0 to 255", o.conflict)
	}
	if flags.Changed("wait") {
		o.timeout = time.Duration(o.seconds * float64(time.Second))
		o.noWait = o.timeout == 0
	}
	return o.logging.check(o.quiet)
}

// mostSeconds is about three years, and far from what a time.Duration can't hold.
const mostSeconds = 1e8

func (o *runOptions) checkLabel(flags *pflag.FlagSet) error {
	if err := driver.CheckLabel(o.label); err != nil {
		return fmt.Errorf("%s: %w", called(flags, "label"), err)
	}
	return nil
}
