package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
)

// crew is goroutines of one process that contend for one name.
type crew struct {
	Engine     string
	Addr       string
	Peer       string
	Name       string
	Process    int // from 0
	Goroutines int
	OwnClients bool // a client for each goroutine
	Work       time.Duration
}

// tally is what a crew has seen.
type tally struct {
	All       measure.Hist // unlock to the next holder, if that is another goroutine
	Between   measure.Hist // those to another client, as a rule in another process
	Sections  []int64      // by goroutine
	Longest   time.Duration
	Commands  int64
	Complaint string
}

// perProcess is more than the goroutines of any process.
const perProcess = 1 << 20

// run contends until the arena stops, and tells how it went. Everybody is
// connected before the start.
func (c crew) run(ctx context.Context, a *arena) (t *tally, err error) {
	e, _ := engineNamed(c.Engine)
	p, ok := e.peer(c.Peer)
	if !ok {
		return nil, fmt.Errorf("there is no peer %q of engine %q", c.Peer, c.Engine)
	}
	var sent wire.Counter
	lockers := make([]Locker, c.Goroutines)
	defer func() {
		for i, l := range lockers {
			if l != nil && (c.OwnClients || i == 0) {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	for i := range lockers {
		if i > 0 && !c.OwnClients {
			lockers[i] = lockers[0]
		} else if lockers[i], err = p.open(c.Addr, &sent); err != nil {
			return nil, err
		}
		h, err := lockers[i].Lock(ctx, fmt.Sprintf("warm-%d-%d", c.Process, i))
		if err == nil {
			err = h.Unlock()
		}
		if err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}

	// The contenders' context ends when the arena stops.
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	clock := measure.NewClock()
	a.ready.Add(1)
	if err := a.gun(ctx, clock); err != nil {
		return nil, err
	}
	commands := sent.Commands()
	members := make([]*contender, c.Goroutines)
	var wg sync.WaitGroup
	for i := range members {
		m := &contender{crew: &c, locker: lockers[i], arena: a, clock: clock, id: int64(c.Process*perProcess + i + 1)}
		members[i] = m
		wg.Go(func() { m.run(waiting) })
	}
	t = &tally{Sections: make([]int64, c.Goroutines)}
	err = a.await(ctx, &a.stop)
	t.Commands = sent.Commands() - commands
	cancel()
	wg.Wait()
	for i, m := range members {
		t.All.Add(&m.all)
		t.Between.Add(&m.between)
		t.Sections[i] = m.sections
		t.Longest = max(t.Longest, m.longest)
		if m.err != nil {
			t.Complaint = m.err.Error()
		}
	}
	return t, err
}

// gun waits for the start, which is the same instant for all.
func (a *arena) gun(ctx context.Context, clock measure.Clock) error {
	if err := a.await(ctx, &a.start); err != nil {
		return err
	}
	time.Sleep(time.Duration(a.start.Load() - clock.Now()))
	return nil
}

// await waits until the flag is set.
func (a *arena) await(ctx context.Context, flag *atomic.Int64) error {
	for flag.Load() == 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond): // rarely: it runs beside what is measured
		}
	}
	return nil
}

type contender struct {
	crew   *crew
	locker Locker
	arena  *arena
	clock  measure.Clock
	id     int64

	all, between measure.Hist
	sections     int64
	longest      time.Duration
	err          error
}

func (c *contender) run(ctx context.Context) {
	a := c.arena
	for a.stop.Load() == 0 {
		asked := c.clock.Now()
		held, err := c.locker.Lock(ctx, c.crew.Name)
		now := c.clock.Now()
		c.longest = max(c.longest, time.Duration(now-asked))
		if err != nil {
			if ctx.Err() == nil {
				c.err = fmt.Errorf("lock: %w", err)
			}
			return
		}
		last, released := a.last.Load(), a.released.Load()
		a.enter(c.id)
		c.sections++
		if last != 0 && last != c.id && a.stop.Load() == 0 {
			d := time.Duration(now - released)
			c.all.Record(d)
			if c.crew.OwnClients || last/perProcess != c.id/perProcess {
				c.between.Record(d)
			}
		}
		if c.crew.Work > 0 {
			time.Sleep(c.crew.Work)
		}
		a.exit(c.id, c.clock.Now())
		if err := held.Unlock(); err != nil {
			c.err = fmt.Errorf("unlock: %w", err)
			return
		}
	}
}

