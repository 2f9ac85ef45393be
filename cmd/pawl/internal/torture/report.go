package torture

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
)

//go:embed report.css
var reportCSS string

// The script is in three parts that share one scope: the data, the drawing, and hands on it.
//
//go:embed report.js
var reportData string

//go:embed reportdraw.js
var reportDraw string

//go:embed reporthand.js
var reportHand string

const (
	reportLimit = 20 << 20 // bytes of a page, about
	listed      = 200      // findings in words
)

// WriteHTML writes a page that draws the history. It's complete in itself: it asks
// nothing of any network, and opens from a file.
func (r *Result) WriteHTML(w io.Writer) error { return r.writeHTML(w, reportLimit) }

func (r *Result) writeHTML(w io.Writer, limit int) error {
	verdict := r.Verdict
	if verdict == nil {
		verdict = &Verdict{}
	}
	s := tell(r)
	v := &view{
		Options: r.Options, Started: r.Started.UTC().Format("2006-01-02 15:04:05 MST"), Lasted: lasted(s.end - s.begin),
		Repeat: repeat(r.Options), Found: len(verdict.Findings), Notes: verdict.Notes, Counts: counts(verdict.Counts), Processes: s.processes,
		Script: "\"use strict\";\n" + reportData + reportDraw + reportHand, Style: reportCSS,
	}
	drawn, ticks := drawOverview(s, verdict.Findings)
	v.Overview, v.Ticks = drawn, ticks
	height := laneHeight(len(s.processes))
	v.OverviewHeight = height * max(1, len(s.processes))
	each := (11 + height) / height // of the labels, that they don't touch
	for i := 0; i < len(s.processes); i += each {
		v.Labels = append(v.Labels, label{i*height + height/2 + 4, s.processes[i]})
	}
	v.Public, _ = storeurl.Public(r.Options.Store) // what can't be read may have a password: nothing of it
	v.ScriptHash, v.StyleHash = hash(v.Script), hash(v.Style)
	for _, k := range AllFaults {
		v.Faults = append(v.Faults, row{k, count(int64(verdict.Counts.Faults[k]))})
	}
	for _, k := range slices.Sorted(maps.Keys(verdict.Counts.Faults)) {
		if !slices.Contains(AllFaults, k) {
			v.Faults = append(v.Faults, row{k, count(int64(verdict.Counts.Faults[k]))})
		}
	}
	for _, f := range verdict.Findings[:min(len(verdict.Findings), listed)] {
		v.Findings = append(v.Findings, s.found(f))
	}
	data, left, err := s.draw(verdict.Findings, limit-len(v.Overview)-len(v.Script)-len(v.Style))
	if err != nil {
		return fmt.Errorf("write the page of a torture: %w", err)
	}
	v.Data, v.Left = string(data), left
	if _, err := io.WriteString(w, v.html()); err != nil {
		return fmt.Errorf("write the page of a torture: %w", err)
	}
	return nil
}

// view is what the page shows.
type view struct {
	Options               Options
	Public, Repeat        string
	Started, Lasted       string
	Found                 int
	Findings              []found
	Notes                 []string
	Counts, Faults        []row
	Processes             []int
	OverviewHeight        int
	Labels                []label
	Ticks                 []tick
	Left                  string
	Overview              string // markup
	Style, Script, Data   string
	ScriptHash, StyleHash string
}

type row struct{ Name, Value string }

type label struct{ Y, Process int }

type tick struct {
	Last     bool // has no room to its right
	At, Text string
}

type found struct {
	Finding
	Seconds string
	Rows    []foundEvent
	More    int
}

type foundEvent struct{ Seconds, Who, What, Name, Details string }

const maxFoundEvents = 20

func (s *story) found(f Finding) found {
	out := found{Finding: f, Seconds: seconds(f.At - s.begin)}
	for _, e := range f.Events[:min(len(f.Events), maxFoundEvents)] {
		who := "process " + strconv.Itoa(e.Process)
		if e.Life > 1 {
			who += ", life " + strconv.Itoa(e.Life)
		}
		out.Rows = append(out.Rows, foundEvent{seconds(e.At - s.begin), who, string(e.What), e.Name, s.details(e)})
	}
	out.More = len(f.Events) - len(out.Rows)
	return out
}

func (s *story) details(e Event) string {
	var parts []string
	add := func(format string, a ...any) { parts = append(parts, fmt.Sprintf(format, a...)) }
	if e.Kind != "" {
		add("%s", e.Kind)
	}
	if e.Way != "" {
		add("%s", e.Way)
	}
	if e.Units != 0 {
		add("%d of %d", e.Units, e.Limit)
	} else if e.Limit != 0 {
		add("limit %d", e.Limit)
	}
	if e.Token != 0 {
		add("token %d", e.Token)
	}
	if e.Until != 0 {
		add("until %s s", seconds(e.Until-s.begin))
	}
	if e.End != 0 {
		add("to %s s", seconds(e.End-s.begin))
	}
	for _, text := range []string{e.Fault, e.Note, e.Err} {
		if text != "" {
			add("%s", text)
		}
	}
	return strings.Join(parts, ", ")
}

func counts(c Counts) []row {
	all := []struct {
		name string
		n    int
	}{
		{"grants", c.Grants}, {"not granted", c.Failed}, {"leases lost", c.Lost}, {"handed over", c.HandOvers}, {"adopted", c.Adopted},
		{"upgrades, downgrades", c.Changed}, {"limits changed", c.Limits}, {"released by force", c.Forced},
		{"fenced writes", c.Writes}, {"refused by the fence", c.Refused},
	}
	var rows []row
	for _, r := range all {
		rows = append(rows, row{r.name, count(int64(r.n))})
	}
	return rows
}

// repeat is the command that does the same again; the order of events differs each time.
func repeat(o Options) string {
	url := cmp.Or(storeurl.WithoutPassword(o.Store), "URL")
	words := []string{"pawl", "torture", "--store", quote(url), "--for", o.For.String(), "--processes", strconv.Itoa(o.Processes)}
	if o.TTL > 0 {
		words = append(words, "--ttl", o.TTL.String())
	}
	words = append(words, "--faults", quote(cmp.Or(strings.Join(o.Faults, ","), "none")))
	if len(o.Kinds) > 0 {
		words = append(words, "--kinds", quote(strings.Join(o.Kinds, ",")))
	}
	if o.Crowd > 0 {
		words = append(words, "--crowd", strconv.Itoa(o.Crowd))
	}
	if o.Break != "" {
		words = append(words, "--break", quote(o.Break))
	}
	return strings.Join(append(words, "--seed", strconv.FormatUint(o.Seed, 10)), " ")
}

// quote quotes for a shell what needs it.
func quote(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:,@%+=", c)
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// count writes n with a comma between thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func seconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e9, 'f', 3, 64) }

func lasted(ns int64) string { return time.Duration(ns).Round(100 * time.Millisecond).String() }

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
