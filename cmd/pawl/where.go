package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/handle"
	"github.com/pawl-go/pawl/pawlhttp"
)

// conditions say which claims 'pawl release --where' means: those that meet all.
type conditions struct {
	held, waited        time.Duration // longer than; 0 is not given
	host, label, prefix *string
}

const knownConditions = "held-longer-than=1h, waiting-longer-than=1h, host=HOST, label=LABEL and prefix=PREFIX"

// parseConditions reads the values of --where.
func parseConditions(all []string) (*conditions, error) {
	var c conditions
	for _, text := range all {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usage("--where %q: it is a condition like held-longer-than=1h; allowed are %s", text, knownConditions)
		}
		texts := map[string]**string{"host": &c.host, "label": &c.label, "prefix": &c.prefix}
		spans := map[string]*time.Duration{"held-longer-than": &c.held, "waiting-longer-than": &c.waited}
		switch text, span := texts[key], spans[key]; {
		case text == nil && span == nil:
			return nil, usage("--where %s: there is no such condition; allowed are %s", key, knownConditions)
		case text != nil && *text != nil || span != nil && *span != 0:
			return nil, usage("--where %s is given twice", key)
		case text != nil:
			*text = &value
		default:
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return nil, usage("--where %s=%s: it is a duration above 0 like 30s, 5m or 1h30m", key, value)
			}
			*span = d
		}
	}
	if c.held != 0 && c.waited != 0 {
		return nil, usage("--where held-longer-than and waiting-longer-than exclude each other: no claim does both")
	}
	if c.prefix != nil && *c.prefix != "" {
		if err := driver.CheckName(*c.prefix); err != nil {
			return nil, usage("--where prefix=%s: %w", *c.prefix, err)
		}
	}
	if len(all) == 1 && c.prefix != nil {
		return nil, usage("--where prefix=%s alone means everybody: add held-longer-than=, host= or label=", *c.prefix)
	}
	return &c, nil
}

// meets reports whether the claim is one that is meant: one that holds, unless they ask
// for how long it waits. What lingers has no holder that could be meant.
func (c *conditions) meets(e *pawl.Entry) bool {
	waits := e.State != driver.Holding
	return waits == (c.waited != 0) && !e.Lingering &&
		(c.held == 0 || e.Held > c.held) && (c.waited == 0 || e.Age > c.waited) &&
		(c.host == nil || e.Owner.Host == *c.host) && (c.label == nil || e.Owner.Label == *c.label)
}

// meant is a claim that meets the conditions, and what became of it.
type meant struct {
	name   string
	entry  pawl.Entry
	result string
	err    error
}

// What becomes of a claim.
const (
	resultReleased = "released"
	resultGone     = "gone"   // it had ended by itself, or held by now what it had waited for
	resultFailed   = "failed" // whether it was released is not known
	resultLeft     = "left"   // nothing was tried
)

// find returns the claims that meet the conditions: of one name, or, if it is empty, of
// all that begin with the prefix.
func (c *conditions) find(ctx context.Context, a *app, client *pawl.Client, name string) ([]*meant, error) {
	var found []*meant
	add := func(q *pawl.Queue) {
		for _, e := range q.Claims {
			if c.meets(&e) {
				found = append(found, &meant{name: q.Name, entry: e, result: resultLeft})
			}
		}
	}
	if name != "" {
		ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoContact)
		defer cancel()
		q, err := client.Inspect(ctx, name)
		if err != nil {
			return nil, unanswered(ctx, engine(err))
		}
		add(&q)
		return found, nil
	}
	prefix := ""
	if c.prefix != nil {
		prefix = *c.prefix
	}
	for q, err := range watched(ctx, client, prefix) {
		if bad := new(pawl.NameError); errors.As(err, &bad) {
			a.warn("%v", err)
			continue
		} else if err != nil {
			return nil, engine(err)
		}
		add(&q)
	}
	slices.SortStableFunc(found, func(a, b *meant) int { return cmp.Compare(a.name, b.name) })
	return found, nil
}

