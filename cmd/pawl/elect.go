package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/cmd/pawl/internal/child"
)

// The least time between two beginnings of the command: one that fails at once
// must not keep a machine busy. If it cannot be run, as while its file is being
// replaced, this grows, so that others may lead meanwhile.
const (
	betweenTerms = time.Second
	mostBetween  = 30 * time.Second
)

func (a *app) electCommand() *cobra.Command {
	var (
		o      = &runOptions{elects: true}
		value  string
		always bool
	)
	o.take = func(ctx context.Context, c *pawl.Client) (held, error) {
		l, err := c.Election(o.name).Campaign(ctx, []byte(value))
		if err != nil {
			return nil, err // a nil *pawl.Leadership would not be nil as held
		}
		return l, nil
	}
	cmd := &cobra.Command{
		Use:   "elect [flags] NAME [--] COMMAND [ARG...]",
		Short: "Run a command while leading",
		Long: `Elect stands for election in NAME, and runs COMMAND while it leads. Of all who
stand, one leads at a time; they come to lead in the order in which they came.
'pawl leader NAME' tells who leads, and the --value it goes by.

When the store can't be reached for too long, COMMAND is ended before another one
leads; when somebody takes the name away ('pawl release'), as soon as pawl hears
of it. Then pawl stands again. When COMMAND ends by itself, pawl ends with its status;
with --always it stands again, behind the others, also when COMMAND, which was
there at first, can't be run. It does not when it was told to end by TERM, INT,
HUP or QUIT, which COMMAND gets too.

COMMAND finds PAWL_NAME, PAWL_TOKEN, PAWL_CLAIM and PAWL_STORE in its environment,
see 'pawl run --help'. Each time it leads, PAWL_TOKEN is greater. A service of systemd
(Type=notify) is ready when it stands for election, and not only when it leads.

Exit status: that of COMMAND, 128+N if signal N ended it or pawl while it waited.
  64   the call is wrong
  69   the store can't be reached
  71   the system lets pawl start no process that guards COMMAND
  75   it was not elected in time (--timeout)
  79   leadership was lost, and COMMAND ended at that moment by itself
  126  COMMAND can't be run
  127  COMMAND was not found`,
		Example: `  # one scheduler on three machines; when it dies, another takes over
  pawl elect --always scheduler -- ./scheduler

  # clients ask where the primary is
  pawl elect --value 10.0.0.7:5432 db/primary -- ./primary
  psql -h "$(pawl leader --only-value db/primary | cut -d: -f1)"

  # every hour it is another one's turn
  pawl elect --always --max-hold 1h crawler -- ./crawler`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			if len(value) > maxValue {
				return usage("--value of %d bytes: allowed are %d", len(value), maxValue)
			}
			return a.elect(cmd.Context(), o, always)
		},
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	o.commonFlags(f)
	f.StringVar(&value, "value", "", "what others see while this one leads, such as its address")
	f.BoolVar(&always, "always", false, "stand again when COMMAND has ended by itself")
	f.DurationVar(&o.timeout, "timeout", 0, "wait so long to be elected, each time, then exit with 75 (default: PAWL_TIMEOUT, else for ever)")
	f.DurationVar(&o.limits.MaxHold, "max-hold", 0, "end COMMAND after so long, and stand again")
	return cmd
}

// maxValue is the most that an election keeps of a leader's value. A command
// line rarely has room for more.
const maxValue = 64 << 10

func (a *app) elect(ctx context.Context, o *runOptions, always bool) error {
	s, err := a.session(o)
	if err != nil {
		return err
	}
	defer s.close()
	s.service = a.service(o, s.watch)
	s.service.idle()
	between := betweenTerms
	for {
		began := time.Now()
		how, err := s.term(ctx)
		var cannot *child.Error
		switch {
		case s.sig.Ended() != nil, how == itself && !always:
			return err
		case how == notRun && always && errors.As(err, &cannot):
			a.warn("%v; standing for election in %q again in %v", err, o.name, between)
		case how == notRun:
			return err
		case how == itself && err != nil && classify(err).err == nil:
			a.warn("COMMAND ended with status %d; standing for election in %q again", classify(err).status, o.name)
		case err != nil:
			a.warn("%v; standing for election again", err)
		}
		pause := between
		if between = min(2*between, mostBetween); cannot == nil {
			pause, between = time.Until(began.Add(betweenTerms)), betweenTerms
		}
		if err := s.pause(ctx, pause); err != nil {
			return err
		}
	}
}

// pause waits, and returns the signal that ended it early.
func (s *session) pause(ctx context.Context, d time.Duration) error {
	ctx, stop := s.sig.Context(ctx)
	defer stop()
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("between two elections: %w", context.Cause(ctx))
	}
}
