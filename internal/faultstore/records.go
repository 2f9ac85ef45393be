package faultstore

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
)

func (f *Store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return do(ctx, f, "inspect", func(ctx context.Context) (driver.Queue, error) { return f.Store.Inspect(ctx, name) })
}

// WaitChange is a push, like Wait: sometimes it says nothing, or says it late.
func (f *Store) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	f.mu.Lock()
	down, err := f.Down, f.Err
	deaf := f.Rand != nil && f.Rand.Float64() < f.Rate
	var late time.Duration
	if f.Rand != nil && f.Rand.Float64() < f.Rate {
		late = time.Duration(f.Rand.Int64N(int64(60 * f.Delay)))
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
