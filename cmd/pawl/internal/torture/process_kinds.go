package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

func (w *worker) rw() {
	name := w.name("rw", w.rand.IntN(numbers))
	if w.chance(3000) {
		w.force(name, "rw")
		return
	}
	c, d := w.handle()
	m := c.RWMutex(name)
	way, lock, do, units := "lock", m.Lock, m.Do, int64(driver.MaxLimit)
	reads, tries := !w.chance(3), w.chance(5)
	switch {
	case reads && tries:
		way, lock, units = "try", m.TryRLock, 1
	case reads:
		lock, do, units = m.RLock, m.RDo, 1
	case tries:
		way, lock = "try", m.TryLock
	}
	ctx, cancel := w.waiting()
	defer cancel()
	op := w.ask(way, "rw", name, units, driver.MaxLimit)
	if !tries && w.chance(8) {
		w.do(ctx, op, 0, d, do)
		return
	}
	if h, l := take(ctx, w, op, lock); h != nil {
		w.use(h, l, d)
	}
}

// change makes a writer a reader, or a reader a writer if it is alone.
func (h *held) change(l *pawl.RWLease) {
	if !h.look() {
		return
	}
	h.flush()
	p := h.parts[0]
	way, units, call := "upgrade", p.op.Limit, l.TryUpgrade
	if p.alone() {
		way, units, call = "downgrade", 1, l.Downgrade
	}
	e := event(p.op, Changing)
	e.Way, e.Units, e.Token = way, units, p.token()
	h.rec.Record(e)
	ctx, cancel := h.early()
	defer cancel()
	end := h.calls.begin(fmt.Sprintf("%s of %q", way, p.op.Name), nil)
	err := call(ctx)
	end()
	switch {
	case errors.Is(err, pawl.ErrReleased) || errors.Is(err, pawl.ErrClosed):
		h.fail(err)
		return
	case errors.Is(err, pawl.ErrLost) || errors.Is(err, pawl.ErrInvalid):
		return
	case err != nil && way == "upgrade":
		return
	}
	// Downgrade makes a reader of it, whatever else its error says.
	p.op.Units = units
	e = event(p.op, Changed)
	e.Way, e.Token, e.Err, e.Until = way, p.token(), brief(err), h.rec.At(l.Deadline())
	h.rec.Record(e)
}

// permits is the limit that the semaphore of that number is declared with.
func permits(number int) int64 { return int64(3 + number) }

func (w *worker) semaphore() {
	number := w.rand.IntN(numbers)
	name, limit := w.name("semaphore", number), permits(number)
	switch {
	case w.chance(3000):
		w.force(name, "semaphore")
		return
	case w.chance(16):
		w.setLimit(name, limit)
		return
	case w.chance(30):
		w.mutexOf(name, limit)
		return
	}
	c, d := w.handle()
	s := c.Semaphore(name, limit)
	n := 1 + w.rand.Int64N(limit)
	if w.chance(2) {
		n = 1
	}
	way, acquire := "lock", s.Acquire
	if w.chance(5) {
		way, acquire = "try", s.TryAcquire
	}
	ctx, cancel := w.waiting()
	defer cancel()
	op := w.ask(way, "semaphore", name, n, limit)
	if way == "lock" && w.chance(8) {
		w.do(ctx, op, 0, d, func(ctx context.Context, f func(context.Context) error) error { return s.Do(ctx, n, f) })
		return
	}
	if h, l := take(ctx, w, op, func(ctx context.Context) (*pawl.Lease, error) { return acquire(ctx, n) }); h != nil {
		w.use(h, l, d)
	}
}

// setLimit changes the limit of a semaphore, also to that of a mutex, which must be
// refused all the same.
func (w *worker) setLimit(name string, declared int64) {
	limit := max(1, w.rand.Int64N(declared+4)-1)
	w.changeLimit(name, declared, limit)
	if limit == 1 {
		w.mutexOf(name, declared)
	}
}

func (w *worker) changeLimit(name string, declared, limit int64) {
	e := Event{At: w.rec.Now(), Op: w.ops.Add(1), What: SetLimit, Name: name, Kind: "semaphore", Limit: limit}
	w.rec.Record(e)
	end := w.calls.begin(fmt.Sprintf("SetLimit of %q", name), nil)
	err := w.client.Semaphore(name, declared).SetLimit(context.Background(), limit)
	end()
	e.End, e.Err = w.rec.Now(), brief(err)
	if errors.Is(err, pawl.ErrMismatch) {
		e.Note = "limit"
	}
	w.rec.Record(e)
	if errors.Is(err, pawl.ErrInvalid) {
		w.fail(err)
	}
}

// crowd waits for the same name as all others, all the while, and holds it for an
// instant. Each has a claim of its own, for they differ in their labels.
func (p *process) crowd(i uint64) {
	w := p.worker(2000 + i)
	m := w.client.With(func(o *pawl.Options) { o.Label = fmt.Sprintf("crowd %d.%d", w.c.Process, i) }).Mutex(w.c.Prefix + "crowd")
	for w.process.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(w.process.ctx, w.between(5*time.Second, time.Minute))
		if h, _ := take(ctx, w, w.ask("lock", "mutex", m.Name(), 1, 1), m.Lock); h != nil {
			h.hold(5 * time.Millisecond)
			h.unlock("")
		}
		cancel()
	}
}
