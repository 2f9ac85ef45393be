package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/bench/internal/wire"
)

// hold holds many locks in one client, in a process of its own, and looks
// what keeping them costs.
type hold struct {
	Engine string
	Addr   string
	Locks  int
	TTL    time.Duration
}

// renewals is for how many TTLs the locks are held: each is renewed about
// three times in a TTL.
const renewals = 1

func (h hold) run(ctx context.Context) (metrics, error) {
	e, ok := engineNamed(h.Engine)
	if !ok {
		return nil, fmt.Errorf("there is no engine %q", h.Engine)
	}
	s, err := e.connect(h.Addr)
	if err != nil {
		return nil, err
	}
	defer s.close()
	var sent wire.Counter
	locker, err := e.peers[0].openTTL(h.Addr, &sent, h.TTL)
	if err != nil {
		return nil, err
	}
	l := locker.(*pawlLocker)
	warm, err := l.Lock(ctx, "warm")
	if err == nil {
		err = warm.Unlock()
	}
	if err != nil {
		return nil, err
	}
	leases := make([]*pawl.Lease, h.Locks)
	heap0, goroutines0, resident0 := heap(), runtime.NumGoroutine(), resident()
	use0, err := s.usage(ctx)
	if err != nil {
		return nil, err
	}

	start := time.Now()
	if err := each(h.Locks, func(i int) (err error) {
		leases[i], err = l.client.Mutex("held-" + strconv.Itoa(i)).Lock(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	m := metrics{"locks": float64(h.Locks), "ttl_s": h.TTL.Seconds(), "taken_per_s": float64(h.Locks) / time.Since(start).Seconds()}

	use1, err := s.usage(ctx)
	if err != nil {
		return nil, err
	}
	commands, cpu, start := sent.Commands(), cpuTime(), time.Now()
	goroutines := 0
	for end := time.After(renewals * h.TTL); end != nil; {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
			goroutines = max(goroutines, runtime.NumGoroutine())
		case <-end:
			end = nil
		}
	}
	elapsed := time.Since(start).Seconds()
	commands = sent.Commands() - commands
	m["cpu"] = (cpuTime() - cpu).Seconds() / elapsed
	use2, err := s.usage(ctx)
	if err != nil {
		return nil, err
	}
	if !math.IsNaN(use2.Requests) {
		commands = int64(use2.Requests - use1.Requests)
	}
	m["commands_per_s"] = float64(commands) / elapsed
	m["server_cpu"] = (use2.CPU - use1.CPU) / elapsed
	m["server_bytes"] = (use2.Memory - use0.Memory) / float64(h.Locks)
	m["goroutines"] = float64(runtime.NumGoroutine() - goroutines0)
	m["goroutines_peak"] = float64(goroutines - goroutines0)
	m["heap_bytes"] = float64(heap()-heap0) / float64(h.Locks)
	debug.FreeOSMemory()
	m["resident_mb"] = float64(resident()) / 1e6
	m["resident_bytes"] = float64(resident()-resident0) / float64(h.Locks)
	lost := 0
	for _, lease := range leases {
		if lease.Err() != nil {
			lost++
		}
	}
	m["lost"] = float64(lost)

	start = time.Now()
	if err := each(h.Locks, func(i int) error {
		if err := leases[i].Unlock(ctx); err != nil && !errors.Is(err, pawl.ErrLost) {
			return err
		}
		return nil
	}); err != nil {
		return nil, err
	}
	m["released_per_s"] = float64(h.Locks) / time.Since(start).Seconds()
	return m, l.Close()
}

// each calls f for 0 to n-1 from 64 goroutines.
func each(n int, f func(i int) error) error {
	const goroutines = 64
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := g; i < n && errs[g] == nil; i += goroutines {
				errs[g] = f(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resident returns the process's resident memory, 0 where it can't tell.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// cpuTime returns the CPU time that this process has used.
func cpuTime() time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		panic(fmt.Sprint("getrusage: ", err)) // it has no other failure than a wrong argument
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// held runs it in a worker.
func (b *bench) held(ctx context.Context) (metrics, error) {
	var m metrics
	err := send(ctx, order{Hold: &hold{Engine: b.engine.name, Addr: b.addr, Locks: b.locks, TTL: b.ttl}}, &m)
	return m, err
}
