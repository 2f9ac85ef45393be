package pawl

import (
	"context"
	"sync/atomic"
	"time"
)

// attempt bounds a request that is sent again if it gets no reply, and that was
// sent in vain so many times: at first it is not waited for long, for it or its
// reply may be lost, then twice as long each time, for the engine may be slow.
func (c *core) attempt(ctx context.Context, failures int, most time.Duration) (context.Context, context.CancelFunc) {
	if failures == 0 {
		return c.request.bound(ctx, most)
	}
	return context.WithTimeout(ctx, min(most, requestPatience<<min(failures, 8), replyPatience))
}

// patience bounds calls to the store. Calls that begin at about the same time
// share the context that ends them: one with a timer for each would cost as
// much as the rest of an uncontended lock.
type patience struct {
	d      time.Duration
	latest atomic.Pointer[term]
}

type term struct {
	context.Context
	end    time.Time
	cancel context.CancelFunc // not called: it ends by its deadline
}

// bound returns ctx, made to end after most or p.d, whichever is less, or up to
// a quarter later. A deadline of ctx, which ends the waiting of a caller,
// does not stand in for that.
func (p *patience) bound(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	now, most := time.Now(), min(most, p.d)
	if end, ok := ctx.Deadline(); ok && end.Sub(now) <= most+most/4 {
		return ctx, func() {}
	}
	if most < p.d || ctx.Done() != nil {
		return context.WithTimeout(ctx, most)
	}
	t := p.latest.Load()
	if t == nil || t.end.Sub(now) < p.d {
		t = &term{end: now.Add(p.d + p.d/4)}
		t.Context, t.cancel = context.WithDeadline(context.Background(), t.end)
		p.latest.Store(t)
	}
	return &bounded{ctx, t}, func() {}
}

// bounded has the values of one context and the end of another.
type bounded struct {
	context.Context
	end *term
}

func (b *bounded) Deadline() (time.Time, bool) { return b.end.Deadline() }
func (b *bounded) Done() <-chan struct{}       { return b.end.Done() }
func (b *bounded) Err() error                  { return b.end.Err() }
