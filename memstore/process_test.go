package memstore_test

import (
	"context"
	"errors"
	"iter"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
)

// process is a Store as one of several processes would have it: closing it
// ends the calls made through it, not those of the others.
type process struct {
	shared *memstore.Store
	ctx    context.Context
	cancel context.CancelFunc
}

func open(s *memstore.Store) driver.Store {
	p := &process{shared: s}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *process) Close() error {
	p.cancel()
	return nil
}

func call[T any](ctx context.Context, p *process, f func(context.Context) (T, error)) (T, error) {
	if p.ctx.Err() != nil {
		var zero T
		return zero, driver.ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(driver.ErrClosed) })()
	v, err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), driver.ErrClosed) {
		err = driver.ErrClosed
	}
	return v, err
}

func (p *process) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Status, error) { return p.shared.Enter(ctx, c) })
}

func (p *process) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Status, error) { return p.shared.Wait(ctx, r) })
}

func (p *process) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if p.ctx.Err() != nil {
		for i := range rs {
			report(i, driver.Status{}, driver.ErrClosed)
		}
		return
	}
	p.shared.Renew(ctx, rs, report)
}

func (p *process) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	return call(ctx, p, func(ctx context.Context) (driver.State, error) { return p.shared.Leave(ctx, r) })
}

func (p *process) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Status, error) { return p.shared.Resize(ctx, r, units) })
}

func (p *process) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	return call(ctx, p, func(ctx context.Context) ([]driver.Entry, error) { return p.shared.Break(ctx, name) })
}

func (p *process) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Status, error) { return p.shared.Adopt(ctx, a) })
}

func (p *process) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	_, err := call(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.shared.SetLimit(ctx, name, kind, was, limit)
	})
	return err
}

func (p *process) Ask(ctx context.Context, name string) error {
	_, err := call(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.shared.Ask(ctx, name) })
	return err
}

func (p *process) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Queue, error) { return p.shared.Inspect(ctx, name) })
}

func (p *process) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	if p.ctx.Err() != nil {
		return func(yield func(driver.Queue, error) bool) { yield(driver.Queue{}, driver.ErrClosed) }
	}
	return p.shared.List(ctx, prefix)
}

func (p *process) Listen(ctx context.Context, f func(driver.Notice)) error {
	_, err := call(ctx, p, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.shared.Listen(ctx, f) })
	return err
}

func (p *process) Load(ctx context.Context, name string) (driver.Record, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Record, error) { return p.shared.Load(ctx, name) })
}

func (p *process) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Record, error) { return p.shared.CompareAndSwap(ctx, r) })
}

func (p *process) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	return call(ctx, p, func(ctx context.Context) (driver.Record, error) {
		return p.shared.WaitChange(ctx, name, version)
	})
}

func (p *process) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	return call(ctx, p, func(ctx context.Context) ([]driver.Status, error) { return p.shared.EnterAll(ctx, cs) })
}
