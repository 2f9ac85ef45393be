package pawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// document is the record of a name that holds a T, as small JSON with its
// kind: what counts instead of excludes is kept in one.
type document[T any] struct {
	client *Client
	kind   string // what the name is used for
	name   string
	expiry time.Duration // of the record, from each change of it; 0: none
}

// page is a document as it was when it was read. Its value is never changed.
type page[T any] struct {
	value   *T    // nil: there is no record
	version int64 // of the record
	ttl     time.Duration
}

// format is the version of the JSON. Who finds a greater one must not guess.
const format = 1

type envelope[T any] struct {
	Kind   string `json:"kind"`
	Format int    `json:"format"`
	Data   *T     `json:"data"`
}

// begin checks everything that can be checked before any I/O. What says what is
// tried.
func (d *document[T]) begin(ctx context.Context, what string) (*effort, error) {
	e := &effort{client: d.client, name: d.name, what: fmt.Sprintf("%s %s %q", what, d.kind, d.name)}
	if err := ctx.Err(); err != nil {
		return nil, &WaitError{Name: d.name, Cause: context.Cause(ctx), ctx: err, what: e.what, early: true}
	}
	err := driver.CheckName(d.name)
	if err == nil {
		err = d.client.open()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.what, err)
	}
	return e, nil
}

func (d *document[T]) load(ctx context.Context, e *effort) (page[T], error) {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	r, err := d.client.core.store.Load(ctx, d.name)
	if err != nil {
		return page[T]{}, err
	}
	return d.read(r)
}

func (d *document[T]) read(r driver.Record) (page[T], error) {
	if r.Version == 0 {
		return page[T]{}, nil
	}
	var env envelope[T]
	if json.Unmarshal(r.Value, &env) == nil && env.Kind == d.kind && env.Format <= format && env.Data != nil {
		return page[T]{env.Data, r.Version, r.TTL}, nil
	}
	return page[T]{}, driver.Permanent(d.mismatch(r.Value))
}

// mismatch says what is wrong with a value.
func (d *document[T]) mismatch(value []byte) error {
	var env envelope[json.RawMessage]
	err := json.Unmarshal(value, &env)
	switch {
	case err != nil || env.Kind == "" || env.Data == nil:
		return fmt.Errorf("%w: its record is not one of pawl's", ErrMismatch)
	case env.Kind != d.kind:
		return fmt.Errorf("%w: it is used for a %s", ErrMismatch, env.Kind)
	case env.Format > format:
		return fmt.Errorf("%w: its record has format %d, written by a newer pawl; this one knows up to %d", ErrMismatch, env.Format, format)
	}
	return fmt.Errorf("%w: its record is damaged: %w", ErrMismatch, json.Unmarshal(*env.Data, new(T)))
}

// swap replaces what was on page p, by nothing if next is nil. After
// ErrConflict the result is what is there.
func (d *document[T]) swap(ctx context.Context, e *effort, p page[T], next *T) (page[T], error) {
	r := driver.Record{Name: d.name, Version: p.version}
	if next != nil {
		value, err := json.Marshal(envelope[T]{d.kind, format, next})
		if err != nil {
			return p, driver.Permanent(err)
		}
		r.Value, r.TTL = value, d.expiry
		if p.value != nil && (p.ttl == 0 || p.ttl > r.TTL) && r.TTL > 0 {
			r.TTL = p.ttl // somebody else wants it to live longer
		}
	}
	ctx, cancel := e.bound(ctx)
	defer cancel()
	got, err := d.client.core.store.CompareAndSwap(ctx, r)
	if r.TTL > 0 && errors.Is(err, driver.ErrUnsupported) { // then it stays until it is deleted
		r.TTL = 0
		got, err = d.client.core.store.CompareAndSwap(ctx, r)
	}
	if errors.Is(err, driver.ErrConflict) {
		p, bad := d.read(got)
		if bad != nil {
			return p, bad
		}
		return p, err
	}
	if next == nil {
		return page[T]{}, err
	}
	return page[T]{next, got.Version, r.TTL}, err
}

// change makes of the document what f makes of it, and returns what is there
// then. f returns the value of its page for no change, nil for none at all.
//
// A write may have been carried out although the reply was an error, even
// by a conflict with itself. It is not repeated before the record was read
// again, and takes place on the version it was made for or never: so f must
// find its own mark in a value, and then all is done. (There is no such
// certainty about the first version: a record that is made may be made once more
// when it has gone since.)
func (d *document[T]) change(ctx context.Context, e *effort, f func(page[T]) (next *T, err error)) (page[T], error) {
	p, err := d.load(ctx, e)
	return d.changeFrom(ctx, e, p, err, f)
}

