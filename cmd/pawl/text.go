package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/pawlhttp"
)

// printable replaces what would steer a terminal: labels and host names come
// from whoever can write to the store. Tabs, as in pgx's errors, become spaces.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r != '\n' && !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// span is a duration as people read it.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 100*time.Hour:
		return d.Round(time.Second).String()
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

func ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

// who is the owner of a claim in a sentence.
func who(e *pawl.Entry) string {
	var s string
	switch o := e.Owner; {
	case o.Host != "" && o.Label != "":
		s = fmt.Sprintf("%q (process %d on %s)", o.Label, o.PID, o.Host)
	case o.Host != "":
		s = fmt.Sprintf("process %d on %s", o.PID, o.Host)
	case o.Label != "":
		s = strconv.Quote(o.Label)
	default:
		s = "claim " + e.ID
	}
	return printable(s)
}

// since is when a span began, by this machine's clock.
func since(d time.Duration) string {
	start := time.Now().Add(-d)
	layout := time.TimeOnly
	if d > 20*time.Hour {
		layout = time.DateTime
	}
	return fmt.Sprintf("since %s (%s)", start.Format(layout), ago(d))
}

// holding is who holds a name, in a sentence.
func holding(e *pawl.Entry) string {
	if e == nil {
		return "nobody holds it any more"
	}
	if e.Lingering {
		return fmt.Sprintf("kept taken for another %s after %s", span(e.TTL), who(e))
	}
	if e.Token == 0 && e.Held == 0 { // another library's, whose key does not tell
		return "held by " + who(e)
	}
	return fmt.Sprintf("held by %s %s", who(e), since(e.Held))
}

// split returns the claims that hold and those that wait, in order.
func split(q *pawl.Queue) (holders, waiters []pawl.Entry) {
	for _, e := range q.Claims {
		if e.State == driver.Holding {
			holders = append(holders, e)
		} else {
			waiters = append(waiters, e)
		}
	}
	return holders, waiters
}

// table prints rows with aligned columns.
func table(w io.Writer, rows [][]string) error {
	_, err := aligned(w, rows, nil)
	return err
}

// aligned prints rows with aligned columns, at least as wide as those of a part of
// the table before, and returns the widths.
func aligned(w io.Writer, rows [][]string, widths []int) ([]int, error) {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], printable(cell))
		}
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	if _, err := io.WriteString(w, text.String()); err != nil {
		return widths, fmt.Errorf("write: %w", err)
	}
	return widths, nil
}

func or(s, none string) string {
	if s == "" {
		return none
	}
	return s
}

// What programs are told is the same here and over HTTP.
type (
	queueJSON = pawlhttp.Queue
	claimJSON = pawlhttp.Claim
)
