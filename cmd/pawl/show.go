package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/pawlhttp"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a name and who waits for it",
		Long: `Show prints who holds NAME and who waits for it, in order of arrival. A holder
that is "lingering" has ended, but asked for the name to stay taken (--min-hold).
Where several can hold, TAKES says "shared" or "exclusive", or how many of how
many units ('pawl run --limit').`,
		Example: `  pawl show deploy/prod
  pawl show deploy/prod --json | jq .holders[0].token`,
		Args: nameArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(ctx context.Context, c *pawl.Client) error { return a.show(ctx, c, args[0]) })
		},
		ValidArgsFunction: a.completeNames,
	}
}

// nameArg takes one NAME, checked before anything is opened.
func nameArg(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("one NAME is needed; there are %d arguments", len(args))
	}
	return driver.CheckName(args[0])
}

func (a *app) show(ctx context.Context, c *pawl.Client, name string) error {
	q, err := c.Inspect(ctx, name)
	if err != nil {
		return engine(err)
	}
	if a.json {
		return a.printJSON(a.out, pawlhttp.QueueOf(&q))
	}
	holders, waiters := split(&q)
	if len(q.Claims) == 0 {
		fmt.Fprintf(a.out, "%s is free.\n", printable(name))
		return a.tellLimit(&q)
	}
	head := []string{strings.ToUpper(kindWord(q.Kind)), "LABEL", "HOST", "PID", "SINCE", "TTL LEFT", "TOKEN", "CLAIM"}
	if divided(&q) {
		head = append(head, "TAKES")
	}
	rows := [][]string{head}
	row := func(first string, e *pawl.Entry, since, token string) {
		r := []string{first, or(e.Owner.Label, "-"), or(e.Owner.Host, "-"), pid(e), since, span(e.TTL), token, e.ID}
		if divided(&q) {
			r = append(r, portion(&q, e))
		}
		rows = append(rows, r)
	}
	for _, e := range holders {
		state := "holds"
		if e.Lingering {
			state = "lingering"
		}
		row(state, &e, ago(e.Held), strconv.FormatInt(e.Token, 10))
	}
	for i, e := range waiters {
		row(fmt.Sprintf("waits, %d", i+1), &e, ago(e.Age), "-")
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	return a.tellLimit(&q)
}

// tellLimit says that the limit was changed, if it was.
func (a *app) tellLimit(q *pawl.Queue) error {
	if q.Declared == 0 {
		return nil
	}
	return a.printLimit(q.Name, q.Kind, q.Limit, q.Declared)
}
