package pawl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/record"
	"github.com/pawl-go/pawl/internal/retry"
)

// Once runs a function that is to succeed at most once per key and period, over all
// processes: for a payment that is submitted twice, a message that is delivered
// again, a task on the schedules of several machines. Like a Mutex it is a name with
// options.
//
// The first caller runs its function. While it runs, others wait, or with TryDo get
// ErrHeld, which says who runs it. Only ErrDone says that it was done: it ended
// without error, and that is on record. If it failed, or its process died, the next
// caller runs its own; after a death, when the TTL has passed.
//
// The record decides. It is written when a run begins, and marked as done when the
// run has succeeded, unless another run has begun since. So at most one run per
// period returns nil, whatever the network or a pause does. A run that returns
// ErrLost may have had effects: the caller undoes them, or the resource refuses them
// by the token ([LeaseFrom]).
//
// The period begins when the run has succeeded, and is that of its caller. A run may
// take seven days. The key is a name like that of a Mutex, and excludes one.
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

// Do runs f, unless it was done within the period. While another caller runs it, Do
// waits for the end of that. The context of f ends with ctx and with the lease that
// excludes the others, which [LeaseFrom] returns.
//
// nil: f succeeded, and nobody will run it again in this period.
//
// ErrDone: it was done before; f was not called. The message says by whom.
//
// ErrLost: f succeeded, but the lease was lost and another has begun to run it since,
// or the engine has lost the record. This run does not count: roll back or
// compensate. If f failed and the lease was lost, the error matches both, and others
// may have begun since.
//
// ErrUnknown: f succeeded, but the engine did not reply whether that is on record.
// Others will get ErrDone, or run it again. Do goes on asking until ctx ends, or the
// client is closed, and ten seconds longer.
//
// Any other error is f's, or f was not called: those of [Mutex.Lock], ErrMismatch if
// the key is the name of a latch or the like, ErrUnsupported if the engine cannot
// expire a record after the period.
func (o *Once) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return o.do(ctx, f, false)
}

// TryDo is Do, but does not wait: while another caller runs it, it returns a
// *[HeldError], which matches ErrHeld and says who that is; whether that run will
// succeed is not known. If the engine cannot be reached, it returns another error
// within ten seconds.
func (o *Once) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return o.do(ctx, f, true)
}

// onceRun is a run on record.
type onceRun struct {
	Done  bool   `json:"done,omitempty"`
	Claim string `json:"claim"` // with the token: of this run and no other
	By    Owner  `json:"by"`
}

func (r *onceRun) is(other onceRun) bool {
	return r != nil && r.Claim == other.Claim && r.Done == other.Done
}

type onceSnapshot = record.Snapshot[onceRun]

// onceCall is a call of Do.
type onceCall struct {
	*record.Call[onceRun]
	running *record.Handle[onceRun] // expires with the longest lease
	done    *record.Handle[onceRun] // expires with the period
	client  *Client
	try     bool
}

func (o *Once) do(ctx context.Context, f func(ctx context.Context) error, try bool) error {
	running := record.Handle[onceRun]{Client: o.client.records(), Kind: driver.KindOnce, Name: o.key, Expiry: driver.MaxTTL, Exact: true}
	done := running
	done.Expiry = o.period
	ctx, call, err := running.Begin(ctx, "do", o.check())
	if err != nil {
		return err
	}
	defer call.End()
	if try {
		call.NoRetry()
	}
	c := &onceCall{call, &running, &done, o.client, try}
	opts := o.client.opts
	opts.Reentrant = false // a run within a run of the same key would be a second one
	opts.MinHold = 0       // others would wait that long to hear that it was done, or has failed
	m := &Mutex{&Client{o.client.core, opts, opts.terms(), nil}, o.key}
	for again := true; again; {
		now, err := c.look(ctx)
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
			return c.Wrap(err)
		}
		if again, err = c.run(ctx, now, lease, f); !again {
			return err
		}
	}
	return nil
}

func (o *Once) check() error {
	if o.period < driver.MinTTL || o.period > driver.MaxTTL {
		return fmt.Errorf("%w period %v: allowed are %v to %v", ErrInvalid, o.period, driver.MinTTL, driver.MaxTTL)
	}
	return nil
}

// look returns what is on record, or ErrDone.
func (c *onceCall) look(ctx context.Context) (onceSnapshot, error) {
	now, err := c.Load(ctx)
	if err == nil {
		err = c.Wrap(wasDone(now))
	}
	return now, err
}

