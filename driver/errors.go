package driver

import (
	"errors"
	"fmt"
)

var (
	// ErrUnsupported: the engine cannot do this.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrClosed: the store, or the client in front of it, was closed.
	ErrClosed = errors.New("client or store is closed")
	// ErrConflict: the record has another version.
	ErrConflict = errors.New("record was changed by somebody else")
	// ErrInvalid: an argument is not allowed; nothing was sent.
	ErrInvalid = errors.New("invalid")
	// ErrMismatch: the name is in use with another kind, limit or size; see
	// [MismatchError].
	ErrMismatch = errors.New("the name is in use otherwise")
	// ErrFull: the engine has no room for another claim in the queue of this
	// name; nothing was changed.
	ErrFull = errors.New("too many claims for one name")
)

// MismatchError is why a name cannot be used as it was asked for. It is used with
// another kind or limit, as when a mutex and a semaphore, or two semaphores of
// different size, share it; or the claim's units are more than the limit has become
// by SetLimit; or its record is of another kind or size. It matches ErrMismatch.
type MismatchError struct {
	Name               string
	HaveKind, WantKind Kind   // of the name, and asked for; 0 if only the limit of a queue differs
	Have, Want         int64  // the limit or size of the name, and asked for
	Units              int64  // of the claim, if these are too many; else 0
	Reason             string // why the record cannot be used, if not for its kind or size
}

// Is makes errors.Is(err, ErrMismatch) true.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch }

func (e *MismatchError) Error() string {
	switch {
	case e.Reason != "":
		return fmt.Sprintf("%q cannot be used: %s", e.Name, e.Reason)
	case e.HaveKind != e.WantKind:
		return fmt.Sprintf("%q is in use as %s, asked for as %s: use one kind per name", e.Name, e.HaveKind, e.WantKind)
	case e.Units > 0:
		return fmt.Sprintf("%q has limit %d now, %d units were asked for", e.Name, e.Have, e.Units)
	case e.HaveKind != 0:
		return fmt.Sprintf("%q is in use as %s of size %d, asked for with size %d: use one size per name", e.Name, e.HaveKind, e.Have, e.Want)
	}
	return fmt.Sprintf("%q is in use with limit %d, asked for with limit %d: use one limit per name", e.Name, e.Have, e.Want)
}

// NameError is an error that concerns one name only, of those that a List reads.
type NameError struct {
	Name string
	Err  error
}

func (e *NameError) Error() string { return fmt.Sprintf("%q: %v", e.Name, e.Err) }
func (e *NameError) Unwrap() error { return e.Err }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error that repeating the request cannot mend.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

// IsPermanent reports whether repeating is useless: err was marked with
// [Permanent], or is one of this package's errors but ErrConflict.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p) || errors.Is(err, ErrMismatch) || errors.Is(err, ErrUnsupported) ||
		errors.Is(err, ErrFull) || errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid)
}
