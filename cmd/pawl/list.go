package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List the names that are held or waited for",
		Example: `  pawl list
  pawl list deploy/
  pawl list --json | jq -r '.[] | select(.waiters != []) | .name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("one PREFIX at the most; there are %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error { return a.list(ctx, c, prefix) })
		},
		ValidArgsFunction: a.completeNames,
	}
}

func (a *app) list(ctx context.Context, c *pawl.Client, prefix string) error {
	var queues []driver.Queue
	for q, err := range c.List(ctx, prefix) {
		if err != nil {
			return engine(err)
		}
		queues = append(queues, q)
	}
	slices.SortFunc(queues, func(a, b driver.Queue) int { return cmp.Compare(a.Name, b.Name) })
	if a.json {
		out := make([]*queueJSON, 0, len(queues))
		for i := range queues {
			out = append(out, toJSON(&queues[i]))
		}
		return a.printJSON(a.out, out)
	}
	if len(queues) == 0 {
		fmt.Fprintln(a.err, "Nothing is held or waited for.")
		return nil
	}
	rows := [][]string{{"NAME", "HOLDER", "HOST", "PID", "HELD", "TTL LEFT", "WAITING"}}
	several := slices.ContainsFunc(queues, func(q driver.Queue) bool { return divided(&q) })
	if several {
		rows[0] = append(rows[0], "TAKES")
	}
	for i := range queues {
		holders, waiters := split(&queues[i])
		waiting := strconv.Itoa(len(waiters))
		if len(holders) == 0 {
			rows = append(rows, []string{queues[i].Name, "-", "-", "-", "-", "-", waiting})
		}
		for _, h := range holders {
			label := or(h.Owner.Label, "-")
			if h.Lingering {
				label += " (lingering)"
			}
			rows = append(rows, []string{queues[i].Name, label, or(h.Owner.Host, "-"), pid(&h), span(h.Held), span(h.TTL), waiting})
			if several && divided(&queues[i]) {
				last := len(rows) - 1
				rows[last] = append(rows[last], portion(&queues[i], &h))
			}
		}
	}
	return table(a.out, rows)
}

func pid(e *driver.Entry) string {
	if e.Owner.PID == 0 {
		return "-"
	}
	return strconv.Itoa(e.Owner.PID)
}