// wasDone returns ErrDone if the snapshot says so.
func wasDone(now onceSnapshot) error {
	if now.Value == nil || !now.Value.Done {
		return nil
	}
	by := describe(&Entry{ID: now.Value.Claim, Owner: now.Value.By})
	return fmt.Errorf("%w by %s, for another %v", ErrDone, by, now.TTL.Round(time.Millisecond))
}

// run runs f under the lease, and unlocks it. It reports whether to begin again,
// for the lease was lost before the run had begun.
func (c *onceCall) run(ctx context.Context, now onceSnapshot, lease *Lease, f func(ctx context.Context) error) (again bool, err error) {
	defer lease.Unlock(ctx) // the record decides, not whether the lease held to the end
	held := lease.Context(ctx)
	started, err := c.start(held, now, lease)
	if err != nil {
		if lost := lease.Err(); errors.Is(lost, ErrLost) && !errors.Is(err, ErrDone) {
			return !c.try && ctx.Err() == nil, c.Wrap(fmt.Errorf("it was not begun: %v", lost)) // and so not lost
		}
		return false, err
	}
	succeeded := false
	defer func() {
		if !succeeded && lease.Err() == nil {
			c.forget(ctx, started)
		}
	}()
	if err := f(held); err != nil {
		if lost := lease.Err(); errors.Is(lost, ErrLost) {
			err = c.Wrap(fmt.Errorf("%w, and others may have begun since: %w", err, lost))
		}
		return false, err
	}
	succeeded = true
	return false, c.finish(ctx, started, lease.Token())
}

// start puts the run on record, in place of what another run that has not
// succeeded has left.
//
// Invariant: f does not run before this is on record. From then on an earlier run
// cannot record its success, for that takes the version of its own start.
func (c *onceCall) start(ctx context.Context, now onceSnapshot, lease *Lease) (onceSnapshot, error) {
	run := onceRun{Claim: fmt.Sprintf("%s.%d", lease.grant.ID(), lease.Token()), By: c.client.owner()}
	now, err := c.ChangeFrom(ctx, now, func(now onceSnapshot) (*onceRun, error) {
		if now.Value.is(run) { // the reply was lost
			return now.Value, nil
		}
		return &run, wasDone(now)
	})
	if err == nil {
		err = c.Err(ctx)
	}
	return now, err
}

// finish puts on record that the run that was started has succeeded.
func (c *onceCall) finish(ctx context.Context, started onceSnapshot, token int64) error {
	ctx, cancel := retry.Outlast(ctx, retry.Longest)
	defer cancel()
	success := *started.Value
	success.Done = true
	begun := time.Now()
	gone := func(now onceSnapshot) error {
		// A write that has had no effect by now never has one: it takes the version of the
		// start. One that got no reply may have had effect, and the period be over.
		if !time.Now().Before(driver.Deadline(begun, c.done.Expiry)) {
			return fmt.Errorf("f succeeded, %w within the period", ErrUnknown)
		}
		return fmt.Errorf("token %d: %w: f succeeded, but %s", token, ErrLost, instead(now))
	}
	call := c.done.Call("do")
	_, err := call.ChangeFrom(ctx, started, func(now onceSnapshot) (*onceRun, error) {
		switch {
		case now.Version == started.Version:
			return &success, nil
		case now.Value.is(success): // the reply was lost
			return now.Value, nil
		}
		return nil, gone(now)
	})
	switch {
	case err == nil, errors.Is(err, ErrLost), errors.Is(err, ErrUnknown):
		return err
	case errors.Is(err, ErrMismatch):
		return call.Wrap(gone(onceSnapshot{}))
	}
	return fmt.Errorf("f succeeded, %w: %w", ErrUnknown, err)
}

// instead says what is on record instead of a run.
func instead(now onceSnapshot) string {
	if now.Value == nil {
		return "its record is gone"
	}
	return describe(&Entry{ID: now.Value.Claim, Owner: now.Value.By}) + " has begun to do it since"
}

// forget takes a run that failed from the record. If that fails, the next run
// replaces it, or it goes after seven days.
func (c *onceCall) forget(ctx context.Context, started onceSnapshot) {
	ctx, cancel := retry.Detached(ctx, retry.Cleanup)
	defer cancel()
	call := c.running.Call("forget")
	call.NoRetry()
	_, _ = call.ChangeFrom(ctx, started, func(now onceSnapshot) (*onceRun, error) {
		if now.Version != started.Version {
			return now.Value, nil
		}
		return nil, nil
	})
}
