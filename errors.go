package pawl

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var (
	// ErrHeld: somebody else holds the lock, and the call was not to wait.
	// The error is a *[HeldError], which says who.
	ErrHeld = errors.New("held by somebody else")

	// ErrLost: the lease ended before it was released. Others may have held
	// the lock since: stop, and roll back or compensate what is not fenced.
	ErrLost = errors.New("lease lost")

	// ErrReleased: the lease was released before.
	ErrReleased = errors.New("lease already released")

	// ErrClosed: the client or its store was closed.
	ErrClosed = driver.ErrClosed

	// ErrDeadlock: the context belongs to a lease of the same lock, which
	// would wait for itself. Use that lease, or [Options].Reentrant.
	ErrDeadlock = errors.New("this context holds the lock already")

	// ErrUnsupported: the engine cannot do this; see its page in
	// docs/GUARANTEES.md.
	ErrUnsupported = driver.ErrUnsupported

	// ErrInvalid: a name, option or argument is not allowed. The message names
	// the value and what is allowed. Nothing was sent.
	ErrInvalid = driver.ErrInvalid
)

// HeldError says who stands in the way. It matches [ErrHeld].
type HeldError struct {
	Name   string
	Holder *driver.Entry // nil if the engine did not tell
}

func (e *HeldError) Error() string {
	if e.Holder == nil {
		return fmt.Sprintf("lock %q: %v", e.Name, ErrHeld)
	}
	return fmt.Sprintf("lock %q: held by %s for %v", e.Name, describe(e.Holder), e.Holder.Held.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

func describe(e *driver.Entry) string {
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

// WaitError is why a Lock that waited gave up. It matches the context's error
// and its cause. "Busy" and "engine out of reach" are told apart by Engine.
type WaitError struct {
	Name   string
	Cause  error // context.Cause
	Engine error // why the engine could not be asked at last; nil if the lock was just busy
	ctx    error
}

func (e *WaitError) Error() string {
	if e.Engine == nil {
		return fmt.Sprintf("lock %q: %v while waiting for its turn", e.Name, e.Cause)
	}
	return fmt.Sprintf("lock %q: %v while the engine failed: %v", e.Name, e.Cause, e.Engine)
}

func (e *WaitError) Unwrap() []error {
	errs := []error{e.ctx, e.Cause}
	if e.Engine != nil {
		errs = append(errs, e.Engine)
	}
	return errs
}

// ifOther answers err unless it is the other one.
func ifOther(err, other error) error {
	if err == other {
		return nil
	}
	return err
}
