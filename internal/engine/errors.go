package engine

import (
	"errors"
	"fmt"

	"github.com/pawl-go/pawl/driver"
)

var (
	ErrHeld     = errors.New("held by somebody else")
	ErrLost     = errors.New("lease lost")
	ErrReleased = errors.New("lease already released")
	ErrDeadlock = errors.New("this context holds the lock already")

	errGone       = errors.New("the engine no longer knows the claim")
	errUnsettled  = errors.New("the engine has not replied to the change before this yet")
	errUnreported = errors.New("the store did not report")
	errPartLost   = errors.New("a part was lost while the rest was waited for")
)

// HeldError is the error of a call that does not wait. It matches ErrHeld.
type HeldError struct {
	Name   string
	Holder *driver.Entry // nil if the store did not tell
}

func (e *HeldError) Error() string        { return fmt.Sprintf("lock %q: %v", e.Name, ErrHeld) }
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// WaitError is why a call gave up: its context has ended.
type WaitError struct {
	Name    string
	Cause   error         // context.Cause
	Context error         // its Err
	Engine  error         // the store's last failure; nil if the lock was just busy
	Holder  *driver.Entry // who was in the way, as far as known
}

func (e *WaitError) Error() string   { return fmt.Sprintf("lock %q: %v", e.Name, e.Cause) }
func (e *WaitError) Unwrap() []error { return []error{e.Context, e.Cause} }

// blockerOf is the holder that err names, or nil.
func blockerOf(err error) *driver.Entry {
	if h, ok := errors.AsType[*HeldError](err); ok {
		return h.Holder
	}
	if w, ok := errors.AsType[*WaitError](err); ok {
		return w.Holder
	}
	return nil
}

// noReply is the engine's part in the error of a caller who left before its
// request got a reply.
func noReply(err error) error { return fmt.Errorf("no reply yet (%w)", err) }
