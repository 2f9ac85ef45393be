package pawl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/record"
	"github.com/pawl-go/pawl/internal/retry"
)

// Latch holds back those who wait for it until a number of parties have counted
// down; then it is open, and stays so. Like a Mutex it is a name with options.
// The first call of CountDown or Wait, by any process, creates the latch
// with that handle's count; all must use the same.
//
// A party that crashes before it counts down leaves the latch shut: bound Wait
// by a context. A party that crashes after that is counted.
//
// It is a record and no lock: a latch and a Mutex or Semaphore of the same name do
// not notice each other, for to look for a record at each Lock would cost a request.
// Latches, barriers, elections and onces all have records: a name can be one of
// these (ErrMismatch).
//
// A latch lives on while somebody waits, and for a day (see [Expiring])
// after it was created, counted down or waited for last; or until it is
// deleted. After that the name is a new latch.
type Latch struct {
	record record.Handle[latchState]
	count  int64
}

// maxParties bounds the count of a latch. Each party takes 12 bytes of the
// record that keeps it, which every CountDown writes.
const maxParties = 10_000

// expiry is how long a record is kept that nobody uses.
const expiry = 24 * time.Hour

// LatchOption is an option of [Client.Latch].
type LatchOption func(*Latch)

// Expiring keeps a latch for d after it was used last, instead of a day: 100 ms
// to 7 days, or 0 for as long as it is not deleted. Of handles with different spans
// the longest counts. An engine whose records cannot expire keeps it until it is
// deleted.
func Expiring(d time.Duration) LatchOption {
	return func(l *Latch) { l.record.Expiry = d }
}

// Latch returns the latch of that name for that many parties: 0 (it is open) to
// 10,000. It does no I/O.
func (c *Client) Latch(name string, count int64, opts ...LatchOption) *Latch {
	l := &Latch{record.Handle[latchState]{Client: c.records(), Kind: driver.KindLatch, Name: name, Expiry: expiry}, count}
	for _, set := range opts {
		set(l)
	}
	return l
}

// Name of the latch.
func (l *Latch) Name() string { return l.record.Name }

