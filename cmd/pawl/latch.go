package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// latchOptions are the flags of latch and its commands.
type latchOptions struct {
	count         int64
	party         string
	keep, timeout time.Duration
	downTimeout   time.Duration
}

func (o *latchOptions) latch(c *pawl.Client, name string) *pawl.Latch {
	return c.Latch(name, o.count, pawl.Expiring(o.keep))
}

func (a *app) latchCommand() *cobra.Command {
	o := &latchOptions{}
	latch := &cobra.Command{
		Use:   "latch down|wait|show|delete [--count N] NAME",
		Short: "Wait until a number of parties are ready",
		Long: `A latch holds back those who wait for it until --count parties have counted
down; then it is open and stays so. The first one who counts down or waits makes
it, and all give the same --count; show and delete do without. A day (--keep)
after its last use, while nobody waits, it is forgotten, and the name is a new
latch. A lock of the same name goes on beside it, unnoticed. 'pawl list' doesn't
show latches.

Exit status:
  64  the call is wrong, such as another --count than the latch has
  69  the store can't be reached; the party may be counted, or not
  75  the time is up (--timeout)
  76  the latch was deleted while it was waited for
  128+N  signal N ended it`,
		Example: `  # three servers say that they are up, a test waits for all of them
  pawl latch down --count 3 --party "$HOSTNAME" test/42
  pawl latch wait --count 3 --timeout 5m test/42 && ./test`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("latch %q: there are down, wait, show and delete", args[0])
			}
			return usage("what about the latch? There are down, wait, show and delete")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	latch.PersistentFlags().Int64Var(&o.count, "count", 0, "how many parties must count down, 1 to 10,000")
	latch.PersistentFlags().DurationVar(&o.keep, "keep", 24*time.Hour, "forget the latch so long after its last use; 0: never")
	sub := func(use, short, example string, run func(cmd *cobra.Command, name string) error) *cobra.Command {
		counts := strings.HasSuffix(use, "--count N NAME")
		cmd := &cobra.Command{
			Use: use, Short: short, Example: example, Args: nameArg,
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := o.check(cmd, counts); err != nil {
					return err
				}
				return run(cmd, args[0])
			},
			ValidArgsFunction: cobra.NoFileCompletions, // a store can't list latches
		}
		latch.AddCommand(cmd)
		return cmd
	}
	down := sub("down --count N NAME", "Count a party down", `  pawl latch down --count 3 --party "$HOSTNAME" test/42`, func(cmd *cobra.Command, name string) error {
		return a.countDown(cmd.Context(), name, o)
	})
	down.Flags().StringVar(&o.party, "party", "", "who counts down, each once however often it calls (default: a new one with each call)")
	down.Flags().DurationVar(&o.downTimeout, "timeout", requestTimeout, "try so long while the store fails")
	wait := sub("wait --count N NAME", "Wait until the latch is open", `  pawl latch wait --count 3 --timeout 5m test/42 && ./test`, func(cmd *cobra.Command, name string) error {
		return a.await(cmd.Context(), &wait{
			what: fmt.Sprintf("wait for latch %q", name), timeout: o.timeout,
			first: func(ctx context.Context, c *pawl.Client) error { _, err := o.latch(c, name).Count(ctx); return err },
			then:  func(ctx context.Context, c *pawl.Client) error { return o.latch(c, name).Wait(ctx) },
		})
	})
	wait.Flags().DurationVar(&o.timeout, "timeout", 0, "wait so long, then exit with 75 (default: PAWL_TIMEOUT, else for ever)")
	sub("show NAME", "Show how many parties are missing", "  pawl latch show test/42", func(cmd *cobra.Command, name string) error {
		return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error { return a.showLatch(ctx, c, name, o) })
	})
	sub("delete NAME", "Remove the latch; who waits for it exits with 76", "  pawl latch delete test/42", func(cmd *cobra.Command, name string) error {
		return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error {
			if ok, err := o.find(ctx, c, name); err != nil || !ok {
				return err // to delete what is not there is no error
			}
			return engine(o.latch(c, name).Delete(ctx))
		})
	})
	return latch
}

// find learns the count of a latch, for those who were not given it, and reports
// whether there is one.
func (o *latchOptions) find(ctx context.Context, c *pawl.Client, name string) (bool, error) {
	if o.count > 0 {
		return true, nil
	}
	count, err := c.Latch(name, 0).Size(ctx)
	o.count = count
	return count > 0, engine(err)
}

func (a *app) showLatch(ctx context.Context, c *pawl.Client, name string, o *latchOptions) error {
	ok, err := o.find(ctx, c, name)
	if err != nil {
		return err
	}
	if !ok && !a.json {
		fmt.Fprintf(a.out, "There is no latch %s.\n", printable(name))
		return nil
	}
	var left int64
	if ok {
		if left, err = o.latch(c, name).Count(ctx); err != nil {
			return engine(err)
		}
	}
	return a.printLatch(name, o.count, left)
}

// check returns what is wrong with the flags. counts tells that --count is needed.
func (o *latchOptions) check(cmd *cobra.Command, counts bool) error {
	flags := cmd.Flags()
	given := flags.Changed("count")
	if cmd.Name() == "wait" {
		if err := fromEnvironment(flags); err != nil {
			return err
		}
	}
	switch {
	case counts && !given:
		return usage("--count is missing: how many parties must count down?")
	case given && (o.count < 1 || o.count > 10_000):
		return usage("--count %d: allowed are 1 to 10000", o.count)
	case o.keep != 0 && (o.keep < driver.MinTTL || o.keep > driver.MaxTTL):
		return usage("--keep %v: allowed are 0 (for ever), and %v to %v", o.keep, driver.MinTTL, driver.MaxTTL)
	case flags.Changed("party") && o.party == "":
		return usage("--party is empty: a party that counts once has a name")
	}
	if t, err := flags.GetDuration("timeout"); err == nil && flags.Changed("timeout") && t <= 0 {
		return usage("%s %v: it must be above 0", called(flags, "timeout"), t)
	}
	return nil
}

// countDown repeats what had no reply, under the same party.
func (a *app) countDown(ctx context.Context, name string, o *latchOptions) error {
	var left int64
	w := &wait{what: fmt.Sprintf("count down latch %q", name), timeout: o.downTimeout}
	w.first = func(ctx context.Context, c *pawl.Client) error { return nil }
	w.then = func(ctx context.Context, c *pawl.Client) (err error) {
		left, err = o.latch(c, name).CountDown(ctx, o.party)
		return err
	}
	if err := a.await(ctx, w); err != nil {
		if w.timedOut {
			return &failure{status: exitUnreachable, err: fmt.Errorf("%s: no reply in %v", w.what, o.downTimeout)}
		}
		return err
	}
	return a.printLatch(name, o.count, left)
}

func (a *app) printLatch(name string, count, left int64) error {
	if a.json {
		return a.printJSON(a.out, struct {
			Name  string `json:"name"`
			Count int64  `json:"count"`
			Left  int64  `json:"left"`
			Open  bool   `json:"open"`
		}{name, count, left, left == 0 && count > 0})
	}
	if left == 0 {
		fmt.Fprintf(a.out, "%s is open.\n", printable(name))
		return nil
	}
	fmt.Fprintf(a.out, "%s: %d of %d are missing.\n", printable(name), left, count)
	return nil
}
