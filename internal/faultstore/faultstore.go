// Package faultstore puts a bad network in front of a store, for tests.
package faultstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// ErrNetwork is what the caller of a request is told that was lost, or the reply
// of which was.
var ErrNetwork = errors.New("connection reset")

// Store is a store behind a bad network. Its fields are changed in Set, once it is
// in use.
type Store struct {
	driver.Store
	Calls atomic.Int64 // that reached the store, but for Wait and Listen

	mu       sync.Mutex
	Entered  string       // id of the last claim
	Leaves   []driver.Ref // all that were asked for
	Rand     *rand.Rand
	Rate     float64               // of requests that meet a fault
	Delay    time.Duration         // of a message, at the most
	RenewErr error                 // what Renew returns
	Down     bool                  // no replies: calls hang until their context ends
	Lag      time.Duration         // of what Wait returns; that comes through even if down
	Err      error                 // returned instead of calling the store
	Hook     func(op string) error // called before the store; an error goes to the caller
	After    func(op string) error // called after the store; likewise

	late    int           // requests that are under way once more
	settled chan struct{} // closed when there are none; made with the first
}

// Settle waits until no request is under way that the network repeats late.
func (f *Store) Settle() {
	for {
		f.mu.Lock()
		late, settled := f.late, f.settled
		f.mu.Unlock()
		if late == 0 {
			return
		}
		<-settled
	}
}

// repeat runs call later, once more.
func (f *Store) repeat(later time.Duration, call func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.late == 0 {
		f.settled = make(chan struct{})
	}
	f.late++
	go func() {
		time.Sleep(later)
		call()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.late--; f.late == 0 {
			close(f.settled)
		}
	}()
}

// Set makes a change to the fields.
func (f *Store) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Last returns the id of the claim that was entered last.
func (f *Store) Last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Entered
}

// do runs call, with what the network does to its request and its reply.
func do[T any](ctx context.Context, f *Store, op string, call func(context.Context) (T, error)) (none T, _ error) {
	f.mu.Lock()
	down, err, hook, after := f.Down, f.Err, f.Hook, f.After
	fault := -1
	var before, behind time.Duration
	if f.Rand != nil {
		before, behind = time.Duration(f.Rand.Int64N(int64(f.Delay))), time.Duration(f.Rand.Int64N(int64(f.Delay)))
		if f.Rand.Float64() < f.Rate {
			fault = f.Rand.IntN(4)
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
		return none, ErrNetwork
	case 1: // request lost, nothing said
		<-ctx.Done()
		return none, ctx.Err()
	case 2: // request repeated, late
		f.repeat(before+20*behind, func() { call(context.Background()) })
	}
	if err := wait(before); err != nil {
		return none, err
	}
	f.Calls.Add(1)
	result, err := call(context.WithoutCancel(ctx)) // it is with the engine now
	if after != nil {
		if err := after(op); err != nil {
			return none, err
		}
	}
	if fault == 3 { // reply lost
		return none, ErrNetwork
	}
	if err := wait(behind); err != nil {
		return none, err
	}
	return result, err
}

func (f *Store) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	sent := time.Now()
	f.Set(func() { f.Entered = c.ID })
	return do(ctx, f, "enter", func(ctx context.Context) (driver.Status, error) {
		st, err := f.Store.Enter(ctx, c)
		if !st.Deadline.IsZero() {
			st.Deadline = driver.Deadline(sent, c.TTL)
		}
		return st, err
	})
}

func (f *Store) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
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

func (f *Store) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	type result struct {
		st  driver.Status
		err error
	}
	sent := time.Now()
	f.mu.Lock()
	refused := f.RenewErr
	f.mu.Unlock()
	if refused != nil {
		for i := range rs {
			report(i, driver.Status{}, refused)
		}
		return
	}
	results, err := do(ctx, f, "renew", func(ctx context.Context) ([]result, error) {
		got := make([]result, len(rs))
		f.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
			if !st.Deadline.IsZero() {
				st.Deadline = driver.Deadline(sent, rs[i].TTL)
			}
			got[i] = result{st, err}
		})
		return got, nil
	})
	for i := range rs {
		if err != nil {
			report(i, driver.Status{}, err)
		} else {
			report(i, results[i].st, results[i].err)
		}
	}
}

func (f *Store) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	f.Set(func() { f.Leaves = append(f.Leaves, r) })
	return do(ctx, f, "leave", func(ctx context.Context) (driver.State, error) { return f.Store.Leave(ctx, r) })
}

func (f *Store) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	return do(ctx, f, "resize", func(ctx context.Context) (driver.Status, error) { return f.Store.Resize(ctx, r, units) })
}

// Wait is a push: sometimes it just says nothing.
func (f *Store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	f.mu.Lock()
	down, err := f.Down && f.Lag == 0, f.Err
	deaf := f.Rand != nil && f.Rand.Float64() < f.Rate
	late := f.Lag
	if f.Rand != nil && f.Rand.Float64() < f.Rate {
		late = time.Duration(f.Rand.Int64N(int64(60 * f.Delay)))
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

func (f *Store) Ask(ctx context.Context, name string) error {
	_, err := do(ctx, f, "ask", func(ctx context.Context) (struct{}, error) { return struct{}{}, f.Store.Ask(ctx, name) })
	return err
}

func (f *Store) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	return do(ctx, f, "break", func(ctx context.Context) ([]driver.Entry, error) { return f.Store.Break(ctx, name) })
}

func (f *Store) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	return do(ctx, f, "adopt", func(ctx context.Context) (driver.Status, error) { return f.Store.Adopt(ctx, a) })
}

func (f *Store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	_, err := do(ctx, f, "set limit", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f.Store.SetLimit(ctx, name, kind, was, limit)
	})
	return err
}

func (f *Store) Load(ctx context.Context, name string) (driver.Record, error) {
	return do(ctx, f, "load", func(ctx context.Context) (driver.Record, error) { return f.Store.Load(ctx, name) })
}

func (f *Store) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	return do(ctx, f, "swap", func(ctx context.Context) (driver.Record, error) { return f.Store.CompareAndSwap(ctx, r) })
}

// Swaps makes the network do something at the n-th CompareAndSwap, from 1.
func (f *Store) Swaps(n int, before, after func() error) {
	count := 0
	f.Set(func() {
		f.Hook = func(op string) error {
			if op != "swap" {
				return nil
			}
			if count++; count == n && before != nil {
				return before()
			}
			return nil
		}
		f.After = func(op string) error {
			if op == "swap" && count == n && after != nil {
				return after()
			}
			return nil
		}
	})
}

// Count counts the requests of a kind that reach the store.
func (f *Store) Count(op string) *atomic.Int64 {
	n := new(atomic.Int64)
	f.Set(func() {
		f.Hook = func(o string) error {
			if o == op {
				n.Add(1)
			}
			return nil
		}
	})
	return n
}

// Outages cuts a client off for a while now and then, until ctx ends; most is the
// longest time between two.
func (f *Store) Outages(ctx context.Context, r *rand.Rand, most time.Duration) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.Int64N(int64(most))))
		f.Set(func() { f.Down = true })
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
		f.Set(func() { f.Down = false })
	}
}
