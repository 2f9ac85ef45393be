package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
)

// early returns a context that is enough for a call, but for now and then, when it
// ends early.
func (w *worker) early() (context.Context, context.CancelFunc) {
	if w.chance(4) {
		return context.WithTimeout(context.Background(), w.between(0, 100*time.Millisecond))
	}
	return context.WithCancel(context.Background())
}

// waiting returns a context to lock with, which ends with the process at the
// latest.
func (w *worker) waiting() (ctx context.Context, cancel context.CancelFunc) {
	if w.chance(5) {
		return context.WithTimeout(w.process.ctx, w.between(0, w.c.TTL/4))
	}
	return context.WithCancel(w.process.ctx)
}

// handle is the client with options, and how long to hold with them.
func (w *worker) handle() (*pawl.Client, time.Duration) {
	ttl, d := w.c.TTL, w.between(0, 8*time.Millisecond)
	switch w.rand.IntN(200) {
	case 0: // it must be renewed
		d = w.between(ttl, ttl*8/5)
	case 1, 2, 3:
		d = w.between(0, ttl/2)
	case 4:
		return w.client.With(func(o *pawl.Options) { o.MinHold = w.between(1, ttl/4) }), d
	case 5:
		return w.client.With(func(o *pawl.Options) { o.MaxHold = w.between(ttl/8, ttl/2) }), w.between(0, ttl*3/4)
	case 6:
		return w.client.With(func(o *pawl.Options) { o.NoRenewal = true }), w.between(0, ttl*5/4)
	case 7:
		return w.client.With(func(o *pawl.Options) { o.TTL = ttl * 3 / 2 }), d
	case 8, 9, 10, 11, 12:
		return w.client.With(func(o *pawl.Options) { o.Overtake = true }), d
	}
	return w.client, d
}

// ask records that a lock is asked for.
func (w *worker) ask(way, kind, name string, units, limit int64) Event {
	op := Event{Op: w.ops.Add(1), What: Ask, Way: way, Kind: kind, Name: name, Units: units, Limit: limit}
	w.rec.Record(op)
	return op
}

// failed records that a lock was not granted, and checks why.
func (w *worker) failed(ctx context.Context, op Event, err error) {
	e := event(op, Failed)
	e.Way, e.Err = op.Way, brief(err)
	wait, waited := errors.AsType[*pawl.WaitError](err)
	known := true
	switch {
	case errors.Is(err, pawl.ErrHeld):
		e.Note = "held"
		known = op.Way == "try" || op.Way == "adopt"
	case errors.Is(err, pawl.ErrMismatch):
		e.Note = "limit"
		known = op.Kind == "semaphore" || op.Way == "adopt" || op.Note != ""
	case errors.Is(err, pawl.ErrInvalid), errors.Is(err, pawl.ErrDeadlock), errors.Is(err, pawl.ErrClosed):
		known = op.Way == "adopt"
	case waited && ctx.Err() != nil:
		e.Note = "ended"
		if wait.Engine != nil {
			e.Note = "engine"
		}
	case errors.Is(err, pawl.ErrLost):
		e.Note = "lost"
		known = op.Way == "adopt"
	case op.Way == "try" || op.Way == "adopt" || ctx.Err() != nil:
		e.Note = "engine"
	default:
		known = driver.IsPermanent(err)
	}
	w.rec.Record(e)
	if !known {
		w.fail(fmt.Errorf("%s %q (%s): no such error was to be expected: %w", op.Way, op.Name, op.Kind, err))
	}
}

// take takes a lock; nil if it was not granted.
func take[L single](ctx context.Context, w *worker, op Event, lock func(context.Context) (L, error)) (*held, L) {
	until := ctx
	if op.Way == "try" {
		until = nil
	}
	end := w.calls.begin(fmt.Sprintf("%s of %q", op.Way, op.Name), until)
	l, err := lock(ctx)
	end()
	if err != nil {
		w.failed(ctx, op, err)
		return nil, l
	}
	return w.granted(l, []Event{op}, l.Token), l
}

// use works with a lease, and gives it up.
func (w *worker) use(h *held, l single, d time.Duration) {
	h.hold(d)
	if w.chance(12) {
		h.extend()
	}
	if rw, ok := l.(*pawl.RWLease); ok && w.chance(4) {
		h.change(rw)
		h.hold(d / 2)
	}
	if w.chance(10) {
		h.handOver(l)
		return
	}
	h.unlock("")
}

func (w *worker) mutex() {
	switch name := w.name("mutex", w.rand.IntN(numbers)); {
	case w.chance(3000):
		w.force(name, "mutex")
	case w.chance(12):
		w.all()
	default:
		w.mutexOf(name, 0)
	}
}

// mutexOf locks a mutex. If permits is not 0, that is the name of a semaphore with so
// many: if the mutex is granted, nobody can use the semaphore or change its limit
// meanwhile, which is tried.
func (w *worker) mutexOf(name string, permits int64) {
	c, d := w.handle()
	m := c.Mutex(name)
	ctx, cancel := w.waiting()
	defer cancel()
	if permits > 0 {
		ctx, cancel = context.WithTimeout(ctx, w.between(0, w.c.TTL/4))
		defer cancel()
	}
	way, lock := "lock", m.Lock
	switch w.rand.IntN(8) {
	case 0, 1:
		way, lock = "try", m.TryLock
	case 2:
		w.do(ctx, w.ask("lock", "mutex", name, 1, 1), permits, d, m.Do)
		return
	}
	op := w.ask(way, "mutex", name, 1, 1)
	op.Note = besides(permits)
	h, l := take(ctx, w, op, lock)
	if h != nil && permits > 0 {
		h.hold(d / 2)
		w.changeLimit(name, permits, permits+w.rand.Int64N(2))
	}
	if h != nil {
		w.use(h, l, d)
	}
}

