package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/pawlhttp"
)

func (a *app) askCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ask NAME",
		Short: "Ask the holders of a name to give way",
		Long: `Ask tells the programs that hold NAME that it is wanted, as if somebody had begun
to wait for it. Those that look (Lease.YieldRequested) give way when they can. It
takes nothing from anybody: 'pawl run' and 'pawl elect' go on, and so do programs
that don't look; 'pawl release' takes NAME away.`,
		Example: `  pawl ask reindex && pawl run reindex -- ./mine`,
		Args:    nameArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error { return a.ask(ctx, c, args[0]) })
		},
		ValidArgsFunction: a.completeNames,
	}
}

func (a *app) ask(ctx context.Context, c *pawl.Client, name string) error {
	q, err := c.Inspect(ctx, name)
	if err != nil {
		return engine(err)
	}
	var asked []pawl.Entry
	holders, _ := split(&q)
	for _, e := range holders {
		if !e.Lingering { // nobody is there to be asked
			asked = append(asked, e)
		}
	}
	if len(asked) > 0 {
		if err := c.RequestYield(ctx, name); err != nil {
			return engine(err)
		}
	}
	if a.json {
		return a.printJSON(a.out, struct {
			Name  string      `json:"name"`
			Asked []claimJSON `json:"asked"`
		}{name, pawlhttp.ClaimsOf(asked)})
	}
	if len(asked) == 0 {
		fmt.Fprintf(a.out, "Nobody is there who holds %s.\n", printable(name))
	}
	for _, e := range asked {
		fmt.Fprintf(a.out, "Asked for %s: it is %s.\n", printable(name), holding(&e))
	}
	return nil
}
