package adapter

import (
	"context"
	"errors"
	"time"
)

// guard is Guard for a Conn.
func guard[T any](ctx context.Context, c *Conn, f func(context.Context) (T, error)) (T, error) {
	if !c.opts.Prompt {
		return Guard(ctx, c.closed, c.opts.ErrClosed, func() (T, error) { return f(ctx) })
	}
	// With a deadline the client takes another way, which is for proven connections.
	return Guard(ctx, c.closed, c.opts.ErrClosed, func() (T, error) { return f(context.WithoutCancel(ctx)) })
}

// Guard ends when ctx does, or, with errClosed, when closed is, also where f does not:
// clients do not heed a context while they connect, or at all; and who comes second may
// wait for the first one's attempt. f ends at the latest when the client gives up.
func Guard[T any](ctx context.Context, closed <-chan struct{}, errClosed error, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-closed:
		return none, errClosed
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

// Bound is how near its deadline is.
const Bound = 4 * time.Second

var errNoReply = errors.New("the server did not reply in time")

func (b *bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// Nearer returns ctx, with a deadline that is near.
func Nearer(ctx context.Context) context.Context {
	end := time.Now().Add(Bound)
	if own, ok := ctx.Deadline(); ok && !own.After(end) {
		return ctx
	}
	return &bounded{ctx, end}
}

// Ending says whose time was up: that of ctx, or that of the connection, which
// may be due to another call that shared it and had less.
func Ending(ctx context.Context, err error) error {
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

// Dedicate runs dial, which makes a connection and knows no context.
func Dedicate[T interface{ Close() }](ctx context.Context, dial func() T) (T, error) {
	got := make(chan T, 1)
	go func() { got <- dial() }()
	select {
	case d := <-got:
		return d, nil
	case <-ctx.Done():
		go func() { (<-got).Close() }()
		var none T
		return none, ctx.Err()
	}
}
