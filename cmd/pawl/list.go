package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/pawlhttp"
)

// onePrefix checks the arguments of a command that takes PREFIX or nothing.
func onePrefix(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("one PREFIX at the most; there are %d arguments", len(args))
	}
	return nil
}

func (a *app) listCommand() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List the names that are held or waited for",
		Long: `List prints the names that are held or waited for, of those that begin with
PREFIX, and their holders. Up to a thousand are in order; more are printed as
they are read, and only each thousand is in order.

A name that the store has but cannot read is told on standard error and passed
over.

With --watch it goes on: a line for each name that is there (added), and then for
each that comes (added), has other holders or waiters (changed), or is free again
(removed), with the time at which that was seen by this machine's clock. With --json
each is an object on a line of its own, as without --watch and with "time" and
"event". It looks every --interval, less often if reading all names takes more than
a tenth of that; what comes and goes in between is not seen. If the store does not
reply any longer it says so once, and tries again. It ends by Ctrl-C.

Exit status:
  0   all names are listed
  65  some names can't be read; the others are listed
  69  the store can't be reached, or did not reply to the end; with --watch when
      it begins, or if trying again is useless`,
		Example: `  pawl list
  pawl list deploy/
  pawl list --watch ci/
  pawl list --json | jq -r '.[] | select(.waiters != []) | .name'`,
		Args: onePrefix,
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "") // onePrefix, or none
			if err := checkInterval(interval); err != nil {
				return err
			}
			if cmd.Flags().Changed("interval") && !watch {
				return usage("--interval belongs to --watch")
			}
			return a.withStore(func(c *pawl.Client) error {
				if watch {
					return a.watchList(cmd.Context(), c, prefix, interval)
				}
				return a.list(cmd.Context(), c, prefix)
			})
		},
		ValidArgsFunction: a.completeNames,
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, with a line for each change")
	cmd.Flags().DurationVar(&interval, "interval", defaultInterval, "with --watch: how often to look")
	return cmd
}

// A list is printed in parts: when there are so many names, or so long after the
// first of a part was read.
const (
	partNames = 1000
	partTime  = time.Second
)

func (a *app) list(ctx context.Context, c *pawl.Client, prefix string) error {
	var (
		part  []pawl.Queue
		since time.Time // part[0] was read
		bad   int
		out   listPrinter = &listTable{out: a.out, err: a.err}
	)
	if a.json {
		out = &listArray{app: a}
	}
	flush := func() error {
		slices.SortFunc(part, func(a, b pawl.Queue) int { return cmp.Compare(a.Name, b.Name) })
		err := out.print(part)
		part = part[:0]
		return err
	}
	for q, err := range watched(ctx, c, prefix) {
		switch name := new(pawl.NameError); {
		case errors.As(err, &name):
			bad++
			a.warn("%v", err)
		case err != nil:
			// What was read is told; without its end, JSON does not pass for all.
			return errors.Join(flush(), engine(err))
		default:
			if len(part) == 0 {
				since = time.Now()
			}
			part = append(part, q)
		}
		if len(part) >= partNames || len(part) > 0 && time.Since(since) > partTime {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(flush(), out.end()); err != nil {
		return err
	}
	if bad > 0 {
		return &failure{status: exitBadName, err: fmt.Errorf("%d names can't be read", bad)}
	}
	return nil
}

// watched lists, and ends with an error when the store does not reply any longer.
// That no name comes does not say so: it may have to look through many that do not
// begin with prefix.
func watched(ctx context.Context, c *pawl.Client, prefix string) iter.Seq2[pawl.Queue, error] {
	return func(yield func(pawl.Queue, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		rows, ended := make(chan struct{}, 1), make(chan struct{})
		defer close(ended)
		go func() {
			for {
				select {
				case <-rows:
					continue
				case <-ended:
					return
				case <-time.After(requestTimeout):
				}
				ask, end := context.WithTimeout(ctx, requestTimeout)
				_, err := c.Inspect(ask, "pawl/list/probe")
				silent := ask.Err() != nil
				end()
				if err != nil && silent {
					cancel(fmt.Errorf("no reply in %v", requestTimeout))
					return
				}
			}
		}()
		for q, err := range c.List(ctx, prefix) {
			if cause := context.Cause(ctx); err != nil && cause != nil {
				err = fmt.Errorf("list: %w", cause)
			}
			select {
			case rows <- struct{}{}:
			default:
			}
			if !yield(q, err) {
				return
			}
		}
	}
}

// listPrinter prints parts of a list.
type listPrinter interface {
	print(part []pawl.Queue) error
	end() error
}

// listArray prints a list as one JSON array.
type listArray struct {
	app   *app
	begun bool
}

func (l *listArray) print(part []pawl.Queue) error {
	for i := range part {
		before := ","
		if !l.begun {
			l.begun, before = true, "["
		}
		if _, err := io.WriteString(l.app.out, before); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		if err := l.app.printJSON(l.app.out, pawlhttp.QueueOf(&part[i])); err != nil {
			return err
		}
	}
	return nil
}

func (l *listArray) end() error {
	text := "]\n"
	if !l.begun {
		text = "[]\n"
	}
	if _, err := io.WriteString(l.app.out, text); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// listTable prints a list for people. The columns of a part are at least as wide as
// those of the one before.
type listTable struct {
	out, err io.Writer
	begun    bool
	widths   []int
}

func (l *listTable) print(part []pawl.Queue) error {
	if len(part) == 0 {
		return nil
	}
	var rows [][]string
	if !l.begun {
		rows = append(rows, []string{"NAME", "KIND", "HOLDER", "HOST", "PID", "HELD", "TTL LEFT", "WAITING", "TAKES"})
		l.begun = true
	}
	for i := range part {
		q := &part[i]
		holders, waiters := split(q)
		kind, waiting := or(kindWord(q.Kind), "-"), strconv.Itoa(len(waiters))
		if len(holders) == 0 {
			rows = append(rows, []string{q.Name, kind, "-", "-", "-", "-", "-", waiting, ""})
		}
		for _, h := range holders {
			label := or(h.Owner.Label, "-")
			if h.Lingering {
				label += " (lingering)"
			}
			takes := ""
			if divided(q) {
				takes = portion(q, &h)
			}
			rows = append(rows, []string{q.Name, kind, label, or(h.Owner.Host, "-"), pid(&h), span(h.Held), span(h.TTL), waiting, takes})
		}
	}
	widths, err := aligned(l.out, rows, l.widths)
	l.widths = widths
	return err
}

func (l *listTable) end() error {
	if !l.begun {
		fmt.Fprintln(l.err, "Nothing is held or waited for.")
	}
	return nil
}

func pid(e *pawl.Entry) string {
	if e.Owner.PID == 0 {
		return "-"
	}
	return strconv.Itoa(e.Owner.PID)
}