// changeFrom is change for who has read the page just now, or got that error.
func (d *document[T]) changeFrom(ctx context.Context, e *effort, p page[T], err error, f func(page[T]) (next *T, err error)) (page[T], error) {
	var pause time.Duration
	for conflicts := 0; ; {
		if err != nil {
			if err = e.failed(ctx, err); err != nil {
				return p, err
			}
			p, err = d.load(ctx, e)
			continue
		}
		next, stop := f(p)
		if stop != nil || next == p.value {
			e.went()
			return p, stop
		}
		sent := time.Now()
		p, err = d.swap(ctx, e, p, next)
		if err == nil {
			e.went()
			return p, nil
		}
		if !errors.Is(err, driver.ErrConflict) {
			continue
		}
		e.went()
		err = nil
		if conflicts++; conflicts == 1 {
			continue
		}
		// Many want to write. One gets through per round trip, so they spread
		// over more and more of those.
		pause = min(max(2*pause, time.Since(sent), time.Millisecond), 2*time.Second)
		if !sleep(ctx, jitter(pause)) {
			return p, e.over(ctx)
		}
		p, err = d.load(ctx, e)
	}
}

// get reads the document.
func (d *document[T]) get(ctx context.Context, e *effort) (page[T], error) {
	return d.change(ctx, e, func(p page[T]) (*T, error) { return p.value, nil })
}

// await waits until the document is another than p, or for most, and returns
// what is there then.
func (d *document[T]) await(ctx context.Context, e *effort, p page[T], most time.Duration) (page[T], error) {
	for {
		wait, cancel := context.WithTimeout(ctx, most)
		r, err := d.client.core.store.WaitChange(wait, d.name, p.version)
		timeout := wait.Err() != nil
		cancel()
		var next page[T]
		switch {
		case err == nil:
			next, err = d.read(r)
		case ctx.Err() != nil: // nothing has changed until now
			return p, e.over(ctx)
		case timeout: // or a wake-up was lost, or the engine does not reply
			next, err = d.load(ctx, e)
		}
		if err == nil {
			e.went()
			return next, nil
		}
		if err = e.failed(ctx, err); err != nil {
			return p, err
		}
	}
}

// fading tells that half of the record's time is over: who has an interest in
// it writes it again.
func (d *document[T]) fading(p page[T]) bool {
	return p.value != nil && p.ttl > 0 && (d.expiry == 0 || p.ttl < d.expiry/2)
}

// patience is how long to wait for a change: most, or until the record fades.
func (d *document[T]) patience(p page[T], most time.Duration) time.Duration {
	if p.ttl == 0 || d.expiry == 0 {
		return most
	}
	return min(most, max(0, p.ttl-d.expiry/2)+jitter(d.expiry/8)+time.Millisecond)
}

// effort is what one call has gone through with the engine.
type effort struct {
	client   *Client
	name     string
	what     string
	single   bool  // nothing is tried again
	failures int   // in a row
	trouble  error // the last of them
}

// bound bounds a request.
func (e *effort) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.single {
		return bound(ctx, replyPatience)
	}
	return bound(ctx, min(patienceAfter(e.failures), e.client.opts.TTL))
}

// went notes that the engine did what was asked for.
func (e *effort) went() { e.failures, e.trouble = 0, nil }

// failed returns nil, after a pause, if a request that ended with err is to be
// tried again, and else the error for the caller.
func (e *effort) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		if e.trouble == nil {
			e.trouble = noReply(err)
		}
		return e.over(ctx)
	}
	if driver.IsPermanent(err) {
		return fmt.Errorf("%s: %w", e.what, err)
	}
	e.failures++
	e.trouble = err
	o := &e.client.opts
	e.client.core.tell(o, Event{Kind: Retrying, Context: ctx, Name: e.name, Attempt: e.failures, Err: err})
	pause, ok := o.Backoff(e.failures, err)
	if !ok {
		return fmt.Errorf("%s: gave up after %d attempts: %w", e.what, e.failures, err)
	}
	if !sleep(ctx, pause) {
		return e.over(ctx)
	}
	return nil
}

// over is the error of a call whose context has ended.
func (e *effort) over(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrClosed) {
		return fmt.Errorf("%s: %w", e.what, cause)
	}
	return &WaitError{Name: e.name, Cause: cause, Engine: e.trouble, ctx: ctx.Err(), what: e.what}
}

// within returns ctx, made to end with the client too.
func (c *core) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

func (c *core) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}
