// Package record keeps a value with a version in a store: it is loaded, changed
// by compare-and-swap, and watched. Latches, barriers, elections and what is done
// once are such values.
//
// A [Handle] names a record and does no I/O. A [Call] is one call of the user's
// on it: it sends again what got no reply, until its context ends.
package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Poll bounds how long to wait for a change before the record is read anyway: the
// message may be lost, or the engine be away without its client saying so.
const Poll = 5 * time.Second

// Client is what records need of the client that they belong to. All fields are
// required.
type Client struct {
	Store driver.Store
	// TTL bounds how long a reply is waited for.
	TTL time.Duration
	// Backoff returns how long to wait after so many failures in a row, or false
	// to give up.
	Backoff func(failures int, err error) (time.Duration, bool)
	// Retrying is told of each failure before Backoff is.
	Retrying func(ctx context.Context, name string, failures int, err error)
	// Usable returns why the client cannot be used, or nil.
	Usable func() error
	// Closed ends when the client is closed.
	Closed context.Context
	// Go runs f in a goroutine that the client waits for when it is closed, or
	// returns false if it is closed already.
	Go func(f func()) bool
	// Ended makes the error of a call whose context has ended.
	Ended func(ctx context.Context, call Interrupted) error
}

// Interrupted is a call whose context has ended.
type Interrupted struct {
	Name   string // of the record
	What   string // the call was to do
	Early  bool   // the context had ended before the call
	Engine error  // why the engine could not be asked at last, or nil
}

// Handle names a record that holds a T, as JSON. It must not be changed once it
// is in use.
type Handle[T any] struct {
	Client *Client
	Kind   driver.Kind // what the name is used for
	Name   string
	// Expiry of the record, from each change of it; 0 for none. If somebody else
	// has given the record a longer one, it keeps that; if the engine cannot expire
	// records, it stays until it is deleted.
	Expiry time.Duration
	// Exact makes Expiry exact. If the engine cannot expire records, that is
	// ErrUnsupported.
	Exact bool
}

// Snapshot is a record as it was when it was read.
type Snapshot[T any] struct {
	Value         *T            // nil if there is no record; never changed
	Version       int64         // 0 if there is no record
	TTL           time.Duration // left; 0 if it does not expire
	NearlyExpired bool          // less than half of the handle's Expiry is left
}

// format is the version of the JSON. A greater one must not be guessed at.
const format = 1

type envelope[T any] struct {
	Kind   string `json:"kind"`
	Format int    `json:"format"`
	Data   *T     `json:"data"`
}

// Begin begins a call of the user's, to do what: "count down", say. It checks what
// can be checked without I/O; invalid is what the caller has found wrong. The
// context that it returns ends with the client too; the caller must call End.
func (h *Handle[T]) Begin(ctx context.Context, what string, invalid error) (context.Context, *Call[T], error) {
	c := h.Call(what)
	if ctx.Err() != nil {
		return nil, nil, h.Client.Ended(ctx, Interrupted{Name: h.Name, What: c.what, Early: true})
	}
	if err := cmp.Or(driver.CheckName(h.Name), h.Client.Usable(), invalid); err != nil {
		return nil, nil, c.Wrap(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.Client.Closed, func() { cancel(driver.ErrClosed) })
	c.end = func() {
		stop()
		cancel(nil)
	}
	return ctx, c, nil
}

// Call returns a call that needs no End: one that goes on when the user's is
// over, for example.
func (h *Handle[T]) Call(what string) *Call[T] {
	return &Call[T]{record: h, what: fmt.Sprintf("%s %s %q", what, h.Kind, h.Name), end: func() {}}
}

// load reads the record.
func (h *Handle[T]) load(ctx context.Context) (Snapshot[T], error) {
	r, err := h.Client.Store.Load(ctx, h.Name)
	if err != nil {
		return Snapshot[T]{}, err
	}
	return h.decode(r)
}

// swap replaces the value of now by next, or deletes the record if next is nil.
// With ErrConflict it returns the record that is there.
func (h *Handle[T]) swap(ctx context.Context, now Snapshot[T], next *T) (Snapshot[T], error) {
	r := driver.Record{Name: h.Name, Version: now.Version}
	if next != nil {
		value, err := json.Marshal(envelope[T]{h.Kind.String(), format, next})
		if err != nil {
			return now, driver.Permanent(err)
		}
		r.Value, r.TTL = value, h.Expiry
		if !h.Exact && now.Value != nil && (now.TTL == 0 || r.TTL > 0 && now.TTL > r.TTL) {
			r.TTL = now.TTL
		}
	}
	got, err := h.Client.Store.CompareAndSwap(ctx, r)
	if r.TTL > 0 && !h.Exact && errors.Is(err, driver.ErrUnsupported) {
		r.TTL = 0
		got, err = h.Client.Store.CompareAndSwap(ctx, r)
	}
	switch {
	case errors.Is(err, driver.ErrConflict):
		there, unreadable := h.decode(got)
		return there, cmp.Or(unreadable, err)
	case next == nil:
		return Snapshot[T]{}, err
	}
	return h.snapshot(next, got.Version, r.TTL), err
}

func (h *Handle[T]) snapshot(value *T, version int64, ttl time.Duration) Snapshot[T] {
	return Snapshot[T]{value, version, ttl, ttl > 0 && (h.Expiry == 0 || ttl < h.Expiry/2)}
}

func (h *Handle[T]) decode(r driver.Record) (Snapshot[T], error) {
	if r.Version == 0 {
		return Snapshot[T]{}, nil
	}
	var e envelope[T]
	if json.Unmarshal(r.Value, &e) == nil && e.Kind == h.Kind.String() && e.Format <= format && e.Data != nil {
		return h.snapshot(e.Data, r.Version, r.TTL), nil
	}
	return Snapshot[T]{}, h.mismatch(r.Value)
}

// mismatch returns what is wrong with a value.
func (h *Handle[T]) mismatch(value []byte) error {
	var e envelope[json.RawMessage]
	m := &driver.MismatchError{Name: h.Name}
	switch err := json.Unmarshal(value, &e); {
	case err != nil || e.Kind == "" || e.Data == nil:
		m.Reason = "its record is not one of pawl's"
	case e.Kind != h.Kind.String():
		for _, k := range []driver.Kind{driver.KindElection, driver.KindLatch, driver.KindBarrier, driver.KindOnce} {
			if k.String() == e.Kind {
				m.HaveKind, m.WantKind = k, h.Kind
				return m
			}
		}
		m.Reason = fmt.Sprintf("its record is of kind %q, which this pawl does not know", e.Kind)
	case e.Format > format:
		m.Reason = fmt.Sprintf("its record has format %d, written by a newer pawl; this one knows up to %d", e.Format, format)
	default:
		m.Reason = fmt.Sprintf("its record is damaged: %v", json.Unmarshal(*e.Data, new(T)))
	}
	return m
}
