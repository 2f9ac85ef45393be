package torture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// maker makes up a history that looks like that of a torture. It's judged by nobody:
// only its shape matters.
type maker struct {
	rand    *rand.Rand
	history []Event
	op      map[int]uint64
	token   map[string]int64
	counts  Counts
	claims  []Event
}

const madeBegin = int64(1_000_000_000_000)

// made has about so many grants, in processes with some workers each.
func made(processes, workers, grants int, span time.Duration) *Result {
	m := &maker{rand: rand.New(rand.NewPCG(1, 2)), op: map[int]uint64{}, token: map[string]int64{}, counts: Counts{Faults: map[string]int{}}}
	each := span / time.Duration(max(1, grants/(processes*workers)))
	for p := 1; p <= processes; p++ {
		m.process(p, workers, each, span)
	}
	slices.SortStableFunc(m.history, func(a, b Event) int { return int(min(1, max(-1, a.At-b.At))) })
	r := &Result{
		Options: Options{
			Store: "redis://user:secret@127.0.0.1:6379/0", For: span, Processes: processes, TTL: 800 * time.Millisecond,
			Faults: AllFaults, Kinds: AllKinds, Seed: 42,
		},
		Started: time.Date(2026, 11, 22, 21, 0, 0, 0, time.UTC), Begin: madeBegin, End: madeBegin + int64(span),
		History: m.history, Verdict: &Verdict{Counts: m.counts},
	}
	return r
}

func (m *maker) add(e Event) { m.history = append(m.history, e) }

func (m *maker) between(a, b time.Duration) int64 { return int64(a) + m.rand.Int64N(int64(b-a)+1) }

// process lives, is hurt, dies and lives again.
func (m *maker) process(p, workers int, each, span time.Duration) {
	end := madeBegin + int64(span)
	at := madeBegin + m.between(0, 20*time.Millisecond)
	for life := 1; at < end; life++ {
		m.add(Event{At: at, Process: p, Life: life, What: Started})
		dies := at + m.between(span/4, span)
		for f := at + m.between(0, span/8); f < min(dies, end); f += m.between(span/16, span/4) {
			m.fault(p, life, f)
		}
		for w := range workers {
			m.work(p, life, w, at+int64(time.Millisecond), min(dies, end), each)
		}
		if dies < end {
			m.counts.Faults["kill"]++
			m.add(Event{At: dies, Process: p, Life: life, What: Killed})
		}
		at = dies + m.between(20*time.Millisecond, 200*time.Millisecond)
	}
}

func (m *maker) fault(p, life int, at int64) {
	fault := AllFaults[1+m.rand.IntN(4)]
	m.counts.Faults[fault]++
	e := Event{At: at, Process: p, Life: life, What: Fault, Fault: fault}
	switch fault {
	case "pause":
		m.add(Event{At: at, Process: p, Life: life, What: Paused})
		m.add(Event{At: at + m.between(900*time.Millisecond, 1300*time.Millisecond), Process: p, Life: life, What: Resumed})
		return
	case "cut":
		e.End = at + m.between(0, 5*time.Millisecond)
	case "slow":
		e.End, e.Note = at+m.between(300*time.Millisecond, 1500*time.Millisecond), "120ms each way"
	case "dark":
		e.End, e.Note = at+m.between(500*time.Millisecond, 1200*time.Millisecond), "replies swallowed"
	}
	m.add(e)
}

func (m *maker) work(p, life, worker int, at, end int64, each time.Duration) {
	for at < end {
		m.op[p]++
		kind := AllKinds[m.rand.IntN(3)]
		e := Event{Process: p, Life: life, Op: m.op[p]}
		generation := (at - madeBegin) / int64(Generation)
		ask := e
		ask.At, ask.What, ask.Kind, ask.Way = at, Ask, kind, "lock"
		ask.Name = fmt.Sprintf("torture-8f2a/%s-%d-%d", kind, generation, m.rand.IntN(2))
		ask.Units, ask.Limit = 1, 1
		if kind == "rw" {
			ask.Limit = 64
			if m.rand.IntN(3) == 0 {
				ask.Units = 64
			}
		} else if kind == "semaphore" {
			ask.Limit, ask.Units = 4, 1+m.rand.Int64N(3)
		}
		if len(m.claims) > 0 && m.claims[0].At < at && m.rand.IntN(4) == 0 {
			from := m.claims[0]
			m.claims = m.claims[1:]
			ask.Way, ask.Handle, ask.Name, ask.Kind = "adopt", from.Handle, from.Name, from.Kind
			m.counts.Adopted++
		}
		m.add(ask)
		at = m.hold(ask, e, at, end, each) + m.between(0, each/4)
	}
}

func (m *maker) hold(ask, e Event, at, end int64, each time.Duration) int64 {
	put := func(at int64, what What) *Event {
		e := e
		e.At, e.What = at, what
		m.add(e)
		return &m.history[len(m.history)-1]
	}
	at += m.between(each/50, each/2)
	if at >= end {
		return at
	}
	if m.rand.IntN(30) == 0 {
		put(at, Failed).Err = "wait for " + ask.Name + ": context deadline exceeded"
		m.counts.Failed++
		return at
	}
	m.token[ask.Name]++
	m.counts.Grants++
	g := put(at, Granted)
	g.Token, g.Until = m.token[ask.Name], at+int64(800*time.Millisecond)
	for range m.rand.IntN(3) {
		at += m.between(each/50, each/3)
		if at >= end {
			return at
		}
		put(at, Look).Until = at + int64(700*time.Millisecond)
		w := put(at, Write)
		w.Token = g.Token
		m.counts.Writes++
	}
	switch m.rand.IntN(60) {
	case 0:
		at += m.between(each/5, each)
		put(at, Told).Err = "lease lost: expired"
		m.counts.Lost++
		return at
	case 1:
		put(at, Changed).Units = 1
		m.counts.Changed++
	case 2:
		m.add(Event{At: at, End: at + int64(time.Millisecond), Process: e.Process, Life: e.Life, What: ForceRelease, Name: ask.Name})
		m.counts.Forced++
	case 3:
		m.add(Event{At: at, End: at + int64(time.Millisecond), Process: e.Process, Life: e.Life, What: SetLimit, Name: ask.Name, Limit: 5})
		m.counts.Limits++
	}
	at += m.between(each/50, each/2)
	if at >= end {
		return at
	}
	release := put(at, Release)
	release.Way = "unlock"
	over := m.rand.IntN(40) == 0
	if over {
		release.Way = "handover"
	}
	at += m.between(each/50, each/10)
	done := put(at, Released)
	if over {
		done.Handle = "handle-" + strconv.Itoa(len(m.history))
		m.counts.HandOvers++
		over := *done
		over.Name, over.Kind = ask.Name, ask.Kind
		m.claims = append(m.claims, over)
	}
	return at
}

// found adds findings, each of the events of two processes around a time.
func (r *Result) found(n int) {
	for i := range n {
		at := r.Begin + (r.End-r.Begin)*int64(i+1)/int64(n+2)
		f := Finding{Rule: "exclusion", At: at}
		for _, e := range r.History {
			if e.What == Granted && e.At <= at && e.At > at-int64(time.Second) {
				f.Events = append(f.Events, e)
			}
		}
		if len(f.Events) > 2 {
			f.Events = f.Events[len(f.Events)-2:]
		}
		f.Name = "torture-8f2a/mutex-0-1"
		f.Text = fmt.Sprintf("Two processes believed at once for 12 ms, at %s s, with tokens 41 and 42.", seconds(at-r.Begin))
		r.Verdict.Findings = append(r.Verdict.Findings, f)
	}
}
