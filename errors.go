package pawl

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
)

var (
	// ErrHeld: somebody else holds the lock, and the call does not wait.
	// The error is a *[HeldError], which says who.
	ErrHeld = engine.ErrHeld

	// ErrLost: the lease ended before it was released. Others may have held
	// the lock since: stop, and roll back or compensate what is not fenced.
	ErrLost = engine.ErrLost

	// ErrReleased: the lease was released before.
	ErrReleased = engine.ErrReleased

	// ErrDone: an earlier [Once.Do] has succeeded within the period.
	ErrDone = errors.New("already done")

	// ErrUnknown: the engine did not reply, and may have done what it was asked
	// for, or may do it yet.
	ErrUnknown = errors.New("whether it is on record is not known")

	// ErrClosed: the client or its store was closed.
	ErrClosed = driver.ErrClosed

	// ErrDeadlock: the context belongs to a lease of the same lock, which
	// would wait for itself. Use that lease, or [Options].Reentrant.
	ErrDeadlock = engine.ErrDeadlock

	// ErrUnsupported: the engine cannot do this; see its column in
	// docs/GUARANTEES.md.
	ErrUnsupported = driver.ErrUnsupported

	// ErrMismatch: the name is in use with another kind, limit or size, or fewer
	// units are left of it by [Semaphore.SetLimit] than were asked for. The error is a
	// *[MismatchError], which names both.
	ErrMismatch = driver.ErrMismatch

	// ErrFull: the engine has no room for one more claim of this name; see
	// docs/GUARANTEES.md for how many it has. Nothing was changed. Let fewer wait at
	// a time, by TryLock or a Semaphore of the process in front of it.
	ErrFull = driver.ErrFull

	// ErrNoLeader: nobody leads at the moment.
	ErrNoLeader = errors.New("nobody leads")

	// ErrBroken: a barrier or latch cannot be waited for any longer; the message
	// says why. Of a barrier: a party died, left or failed; [Barrier.Reset] repairs
	// it. Of a latch: it was deleted, or the engine has lost it; whether it was open
	// before is not known, and another Wait waits for a new latch.
	ErrBroken = errors.New("broken")

	// ErrInvalid: a name, option or argument is not allowed. The message names
	// the value and what is allowed. Nothing was sent.
	ErrInvalid = driver.ErrInvalid
)

// MismatchError says how a name is used, and how it was asked for. It matches
// [ErrMismatch].
type MismatchError = driver.MismatchError

// NameError is an error of one name only, among those that [Client.List] reads.
type NameError = driver.NameError

// HeldError says who stands in the way. It matches [ErrHeld].
type HeldError struct {
	Name   string
	Holder *Entry // nil if the engine did not tell
}

func (e *HeldError) Error() string {
	if e.Holder == nil {
		return fmt.Sprintf("lock %q: %v", e.Name, ErrHeld)
	}
	return fmt.Sprintf("lock %q: held by %s", e.Name, holds(e.Holder))
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// public returns the error that users see for one of the engine's.
func public(err error) error {
	switch e := err.(type) {
	case *engine.HeldError:
		return &HeldError{e.Name, e.Holder}
	case *engine.WaitError:
		return &WaitError{Name: e.Name, Cause: e.Cause, Engine: e.Engine, Holder: e.Holder, ctx: e.Context}
	}
	return err
}

// holds says who holds, and for how long.
func holds(e *Entry) string {
	return fmt.Sprintf("%s for %v", describe(e), e.Held.Round(time.Millisecond))
}

func describe(e *Entry) string {
	var parts []string
	if e.Owner.Label != "" {
		parts = append(parts, fmt.Sprintf("%q", e.Owner.Label))
	}
	if e.Owner.Host != "" {
		parts = append(parts, fmt.Sprintf("process %d on %s", e.Owner.PID, e.Owner.Host))
	}
	if len(parts) == 0 {
		parts = append(parts, "claim "+e.ID)
	}
	return strings.Join(parts, ", ")
}

// WaitError is why a Lock, or another call that waits, gave up. It matches the
// context's error and its cause. Engine tells a lock that was just busy from an
// engine that could not be reached.
type WaitError struct {
	Name   string
	Cause  error  // context.Cause
	Engine error  // why the engine could not be asked at last; nil if the lock was just busy
	Holder *Entry // a holder that was in the way, as far as known
	ctx    error
	what   string // was tried; empty: to lock
	early  bool   // ctx was over before anything was asked for
}

func (e *WaitError) Error() string {
	what := cmp.Or(e.what, fmt.Sprintf("lock %q", e.Name))
	switch {
	case e.early:
		return fmt.Sprintf("%s: the context was over before: %v", what, e.Cause)
	case e.Engine != nil:
		return fmt.Sprintf("%s: %v while the engine failed: %v", what, e.Cause, e.Engine)
	case e.Holder != nil:
		return fmt.Sprintf("%s: %v while waiting for its turn: held by %s", what, e.Cause, holds(e.Holder))
	case e.what == "":
		return fmt.Sprintf("%s: %v while waiting for its turn", what, e.Cause)
	}
	return fmt.Sprintf("%s: %v", what, e.Cause)
}

func (e *WaitError) Unwrap() []error {
	errs := []error{e.ctx, e.Cause}
	if e.Engine != nil {
		errs = append(errs, e.Engine)
	}
	return errs
}
