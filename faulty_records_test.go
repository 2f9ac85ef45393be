package pawl_test

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

func (f *faulty) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return do(ctx, f, "inspect", func(ctx context.Context) (driver.Queue, error) { return f.Store.Inspect(ctx, name) })
}

// WaitChange is a push, like Wait: sometimes it says nothing, or says it late.
func (f *faulty) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	f.mu.Lock()
	down, err := f.down, f.err
	deaf := f.rand != nil && f.rand.Float64() < f.rate
	var late time.Duration
	if f.rand != nil && f.rand.Float64() < f.rate {
		late = time.Duration(f.rand.Int64N(int64(60 * f.delay)))
	}
	f.mu.Unlock()
	if err != nil {
		return driver.Record{}, err
	}
	if down || deaf {
		<-ctx.Done()
		return driver.Record{}, ctx.Err()
	}
	r, err := f.Store.WaitChange(ctx, name, version)
	time.Sleep(late)
	return r, err
}
