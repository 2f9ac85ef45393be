package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// barrierOptions are the flags of barrier.
type barrierOptions struct {
	parties      int
	timeout, ttl time.Duration
	reset, show  bool
	label        string
}

func (a *app) barrierCommand() *cobra.Command {
	o := &barrierOptions{}
	cmd := &cobra.Command{
		Use:   "barrier --parties N NAME",
		Short: "Wait until as many others have come to the same point",
		Long: `Barrier waits until --parties of its calls are there, and then all go on. It
prints how many came after this one: 0 to the last, so that one of them can do
what is to be done once. The next calls wait for each other anew. All give the
same --parties; --show and --reset do without.

A party that ends while it waits, by --timeout, a signal, its death (noticed a
--ttl later) or because it can't reach the store for so long, breaks the barrier:
all who wait exit with 76, and so does everybody who comes, until --reset.

Exit status:
  64  the call is wrong, such as other --parties than the barrier has
  69  the store can't be reached
  75  the time is up (--timeout), and the barrier is broken by it
  76  the barrier is broken
  128+N  signal N ended it`,
		Example: `  # four workers begin each round together
  while pawl barrier --parties 4 --timeout 1h rounds; do ./round; done

  # the last one to come sends the mail
  test "$(pawl barrier --parties 4 rounds)" = 0 && ./mail

  pawl barrier --reset rounds`,
		Args: nameArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return a.barrier(cmd.Context(), args[0], o)
		},
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	f.IntVar(&o.parties, "parties", 0, "how many wait for each other, 1 to 1,000")
	f.DurationVar(&o.timeout, "timeout", 0, "wait so long, then exit with 75 (default: PAWL_TIMEOUT, else for ever)")
	f.DurationVar(&o.ttl, "ttl", pawl.DefaultTTL, "how long it takes until the death of this one is noticed, or PAWL_TTL")
	f.StringVar(&o.label, "label", "", "what 'pawl show' calls this one, or PAWL_LABEL")
	f.BoolVar(&o.show, "show", false, "don't wait; print how many do")
	f.BoolVar(&o.reset, "reset", false, "don't wait; repair the barrier. Who waits exits with 76")
	return cmd
}

func (o *barrierOptions) check(cmd *cobra.Command) error {
	flags := cmd.Flags()
	given := flags.Changed("parties")
	if !o.show && !o.reset {
		if err := fromEnvironment(flags); err != nil {
			return err
		}
	}
	switch {
	case !given && !o.show && !o.reset:
		return usage("--parties is missing: how many wait for each other?")
	case given && (o.parties < 1 || o.parties > 1000):
		return usage("--parties %d: allowed are 1 to 1000", o.parties)
	case o.show && o.reset:
		return usage("--show and --reset exclude each other")
	case (o.show || o.reset) && flags.Changed("timeout"):
		return usage("--timeout is for waiting, which --show and --reset don't do")
	case flags.Changed("timeout") && o.timeout <= 0:
		return usage("%s %v: it must be above 0", called(flags, "timeout"), o.timeout)
	case o.ttl < driver.MinTTL || o.ttl > driver.MaxTTL:
		return usage("%s %v: allowed are %v to %v", called(flags, "ttl"), o.ttl, driver.MinTTL, driver.MaxTTL)
	}
	if err := driver.CheckLabel(o.label); err != nil {
		return fmt.Errorf("%s: %w", called(flags, "label"), err)
	}
	return nil
}

func (a *app) barrier(ctx context.Context, name string, o *barrierOptions) error {
	if o.reset || o.show {
		return a.with(ctx, func(ctx context.Context, c *pawl.Client) error {
			if o.parties == 0 {
				var err error
				if o.parties, err = c.Barrier(name, 1).Size(ctx); err != nil {
					return engine(err)
				}
			}
			n := 0
			if b := c.Barrier(name, o.parties); o.parties > 0 { // or nobody has waited for it
				var err error
				if o.reset {
					return engine(b.Reset(ctx))
				}
				if n, err = b.Waiting(ctx); err != nil {
					return engine(err)
				}
			} else if o.reset {
				return nil
			}
			return a.printBarrier(struct {
				Name    string `json:"name"`
				Parties int    `json:"parties"`
				Waiting int    `json:"waiting"`
			}{name, o.parties, n}, n)
		})
	}
	var index int
	err := a.await(ctx, &wait{
		what: fmt.Sprintf("wait for barrier %q, which is broken now", name), timeout: o.timeout,
		options: pawl.Options{TTL: o.ttl, Label: o.label},
		first: func(ctx context.Context, c *pawl.Client) error {
			_, err := c.Barrier(name, o.parties).Waiting(ctx)
			return err
		},
		then: func(ctx context.Context, c *pawl.Client) (err error) {
			index, err = c.Barrier(name, o.parties).Wait(ctx)
			return err
		},
	})
	if errors.Is(err, pawl.ErrBroken) {
		return fmt.Errorf("%w; --reset repairs it", err)
	}
	if err != nil {
		return err
	}
	return a.printBarrier(struct {
		Name    string `json:"name"`
		Parties int    `json:"parties"`
		Index   int    `json:"index"`
	}{name, o.parties, index}, index)
}

// printBarrier prints v for programs, or n.
func (a *app) printBarrier(v any, n int) error {
	if a.json {
		return a.printJSON(a.out, v)
	}
	fmt.Fprintln(a.out, n)
	return nil
}
