package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

const (
	workers   = 4  // goroutines of a process that lock, work and unlock
	steady    = 20 // names of its own that a process holds for long
	numbers   = 2  // names of each kind in use at a time
	maxErrors = 8  // that Work returns
)

// process is what a tortured process does.
type process struct {
	c      Config
	rec    *Recorder
	client *pawl.Client
	fence  *fence
	calls  *calls
	late   *delayStore
	ctx    context.Context // ends when the process is to end
	ops    atomic.Uint64

	mu   sync.Mutex
	errs []error
}

// Work is a process of a torture: it locks, works and unlocks, and records what it
// does, until tasks or ctx ends. Then it releases what it holds. An error is
// something wrong that is not for the judge.
func Work(ctx context.Context, c Config, store driver.Store, tasks io.Reader, rec *Recorder) error {
	if c.Break != "" {
		var err error
		if store, err = broken(store, c.Break, c.TTL); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	late := newDelayStore(store, c.TTL, rand.New(rand.NewPCG(c.Seed, uint64(c.Process)<<32|uint64(c.Life))))
	defer late.end()
	store = late
	p := &process{
		c: c, rec: rec, ctx: ctx, late: late,
		client: pawl.New(store, &pawl.Options{TTL: c.TTL, Label: fmt.Sprintf("torture %d.%d", c.Process, c.Life)}),
		fence:  &fence{addr: c.Resource},
		calls:  watchCalls(),
	}
	defer p.calls.stop()
	defer p.fence.close()

	var work sync.WaitGroup
	for i := range workers {
		p.spawn(&work, func() { p.worker(uint64(i)).run() })
	}
	if slices.Contains(c.Kinds, "mutex") {
		p.spawn(&work, p.worker(3000).steady)
	}
	for i := range c.Crowd {
		p.spawn(&work, func() { p.crowd(uint64(i)) })
	}
	// Who reads cannot be stopped: the goroutine stays until tasks ends.
	todo := make(chan Task)
	go func() {
		defer stop()
		if err := readTasks(ctx, tasks, todo); err != nil {
			p.fail(err)
		}
	}()
	p.spawn(&work, func() { p.adopters(&work, todo) })

	done := make(chan struct{})
	go func() { work.Wait(); p.close(); close(done) }()
	select {
	case <-done:
	case err := <-p.calls.hung:
		p.fail(err)
	}
	p.fail(rec.Err())
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.errs...)
}

// fail notes that something is wrong; nil is nothing.
func (p *process) fail(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.errs) < maxErrors {
		p.errs = append(p.errs, err)
	}
}

// spawn runs f in a goroutine, whose panic is noted.
func (p *process) spawn(work *sync.WaitGroup, f func()) {
	work.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				p.fail(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
			}
		}()
		f()
	})
}

// close closes the client, by which nothing is held any more. What the engine has
// not heard of by then, for it is out of reach, runs out.
func (p *process) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second+2*p.c.TTL)
	defer cancel()
	defer p.calls.begin("Close", nil)()
	if err := p.client.Close(ctx); err != nil && ctx.Err() == nil {
		p.fail(fmt.Errorf("close the client: %w", err))
	}
}

func readTasks(ctx context.Context, in io.Reader, todo chan<- Task) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read tasks: %w", err)
		}
		var t Task
		if err := json.Unmarshal(line, &t); err != nil {
			return fmt.Errorf("read a task: %w in %.200q", err, line)
		}
		select {
		case todo <- t:
		case <-ctx.Done():
			return nil
		}
	}
}

// adopters adopts what the parent says, each in a goroutine of its own: others may
// be told of the same at this moment.
func (p *process) adopters(work *sync.WaitGroup, todo <-chan Task) {
	for n := uint64(0); ; n++ {
		select {
		case t := <-todo:
			p.late.hurt(t.Late)
			if t.Adopt != nil {
				p.spawn(work, func() { p.worker(1000 + n).adopt(*t.Adopt) })
			}
		case <-p.ctx.Done():
			return
		}
	}
}

// worker is a goroutine that does one thing after the other.
type worker struct {
	*process
	rand *rand.Rand
}

func (p *process) worker(i uint64) *worker {
	life := uint64(p.c.Process)<<32 | uint64(p.c.Life)<<16 | i
	return &worker{p, rand.New(rand.NewPCG(p.c.Seed, life))}
}

// chance is true in one of n cases.
func (w *worker) chance(n int) bool { return w.rand.IntN(n) == 0 }

// between is a time from least to most.
func (w *worker) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rand.Int64N(int64(most-least)+1))
}

// pause waits for d; false if the process is to end.
func (p *process) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// name of a kind that is used at this time.
func (w *worker) name(kind string, number int) string {
	generation := (w.rec.Now() - w.c.Start) / int64(Generation)
	return fmt.Sprintf("%s%s%d.%d", w.c.Prefix, kind, number, generation)
}

func (w *worker) run() {
	for w.ctx.Err() == nil {
		switch kind := w.c.Kinds[w.rand.IntN(len(w.c.Kinds))]; kind {
		case "mutex":
			w.mutex()
		case "rw":
			w.rw()
		case "semaphore":
			w.semaphore()
		default:
			w.fail(fmt.Errorf("lock: %q is no kind of lock; known are %q", kind, AllKinds))
			return
		}
		w.pause(w.between(0, 5*time.Millisecond))
	}
}
