package pawl

import (
	"context"
	"sync"
	"time"
)

// patienceAfter is how long a request that is sent again if it gets no reply, and
// that was sent in vain so many times, is waited for: at first not for long, for it
// or its reply may be lost, then twice as long each time, for the engine may be slow.
func patienceAfter(failures int) time.Duration {
	return min(requestPatience<<min(failures, 8), replyPatience)
}

// bound is [context.WithTimeout] for a request to the store: it makes no timer
// unless Done is asked for. A timer would cost more than all else that is done
// here for a lock that nobody else wants, and some clients of engines only look
// at the deadline.
func bound(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(d)
	if own, ok := ctx.Deadline(); ok && !own.After(end) {
		return ctx, func() {}
	}
	b := &bounded{Context: ctx, end: end}
	return b, b.cancel
}

type bounded struct {
	context.Context
	end time.Time

	mu    sync.Mutex
	timed context.Context // made by the first Done; tells all from then on
	stop  context.CancelFunc
	err   error // what was told before
}

func (b *bounded) Deadline() (time.Time, bool) { return b.end, true }

func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return closedChan
	}
	if b.timed == nil {
		b.timed, b.stop = context.WithDeadline(b.Context, b.end)
	}
	return b.timed.Done()
}

func (b *bounded) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.err != nil:
	case b.timed != nil:
		return b.timed.Err()
	case b.Context.Err() != nil:
		b.err = b.Context.Err()
	case !time.Now().Before(b.end):
		b.err = context.DeadlineExceeded
	}
	return b.err
}

// Value finds timed once there is one: contexts derived from b then need no
// goroutine that waits for it.
func (b *bounded) Value(key any) any {
	b.mu.Lock()
	from := b.timed
	b.mu.Unlock()
	if from == nil {
		from = b.Context
	}
	return from.Value(key)
}

func (b *bounded) cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.timed != nil:
		b.stop()
	case b.err == nil:
		b.err = context.Canceled
	}
}
