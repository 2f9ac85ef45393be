package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/pawlhttp"
)

const (
	defaultInterval = 2 * time.Second
	minInterval     = 100 * time.Millisecond
)

// pause is how long to wait before a list is read again that took so long to read: not
// more than a tenth of the time is spent on that, however many names there are.
func pause(interval, took time.Duration) time.Duration { return max(interval-took, 9*took) }

func checkInterval(interval time.Duration) error {
	if interval < minInterval {
		return usage("--interval %v: allowed are %v and more", interval, minInterval)
	}
	return nil
}

// What has become of a name since it was looked at last.
const (
	nameAdded   = "added"
	nameChanged = "changed"
	nameRemoved = "removed"
)

// listWatch prints how a list changes.
type listWatch struct {
	*app
	client *pawl.Client
	prefix string

	known  map[string]string // what was told last of a name
	bad    map[string]bool   // names that cannot be read, of which was told
	silent bool              // the store does not reply, of which was told
	begun  bool              // the head is printed
	widths []int
}

// watchList prints the list, and then each name that changes, until ctx ends.
func (a *app) watchList(ctx context.Context, c *pawl.Client, prefix string, interval time.Duration) error {
	w := &listWatch{app: a, client: c, prefix: prefix, known: make(map[string]string), bad: make(map[string]bool)}
	for first := true; ; first = false {
		began := time.Now()
		switch err, broken := w.look(ctx); {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return nil
		case broken != nil && (first || driver.IsPermanent(broken)):
			return engine(broken)
		case broken != nil && !w.silent:
			w.silent = true
			a.warn("%s; it is tried again", lines(broken.Error()))
		case broken == nil && w.silent:
			w.silent = false
			a.warn("the store replies again")
		}
		select {
		case <-time.After(pause(interval, time.Since(began))):
		case <-ctx.Done():
			return nil
		}
	}
}

// look reads all names and prints what has changed. What the store did not tell to the
// end (broken) says nothing of the names that are not in it.
func (w *listWatch) look(ctx context.Context) (err, broken error) {
	var changed []*pawl.Queue
	there, bad := make(map[string]bool), make(map[string]bool)
	for q, err := range watched(ctx, w.client, w.prefix) {
		if name := new(pawl.NameError); errors.As(err, &name) {
			if bad[name.Name] = true; !w.bad[name.Name] {
				w.warn("%v", err)
			}
			continue
		} else if err != nil {
			broken = err
			break
		}
		there[q.Name] = true
		if w.known[q.Name] != fingerprint(&q) {
			changed = append(changed, &q)
		}
	}
	if broken == nil {
		w.bad = bad
		for name := range w.known {
			if !there[name] && !bad[name] {
				changed = append(changed, &pawl.Queue{Name: name})
			}
		}
	}
	slices.SortFunc(changed, func(a, b *pawl.Queue) int { return cmp.Compare(a.Name, b.Name) })
	return w.print(changed), broken
}

// fingerprint is the same as long as nothing has changed but times and tokens.
func fingerprint(q *pawl.Queue) string {
	var s strings.Builder
	fmt.Fprintln(&s, q.Kind, q.Limit, q.Declared)
	for _, e := range q.Claims {
		fmt.Fprintf(&s, "%q %d %d %t %q %q %d\n", e.ID, e.State, e.Units, e.Lingering, e.Owner.Label, e.Owner.Host, e.Owner.PID)
	}
	return s.String()
}

// changeJSON is a name that has changed, for programs.
type changeJSON struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"`
	*queueJSON
}

// print prints the changes, one line each. A queue without claims is gone.
func (w *listWatch) print(changed []*pawl.Queue) error {
	var rows [][]string
	if !w.begun && len(changed) > 0 {
		w.begun, w.widths = true, []int{len(time.TimeOnly), len(nameRemoved)}
		rows = append(rows, []string{"TIME", "EVENT", "NAME", "KIND", "HOLDER", "HOST", "PID", "WAITING"})
	}
	now := time.Now()
	for _, q := range changed {
		event := nameChanged
		switch {
		case len(q.Claims) == 0:
			event = nameRemoved
			delete(w.known, q.Name)
		case w.known[q.Name] == "":
			event = nameAdded
			fallthrough
		default:
			w.known[q.Name] = fingerprint(q)
		}
		if w.json {
			if err := w.printJSON(w.out, changeJSON{now, event, pawlhttp.QueueOf(q)}); err != nil {
				return err
			}
			continue
		}
		row := []string{now.Format(time.TimeOnly), event, q.Name, or(kindWord(q.Kind), "-"), "-", "-", "-", "-"}
		holders, waiters := split(q)
		if event != nameRemoved {
			row[7] = strconv.Itoa(len(waiters))
		}
		if len(holders) > 0 {
			h := &holders[0]
			row[4], row[5], row[6] = or(h.Owner.Label, "-"), or(h.Owner.Host, "-"), pid(h)
			if h.Lingering {
				row[4] += " (lingering)"
			}
			if len(holders) > 1 {
				row[4] += fmt.Sprintf(" +%d", len(holders)-1)
			}
		}
		rows = append(rows, row)
	}
	if w.json || len(rows) == 0 {
		return nil
	}
	widths, err := aligned(w.out, rows, w.widths)
	w.widths = widths
	return err
}
