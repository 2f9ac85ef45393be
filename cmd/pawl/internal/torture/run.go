package torture

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-go/pawl/cmd/pawl/internal/storeurl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/clock"
)

// Progress is what happened so far.
type Progress struct {
	Elapsed time.Duration
	Phase   string // what goes on; empty: it locks and is hurt
	Counts  Counts
}

// Hooks of who runs a torture.
type Hooks struct {
	// Start prepares the command of a process, which calls [Process].
	Start func() *exec.Cmd
	// Progress is called now and then; it may be nil.
	Progress func(Progress)
	// Early ends the torture before its time: there is a result all the same.
	Early <-chan struct{}
	// Outside are faults that somebody else made, as of the server; it may be nil.
	Outside <-chan Event
}

// Run tortures as o says, and returns what happened, to be judged. What is wrong with o it returns before it does anything,
// and a *StoreError if the store can't be used. When ctx is done it ends at
// once.
func Run(ctx context.Context, o Options, h Hooks) (*Result, error) {
	route, err := o.check()
	if err != nil {
		return nil, err
	}
	machine, err := clock.Open()
	if err != nil {
		return nil, fmt.Errorf("compare what processes believe: %w", err)
	}
	store, err := storeurl.Open(o.Store)
	if errors.Is(err, driver.ErrInvalid) {
		return nil, err
	}
	if err != nil {
		return nil, &StoreError{err}
	}
	defer store.Close() // nothing was written that Close could lose
	prefix := "torture-" + strings.ToLower(rand.Text()[:6]) + "/"
	if err := contact(ctx, store, &o, prefix); err != nil {
		return nil, err
	}
	res, err := newResource()
	if err != nil {
		return nil, err
	}
	defer res.close()
	r := &run{
		o: o, hooks: h, clock: machine, prefix: prefix, resource: res.addr(), started: time.Now(),
		counts: Counts{Faults: make(map[string]int)}, words: make(map[string]string), starts: make(chan func()),
		chance: mathrand.New(mathrand.NewPCG(o.Seed, 2)),
	}
	defer close(r.starts)
	go r.starter()
	r.begin = r.now()
	over := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { r.report(over) })
	defer func() { close(over); reporting.Wait() }()
	if err := r.torture(ctx, route); err != nil {
		return nil, err
	}
	r.phase("looking for what is left behind")
	for name, note := range left(ctx, store, o.TTL, prefix) {
		r.record(Event{What: Left, Name: name, Note: note})
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ended before it could be judged: %w", context.Cause(ctx))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.history, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return &Result{Options: r.o, Started: r.started, Begin: r.begin, End: r.now(), History: r.history}, nil
}

// run is a torture that goes on.
type run struct {
	o        Options
	hooks    Hooks
	clock    clock.Machine
	prefix   string
	resource string
	started  time.Time
	begin    int64
	slots    []*slot
	apart    int // servers that do not know of each other, to each of which a connection may be hurt; else 0
	starts   chan func()
	readers  sync.WaitGroup

	mu      sync.Mutex
	history []Event
	counts  Counts
	doing   string
	words   map[string]string // of events, each once in memory
	ending  bool              // processes are told to end
	hurting context.Context   // while processes are hurt; else nil
	killing sync.WaitGroup    // grows while hurting is not nil
	chance  *mathrand.Rand    // for who adopts
}

func (r *run) now() int64 { return int64(r.clock.Now()) }

// starter starts processes on one thread, which lasts: they die with it.
func (r *run) starter() {
	runtime.LockOSThread()
	for f := range r.starts {
		f()
	}
}

