package pawl_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var errNetwork = errors.New("connection reset")

// faulty is a store behind a bad network.
type faulty struct {
	driver.Store
	calls atomic.Int64 // that reached the store, but for Wait and Listen

	mu       sync.Mutex
	entered  string       // id of the last claim
	leaves   []driver.Ref // all that were asked for
	rand     *rand.Rand
	rate     float64       // of requests that meet a fault
	delay    time.Duration // of a message, at the most
	late     sync.WaitGroup
	renewErr error                 // what Renew answers
	down     bool                  // no answers: calls hang until their context ends
	lag      time.Duration         // of what Wait answers; that comes through even if down
	err      error                 // answered instead of calling the store
	hook     func(op string) error // called before the store; an error goes to the caller
	after    func(op string) error // called after the store; likewise
}

func (f *faulty) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// last answers the id of the claim that was entered last.
func (f *faulty) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.entered
}

// do runs call, with what the network does to its request and its reply.
func do[T any](ctx context.Context, f *faulty, op string, call func(context.Context) (T, error)) (none T, _ error) {
	f.mu.Lock()
	down, err, hook, after := f.down, f.err, f.hook, f.after
	fault := -1
	var before, behind time.Duration
	if f.rand != nil {
		before, behind = time.Duration(f.rand.Int64N(int64(f.delay))), time.Duration(f.rand.Int64N(int64(f.delay)))
		if f.rand.Float64() < f.rate {
			fault = f.rand.IntN(4)
		}
	}
	f.mu.Unlock()
	if err != nil {
		return none, err
	}
	if down {
		<-ctx.Done()
		return none, ctx.Err()
	}
	if hook != nil {
		if err := hook(op); err != nil {
			return none, err
		}
	}
	wait := func(d time.Duration) error {
		if d == 0 {
			return nil
		}
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch fault {
	case 0: // request lost
		return none, errNetwork
	case 1: // request lost, nothing said
		<-ctx.Done()
		return none, ctx.Err()
	case 2: // request repeated, late
		f.late.Go(func() {
			time.Sleep(before + 20*behind)
			call(context.Background())
		})
	}
	if err := wait(before); err != nil {
		return none, err
	}
	f.calls.Add(1)
	answer, err := call(context.WithoutCancel(ctx)) // it is with the engine now
	if after != nil {
		if err := after(op); err != nil {
			return none, err
		}
	}
	if fault == 3 { // reply lost
		return none, errNetwork
	}
	if err := wait(behind); err != nil {
		return none, err
	}
	return answer, err
}

func (f *faulty) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	sent := time.Now()
	f.set(func() { f.entered = c.ID })
	return do(ctx, f, "enter", func(ctx context.Context) (driver.Status, error) {
		st, err := f.Store.Enter(ctx, c)
		if !st.Deadline.IsZero() {
			st.Deadline = driver.Deadline(sent, c.TTL)
		}
		return st, err
	})
}

func (f *faulty) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	all, ok := f.Store.(driver.AllEnterer)
	if !ok {
		return nil, driver.ErrUnsupported
	}
	sent := time.Now()
	return do(ctx, f, "enter all", func(ctx context.Context) ([]driver.Status, error) {
		sts, err := all.EnterAll(ctx, cs)
		for i := range sts {
			if !sts[i].Deadline.IsZero() {
				sts[i].Deadline = driver.Deadline(sent, cs[i].TTL)
			}
		}
		return sts, err
	})
}

func (f *faulty) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	type answer struct {
		st  driver.Status
		err error
	}
	sent := time.Now()
	f.mu.Lock()
	refused := f.renewErr
	f.mu.Unlock()
	if refused != nil {
		for i := range rs {
			report(i, driver.Status{}, refused)
		}
		return
	}
	answers, err := do(ctx, f, "renew", func(ctx context.Context) ([]answer, error) {
		got := make([]answer, len(rs))
		f.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
			if !st.Deadline.IsZero() {
				st.Deadline = driver.Deadline(sent, rs[i].TTL)
			}
			got[i] = answer{st, err}
		})
		return got, nil
	})
	for i := range rs {
		if err != nil {
			report(i, driver.Status{}, err)
		} else {
			report(i, answers[i].st, answers[i].err)
		}
	}
}

func (f *faulty) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	f.set(func() { f.leaves = append(f.leaves, r) })
	return do(ctx, f, "leave", func(ctx context.Context) (driver.State, error) { return f.Store.Leave(ctx, r) })
}

func (f *faulty) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	return do(ctx, f, "resize", func(ctx context.Context) (driver.Status, error) { return f.Store.Resize(ctx, r, units) })
}

// Wait is a push: sometimes it just says nothing.
func (f *faulty) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	f.mu.Lock()
	down, err := f.down && f.lag == 0, f.err
	deaf := f.rand != nil && f.rand.Float64() < f.rate
	late := f.lag
	if f.rand != nil && f.rand.Float64() < f.rate {
		late = time.Duration(f.rand.Int64N(int64(60 * f.delay)))
	}
	f.mu.Unlock()
	if err != nil {
		return driver.Status{}, err
	}
	if down || deaf {
		<-ctx.Done()
		return driver.Status{}, ctx.Err()
	}
	st, err := f.Store.Wait(ctx, r)
	time.Sleep(late) // the news travels slowly, and may be old when it comes
	return st, err
}

func (f *faulty) Ask(ctx context.Context, name string) error {
	_, err := do(ctx, f, "ask", func(ctx context.Context) (struct{}, error) { return struct{}{}, f.Store.Ask(ctx, name) })
	return err
}

func (f *faulty) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	return do(ctx, f, "break", func(ctx context.Context) ([]driver.Entry, error) { return f.Store.Break(ctx, name) })
}

func (f *faulty) SetLimit(ctx context.Context, name string, was, limit int64) error {
	_, err := do(ctx, f, "set limit", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.Store.SetLimit(ctx, name, was, limit)
	})
	return err
}

func (f *faulty) Load(ctx context.Context, name string) (driver.Record, error) {
	return do(ctx, f, "load", func(ctx context.Context) (driver.Record, error) { return f.Store.Load(ctx, name) })
}

func (f *faulty) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	return do(ctx, f, "swap", func(ctx context.Context) (driver.Record, error) { return f.Store.CompareAndSwap(ctx, r) })
}
