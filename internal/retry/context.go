package retry

import (
	"context"
	"sync"
	"time"
)

// WithTimeout is [context.WithTimeout] for a request to the store: it makes no
// timer unless Done is called. A timer would cost more than all else that is done
// here for a lock that nobody else wants, and some clients of engines only look
// at the deadline.
//
// It is inlined, so that the CancelFunc is no allocation of its own.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	l := newLazy(ctx, d)
	if l == nil {
		return ctx, nothing
	}
	return l, l.cancel
}

// newLazy returns nil if ctx ends by then.
func newLazy(ctx context.Context, d time.Duration) *lazy {
	end := time.Now().Add(d)
	if own, ok := ctx.Deadline(); ok && !own.After(end) {
		return nil
	}
	return &lazy{Context: ctx, end: end}
}

func nothing() {}

// Detached is WithTimeout for what goes on when ctx ends: its values are those of ctx.
func Detached(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	l := newDetached(ctx, d)
	return l, l.cancel
}

func newDetached(ctx context.Context, d time.Duration) *lazy {
	return &lazy{Context: ctx, end: time.Now().Add(d), detached: true}
}

// Ends returns what ends ctx: a channel, nil if there is none, or the time, zero if there
// is none, whichever is first. Of a context of WithTimeout it needs no timer, for who
// has one of his own. It does not see that such a context was cancelled meanwhile.
func Ends(ctx context.Context) (done <-chan struct{}, end time.Time) {
	end, _ = ctx.Deadline()
	for {
		l, ok := ctx.(*lazy)
		if !ok {
			return ctx.Done(), end
		}
		if l.detached {
			return nil, end
		}
		ctx = l.Context
	}
}

// lazy is a context with a deadline that makes a timer when Done is first called.
type lazy struct {
	context.Context
	end      time.Time
	detached bool // the end of Context is not this one's

	mu    sync.Mutex
	timed context.Context // made by the first Done; decides everything from then on
	stop  context.CancelFunc
	err   error // that was returned before there was one
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (l *lazy) parent() context.Context {
	if l.detached {
		return context.WithoutCancel(l.Context)
	}
	return l.Context
}

func (l *lazy) Deadline() (time.Time, bool) { return l.end, true }

func (l *lazy) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return closed
	}
	if l.timed == nil {
		l.timed, l.stop = context.WithDeadline(l.parent(), l.end)
	}
	return l.timed.Done()
}

func (l *lazy) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.err != nil:
	case l.timed != nil:
		return l.timed.Err()
	case !l.detached && l.Context.Err() != nil:
		l.err = l.Context.Err()
	case !time.Now().Before(l.end):
		l.err = context.DeadlineExceeded
	}
	return l.err
}

// Value asks timed once there is one: contexts derived from l then need no
// goroutine that waits for it.
func (l *lazy) Value(key any) any {
	l.mu.Lock()
	from := l.timed
	l.mu.Unlock()
	if from == nil {
		from = l.parent()
	}
	return from.Value(key)
}

func (l *lazy) cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.timed != nil:
		l.stop()
	case l.err == nil:
		l.err = context.Canceled
	}
}

// Outlast returns a context that ends d later than ctx.
func Outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { cancel(context.Cause(ctx)) })
	})
	return long, func() {
		stop()
		cancel(nil)
	}
}
