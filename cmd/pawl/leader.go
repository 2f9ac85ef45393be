package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pawl-go/pawl"
)

// leaderOptions are the flags of leader.
type leaderOptions struct {
	follow, onlyValue bool
	timeout           time.Duration
}

func (a *app) leaderCommand() *cobra.Command {
	o := &leaderOptions{}
	cmd := &cobra.Command{
		Use:   "leader NAME",
		Short: "Show who leads",
		Long: `Leader prints who leads in NAME ('pawl elect'), since when, and its value.

With --follow it goes on, and prints each change as it comes: another leader,
another value, nobody. Changes in quick succession may be printed as one, the
last one never fails to appear.

Exit status:
  0   somebody leads; with --follow, the time is up
  68  nobody leads (also when the time is up)
  69  the store can't be reached
  128+N  signal N ended it`,
		Example: `  pawl leader scheduler
  pawl leader --timeout 30s --only-value db/primary
  pawl leader --follow --json db/primary | while read -r line; do ...; done`,
		Args: nameArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("timeout") && o.timeout <= 0 {
				return usage("--timeout %v: it must be above 0", o.timeout)
			}
			return a.leader(cmd.Context(), args[0], o)
		},
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "print each change, too")
	f.BoolVar(&o.onlyValue, "only-value", false, "print the value alone; an empty line: nobody leads")
	f.DurationVar(&o.timeout, "timeout", 0, "wait so long for a leader; follow for so long (default: don't wait; for ever)")
	return cmd
}

func (a *app) leader(ctx context.Context, name string, o *leaderOptions) error {
	var now pawl.Leader
	w := &wait{what: fmt.Sprintf("leader of %q", name), timeout: o.timeout}
	w.first = func(ctx context.Context, c *pawl.Client) (err error) {
		now, err = c.Election(name).Leader(ctx)
		if errors.Is(err, pawl.ErrNoLeader) && (o.follow || o.timeout > 0) {
			return nil
		}
		return err
	}
	w.then = func(ctx context.Context, c *pawl.Client) error {
		if now.Token > 0 && !o.follow {
			return a.printLeader(name, &now, o)
		}
		for l, err := range c.Election(name).Observe(ctx) {
			if err != nil {
				return err
			}
			if !o.follow && l.Token == 0 {
				continue
			}
			if err := a.printLeader(name, &l, o); err != nil || !o.follow {
				return err
			}
		}
		return nil
	}
	err := a.await(ctx, w)
	if w.timedOut {
		if o.follow {
			return nil
		}
		return &failure{status: exitNoLeader, err: fmt.Errorf("nobody leads in %q, after %v", name, o.timeout)}
	}
	return err
}

// leaderJSON is a leader for programs.
type leaderJSON struct {
	Name  string `json:"name"`
	Token int64  `json:"token"` // 0: nobody leads
	Claim string `json:"claim,omitempty"`
	pawl.Owner
	Since string `json:"since,omitempty"`
	Value string `json:"value"`
	// Raw is the value if it is no text.
	Raw []byte `json:"value_base64,omitempty"`
}

func (a *app) printLeader(name string, l *pawl.Leader, o *leaderOptions) (err error) {
	switch {
	case o.onlyValue && !a.json:
		value := string(l.Value)
		if term.IsTerminal(int(os.Stdout.Fd())) { // programs get it as it is
			value = printable(value)
		}
		_, err = fmt.Fprintln(a.out, value)
	case a.json:
		out := leaderJSON{Name: name, Token: l.Token, Claim: l.Claim, Owner: l.Owner}
		if l.Token > 0 {
			out.Since = l.Since.UTC().Format(time.RFC3339Nano)
		}
		if utf8.Valid(l.Value) {
			out.Value = string(l.Value)
		} else {
			out.Raw = l.Value
		}
		return a.printJSON(a.out, out)
	case l.Token == 0:
		_, err = fmt.Fprintf(a.out, "Nobody leads in %s.\n", printable(name))
	default:
		e := pawl.Entry{ID: l.Claim, Owner: l.Owner}
		_, err = fmt.Fprintf(a.out, "%s is led by %s %s, token %d, value %s\n",
			printable(name), who(&e), since(time.Since(l.Since)), l.Token, strconv.Quote(string(l.Value)))
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
