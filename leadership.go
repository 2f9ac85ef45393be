package pawl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// Leadership is the lease of a leader.
type Leadership struct {
	*Lease
	election *Election
	speaks   chan struct{} // taken by whoever writes the value
	value    []byte        // told last, or tried to
}

// Proclaim replaces the value that the others see, up to 64 KiB. It keeps trying
// while the engine cannot be reached.
//
// ErrLost, ErrReleased, ErrClosed: this one leads no longer, and the value is not
// seen. ErrInvalid: it is too long. A *[WaitError], when ctx ended, or another
// error of the engine: it may be seen or not.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	e, err := l.election.doc.begin(ctx, "proclaim in")
	if err != nil {
		return err
	}
	if err := checkValue(e, value); err != nil {
		return err
	}
	return l.say(ctx, e, value)
}

// say writes the value into the record. One at a time: else the older one could
// be written last.
func (l *Leadership) say(ctx context.Context, e *effort, value []byte) error {
	ctx, cancel := context.WithCancel(ctx) // so that the lease's context is forgotten, too
	defer cancel()
	ctx, done := l.election.doc.client.core.within(l.Lease.Context(ctx))
	defer done()
	select {
	case l.speaks <- struct{}{}:
	case <-ctx.Done():
		return l.unsaid(ctx, e, e.over(ctx))
	}
	defer func() { <-l.speaks }()
	l.value = bytes.Clone(value)
	return l.unsaid(ctx, e, l.write(ctx, e))
}

// unsaid makes of an error that of the lease, if that is why.
func (l *Leadership) unsaid(ctx context.Context, e *effort, err error) error {
	if lost := l.Lease.Err(); err != nil && ctx.Err() != nil && lost != nil {
		return fmt.Errorf("%s: %w", e.what, lost)
	}
	return err
}

// write puts the value into the record.
//
// Invariant: a record with a greater token is never overwritten, so what the
// record says of its token is the last word of that leader.
func (l *Leadership) write(ctx context.Context, e *effort) error {
	doc := &l.election.doc
	mine := &electionState{Token: l.Token(), Claim: l.Lease.t.cl.id, Value: l.value}
	_, err := doc.change(ctx, e, func(p page[electionState]) (*electionState, error) {
		s := p.value
		switch err := l.Lease.Err(); {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", e.what, err)
		case s == nil || s.Token < mine.Token:
		case s.Claim != mine.Claim:
			return nil, fmt.Errorf("%s: %w: token %d has led since, this one has %d", e.what, ErrLost, s.Token, mine.Token)
		case bytes.Equal(s.Value, mine.Value) && !doc.fading(p):
			return s, nil
		}
		return mine, nil
	})
	return err
}

// keep writes the value again, now and then, until ctx, the lease's, ends: the
// record has an expiry, so that nothing is left of elections that nobody holds
// any longer.
func (l *Leadership) keep(ctx context.Context) {
	doc := &l.election.doc
	timer := time.AfterFunc(doc.expiry/8, func() {
		doc.client.core.spawn(func() {
			select {
			case l.speaks <- struct{}{}:
			case <-ctx.Done():
				return
			}
			e := &effort{client: doc.client, name: doc.name, what: fmt.Sprintf("keep the value of election %q", doc.name)}
			_ = l.write(ctx, e) // if it failed, there is time for more
			<-l.speaks
			l.keep(ctx)
		})
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// Resign ends the leadership: it is Unlock, and takes the value away, so that
// those who observe see at once that nobody leads. Errors are those of
// [Lease.Unlock].
func (l *Leadership) Resign(ctx context.Context) error {
	began := time.Now()
	err := l.Lease.Unlock(ctx)
	if errors.Is(err, ErrReleased) {
		return err
	}
	// The next one need not wait for this, nor does it matter if it fails: the
	// claim is gone. It takes no longer than an Unlock may.
	doc := &l.election.doc
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), began.Add(unlockPatience))
	defer cancel()
	e := &effort{client: doc.client, name: doc.name, what: fmt.Sprintf("resign from election %q", doc.name)}
	_, _ = doc.change(ctx, e, func(p page[electionState]) (*electionState, error) {
		if p.value == nil || p.value.Claim != l.Lease.t.cl.id {
			return p.value, nil
		}
		return nil, nil
	})
	return err
}

// Unlock is Resign.
func (l *Leadership) Unlock(ctx context.Context) error { return l.Resign(ctx) }
