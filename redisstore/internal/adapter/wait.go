package adapter

import (
	"context"
	"errors"
	"time"
)

// guard ends when ctx or the Conn does, also where f does not: clients do not heed
// a context while they connect, or at all. f ends at the latest when the client
// gives up.
func guard[T any](ctx context.Context, c *Conn, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	inner := ctx
	if c.opts.Prompt { // and with a deadline takes another way, which is for proven connections
		inner = context.WithoutCancel(ctx)
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(inner)
		done <- result{v, err}
	}()
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-c.closed:
		return none, c.opts.ErrClosed
	}
}

// bounded is a context whose deadline is near. A call that is alone is written
// and read by its own goroutine, which is the fastest way; the client takes it
// only for a context with a deadline, which becomes that of the connection, and
// then does not see that the context was cancelled. So a call that is under way
// when a proven server stops replying may end that much late, but no other is.
// The bound is not less because a server on a busy machine may take seconds.
type bounded struct {
	context.Context
	deadline time.Time
}

const bound = 4 * time.Second

var errNoReply = errors.New("the server did not reply in time")

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// nearer returns ctx, with a deadline that is near.
func nearer(ctx context.Context) context.Context {
	end := time.Now().Add(bound)
	if own, ok := ctx.Deadline(); ok && !own.After(end) {
		return ctx
	}
	return &bounded{ctx, end}
}

// ending says whose time was up: that of ctx, or that of the connection, which
// may be due to another call that shared it and had less.
func ending(ctx context.Context, err error) error {
	switch own, ok := ctx.Deadline(); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	case ok && !time.Now().Before(own): // ctx's own timer is late
		return context.DeadlineExceeded
	default:
		return errNoReply
	}
}
