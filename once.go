package pawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Once lets something be done at most once per key and period, over all
// processes: a payment that is submitted twice, a message that is delivered
// again, a task on the schedules of several machines. It is a name and options
// only.
//
// Who comes first runs it. While it runs, others wait, or with TryDo are told
// who runs it (ErrHeld); ErrDone, and nothing else, says that it was done: it
// ended without error, and that is on record. If it failed, or its process
// died, the next one runs it; after a death, when the TTL has passed.
//
// What decides is the record: it is written when a run begins, and changed when
// it has succeeded only if no other run has begun since. So one run per period
// at the most returns nil, whatever the network or a pause does. What a
// run that returns ErrLost has done nevertheless is the caller's to
// undo, or to refuse by the token ([LeaseFrom]).
//
// The period begins when the run has succeeded, and is that of who ran it. A run
// may take seven days. The key is a name like that of a Mutex, and excludes one.
// [Options].MinHold does not count here: the period does.
type Once struct {
	client *Client
	key    string
	period time.Duration
}

// Once returns a handle of that key and period, which is 100 ms to 7 days.
// It does no I/O.
func (c *Client) Once(key string, period time.Duration) *Once { return &Once{c, key, period} }

// Key of what is done once.
func (o *Once) Key() string { return o.key }

// Do runs f, unless it was done within the period; while another runs it, Do
// waits for what becomes of that. The context of f ends with ctx and with the
// lease that keeps others out, which is [LeaseFrom] of it.
//
// nil: f succeeded, and nobody will run it again in this period.
//
// ErrDone: it was done before; f was not called. The message says by whom.
//
// ErrLost, if f had no error: another has begun to run it since, for the lease
// was lost; or the engine has lost what was on record. This run does not count:
// roll back or compensate. If f had one, the
// error matches that too, and says that others may have begun meanwhile.
//
// ErrUnknown: f succeeded, but the engine did not tell whether that is on
// record. Either ErrDone is what others will get, or they will run it. Do goes
// on asking until ctx ends, or the client is closed, and ten seconds longer.
//
// Any other error is f's, or f was not called: those of [Mutex.Lock],
// ErrMismatch if the key is the name of a latch or the like, ErrUnsupported if
// the engine cannot forget a record after the period.
func (o *Once) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return o.do(ctx, f, false)
}

// TryDo is Do, but does not wait: while another runs it, it returns a
// *[HeldError], which matches ErrHeld and says who that is. Whether it will have
// been done is not known then. An engine that cannot be reached is another
// error, after ten seconds at the most.
func (o *Once) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return o.do(ctx, f, true)
}

// onceRun is a run on record.
type onceRun struct {
	Done  bool         `json:"done,omitempty"`
	Claim string       `json:"claim"` // with the token: of this run and no other
	By    driver.Owner `json:"by"`
}

func (r *onceRun) is(other onceRun) bool {
	return r != nil && r.Claim == other.Claim && r.Done == other.Done
}

// onceCall is a call of Do.
type onceCall struct {
	*effort
	record document[onceRun]
	period time.Duration
	try    bool

	// The run of this call, once it is on record.
	run     onceRun
	version int64
}

