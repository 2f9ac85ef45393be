package pawl

import (
	"context"

	"github.com/pawl-go/pawl/internal/record"
)

// records returns what the records of latches, barriers, elections and onces need
// of the client.
func (c *Client) records() *record.Client {
	return &record.Client{
		Store:   c.core.store,
		TTL:     c.opts.TTL,
		Backoff: c.opts.Backoff,
		Retrying: func(ctx context.Context, name string, failures int, err error) {
			c.tell(Event{Kind: EventRetrying, Context: ctx, Name: name, Attempt: failures, Err: err})
		},
		Usable: c.open,
		Closed: c.core.Context(),
		Go:     c.core.Go,
		Ended: func(ctx context.Context, call record.Interrupted) error {
			return &WaitError{Name: call.Name, Cause: context.Cause(ctx), Engine: call.Engine, ctx: ctx.Err(), what: call.What, early: call.Early}
		},
	}
}