// releaseWhere releases what meets the conditions, after it has shown it and somebody has
// said yes.
func (a *app) releaseWhere(ctx context.Context, name string, where []string, yes bool) error {
	c, err := parseConditions(where)
	if err != nil {
		return err
	}
	if name != "" && c.prefix != nil {
		return usage("NAME and --where prefix= exclude each other")
	}
	return a.withDriver(func(s driver.Store, client *pawl.Client) error {
		found, err := c.find(ctx, a, client, name)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return a.printMeant(found, false)
		case yes:
			return a.releaseAll(ctx, s, found, c.waited != 0)
		}
		if err := a.printMeant(found, true); err != nil {
			return err
		}
		if a.json || !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
			return &failure{status: exitUsage, err: fmt.Errorf("nothing is released; add --yes to release %s", counted(len(found), "claim"))}
		}
		fmt.Fprintf(a.err, "Release %s? [y/N] ", counted(len(found), "claim"))
		reply, _ := bufio.NewReader(os.Stdin).ReadString('\n') // what is not there is no yes
		if reply = strings.ToLower(strings.TrimSpace(reply)); reply != "y" && reply != "yes" {
			fmt.Fprintln(a.err, "Nothing is released.")
			return nil
		}
		return a.releaseAll(ctx, s, found, c.waited != 0)
	})
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// releaseAll releases the very claims that were found, and tells what became of each.
func (a *app) releaseAll(ctx context.Context, s driver.Store, found []*meant, waiting bool) error {
	var last error
	failed := 0
	for i, m := range found {
		was, err := evict(ctx, s, m.name, m.entry.ID, waiting)
		switch {
		case errors.Is(err, handle.ErrGone), errors.Is(err, handle.ErrHolds), errors.Is(err, handle.ErrLingers):
			m.result, m.err = resultGone, err
		case err != nil:
			m.result, m.err, last = resultFailed, err, err
			failed++
		default:
			m.result, m.entry = resultReleased, *was
		}
		if !a.json {
			a.tellMeant(m)
		}
		if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil { // the others would wait as long, one after the other
			failed += len(found) - i - 1
			break
		}
	}
	if a.json {
		if err := a.printMeant(found, false); err != nil {
			return err
		}
	}
	if failed > 0 {
		return engine(fmt.Errorf("%d of %s may not be released, see 'pawl list': %w", failed, counted(len(found), "claim"), last))
	}
	return nil
}

func (a *app) tellMeant(m *meant) {
	name := printable(m.name)
	switch m.result {
	case resultReleased:
		fmt.Fprintf(a.out, "Released %s: it was %s.\n", name, told(&m.entry))
	case resultGone:
		fmt.Fprintf(a.out, "Not released %s, claim %s: %v.\n", name, m.entry.ID, m.err)
	default:
		fmt.Fprintf(a.out, "Failed %s, claim %s: %s.\n", name, printable(m.entry.ID), printable(m.err.Error()))
	}
}

// meantJSON is a claim of --where for programs.
type meantJSON struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
	claimJSON
}

// printMeant prints what is meant: what would be released, or, for programs, what was.
func (a *app) printMeant(found []*meant, preview bool) error {
	if a.json {
		all := make([]meantJSON, 0, len(found))
		for _, m := range found {
			j := meantJSON{m.name, m.entry.State.String(), m.result, "", pawlhttp.ClaimsOf([]pawl.Entry{m.entry})[0]}
			if m.err != nil {
				j.Error = m.err.Error()
			}
			all = append(all, j)
		}
		return a.printJSON(a.out, struct {
			Preview bool        `json:"preview"`
			Claims  []meantJSON `json:"claims"`
		}{preview, all})
	}
	if len(found) == 0 {
		fmt.Fprintln(a.out, "Nothing meets the conditions.")
		return nil
	}
	rows := [][]string{{"NAME", "", "LABEL", "HOST", "PID", "SINCE", "TTL LEFT", "CLAIM"}}
	for _, m := range found {
		e := &m.entry
		state, since := "holds", e.Held
		if e.State != driver.Holding {
			state, since = "waits", e.Age
		}
		rows = append(rows, []string{m.name, state, or(e.Owner.Label, "-"), or(e.Owner.Host, "-"), pid(e), ago(since), span(e.TTL), e.ID})
	}
	return table(a.out, rows)
}