func (o *Once) do(ctx context.Context, f func(ctx context.Context) error, try bool) error {
	c := &onceCall{period: o.period, try: try, record: document[onceRun]{client: o.client, kind: "once", name: o.key}}
	var err error
	if c.effort, err = c.record.begin(ctx, "do"); err != nil {
		return err
	}
	c.single = try
	if o.period < driver.MinTTL || o.period > driver.MaxTTL {
		return fmt.Errorf("%s: %w period %v: allowed are %v to %v", c.what, ErrInvalid, o.period, driver.MinTTL, driver.MaxTTL)
	}
	opts := o.client.opts
	opts.Reentrant = false // a run within a run of the same key would be a second one
	opts.MinHold = 0       // others would wait that long to hear that it was done, or has failed
	m := &Mutex{&Client{o.client.core, opts, nil}, o.key}
	for again := true; again; {
		p, err := c.look(ctx)
		if err != nil {
			return err
		}
		lease, err := m.lock(ctx, try)
		if errors.Is(err, ErrHeld) {
			// The holder may only look, as this call did before.
			if _, e := c.look(ctx); errors.Is(e, ErrDone) {
				return e
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		if again, err = c.guarded(ctx, p, lease, f); !again {
			return err
		}
	}
	return nil
}

// look returns what is on record, or ErrDone.
func (c *onceCall) look(ctx context.Context) (p page[onceRun], err error) {
	if !c.try {
		within, cancel := c.client.core.within(ctx)
		defer cancel()
		p, err = c.record.get(within, c.effort)
	} else if p, err = c.record.load(ctx, c.effort); err != nil {
		err = fmt.Errorf("%s: %w", c.what, err)
	}
	if err == nil {
		err = c.done(p)
	}
	return p, err
}

// done returns ErrDone if the page says so.
func (c *onceCall) done(p page[onceRun]) error {
	if p.value == nil || !p.value.Done {
		return nil
	}
	by := describe(&driver.Entry{ID: p.value.Claim, Owner: p.value.By})
	return fmt.Errorf("%s: %w by %s, for another %v", c.what, ErrDone, by, p.ttl.Round(time.Millisecond))
}

// guarded runs f under the lease, and unlocks it. It reports whether to begin
// again, for the lease was lost before the run had begun.
func (c *onceCall) guarded(ctx context.Context, p page[onceRun], lease *Lease, f func(ctx context.Context) error) (again bool, err error) {
	defer lease.Unlock(ctx) // the record decides, not whether the lease held to the end
	held := lease.Context(ctx)
	if err := c.start(held, p, lease); err != nil {
		if lost := lease.Err(); errors.Is(lost, ErrLost) && !errors.Is(err, ErrDone) {
			return !c.try && ctx.Err() == nil, fmt.Errorf("%s: it was not begun: %v", c.what, lost) // and so not lost
		}
		return false, err
	}
	succeeded := false
	defer func() {
		if !succeeded && lease.Err() == nil {
			c.forget(ctx)
		}
	}()
	if err := f(held); err != nil {
		if lost := lease.Err(); errors.Is(lost, ErrLost) {
			err = fmt.Errorf("%s: %w, and others may have begun since: %w", c.what, err, lost)
		}
		return false, err
	}
	succeeded = true
	return false, c.finish(ctx, lease)
}

// start puts the run on record, in place of page p or of what another run that
// has not succeeded has left.
//
// Invariant: f does not run before this is on record, so whoever ran it earlier
// can no longer put its success there: that takes the version of its own start.
func (c *onceCall) start(ctx context.Context, p page[onceRun], lease *Lease) error {
	by := c.client.core.owner
	by.Label = c.client.opts.Label
	c.run = onceRun{Claim: lease.t.claim(), By: by}
	for {
		got, err := c.write(ctx, p.version, &c.run, driver.MaxTTL)
		switch {
		case err == nil:
			c.version = got.version
			if ctx.Err() != nil {
				return c.over(ctx)
			}
			return nil
		case !errors.Is(err, driver.ErrConflict):
			if c.try {
				return fmt.Errorf("%s: %w", c.what, err)
			}
			if err := c.failed(ctx, err); err != nil {
				return err
			}
		default: // it may be this run's own, if the reply was lost
			if err := c.done(got); err != nil {
				return err
			}
			p = got
		}
	}
}

// finish puts on record that the run has succeeded.
func (c *onceCall) finish(ctx context.Context, lease *Lease) error {
	ctx, stop := c.client.core.within(ctx)
	defer stop()
	ctx, cancel := outlast(ctx, replyPatience)
	defer cancel()
	success := c.run
	success.Done = true
	begun := time.Now()
	for {
		got, err := c.write(ctx, c.version, &success, c.period)
		switch {
		case err == nil, got.value.is(success):
			return nil
		case errors.Is(err, ErrMismatch), errors.Is(err, driver.ErrConflict):
			// The version of the start is gone: what was not written by now never
			// will be. What was, by an attempt that went unanswered, may be over.
			if !time.Now().Before(driver.Deadline(begun, c.period)) {
				return fmt.Errorf("%s: f succeeded, %w within the period", c.what, ErrUnknown)
			}
			return fmt.Errorf("%s, token %d: %w: f succeeded, but %s", c.what, lease.Token(), ErrLost, c.usurper(got))
		}
		if err := c.failed(ctx, err); err != nil {
			return fmt.Errorf("f succeeded, %w: %w", ErrUnknown, err)
		}
	}
}

// usurper says what is on record instead of this run.
func (c *onceCall) usurper(p page[onceRun]) string {
	if p.value == nil {
		return "its record is gone"
	}
	return describe(&driver.Entry{ID: p.value.Claim, Owner: p.value.By}) + " has begun to do it since"
}

// forget takes a run that failed from the record. If that fails, the next run
// replaces it, or it goes after seven days.
func (c *onceCall) forget(ctx context.Context) {
	ctx, cancel := bound(context.WithoutCancel(ctx), unlockPatience)
	defer cancel()
	c.write(ctx, c.version, nil, 0)
}

// write puts a run on record, or takes it from there, if the record has that
// version. After ErrConflict the result is what is there.
func (c *onceCall) write(ctx context.Context, version int64, run *onceRun, ttl time.Duration) (p page[onceRun], err error) {
	r := driver.Record{Name: c.name, Version: version, TTL: ttl}
	if run != nil {
		if r.Value, err = json.Marshal(envelope[onceRun]{c.record.kind, format, run}); err != nil {
			return p, driver.Permanent(err)
		}
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	got, err := c.client.core.store.CompareAndSwap(ctx, r)
	if err == nil {
		return page[onceRun]{run, got.Version, ttl}, nil
	}
	if errors.Is(err, driver.ErrConflict) {
		var bad error
		if p, bad = c.record.read(got); bad != nil {
			err = bad
		}
	}
	return p, err
}

// outlast returns a context that ends d later than ctx.
func outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(d, func() { cancel(context.Cause(ctx)) })
	})
	return long, func() {
		stop()
		cancel(nil)
	}
}
