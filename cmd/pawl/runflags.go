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
	passStore             bool
	label                 string

	kind
	kinds bool // the command has the flags of kind
	take  func(context.Context, *pawl.Client) (held, error)
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
  pawl run --limit 5 NAME ...    five at a time; with -n 2 this one counts as two
Whoever waits stops those who come later, so nobody waits for ever. On a terminal,
or with --json, pawl says for whom it waits, and that the store fails meanwhile;
where standard error is a file it keeps silent until the end.

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

Exit status: that of COMMAND, 128+N if signal N ended it or pawl while it waited.
  64   the call is wrong
  69   the store can't be reached
  71   the system lets pawl start no process that guards COMMAND
  75   the lock is busy (--no-wait), or was all the time (--timeout)
  79   COMMAND was ended, or its protection had ended before it: the lock was
       lost, or held for --max-hold
  126  COMMAND can't be run; 127 it was not found`,
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
  pawl run --limit 3 -n 2 downloads -- curl -O https://example.com/big

  # never longer than an hour
  pawl run --max-hold 1h --kill-after 5s sync -- rsync -a src/ dst/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			if err := o.kind.check(cmd.Flags().Changed("n"), cmd.Flags().Changed("limit")); err != nil {
				return err
			}
			return a.hold(cmd.Context(), o)
		},
		ValidArgsFunction: a.completeNames,
	}
	o.commonFlags(cmd.Flags())
	f := cmd.Flags()
	f.BoolVar(&o.shared, "shared", false, "hold NAME beside others with --shared")
	f.BoolVar(&o.exclusive, "exclusive", false, "hold NAME alone, where others use --shared")
	f.Int64VarP(&o.units, "n", "n", 1, "with --limit: as how many this one counts")
	f.Int64Var(&o.limit, "limit", 0, "hold NAME beside others, this many in all")
	f.BoolVar(&o.noWait, "no-wait", false, "exit with 75 if the lock is busy")
	f.DurationVar(&o.timeout, "timeout", 0, "wait so long for the lock, then exit with 75 (default: PAWL_TIMEOUT, else for ever)")
	f.DurationVar(&o.minHold, "min-hold", 0, "keep the lock taken for at least so long, even if COMMAND ends earlier")
	f.DurationVar(&o.limits.MaxHold, "max-hold", 0, "end COMMAND after so long")
	return cmd
}

// commonFlags are those of all commands that run one under a lease.
func (o *runOptions) commonFlags(f *pflag.FlagSet) {
	f.SetInterspersed(false) // COMMAND's flags are its own
	f.DurationVar(&o.ttl, "ttl", pawl.DefaultTTL, "how long the lock outlives a pawl that can't renew it, or PAWL_TTL")
	f.DurationVar(&o.limits.KillAfter, "kill-after", 0, "between SIGTERM and SIGKILL when COMMAND must end (default: 5s, or a third of the TTL)")
	f.StringVar(&o.label, "label", "", "what others see as holder (default: PAWL_LABEL, else the name of COMMAND)")
	f.BoolVar(&o.passStore, "pass-store", false, "let COMMAND see the store's user and password")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "don't say that the lock is busy, or for whom pawl waits")
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
	argv := args[1:]
	if len(argv) > 0 && argv[0] == "--" {
		argv = argv[1:]
	} else if len(argv) > 0 && strings.HasPrefix(argv[0], "-") {
		return usage("%q after NAME: pawl's flags go before NAME; write -- before a COMMAND that starts with a dash", argv[0])
	}
	if len(argv) == 0 {
		return usage("COMMAND is missing: what shall run while %q is held?", o.name)
	}

	if o.ttl < child.MinTTL || o.ttl > driver.MaxTTL {
		return usage("%s %v: allowed are %v to %v", called(flags, "ttl"), o.ttl, child.MinTTL, driver.MaxTTL)
	}
	o.limits.TTL = o.ttl
	if !flags.Changed("kill-after") {
		o.limits.KillAfter = child.DefaultKillAfter(o.ttl)
	}
	for name, d := range map[string]time.Duration{"timeout": o.timeout, "min-hold": o.minHold, "max-hold": o.limits.MaxHold} {
		if flags.Changed(name) && d <= 0 {
			return usage("%s %v: it must be above 0", called(flags, name), d)
		}
	}
	if o.minHold > driver.MaxTTL {
		return usage("--min-hold %v: allowed are up to %v", o.minHold, driver.MaxTTL)
	}
	if o.noWait && flags.Changed("timeout") {
		return usage("--no-wait and --timeout exclude each other")
	}
	if err := o.limits.Check(); err != nil {
		if from := called(flags, "ttl"); from != "--ttl" {
			return usage("%w; --ttl is %s here", err, from)
		}
		return usage("%w", err)
	}

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
	if err := driver.CheckLabel(o.label); err != nil {
		return fmt.Errorf("%s: %w", called(flags, "label"), err)
	}
	return nil
}
