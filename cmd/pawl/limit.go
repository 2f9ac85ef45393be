package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

func (a *app) limitCommand() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use:   "limit NAME [N]",
		Short: "Show or change how many hold a name at a time",
		Long: `Limit changes how many units there are of NAME, for all who use it, until it is
set again: those of 'pawl run --limit', and of a program's Semaphore. They go on
to give the --limit that they gave before. To set it to that again ends the change.

With more, those who wait and fit now hold at once. With less, nobody loses what
is held: the next ones hold when enough have ended. Whoever asks for more than
there are now (-n) is refused.

The --limit that is given is seen while NAME is in use, or its limit changed; else
say it with --from. What one holds at a time stays so: its holders rely on it.`,
		Example: `  # the line is slow tonight: one download at a time instead of three
  pawl limit downloads 1
  pawl limit downloads      # what is it now?
  pawl limit downloads 3    # as before

  pawl limit --from 3 downloads 1    # also while nobody downloads`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return usage("one NAME is needed, and the number of units; there are %d arguments", len(args))
			}
			return driver.CheckName(args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var to int64
			if len(args) == 2 {
				var err error
				if to, err = strconv.ParseInt(args[1], 10, 64); err != nil || to < 1 || to > maxPermits {
					return usage("%q is no number of units: allowed are 1 to %d", args[1], maxPermits)
				}
			}
			switch given := cmd.Flags().Changed("from"); {
			case given && to == 0:
				return usage("--from is for a change: to how many units?")
			case given && (from < 1 || from > maxPermits):
				return usage("--from %d: allowed are 1 to %d", from, maxPermits)
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error { return a.limit(ctx, c, args[0], from, to) })
		},
		ValidArgsFunction: a.completeNames,
	}
	cmd.Flags().Int64Var(&from, "from", 0, "the --limit that those who use NAME give (default: what is seen)")
	return cmd
}

// limit shows the limit of a name, or changes it if to is not 0.
func (a *app) limit(ctx context.Context, c *pawl.Client, name string, from, to int64) error {
	q, err := c.Inspect(ctx, name)
	if err != nil {
		return engine(err)
	}
	known := len(q.Claims) > 0 || q.Declared != 0
	switch {
	case to == 0 && known:
		return a.printLimit(name, q.Kind, q.Limit, cmp.Or(q.Declared, q.Limit))
	case to == 0:
		return a.printLimit(name, 0, 0, 0)
	case known:
		if use := usedFor(q.Kind); use != "" {
			return usage("%q is in use now %s, which stays so", name, use)
		}
		from = cmp.Or(from, q.Declared, q.Limit)
	}
	if from == 0 {
		return usage("nobody uses %q now: say with --from which --limit those who do will give", name)
	}
	err = c.Semaphore(name, from).SetLimit(ctx, to)
	if limit := new(pawl.MismatchError); errors.As(err, &limit) {
		return usage("those who use %q don't give --limit %d: leave --from away", name, from)
	}
	if err != nil {
		return engine(err)
	}
	return a.printLimit(name, driver.KindSemaphore, to, cmp.Or(q.Declared, from))
}

// printLimit prints the limit in force, and the one that those give who use
// the name; 0: it is not known.
func (a *app) printLimit(name string, kind driver.Kind, limit, declared int64) error {
	use := usedFor(kind)
	switch shown := printable(name); {
	case a.json:
		return a.printJSON(a.out, struct {
			Name     string `json:"name"`
			Kind     string `json:"kind,omitempty"`
			Limit    int64  `json:"limit,omitempty"`
			Declared int64  `json:"declared,omitempty"`
		}{name, kindWord(kind), limit, declared})
	case limit == 0:
		fmt.Fprintf(a.out, "Nobody uses %s now, and its limit was not changed.\n", shown)
	case limit != declared:
		fmt.Fprintf(a.out, "%s: %d at a time, instead of --limit %d.\n", shown, limit, declared)
	case use != "":
		fmt.Fprintf(a.out, "%s is in use %s.\n", shown, use)
	default:
		fmt.Fprintf(a.out, "%s: %d at a time, as its --limit says.\n", shown, limit)
	}
	return nil
}
