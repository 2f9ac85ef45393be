package record

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// Call is one call of the user's. It is not safe for concurrent use.
type Call[T any] struct {
	record   *Handle[T]
	what     string // it is to do, for errors
	end      func()
	once     bool  // nothing is sent again
	failures int   // in a row
	failure  error // the last of them
}

// End ends the context that Begin returned.
func (c *Call[T]) End() { c.end() }

// NoRetry makes the call fail with its first request that fails.
func (c *Call[T]) NoRetry() { c.once = true }

// Wrap returns err with what the call was to do in front of it, or nil.
func (c *Call[T]) Wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.what, err)
}

// Err returns the call's error if ctx has ended, else nil.
func (c *Call[T]) Err(ctx context.Context) error {
	switch {
	case ctx.Err() == nil:
		return nil
	case errors.Is(context.Cause(ctx), driver.ErrClosed):
		return c.Wrap(context.Cause(ctx))
	}
	return c.record.Client.Ended(ctx, Interrupted{Name: c.record.Name, What: c.what, Engine: c.failure})
}

// Load reads the record.
func (c *Call[T]) Load(ctx context.Context) (Snapshot[T], error) {
	return repeat(ctx, c, c.record.load)
}

// Inspect returns the queue of claims that has the record's name.
func (c *Call[T]) Inspect(ctx context.Context) (driver.Queue, error) {
	return repeat(ctx, c, func(ctx context.Context) (driver.Queue, error) {
		return c.record.Client.Store.Inspect(ctx, c.record.Name)
	})
}

// repeat sends a request until it got its reply.
func repeat[T, R any](ctx context.Context, c *Call[T], request func(context.Context) (R, error)) (R, error) {
	for {
		r, err := send(ctx, c, request)
		if err == nil {
			c.replied()
			return r, nil
		}
		if err = c.failed(ctx, err); err != nil {
			return r, err
		}
	}
}

// send sends a request once, and bounds how long its reply is waited for.
func send[T, R any](ctx context.Context, c *Call[T], request func(context.Context) (R, error)) (R, error) {
	timeout := retry.Longest
	if !c.once {
		timeout = min(retry.Timeout(c.failures), c.record.Client.TTL)
	}
	ctx, cancel := retry.WithTimeout(ctx, timeout)
	defer cancel()
	return request(ctx)
}

// replied notes that the engine did what it was asked for.
func (c *Call[T]) replied() { c.failures, c.failure = 0, nil }

// failed is called with the error of a request. It returns nil, after a pause, if
// the request is to be sent again, else the call's error.
func (c *Call[T]) failed(ctx context.Context, err error) error {
	if c.once && !errors.Is(context.Cause(ctx), driver.ErrClosed) {
		return c.Wrap(err)
	}
	if ctx.Err() != nil {
		if c.failure == nil {
			c.failure = fmt.Errorf("no reply yet (%w)", err)
		}
		return c.Err(ctx)
	}
	if driver.IsPermanent(err) {
		return c.Wrap(err)
	}
	c.failures++
	c.failure = err
	c.record.Client.Retrying(ctx, c.record.Name, c.failures, err)
	pause, again := c.record.Client.Backoff(c.failures, err)
	if !again {
		return c.Wrap(fmt.Errorf("gave up after %d attempts: %w", c.failures, err))
	}
	retry.Sleep(ctx, pause)
	return c.Err(ctx)
}

// Change replaces the value of the record by what f returns for it, and returns
// what is there then. f returns the value of its snapshot, the same pointer, for
// no change, and nil to delete the record. An error of f ends the call.
//
// A write may have been carried out although it failed, even by a conflict with
// itself. It is not repeated before the record was read again, and it takes effect
// on the version that it was made for or never. So f must recognize in a value
// that it was applied before, and then nothing is lost or done twice.
//
// Only the write that creates a record may take effect late: when the record was
// created, and has gone, since.
func (c *Call[T]) Change(ctx context.Context, f func(now Snapshot[T]) (next *T, err error)) (Snapshot[T], error) {
	now, err := c.Load(ctx)
	if err != nil {
		return now, err
	}
	return c.ChangeFrom(ctx, now, f)
}

// ChangeFrom is Change for a caller who knows the record already.
func (c *Call[T]) ChangeFrom(ctx context.Context, now Snapshot[T], f func(now Snapshot[T]) (next *T, err error)) (Snapshot[T], error) {
	var err error
	var pause time.Duration
	for conflicts := 0; ; {
		if err != nil {
			if err = c.failed(ctx, err); err != nil {
				return now, err
			}
			now, err = send(ctx, c, c.record.load)
			continue
		}
		next, stop := f(now)
		if stop != nil || next == now.Value {
			c.replied()
			return now, c.Wrap(stop)
		}
		sent := time.Now()
		now, err = send(ctx, c, func(ctx context.Context) (Snapshot[T], error) { return c.record.swap(ctx, now, next) })
		if err != nil && !errors.Is(err, driver.ErrConflict) {
			continue
		}
		c.replied()
		if err == nil {
			return now, nil
		}
		err = nil
		if conflicts++; conflicts == 1 {
			continue
		}
		// Many want to write, and one succeeds per round trip. So they spread over
		// more and more of those.
		pause = min(max(2*pause, time.Since(sent), time.Millisecond), 2*time.Second)
		if !retry.Sleep(ctx, retry.Jitter(pause)) {
			return now, c.Err(ctx)
		}
		now, err = send(ctx, c, c.record.load)
	}
}
