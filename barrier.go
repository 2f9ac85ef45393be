package pawl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
	"github.com/pawl-go/pawl/internal/record"
)

// Barrier lets a number of parties wait for each other, again and again: when
// the last of them has come, all go on together, and the next generation
// begins. No party can be ahead by a generation. Like a Mutex it is a name with
// options; all must use the same number of parties.
//
// A party is one call of Wait. If it ends early, by its context, by its death
// (noticed a TTL later), or because it cannot reach the engine for so long, the
// barrier is broken: all who wait get ErrBroken, and so do later calls, until Reset
// begins the next generation. So nobody goes on without the others, and nobody waits
// for the dead.
//
// Each party has a claim on a queue of the same name while it waits, so
// [Client.Inspect] shows who is there. What is kept of a barrier that nobody
// uses, being broken included, is forgotten after a day.
type Barrier struct {
	client  *Client
	record  record.Handle[barrierState]
	parties int
	action  func(context.Context) error
}

const (
	// maxBarrier bounds the parties of a barrier: each has a claim, and all are
	// told of each.
	maxBarrier = 1000

	// barrierLimit is that of the claims' queue. All parties hold beside each
	// other, those of the next generation too while those before them are on their
	// way out; and a lock of any other kind under the name is refused.
	barrierLimit = driver.MaxLimit - 1

	// firstLook is when a party first looks whether the others live: mostly they
	// are all there before.
	firstLook = time.Second
)

// Barrier returns the barrier of that name for 1 to 1,000 parties. It does no
// I/O.
func (c *Client) Barrier(name string, parties int) *Barrier {
	return &Barrier{c, record.Handle[barrierState]{Client: c.records(), Kind: driver.KindBarrier, Name: name, Expiry: expiry}, parties, nil}
}

// WithAction returns the same barrier with an action that the last party to come
// runs, once per generation, before any party goes on. If the action fails, or
// that party dies meanwhile, the barrier is broken. Its context ends when that
// party can no longer wait; it does not when another party leaves, or the barrier
// is reset, so the action of the next generation may run beside it then. Give all
// parties the same action.
func (b *Barrier) WithAction(action func(ctx context.Context) error) *Barrier {
	with := *b
	with.action = action
	return &with
}

// Name of the barrier.
func (b *Barrier) Name() string { return b.record.Name }

// Wait waits for the other parties, and returns how many of them came after
// this one: parties-1 to the first, 0 to the last. If there are more calls than
// parties, the rest belongs to the next generation.
//
// Errors: a *[WaitError] when ctx ended, with the engine's last error if that was
// the reason (then nobody can say whether the others went on); the barrier is
// broken by it. ErrBroken: another party died, left or failed, the barrier was
// reset, its claims were released ([Client.ForceRelease]), or the engine has lost
// them; the message says what is known. The party whose action failed gets both
// ErrBroken and that error. ErrMismatch: the barrier has another number of
// parties, or the name is in use for something else. ErrInvalid, ErrClosed,
// ErrUnsupported, and permanent errors of the engine.
func (b *Barrier) Wait(ctx context.Context) (index int, err error) {
	ctx, call, err := b.begin(ctx, "wait for")
	if err != nil {
		return 0, err
	}
	defer call.End()
	lease, err := b.enter(ctx)
	if err != nil {
		return 0, call.Wrap(err)
	}
	// Invariant: the claim lives until this party is not counted any longer, or
	// its generation is over. A party that is counted and has no claim is dead.
	defer lease.Unlock(ctx)
	p := &party{b: b, call: call, lease: lease, claim: lease.grant.ID()}
	if err := p.wait(lease.Context(ctx)); err != nil {
		return 0, err
	}
	return b.parties - 1 - p.place, nil
}

// enter enters a claim of this party's own.
func (b *Barrier) enter(ctx context.Context) (*Lease, error) {
	c := b.client
	key, err := c.key(ctx, driver.KindParty, b.record.Name, 1, barrierLimit)
	if err != nil {
		return nil, err
	}
	key.NoRenewal = false
	// It is a sign of life and no lock: observers get no events of it.
	return c.acquire(ctx, key.Alone(), &engine.Terms{Backoff: c.opts.Backoff}, false)
}

// Waiting returns how many parties wait now. ErrBroken: the barrier is broken;
// the other errors are those of Wait.
func (b *Barrier) Waiting(ctx context.Context) (int, error) {
	ctx, call, err := b.begin(ctx, "look at")
	if err != nil {
		return 0, err
	}
	defer call.End()
	now, err := call.Load(ctx)
	if err == nil {
		err = call.Wrap(b.check(now.Value))
	}
	switch s := now.Value; {
	case err != nil || s == nil:
		return 0, err
	case s.Broken != "":
		return 0, call.Wrap(fmt.Errorf("%w: %s", ErrBroken, s.Broken))
	default:
		return len(s.Arrived), nil
	}
}