// CountDown counts the party down, and returns how many are missing then; at 0
// the latch is open. The same party counts once, however often it calls, so a
// call that failed can be repeated, by a process started anew too. An empty
// party is a new one with each call.
//
// Errors: a *[WaitError] when ctx ended before the engine had replied, and
// permanent errors of the engine: the party may be counted or not. ErrMismatch: the
// latch has another count, or the name is in use for something else. ErrInvalid,
// ErrClosed, ErrUnsupported.
func (l *Latch) CountDown(ctx context.Context, party string) (left int64, err error) {
	ctx, call, err := l.begin(ctx, "count down")
	if err != nil {
		return 0, err
	}
	defer call.End()
	if party == "" {
		party = driver.NewID() // a reply that is lost inside this call must not count twice
	}
	m := markOf(party)
	now, err := l.change(ctx, call, func(s *latchState) (changed bool) {
		switch {
		case s.Open || s.has(m):
			return false
		case s.left() == 1:
			s.Open, s.Parties = true, nil
		default:
			s.Parties = append(s.Parties, m[:]...)
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	return now.Value.left(), nil
}

// Count returns how many parties are missing; 0: the latch is open. It does not
// create the latch. Errors are those of [Latch.CountDown].
func (l *Latch) Count(ctx context.Context) (int64, error) {
	ctx, call, err := l.begin(ctx, "count of")
	if err != nil {
		return 0, err
	}
	defer call.End()
	now, err := call.Load(ctx)
	switch {
	case err != nil:
		return 0, err
	case now.Value == nil:
		return l.count, nil
	}
	return now.Value.left(), call.Wrap(l.check(now.Value))
}

// Size returns how many parties the latch was made for, whatever the count of this
// handle: for operators. 0: there is none, or it was made open. Errors are those of
// [Latch.CountDown], but for another count.
func (l *Latch) Size(ctx context.Context) (int64, error) {
	ctx, call, err := l.begin(ctx, "size of")
	if err != nil {
		return 0, err
	}
	defer call.End()
	now, err := call.Load(ctx)
	if err != nil || now.Value == nil {
		return 0, err
	}
	return now.Value.Count, nil
}

// Wait waits until the latch is open. While the engine cannot be reached it
// keeps trying, as [Options].Backoff says.
//
// Errors: a *[WaitError] when ctx ended, with the engine's last error if that was
// the reason. ErrBroken: the latch was deleted, or lost by the engine, while it
// was waited for (or it expired, while this process could not reach the engine for
// so long); whether it was open before is not known. ErrMismatch: the latch has
// another count, or the name is in use for something else. ErrInvalid, ErrClosed,
// ErrUnsupported, and permanent errors of the engine.
func (l *Latch) Wait(ctx context.Context) error {
	ctx, call, err := l.begin(ctx, "wait for")
	if err != nil {
		return err
	}
	defer call.End()
	// Wait creates the latch if need be: while there is none, it could not see that one
	// was created, opened and expired.
	now, err := l.change(ctx, call, func(*latchState) (changed bool) { return false })
	if err != nil {
		return err
	}
	for id := now.Value.ID; ; {
		switch {
		case now.Value == nil || now.Value.ID != id:
			return call.Wrap(fmt.Errorf("%w: it was deleted or lost", ErrBroken))
		case now.Value.Open:
			return nil
		}
		now, err = call.Watch(ctx, now, record.Poll+retry.Jitter(record.Poll/4))
		if err != nil {
			return err
		}
	}
}

// Delete removes the latch. Those who wait for it get ErrBroken; the next call with
// the name creates a new one. A latch that is not there is no error.
func (l *Latch) Delete(ctx context.Context) error {
	ctx, call, err := l.begin(ctx, "delete")
	if err != nil {
		return err
	}
	defer call.End()
	var id string
	_, err = call.Change(ctx, func(now record.Snapshot[latchState]) (*latchState, error) {
		if now.Value == nil || id != "" && now.Value.ID != id {
			return now.Value, nil // it is gone, and maybe another one begun
		}
		id = now.Value.ID
		return nil, l.check(now.Value)
	})
	return err
}

func (l *Latch) begin(ctx context.Context, what string) (context.Context, *record.Call[latchState], error) {
	var err error
	switch d := l.record.Expiry; {
	case l.count < 0 || l.count > maxParties:
		err = fmt.Errorf("%w count %d: allowed are 0 to %d", ErrInvalid, l.count, maxParties)
	case d != 0 && (d < driver.MinTTL || d > driver.MaxTTL):
		err = fmt.Errorf("%w expiry %v: allowed are 0 (none), and %v to %v", ErrInvalid, d, driver.MinTTL, driver.MaxTTL)
	}
	return l.record.Begin(ctx, what, err)
}

// change creates the latch if it is not there, and applies f.
//
// Invariant: nobody is counted by the request that creates the latch. That one
// may come late, when the latch has been opened and deleted since: it then makes
// one that is as good as new.
func (l *Latch) change(ctx context.Context, call *record.Call[latchState], f func(*latchState) (changed bool)) (record.Snapshot[latchState], error) {
	now, err := call.Load(ctx)
	for err == nil {
		created := false
		now, err = call.ChangeFrom(ctx, now, func(now record.Snapshot[latchState]) (*latchState, error) {
			if created = now.Value == nil; created {
				return &latchState{ID: driver.NewID(), Count: l.count, Open: l.count == 0}, nil
			}
			if err := l.check(now.Value); err != nil {
				return nil, err
			}
			next := *now.Value
			next.Parties = slices.Clip(next.Parties)
			if !f(&next) {
				return now.Value, nil
			}
			return &next, nil
		})
		if !created {
			break
		}
	}
	return now, err
}

func (l *Latch) check(s *latchState) error {
	if s.Count != l.count {
		return &MismatchError{Name: l.Name(), HaveKind: driver.KindLatch, WantKind: driver.KindLatch, Have: s.Count, Want: l.count}
	}
	return nil
}

// latchState is what a latch's record holds.
type latchState struct {
	ID    string `json:"id"` // a latch that was made anew under the name is another
	Count int64  `json:"count"`
	// Parties that have counted down: their marks, one after the other.
	Parties []byte `json:"parties,omitempty"`
	Open    bool   `json:"open,omitempty"` // then it is not kept who they were
}

func (s *latchState) left() int64 {
	if s.Open {
		return 0
	}
	return s.Count - int64(len(s.Parties)/len(mark{}))
}

func (s *latchState) has(m mark) bool {
	for have := range slices.Chunk(s.Parties, len(m)) {
		if bytes.Equal(have, m[:]) {
			return true
		}
	}
	return false
}

// mark stands for the id of a party, which may be of any length. That two of
// 10,000 get the same is less likely than 1 in 10^13.
type mark [9]byte

func markOf(party string) mark {
	sum := sha256.Sum256([]byte(party))
	return mark(sum[:len(mark{})])
}
