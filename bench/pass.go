package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/bench/internal/measure"
	"github.com/pawl-go/pawl/bench/internal/wire"
)

// pass hands one lock back and forth between two goroutines of a process,
// each of which unlocks only when the other waits: what pawl does without the
// server, beside a sync.Mutex.
func (b *bench) pass(ctx context.Context, l Locker, sent *wire.Counter) (metrics, error) {
	// The two take turns for the whole run; asking[i] is set while i is in Lock.
	var (
		asking  [2]atomic.Bool
		over    atomic.Bool
		hists   [2]measure.Hist
		errs    [2]error
		last    int // who held it before; guarded by the lock under test
		let     time.Time
		between int64 // commands from the first hand-over to the last
		before  atomic.Int64
		wg      sync.WaitGroup
	)
	end := time.Now().Add(b.duration)
	before.Store(-1)
	for i := range 2 {
		wg.Go(func() {
			defer over.Store(true)
			for !over.Load() {
				asking[i].Store(true)
				held, err := l.Lock(ctx, "passed")
				now := time.Now()
				asking[i].Store(false)
				if err != nil {
					errs[i] = err
					return
				}
				if last == 2-i {
					hists[i].Record(now.Sub(let))
					if before.Load() < 0 {
						before.Store(sent.Commands())
					}
					between = sent.Commands() - before.Load()
				}
				// Wait for the other, and a little longer, so that it stands in
				// the queue and not before it, unless the machine is too busy.
				for !asking[1-i].Load() && !over.Load() {
					runtime.Gosched()
				}
				for t := time.Now(); time.Since(t) < 20*time.Microsecond; {
					runtime.Gosched()
				}
				last = i + 1
				if now.After(end) {
					over.Store(true)
				}
				let = time.Now()
				if errs[i] = held.Unlock(); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	hists[0].Add(&hists[1])
	return metrics{
		"handovers": float64(hists[0].Count()),
		"p50_us":    hists[0].Micros(0.5),
		"p99_us":    hists[0].Micros(0.99),
		"commands":  float64(between) / float64(max(1, hists[0].Count())),
	}, nil
}

func (b *bench) passPawl(ctx context.Context) (metrics, error) {
	var sent wire.Counter
	l, err := b.engine.peers[0].open(b.addr, &sent)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return b.pass(ctx, l, &sent)
}

func (b *bench) passSync(ctx context.Context) (metrics, error) {
	return b.pass(ctx, new(syncLocker), new(wire.Counter))
}

// syncLocker is a sync.Mutex.
type syncLocker struct{ mu sync.Mutex }

func (l *syncLocker) Lock(context.Context, string) (Held, error) {
	l.mu.Lock()
	return syncHeld{&l.mu}, nil
}

func (l *syncLocker) Close() error { return nil }

type syncHeld struct{ *sync.Mutex }

func (h syncHeld) Unlock() error {
	h.Mutex.Unlock()
	return nil
}