// Size returns how many parties the barrier is for, whatever the number of this
// handle: for operators. 0: nobody has waited for it, or it is forgotten. Errors
// are those of Wait, but for another number.
func (b *Barrier) Size(ctx context.Context) (int, error) {
	ctx, call, err := b.begin(ctx, "size of")
	if err != nil {
		return 0, err
	}
	defer call.End()
	now, err := call.Load(ctx)
	if err != nil || now.Value == nil {
		return 0, err
	}
	return now.Value.Parties, nil
}

// Reset breaks the present generation, if anybody waits in it (they get
// ErrBroken) or it is broken already, and begins the next one. Errors are those
// of Wait; repeating it may break a generation that has begun since.
func (b *Barrier) Reset(ctx context.Context) error {
	ctx, call, err := b.begin(ctx, "reset")
	if err != nil {
		return err
	}
	defer call.End()
	var first *barrierState
	_, err = call.Change(ctx, func(now record.Snapshot[barrierState]) (*barrierState, error) {
		s := now.Value
		if s == nil {
			return nil, nil
		}
		if first == nil {
			first = s
		}
		if err := b.check(s); err != nil {
			return nil, err
		}
		if s.ID != first.ID || s.Generation != first.Generation || len(s.Arrived) == 0 && s.Broken == "" {
			return s, nil // it is over, by this call or otherwise
		}
		return s.reset(), nil
	})
	return err
}

func (b *Barrier) begin(ctx context.Context, what string) (context.Context, *record.Call[barrierState], error) {
	var err error
	if b.parties < 1 || b.parties > maxBarrier {
		err = fmt.Errorf("%w number of parties %d: allowed are 1 to %d", ErrInvalid, b.parties, maxBarrier)
	}
	return b.record.Begin(ctx, what, err)
}

func (b *Barrier) check(s *barrierState) error {
	if s != nil && s.Parties != b.parties {
		return &MismatchError{Name: b.Name(), HaveKind: driver.KindBarrier, WantKind: driver.KindBarrier, Have: int64(s.Parties), Want: int64(b.parties)}
	}
	return nil
}

// barrierState is what a barrier's record holds.
type barrierState struct {
	ID         string   `json:"id"` // a record that was made anew is another barrier
	Parties    int      `json:"parties"`
	Generation int64    `json:"generation"`        // from 1
	Arrived    []string `json:"arrived,omitempty"` // the claims of those that wait in it, first come first
	Broken     string   `json:"broken,omitempty"`  // why, if it is
	// Last is Arrived of the generation before, for a party whose reply was lost.
	Last []string `json:"last,omitempty"`
	// Ruined are the latest generations that did not end well; of those up to
	// Forgotten nobody knows any longer.
	Ruined    []int64 `json:"ruined,omitempty"`
	Forgotten int64   `json:"forgotten,omitempty"`
}

// maxRuined bounds how many broken generations a party may sleep through and
// still learn what became of its own.
const maxRuined = 100

func (s *barrierState) full() bool { return len(s.Arrived) == s.Parties }

func (s *barrierState) ruined(generation int64) bool {
	return generation <= s.Forgotten || slices.Contains(s.Ruined, generation)
}

// next is the beginning of the next generation.
func (s *barrierState) next() *barrierState {
	n := *s
	n.Generation++
	n.Last, n.Arrived, n.Broken = s.Arrived, nil, ""
	return &n
}

func (s *barrierState) reset() *barrierState {
	n := s.next()
	n.Ruined = append(slices.Clip(n.Ruined), s.Generation)
	if len(n.Ruined) > maxRuined {
		n.Forgotten, n.Ruined = n.Ruined[0], n.Ruined[1:]
	}
	return n
}

func (s *barrierState) broken(why string) *barrierState {
	const most = 300 // bytes
	n := *s
	n.Broken = why[:min(len(why), most)]
	return &n
}

// outcome returns whether that generation is over, and what its party with that claim
// returns then.
//
// Invariant: a generation that was left behind by next and not by reset had all
// its parties; what happens to the record afterwards does not change that.
func (s *barrierState) outcome(id string, generation int64, claim string) (over bool, err error) {
	switch {
	case s == nil || s.ID != id:
		err = errors.New("its record was deleted or lost")
	case s.Generation > generation && s.ruined(generation):
		err = errors.New("it was broken, and has been reset since")
	case s.Generation > generation:
	case s.Generation < generation || !slices.Contains(s.Arrived, claim):
		err = errors.New("the engine has gone back to an older state")
	case s.Broken != "":
		err = errors.New(s.Broken)
	default:
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return true, err
}
