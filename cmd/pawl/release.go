package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/pawlhttp"
)

func (a *app) releaseCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release NAME --force",
		Short: "Take a name away from its holders",
		Long: `Release takes NAME away from whoever holds it; the next in the queue gets it at
once. The holder is told and 'pawl run' ends its command, but for a moment both
may run. It is for holders that hang; one that died loses its lock by itself.`,
		Example: `  pawl show deploy/prod
  pawl release deploy/prod --force`,
		Args: nameArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error {
				return a.release(ctx, c, args[0], force)
			})
		},
		ValidArgsFunction: a.completeNames,
	}
	cmd.Flags().BoolVar(&force, "force", false, "really do it")
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
		fmt.Fprintf(a.out, "Released %s: it was %s, token %d.\n", printable(name), holding(&e), e.Token)
	}
	return nil
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
		f.err = fmt.Errorf("release %q: it is %s, and by %d more; add --force to take it away from all", name, holding(&holders[0]), more)
	}
	return f
}
