package pawl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/record"
)

// Election is a mutex whose holder, the leader, tells the others a value, such
// as its address. Like a Mutex it is a name with options. Candidates become
// leaders in the order in which they came; [Options] mean for a leadership what
// they mean for a lock.
//
// A leader's context ends, by its own clock, before another can lead. If the leader
// dies, the next candidate leads a TTL later.
type Election struct {
	client *Client
	record record.Handle[electionState]
}

// Election returns the election of that name. It does no I/O.
func (c *Client) Election(name string) *Election {
	return &Election{c, record.Handle[electionState]{Client: c.records(), Kind: driver.KindElection, Name: name, Expiry: driver.MaxTTL}}
}

// Name of the election.
func (el *Election) Name() string { return el.record.Name }

// maxValue bounds a leader's value.
const maxValue = 64 << 10

// electionState is what an election's record holds: what the leader of that
// token said last. Whether it still leads is seen from its claim alone.
type electionState struct {
	Token int64  `json:"token"`
	Claim string `json:"claim"`
	Value []byte `json:"value"`
}

// Leader is who leads.
type Leader struct {
	Token int64     // of its lease; 0: nobody leads
	Claim string    // the id of its claim
	Owner Owner     // the process that was elected
	Since time.Time // the election, by the local clock
	Value []byte    // what it said last
}

func (l *Leader) same(as *Leader) bool {
	return l.Token == as.Token && l.Claim == as.Claim && bytes.Equal(l.Value, as.Value)
}

// Campaign waits until it is elected, and has told the others value (up to 64
// KiB), or ctx ends. The leadership is a lease: work under its Context, and send
// its Token along.
//
// Errors are those of [Mutex.Lock]; ErrDeadlock means that ctx belongs to the
// leadership already. ErrInvalid: the value is too long. ErrMismatch: the name is
// in use for something else. Whatever the error, no claim stays behind.
func (el *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	ctx, call, err := el.record.Begin(ctx, "campaign in", checkValue(value))
	if err != nil {
		return nil, err
	}
	defer call.End()
	c := el.client
	key, err := c.key(ctx, driver.KindElection, el.record.Name, 1, 1)
	if err != nil {
		return nil, err
	}
	if err := c.core.Holds(ctx, key); err != nil {
		return nil, call.Wrap(err)
	}
	// Better now than after long waiting: whether the name can be used at all.
	if _, err := call.Load(ctx); err != nil {
		return nil, err
	}
	for {
		l, err := el.elect(ctx)
		if err != nil {
			return nil, err
		}
		if err = l.say(ctx, call, value); err == nil {
			l.writer.KeepUntil(l.Lease.Context(context.Background()))
			return l, nil
		}
		lost := l.Lease.Err()
		l.Lease.Unlock(ctx)
		if !errors.Is(lost, ErrLost) || ctx.Err() != nil {
			return nil, err
		}
		// Its time was over before the engine had taken the value: again.
	}
}

// elect takes the mutex under a claim that is not shared in this process: so it
// stands for one leader only, and its token in the store is the leader's.
func (el *Election) elect(ctx context.Context) (*Leadership, error) {
	c := el.client
	key, err := c.key(ctx, driver.KindElection, el.record.Name, 1, 1)
	if err != nil {
		return nil, err
	}
	lease, err := c.acquire(ctx, key.Alone(), c.terms, false)
	if err != nil {
		return nil, err
	}
	l := &Leadership{Lease: lease, election: el}
	l.writer = el.record.Writer(l.merge)
	return l, nil
}

func checkValue(value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("%w value of %d bytes: allowed are up to %d", ErrInvalid, len(value), maxValue)
	}
	return nil
}

// Leader returns who leads: who was elected, has told its value, and holds its
// lease at this moment by the engine's clock. ErrNoLeader: nobody does.
// ErrMismatch: the name is in use for something else. If the engine cannot be
// reached, it returns another error within some twenty seconds.
func (el *Election) Leader(ctx context.Context) (Leader, error) {
	ctx, call, err := el.record.Begin(ctx, "leader of", nil)
	if err != nil {
		return Leader{}, err
	}
	defer call.End()
	call.NoRetry()
	now, err := call.Load(ctx)
	if err != nil {
		return Leader{}, err
	}
	l, _, err := el.leader(ctx, call, now)
	if err == nil && l.Token == 0 {
		err = call.Wrap(ErrNoLeader)
	}
	return l, err
}

// leader returns who leads: the writer of the record, if its claim holds. It also
// returns after what time to look again if the record does not change.
func (el *Election) leader(ctx context.Context, call *record.Call[electionState], now record.Snapshot[electionState]) (Leader, time.Duration, error) {
	if now.Value == nil {
		return Leader{}, record.Poll, nil
	}
	q, err := call.Inspect(ctx)
	if err != nil {
		return Leader{}, 0, err
	}
	for _, c := range q.Claims {
		if c.ID == now.Value.Claim && c.State == driver.Holding && !c.Lingering {
			// One that lives renews its claim before its end. Some engines drop the
			// claims of the dead earlier, and operators may.
			again := max(min(c.TTL, record.Poll), driver.MinTTL/2)
			return Leader{now.Value.Token, c.ID, c.Owner, time.Now().Add(-c.Held), now.Value.Value}, again, nil
		}
	}
	return Leader{}, record.Poll, nil
}

// Observe yields who leads now, and then each change: another leader, another
// value, or that nobody leads (a Leader with Token 0), also if the leader died.
// Changes that follow each other quickly may be seen as one; the last one is
// never missed. While the engine cannot be reached it keeps trying, as
// [Options].Backoff says, and yields nothing.
//
// It ends with an error: a *[WaitError] when ctx ended, ErrClosed, or a permanent
// one.
func (el *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		ctx, call, err := el.record.Begin(ctx, "observe", nil)
		if err != nil {
			yield(Leader{}, err)
			return
		}
		defer call.End()
		var told *Leader
		for now, err := call.Load(ctx); ; {
			var l Leader
			var again time.Duration
			if err == nil {
				l, again, err = el.leader(ctx, call, now)
			}
			if err != nil {
				yield(Leader{}, err)
				return
			}
			if told == nil || !told.same(&l) {
				if told != nil && told.Claim == l.Claim {
					l.Since = told.Since
				}
				told = &l
				if !yield(l, nil) {
					return
				}
			}
			now, err = call.Await(ctx, now, again)
		}
	}
}
