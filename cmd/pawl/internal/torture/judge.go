package torture

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Judge finds in a history, of events ordered by At, what must not be.
//
// It never blames what may have been right. A process may be paused between
// reading a clock and anything else, and what it does may reach the store at once or late, so each
// rule counts only what is certain whatever the pauses: see tenure, and the comment of
// each rule.
func Judge(history []Event) *Verdict { return newJudgement(history).judge() }

// JudgeQuorum is Judge for a store out of several that do not know of each other: readers
// that are let in at the same time may have the same token.
func JudgeQuorum(history []Event) *Verdict {
	j := newJudgement(history)
	j.quorum = true
	return j.judge()
}

func (j *judgement) judge() *Verdict {
	for _, l := range j.locks {
		j.exclusion(l)
		j.lost(l)
		j.tokens(l)
		j.fence(l)
		j.idle(l)
	}
	j.adoption()
	j.stuck()
	j.linear(context.Background())
	return j.verdict()
}

// judgement is a judgement under way.
type judgement struct {
	history []Event
	begin   int64 // seconds count from there
	end     int64

	tenures []*tenure // in the order in which they were asked for
	locks   []*lock   // in the order in which they were first asked for
	lives   []*lifetime
	byLife  map[lifeKey]*lifetime
	handed  map[string]*tenure // by the handle
	server  []*Event           // faults of the store itself
	spoiled []string           // names that were made unreadable
	hurt    []period           // see hurting
	longest int64              // time that a lease was good for
	quorum  bool               // see JudgeQuorum

	brief    int // processes that had too little time to be judged stuck
	findings []Finding
	notes    []string
	found    map[string]int // findings of a rule, of a name
	left     map[string]int // those that were left out, by rule
	counts   Counts
}

// A history that is wrong is often wrong all over. The first findings tell.
const (
	maxPerName = 3
	maxPerRule = 20
)

// find notes a finding.
func (j *judgement) find(rule, name string, at int64, events []*Event, format string, args ...any) {
	inName := rule + " " + name
	if name != "" && j.found[inName] >= maxPerName || j.found[rule] >= maxPerRule {
		j.left[rule]++
		return
	}
	j.found[inName]++
	j.found[rule]++
	text := fmt.Sprintf(format, args...)
	f := Finding{Rule: rule, Name: name, At: at, Text: strings.ToUpper(text[:1]) + text[1:]}
	for _, e := range events {
		if e != nil {
			f.Events = append(f.Events, *e)
		}
	}
	slices.SortStableFunc(f.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	j.findings = append(j.findings, f)
}

func (j *judgement) note(format string, args ...any) {
	j.notes = append(j.notes, fmt.Sprintf(format, args...))
}

func (j *judgement) verdict() *Verdict {
	var rules []string
	for rule := range j.left {
		rules = append(rules, rule)
	}
	slices.Sort(rules)
	for _, rule := range rules {
		j.note("findings of rule %s that are left out: %d", rule, j.left[rule])
	}
	slices.SortStableFunc(j.findings, func(a, b Finding) int { return cmp.Compare(a.At, b.At) })
	return &Verdict{Findings: j.findings, Notes: j.notes, Counts: j.counts}
}

// when is a time in seconds since the first event.
func (j *judgement) when(at int64) string { return fmt.Sprintf("%.3f s", float64(at-j.begin)/1e9) }

// span is from when to when.
func (j *judgement) span(from, to int64) string {
	return fmt.Sprintf("from %.3f to %.3f s", float64(from-j.begin)/1e9, float64(to-j.begin)/1e9)
}

var ordinals = []string{"no", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"}

// who names a process in one of its lives.
func who(process, life int) string {
	if life < len(ordinals) {
		return fmt.Sprintf("process %d (%s life)", process, ordinals[life])
	}
	return fmt.Sprintf("process %d (life %d)", process, life)
}

// who names a tenure's process, its token, and what it is.
func (t *tenure) who() string {
	s := fmt.Sprintf("%s, token %d", who(t.process, t.life), t.token())
	switch {
	case t.kind == semaphore:
		s += ", with " + permitsText(t.units)
	case t.kind == rw && t.exclusive():
		s += ", a writer"
	case t.kind == rw:
		s += ", a reader"
	}
	return s
}

func permitsText(n int64) string {
	if n == 1 {
		return "1 permit"
	}
	return fmt.Sprintf("%d permits", n)
}