// oneProcess lets goroutines of this process contend.
func (b *bench) oneProcess(ctx context.Context, p peer) (metrics, error) {
	a := new(arena)
	c := crew{Engine: b.engine.name, Addr: b.addr, Peer: p.name, Name: "contended-" + p.name, Goroutines: b.waiters, OwnClients: b.ownClients, Work: b.work}
	var (
		t   *tally
		err error
		wg  sync.WaitGroup
	)
	runtime.GC()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() {
		// Only who failed cancels: the server is asked once more after the crew
		// has ended.
		if t, err = c.run(ctx, a); err != nil {
			cancel()
		}
	})
	m, direct := b.direct(ctx, a, 1)
	wg.Wait()
	if err := errors.Join(err, direct); err != nil {
		return nil, err
	}
	return m, m.contended(a, []*tally{t})
}

// direct starts and stops the crews in the arena, and measures the server
// meanwhile.
func (b *bench) direct(ctx context.Context, a *arena, crews int64) (metrics, error) {
	defer a.stop.Store(1)
	for a.ready.Load() < crews {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	before, err := b.server.usage(ctx)
	if err != nil {
		return nil, err
	}
	const runUp = 20 * time.Millisecond // for all to see it
	start := time.Now().Add(runUp)
	a.start.Store(measure.NewClock().Now() + int64(runUp))
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(runUp + contention*b.duration):
	}
	a.stop.Store(1)
	elapsed := time.Since(start).Seconds()
	after, err := b.server.usage(ctx)
	if err != nil {
		return nil, err
	}
	m := metrics{"elapsed_s": elapsed, "server_cpu": (after.CPU - before.CPU) / elapsed, "requests": after.Requests - before.Requests,
		"script_us": (after.Scripts - before.Scripts) * 1e6 / (after.Commands["evalsha"] - before.Commands["evalsha"])}
	m.calls(before, after)
	return m, nil
}

// contention is how many times longer than the others the contended scenarios
// run: pollers need time to be seen.
const contention = 2

// contended adds up what the crews have seen.
func (m metrics) contended(a *arena, tallies []*tally) error {
	var (
		all, between measure.Hist
		sections     []int64
		byProcess    []int64
		sum          int64
		longest      time.Duration
		commands     int64
		starved      int
	)
	for _, t := range tallies {
		if t.Complaint != "" {
			return errors.New(t.Complaint)
		}
		all.Add(&t.All)
		between.Add(&t.Between)
		sections = append(sections, t.Sections...)
		byProcess = append(byProcess, 0)
		for _, n := range t.Sections {
			byProcess[len(byProcess)-1] += n
		}
		longest = max(longest, t.Longest)
		commands += t.Commands
	}
	for _, n := range sections {
		sum += n
		if n == 0 {
			starved++
		}
	}
	if n := m["requests"]; !math.IsNaN(n) {
		commands = int64(n)
	}
	m["handovers_per_s"] = float64(all.Count()) / m["elapsed_s"]
	m["p50_us"], m["p99_us"] = all.Micros(0.5), all.Micros(0.99)
	m["commands"] = float64(commands) / float64(all.Count())
	m["between_per_s"] = float64(between.Count()) / m["elapsed_s"]
	m["between_p50_us"], m["between_p99_us"] = between.Micros(0.5), between.Micros(0.99)
	m["between_commands"] = float64(commands) / float64(between.Count())
	m["jain"], m["jain_processes"] = measure.Jain(sections), measure.Jain(byProcess)
	m["longest_ms"] = float64(longest.Microseconds()) / 1e3
	m["starved"] = float64(starved)
	m["longest_turn"] = float64(a.longest.Load())
	// Sections that were counted by nobody but their own goroutine were run
	// at the same time as others.
	m["violations"] = float64(a.violations.Load()) + float64(sum-a.count.Load())
	m.server(float64(commands), float64(all.Count()))
	return nil
}
