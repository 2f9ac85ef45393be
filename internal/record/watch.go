package record

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/internal/retry"
)

// Await waits until the record is another than before, or for most, and returns
// what is there then.
func (c *Call[T]) Await(ctx context.Context, before Snapshot[T], most time.Duration) (Snapshot[T], error) {
	for {
		wait, cancel := context.WithTimeout(ctx, most)
		r, err := c.record.Client.Store.WaitChange(wait, c.record.Name, before.Version)
		timeout := wait.Err() != nil
		cancel()
		now := before
		switch {
		case err == nil:
			now, err = c.record.decode(r)
		case ctx.Err() != nil: // nothing has changed until now
			return before, c.Err(ctx)
		case timeout:
			now, err = send(ctx, c, c.record.load)
		}
		if err == nil {
			c.replied()
			return now, nil
		}
		if err = c.failed(ctx, err); err != nil {
			return before, err
		}
	}
}

// Watch is Await for a caller who needs the record: it does not let it expire.
func (c *Call[T]) Watch(ctx context.Context, before Snapshot[T], most time.Duration) (Snapshot[T], error) {
	if before.NearlyExpired {
		return c.Change(ctx, func(now Snapshot[T]) (*T, error) {
			if !now.NearlyExpired {
				return now.Value, nil
			}
			again := *now.Value
			return &again, nil
		})
	}
	if half := c.record.Expiry / 2; half > 0 && before.TTL > 0 {
		most = min(most, max(0, before.TTL-half)+retry.Jitter(half/4)+time.Millisecond)
	}
	return c.Await(ctx, before, most)
}

// Writer writes the values of one owner, one at a time: else the older one could
// be written last.
type Writer[T any] struct {
	record *Handle[T]
	merge  func(now Snapshot[T], mine *T) (next *T, err error)
	turn   chan struct{} // taken by whoever writes
	value  *T            // written last, or tried to
}

// Writer returns a writer. Where the owner wants to write mine, merge returns what
// the record is to hold instead of now, as the function that Change takes does.
func (h *Handle[T]) Writer(merge func(now Snapshot[T], mine *T) (next *T, err error)) *Writer[T] {
	return &Writer[T]{record: h, merge: merge, turn: make(chan struct{}, 1)}
}

// Write writes a value.
func (w *Writer[T]) Write(ctx context.Context, c *Call[T], value *T) error {
	return w.write(ctx, c, value)
}

// KeepUntil writes the last value again now and then, so that it does not expire,
// until ctx ends. merge must ask for that if the snapshot is NearlyExpired.
func (w *Writer[T]) KeepUntil(ctx context.Context) {
	timer := time.AfterFunc(w.record.Expiry/8, func() {
		w.record.Client.Go(func() {
			// If it fails, there is time for more.
			_ = w.write(ctx, w.record.Call("keep the value of"), nil)
			if ctx.Err() == nil {
				w.KeepUntil(ctx)
			}
		})
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// write writes value, or the last one again if that is nil.
func (w *Writer[T]) write(ctx context.Context, c *Call[T], value *T) error {
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return c.Err(ctx)
	}
	defer func() { <-w.turn }()
	if value != nil {
		w.value = value
	}
	_, err := c.Change(ctx, func(now Snapshot[T]) (*T, error) { return w.merge(now, w.value) })
	return err
}
