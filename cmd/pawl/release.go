package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
	"github.com/pawl-go/pawl/pawlhttp"
)

// releaseOptions are the flags of release.
type releaseOptions struct {
	force bool
	claim string
	where []string
	yes   bool
}

// check checks which of them are given together, and with what.
func (o *releaseOptions) check(flags *pflag.FlagSet, args []string) error {
	where := flags.Changed("where")
	switch {
	case where && (o.force || flags.Changed("claim")):
		return usage("--where, --claim and --force exclude each other")
	case o.yes && !where:
		return usage("--yes belongs to --where")
	case where && len(args) == 0:
		return nil
	}
	return nameArg(nil, args)
}

func (a *app) releaseCommand() *cobra.Command {
	var o releaseOptions
	cmd := &cobra.Command{
		Use:   "release NAME --force | NAME --claim ID | [NAME] --where CONDITION",
		Short: "Take a name away from its holders",
		Long: `Release takes NAME away from whoever holds it; the next in the queue gets it at
once. The holder is told and 'pawl run' ends its command, but for a moment both
may run. It is for holders that hang; one that died loses its lock by itself.

With --claim it takes away the claim with that ID alone, as 'pawl show' names it:
one of several holders, or one that waits. Who waited and still wants NAME enters
it anew, behind all others. A claim that lingers (--min-hold) has no holder any
more; only --force ends it.

With --where it takes away all claims, of NAME or of all names, that meet the
conditions; of several all must be met:
  held-longer-than=1h     it holds for longer, as 'pawl list' says
  waiting-longer-than=1h  it waits for longer; without this only holders are meant
  host=HOST               its process runs there
  label=LABEL             it has exactly that label
  prefix=PREFIX           its name begins with that
Times are by the store's clock, and so not changed by this machine's. It shows what
it would release and, on a terminal, asks; elsewhere --yes is needed. It releases the
very claims that it has shown: one that has ended meanwhile, or that holds by now
what it had waited for, is told and left. So are claims that linger.

Where an engine can't tell the holder, as on a quorum, it learns of this with its
next renewal, within a third of its TTL.

Exit status:
  0   done; with --force also if nobody held NAME; with --where also if
      nothing meets the conditions, or the question got no yes
  64  the call is wrong; or --force or --yes is missing, and there is something
      to release
  69  the store can't be reached, or whether all is done is not known
  79  no claim with that ID holds NAME or waits for it; or it lingers`,
		Example: `  pawl show deploy/prod
  pawl release deploy/prod --force
  pawl release deploy/prod --claim 2KPXW5Y5ZBMQ7VXRR2D2VJ3YHA
  pawl release --where held-longer-than=1h --where prefix=ci/
  pawl release --where host=build-7 --yes`,
		Args: cobra.ArbitraryArgs, // see check
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd.Flags(), args); err != nil {
				return err
			}
			if len(o.where) > 0 {
				return a.releaseWhere(cmd.Context(), strings.Join(args, ""), o.where, o.yes)
			}
			if cmd.Flags().Changed("claim") {
				return a.releaseClaim(cmd.Context(), args[0], o.claim)
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error {
				return a.release(ctx, c, args[0], o.force)
			})
		},
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	f.BoolVar(&o.force, "force", false, "really do it, to all holders")
	f.StringVar(&o.claim, "claim", "", "only the claim with this `ID`, which holds or waits")
	f.StringArrayVar(&o.where, "where", nil, "all claims that meet this `CONDITION`; several must all be met")
	f.BoolVarP(&o.yes, "yes", "y", false, "with --where: don't ask")
	_ = cmd.RegisterFlagCompletionFunc("where", cobra.FixedCompletions([]string{
		"held-longer-than=\tduration", "waiting-longer-than=\tduration", "host=\tof the process", "label=\tof the claim", "prefix=\tof the name",
	}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp)) // the flag is there, as below
	_ = cmd.RegisterFlagCompletionFunc("claim", a.completeClaims)
	return cmd
}

