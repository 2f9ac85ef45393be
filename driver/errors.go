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
	// ErrLimit: the name is in use with another kind or limit; see [LimitError].
	ErrLimit = errors.New("another kind or limit is in force")
	// ErrFull: the engine has no room for another claim in the queue of this
	// name; nothing was changed.
	ErrFull = errors.New("too many claims for one name")
)

// LimitError is why a claim was not taken whose kind or limit is not that of the
// queue, as when a mutex and a semaphore, or two semaphores of different size,
// share a name; or whose units are more than the limit has become by SetLimit. It
// matches ErrLimit.
type LimitError struct {
	Name               string
	HaveKind, WantKind Kind  // of the queue, and the claim's, if these differ; else 0
	Have, Want         int64 // the limit of the queue, and the claim's
	Units              int64 // of the claim, if these are too many; else 0
}

// Is makes errors.Is(err, ErrLimit) true.
func (e *LimitError) Is(target error) bool { return target == ErrLimit }

func (e *LimitError) Error() string {
	if e.HaveKind != e.WantKind {
		return fmt.Sprintf("%q is in use as %s, asked for as %s: use one kind of lock per name", e.Name, e.HaveKind, e.WantKind)
	}
	if e.Units > 0 {
		return fmt.Sprintf("%q has limit %d now, %d units were asked for", e.Name, e.Have, e.Units)
	}
	return fmt.Sprintf("%q is in use with limit %d, asked for with limit %d: use one kind and size of lock per name", e.Name, e.Have, e.Want)
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
// [Permanent], or is one of this package's errors.
func IsPermanent(err error) bool {
	var p *permanentError
	var l *LimitError
	return errors.As(err, &p) || errors.As(err, &l) ||
		errors.Is(err, ErrUnsupported) || errors.Is(err, ErrFull) || errors.Is(err, ErrClosed) || errors.Is(err, ErrInvalid)
}
