package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
)

// uncontended locks and unlocks names that nobody else wants: each of the
// goroutines one of its own.
func (b *bench) uncontended(ctx context.Context, p peer, goroutines int) (metrics, error) {
	var sent wire.Counter
	l, err := p.open(b.addr, &sent)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	cycles := func(d time.Duration, hists []measure.Hist) error {
		errs := make([]error, goroutines)
		var wg sync.WaitGroup
		for i := range goroutines {
			name := p.name + "-" + strconv.Itoa(i)
			wg.Go(func() { errs[i] = cycle(ctx, l, name, d, &hists[i]) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	hists := make([]measure.Hist, goroutines)
	if err := cycles(b.duration/5, hists); err != nil { // connections, scripts, caches
		return nil, err
	}
	clear(hists)

	before, err := b.server.usage(ctx)
	if err != nil {
		return nil, err
	}
	var m0, m1 runtime.MemStats
	commands := sent.Commands()
	runtime.GC()
	runtime.ReadMemStats(&m0)
	cpu, start := cpuTime(), time.Now()
	err = cycles(b.duration, hists)
	elapsed := time.Since(start)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&m1)
	commands = sent.Commands() - commands
	if err != nil {
		return nil, err
	}
	after, err := b.server.usage(ctx)
	if err != nil {
		return nil, err
	}
	for i := range hists[1:] {
		hists[0].Add(&hists[i+1])
	}
	if !math.IsNaN(after.Requests) {
		commands = int64(after.Requests - before.Requests)
	}
	n := float64(hists[0].Count())
	m := metrics{
		"p50_us":        hists[0].Micros(0.5),
		"p99_us":        hists[0].Micros(0.99),
		"ops_per_s":     n / elapsed.Seconds(),
		"commands":      float64(commands) / n,
		"allocs":        float64(m1.Mallocs-m0.Mallocs) / n,
		"bytes":         float64(m1.TotalAlloc-m0.TotalAlloc) / n,
		"cpu_us":        float64(cpu.Microseconds()) / n,
		"server_cpu_us": (after.CPU - before.CPU) * 1e6 / n,
		"scripts_us":    (after.Scripts - before.Scripts) * 1e6 / n,
	}
	m.calls(before, after)
	m.server(float64(commands), n)
	return m, nil
}

// cycle locks and unlocks name for d.
func cycle(ctx context.Context, l Locker, name string, d time.Duration, h *measure.Hist) error {
	for t, end := time.Now(), time.Now().Add(d); t.Before(end); {
		held, err := l.Lock(ctx, name)
		if err != nil {
			return fmt.Errorf("lock %s: %w", name, err)
		}
		if err := held.Unlock(); err != nil {
			return fmt.Errorf("unlock %s: %w", name, err)
		}
		now := time.Now()
		h.Record(now.Sub(t))
		t = now
	}
	return nil
}
