package pawl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-go/pawl/internal/record"
	"github.com/pawl-go/pawl/internal/retry"
)

// Leadership is the lease of a leader.
type Leadership struct {
	*Lease
	election *Election
	writer   *record.Writer[electionState]
}

// Proclaim replaces the value that the others see, up to 64 KiB. It keeps trying
// while the engine cannot be reached.
//
// ErrLost, ErrReleased, ErrClosed: the leadership has ended, and the value is not
// seen. ErrInvalid: it is too long. After a *[WaitError], when ctx ended, or another
// error of the engine it may be seen or not.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	ctx, call, err := l.election.record.Begin(ctx, "proclaim in", checkValue(value))
	if err != nil {
		return err
	}
	defer call.End()
	return l.say(ctx, call, value)
}

// say writes the value into the record. The lease keeps a context until ctx ends.
func (l *Leadership) say(ctx context.Context, call *record.Call[electionState], value []byte) error {
	ctx = l.Lease.Context(ctx)
	err := l.writer.Write(ctx, call, &electionState{Token: l.Token(), Claim: l.Lease.grant.ID(), Value: bytes.Clone(value)})
	if lost := l.Lease.Err(); err != nil && ctx.Err() != nil && lost != nil {
		return call.Wrap(lost)
	}
	return err
}

// merge returns what the record is to hold when this leader says mine.
//
// Invariant: a record with a greater token is never overwritten, so what the
// record says of its token is the last word of that leader.
func (l *Leadership) merge(now record.Snapshot[electionState], mine *electionState) (*electionState, error) {
	s := now.Value
	switch err := l.Lease.Err(); {
	case err != nil:
		return nil, err
	case s == nil || s.Token < mine.Token:
	case s.Claim != mine.Claim:
		return nil, fmt.Errorf("%w: token %d has led since, this one has %d", ErrLost, s.Token, mine.Token)
	case bytes.Equal(s.Value, mine.Value) && !now.NearlyExpired:
		return s, nil
	}
	return mine, nil
}

// Resign ends the leadership: it unlocks the lease and removes the value, so that
// observers see at once that nobody leads. Errors are those of [Lease.Unlock].
func (l *Leadership) Resign(ctx context.Context) error {
	began := time.Now()
	err := l.Lease.Unlock(ctx)
	if errors.Is(err, ErrReleased) {
		return err
	}
	// The next one need not wait for this, nor does it matter if it fails: the
	// claim is gone. It takes no longer than an Unlock may.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), began.Add(retry.Cleanup))
	defer cancel()
	call := l.election.record.Call("resign from")
	_, _ = call.Change(ctx, func(now record.Snapshot[electionState]) (*electionState, error) {
		if now.Value == nil || now.Value.Claim != l.Lease.grant.ID() {
			return now.Value, nil
		}
		return nil, nil
	})
	return err
}

// Unlock is Resign.
func (l *Leadership) Unlock(ctx context.Context) error { return l.Resign(ctx) }