// besides is the note of an operation on a name that is a semaphore's, by which the
// reason of a failure is checked. It is not written down.
func besides(permits int64) string {
	if permits > 0 {
		return "semaphore"
	}
	return ""
}

// do works within a lock's Do.
func (w *worker) do(ctx context.Context, op Event, permits int64, d time.Duration, do func(context.Context, func(context.Context) error) error) {
	var h *held
	held := false
	own := errors.New("the work went wrong")
	end := w.calls.begin(fmt.Sprintf("Do of %q", op.Name), ctx)
	err := do(ctx, func(ctx context.Context) error {
		l := pawl.LeaseFrom(ctx)
		h = w.granted(l, []Event{op}, l.Token)
		h.hold(d)
		if held = h.look(); held {
			h.record(Release, "unlock", nil, "")
			return nil
		}
		return own
	})
	end()
	op.Note = besides(permits)
	if h == nil {
		w.failed(ctx, op, err)
		return
	}
	if !held && !errors.Is(err, own) {
		w.fail(fmt.Errorf("do of %q: the function's error is missing in: %w", op.Name, err))
	}
	h.unlocked(held, "", func() error { return err })
}

// all takes the mutexes of both names.
func (w *worker) all() {
	c, d := w.handle()
	var names []string
	var ops []Event
	ctx, cancel := w.waiting()
	defer cancel()
	for i := range numbers {
		names = append(names, w.name("mutex", i))
		ops = append(ops, w.ask("all", "mutex", names[i], 1, 1))
	}
	end := w.calls.begin(fmt.Sprintf("LockAll of %q", names), ctx)
	s, err := c.LockAll(ctx, names...)
	end()
	if err != nil {
		for _, op := range ops {
			w.failed(ctx, op, err)
		}
		return
	}
	var tokens []func() int64
	for _, name := range names {
		tokens = append(tokens, func() int64 { return s.TokenOf(name) })
	}
	h := w.granted(s, ops, tokens...)
	h.hold(d)
	if w.chance(8) {
		h.extend()
	}
	h.unlock("")
}

// steady holds names that no other process wants, all of them for so long that they must be
// renewed, together: what becomes of one must not matter to the others.
func (w *worker) steady() {
	for w.process.ctx.Err() == nil {
		var hs []*held
		for i := range steady {
			m := w.client.Mutex(fmt.Sprintf("%sown%d-%d", w.c.Prefix, w.c.Process, i))
			if h, _ := take(w.process.ctx, w, w.ask("lock", "mutex", m.Name(), 1, 1), m.Lock); h != nil {
				hs = append(hs, h)
			}
		}
		until := time.Now().Add(w.between(2*w.c.TTL, 4*w.c.TTL))
		for time.Now().Before(until) && w.pause(w.c.TTL/10) {
			for _, h := range hs {
				h.look()
			}
		}
		for _, h := range hs {
			h.unlock("")
		}
		w.pause(w.between(0, w.c.TTL/4))
	}
}

// force takes a name away from its holders.
func (w *worker) force(name, kind string) {
	e := Event{At: w.rec.Now(), Op: w.ops.Add(1), What: ForceRelease, Name: name, Kind: kind}
	w.rec.Record(e)
	end := w.calls.begin(fmt.Sprintf("ForceRelease of %q", name), nil)
	_, err := w.client.ForceRelease(context.Background(), name)
	end()
	e.End, e.Err = w.rec.Now(), brief(err)
	w.rec.Record(e)
}

// adopter returns the Adopt of one kind of lock as that of any.
func adopter[L single](adopt func(context.Context, string) (L, error)) func(context.Context, string) (single, error) {
	return func(ctx context.Context, handle string) (single, error) { return adopt(ctx, handle) }
}

// adopt takes over what another process handed over.
func (w *worker) adopt(from Event) {
	op := Event{Op: w.ops.Add(1), What: Ask, Way: "adopt", Kind: from.Kind, Name: from.Name, Units: from.Units, Limit: from.Limit, Handle: from.Handle}
	w.rec.Record(op)
	c, d := w.handle()
	adopt := adopter(c.Mutex(from.Name).Adopt)
	switch from.Kind {
	case "rw":
		adopt = adopter(c.RWMutex(from.Name).Adopt)
	case "semaphore":
		adopt = adopter(c.Semaphore(from.Name, from.Limit).Adopt)
	}
	if w.chance(3) { // long enough that what its former owner has sent arrives
		d = w.between(0, w.c.TTL)
	}
	h, l := take(w.process.ctx, w, op, func(ctx context.Context) (l single, err error) {
		for range 3 { // trying again does no harm
			l, err = adopt(ctx, from.Handle)
			if err == nil || errors.Is(err, pawl.ErrHeld) || errors.Is(err, pawl.ErrLost) || driver.IsPermanent(err) || !w.pause(w.between(0, w.c.TTL/10)) {
				break
			}
		}
		return l, err
	})
	if h != nil {
		w.use(h, l, d)
	}
}