func (a *app) release(ctx context.Context, c *pawl.Client, name string, force bool) error {
	if !force {
		return a.refuse(ctx, c, name)
	}
	removed, err := c.ForceRelease(ctx, name)
	switch {
	case errors.Is(err, pawl.ErrInvalid):
		return err
	case err != nil:
		return engine(fmt.Errorf("whether %q was released is not known, see 'pawl show': %w", name, err))
	}
	return a.printReleased(name, removed)
}

// releaseClaim takes one claim away.
func (a *app) releaseClaim(ctx context.Context, name, id string) error {
	if err := driver.CheckID(id); err != nil {
		return fmt.Errorf("--claim: %w; what another library holds, --force alone takes away", err)
	}
	return a.withDriver(func(s driver.Store, _ *pawl.Client) error {
		was, err := evict(ctx, s, name, id, false)
		switch {
		case errors.Is(err, handle.ErrGone):
			return &failure{status: exitLost, err: fmt.Errorf("%q has no claim %s: it has ended, or never was; see 'pawl show'", name, id)}
		case errors.Is(err, handle.ErrLingers):
			return &failure{status: exitLost, err: fmt.Errorf("release claim %s of %q: %w", id, name, err)}
		case err != nil:
			return engine(fmt.Errorf("whether claim %s of %q was released is not known, see 'pawl show': %w", id, name, err))
		}
		return a.printReleased(name, []pawl.Entry{*was})
	})
}

// evict is handle.Evict, which waits for a reply for no longer than a command does.
func evict(ctx context.Context, s driver.Store, name, id string, waiting bool) (*driver.Entry, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoContact)
	defer cancel()
	was, err := handle.Evict(ctx, s, name, id, waiting)
	return was, unanswered(ctx, err)
}

func (a *app) printReleased(name string, removed []pawl.Entry) error {
	if a.json {
		return a.printJSON(a.out, struct {
			Name    string      `json:"name"`
			Removed []claimJSON `json:"removed"`
		}{name, pawlhttp.ClaimsOf(removed)})
	}
	if len(removed) == 0 {
		fmt.Fprintf(a.out, "Nobody holds %s.\n", printable(name))
	}
	for _, e := range removed {
		fmt.Fprintf(a.out, "Released %s: it was %s.\n", printable(name), told(&e))
	}
	return nil
}

// told is what a claim was, in a sentence.
func told(e *pawl.Entry) string {
	if e.State != driver.Holding {
		return fmt.Sprintf("waited for by %s %s", who(e), since(e.Age))
	}
	return fmt.Sprintf("%s, token %d", holding(e), e.Token)
}

// refuse says whom --force would remove.
func (a *app) refuse(ctx context.Context, c *pawl.Client, name string) error {
	q, err := c.Inspect(ctx, name)
	if err != nil {
		return engine(err)
	}
	holders, _ := split(&q)
	if len(holders) == 0 {
		return a.printReleased(name, nil)
	}
	f := &failure{status: exitUsage, queue: pawlhttp.QueueOf(&q)}
	f.err = fmt.Errorf("release %q: it is %s; add --force to take it away", name, holding(&holders[0]))
	if more := len(holders) - 1; more > 0 {
		f.err = fmt.Errorf("release %q: it is %s, and by %d more; add --force to take it away from all, or --claim ID", name, holding(&holders[0]), more)
	}
	return f
}

// completeClaims lets the shell complete the ID of a claim, once NAME is there.
func (a *app) completeClaims(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 || driver.CheckName(args[0]) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	err := a.with(context.Background(), func(ctx context.Context, c *pawl.Client) error {
		q, err := c.Inspect(ctx, args[0])
		for i := range q.Claims {
			ids = append(ids, q.Claims[i].ID+"\t"+printable(q.Claims[i].Owner.Label))
		}
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