// torture starts the processes, hurts them until the time is over, and ends them.
func (r *run) torture(ctx context.Context, route *route) error {
	defer r.kill()
	if route != nil && route.apart {
		r.apart = len(route.targets)
	}
	for n := range r.o.Processes {
		s := &slot{run: r, n: n + 1}
		if route != nil {
			ps, err := route.open()
			if err != nil {
				return err
			}
			defer ps.close()
			s.proxies = ps
		}
		r.slots = append(r.slots, s)
		s.mu.Lock()
		err := s.start()
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	hurting, stop := context.WithTimeout(ctx, r.o.For)
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		select {
		case <-r.hooks.Early:
			stop()
		case <-hurting.Done():
		}
	})
	r.mu.Lock()
	r.hurting = hurting
	r.mu.Unlock()
	r.hurt(hurting)
	r.mu.Lock()
	r.hurting = nil
	r.mu.Unlock()
	r.killing.Wait()
	// Everybody is well again, and must be able to go on.
	r.phase("faults are over")
	sleep(ctx, max(r.o.TTL*3/2, grace+grace/10))
	r.phase("ending the processes")
	r.end(ctx)
	return ctx.Err()
}

// endTimeout is how long a process that is told to end may take: its locks wait for
// those of processes that were killed.
func (r *run) endTimeout() time.Duration { return 8*r.o.TTL + 30*time.Second }

// end tells the processes to end, and waits until they have.
func (r *run) end(ctx context.Context) {
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	var work sync.WaitGroup
	for _, s := range r.slots {
		if l := s.current(); l != nil {
			work.Go(func() { l.end(ctx, r.endTimeout()) })
		}
	}
	work.Wait()
}

// kill ends what is left of the processes, at once.
func (r *run) kill() {
	r.mu.Lock()
	r.ending = true
	r.mu.Unlock()
	for _, s := range r.slots {
		if l := s.current(); l != nil {
			l.kill()
		}
	}
	r.readers.Wait()
}

func (r *run) phase(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doing = what
}

// report tells how it goes on, and notes the faults from outside, until all is over.
func (r *run) report(over <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	outside := r.hooks.Outside
	for {
		select {
		case <-over:
			return
		case e, ok := <-outside:
			if !ok {
				outside = nil
				continue
			}
			e.What = Fault
			r.record(e)
		case <-tick.C:
			r.mu.Lock()
			p := Progress{time.Since(r.started), r.doing, r.counts}
			p.Counts.Faults = maps.Clone(p.Counts.Faults)
			r.mu.Unlock()
			if r.hooks.Progress != nil {
				r.hooks.Progress(p)
			}
		}
	}
}

// record adds an event to the history.
func (r *run) record(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.At == 0 {
		e.At = r.now()
	}
	for _, s := range []*string{(*string)(&e.What), &e.Name, &e.Kind, &e.Way, &e.Handle, &e.Fault, &e.Err, &e.Note} {
		if *s == "" {
			continue
		}
		if known, ok := r.words[*s]; ok {
			*s = known
		} else {
			r.words[*s] = *s
		}
	}
	r.history = append(r.history, e)
	r.counts.add(&e)
	if e.What == Released && e.Way == "handover" && e.Err == "" && e.Handle != "" && !r.ending {
		r.offer(e)
	}
}

// offer gives what was handed over to another process or, now and then, to two, of
// which one gets it. Nothing of that may depend on who handed it over, who is killed
// now and then if something of it may still be under way. r.mu is locked.
func (r *run) offer(e Event) {
	others := slices.DeleteFunc(slices.Clone(r.slots), func(s *slot) bool { return s.n == e.Process || s.life == nil })
	r.chance.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	n := 1
	if r.chance.IntN(3) == 0 {
		n = 2
	}
	if e.Note == lateRenewal && r.hurting != nil && slices.Contains(r.o.Faults, "kill") && r.chance.IntN(2) == 0 {
		ctx, after := r.hurting, between(r.chance, 0, r.o.TTL/2)
		r.killing.Go(func() {
			if sleep(ctx, after) {
				r.slots[e.Process-1].injure(ctx, injury{kind: "kill", span: after})
			}
		})
	}
	for _, s := range others[:min(n, len(others))] {
		s.life.tell(Task{Adopt: &e})
	}
}

// add counts what is shown while it goes on.
func (c *Counts) add(e *Event) {
	switch e.What {
	case Granted:
		c.Grants++
	case Told:
		c.Lost++
	case Write:
		c.Writes++
		if e.Err != "" {
			c.Refused++
		}
	case Killed, Paused, Fault:
		c.Faults[e.Fault]++
	}
}

// sleep waits for a span, and reports false if ctx was done before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
