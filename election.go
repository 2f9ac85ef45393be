package pawl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Election is a mutex whose holder, the leader, tells the others a value, such
// as its address. Like a Mutex it is a name and options only. Candidates become
// leaders in the order in which they came; [Options] mean for a term of office
// what they mean for a lock (MaxHold is its longest duration).
//
// A leader's context ends, by its own clock, before another can lead. One that
// dies is followed a TTL later by the next candidate.
type Election struct {
	doc document[electionState]
}

// Election returns the election of that name. It does no I/O.
func (c *Client) Election(name string) *Election {
	return &Election{document[electionState]{c, "election", name, driver.MaxTTL}}
}

// Name of the election.
func (el *Election) Name() string { return el.doc.name }

// maxValue bounds what a leader tells.
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
	Token int64        // of its lease; 0: nobody leads
	Claim string       // the id of its claim
	Owner driver.Owner // the process that was elected
	Since time.Time    // the election, by the local clock
	Value []byte       // what it said last
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
// used for something else. Whatever the error, no claim stays behind.
func (el *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	e, err := el.doc.begin(ctx, "campaign in")
	if err != nil {
		return nil, err
	}
	if err := checkValue(e, value); err != nil {
		return nil, err
	}
	c := el.doc.client
	if t := held(ctx, c.core, driver.KindElection, el.doc.name); t != nil {
		if _, err := t.reenter(1, false); err != nil {
			return nil, fmt.Errorf("%s: %w", e.what, err)
		}
	}
	// Better now than after long waiting: whether the name can be used at all.
	if err := el.look(ctx, e); err != nil {
		return nil, err
	}
	for {
		l, err := el.elect(ctx)
		if err != nil {
			return nil, err
		}
		if err = l.say(ctx, e, value); err == nil {
			l.keep(l.Lease.Context(context.Background()))
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

func (el *Election) look(ctx context.Context, e *effort) error {
	ctx, cancel := el.doc.client.core.within(ctx)
	defer cancel()
	_, err := el.doc.get(ctx, e)
	return err
}

// elect takes the mutex under a claim that is not shared in this process: so it
// stands for one leader only, and its token in the store is the leader's.
func (el *Election) elect(ctx context.Context) (*Leadership, error) {
	c := el.doc.client
	key, err := c.key(ctx, driver.KindElection, el.doc.name, 1, 1)
	if err != nil {
		return nil, err
	}
	lease, err := c.core.takeAlone(ctx, key, &c.opts, false)
	if err != nil {
		return nil, err
	}
	return &Leadership{Lease: lease, election: el, speaks: make(chan struct{}, 1)}, nil
}

func checkValue(e *effort, value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("%s: %w value of %d bytes: allowed are up to %d", e.what, ErrInvalid, len(value), maxValue)
	}
	return nil
}

// Leader returns who leads: who was elected, has told its value, and has its
// lease at this moment by the engine's clock. ErrNoLeader: nobody. Any other error
// means that the engine was not reached, after some twenty seconds at the most, or
// ErrMismatch, that the name is used for something else.
func (el *Election) Leader(ctx context.Context) (Leader, error) {
	e, err := el.doc.begin(ctx, "leader of")
	if err != nil {
		return Leader{}, err
	}
	e.single = true
	p, err := el.doc.load(ctx, e)
	var l Leader
	if err == nil {
		l, _, err = el.leader(ctx, e, p)
	}
	if err == nil && l.Token == 0 {
		err = ErrNoLeader
	}
	if err != nil {
		return Leader{}, fmt.Errorf("%s: %w", e.what, err)
	}
	return l, nil
}

// leader reports whether the one who wrote page p leads, and when to look again
// at the latest although the record has not changed.
func (el *Election) leader(ctx context.Context, e *effort, p page[electionState]) (Leader, time.Duration, error) {
	if p.value == nil {
		return Leader{}, watchful, nil
	}
	c := el.doc.client
	ctx, cancel := e.bound(ctx)
	defer cancel()
	q, err := c.core.store.Inspect(ctx, el.doc.name)
	if err != nil {
		return Leader{}, 0, err
	}
	for _, c := range q.Claims {
		if c.ID == p.value.Claim && c.State == driver.Holding && !c.Lingering {
			// One that lives renews its claim before its end. Some engines drop the
			// claims of the dead earlier, and operators may.
			again := max(min(c.TTL, heartbeat), driver.MinTTL/2)
			return Leader{p.value.Token, c.ID, c.Owner, time.Now().Add(-c.Held), p.value.Value}, again, nil
		}
	}
	return Leader{}, watchful, nil
}

// Observe yields who leads now, and then each change: another leader, another
// value, or that nobody leads (a Leader with Token 0), also if the leader died.
// Changes that follow each other quickly may be seen as one; the last one is
// never missed. While the engine cannot be reached it keeps trying, as
// [Options].Backoff says, and yields nothing.
//
// It ends with an error: a *[WaitError] when ctx ended, ErrClosed, or one that
// trying again cannot mend.
func (el *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		e, err := el.doc.begin(ctx, "observe")
		if err != nil {
			yield(Leader{}, err)
			return
		}
		ctx, cancel := el.doc.client.core.within(ctx)
		defer cancel()
		var told *Leader
		p, err := el.doc.load(ctx, e)
		for {
			var now Leader
			var again time.Duration
			if err == nil {
				now, again, err = el.leader(ctx, e, p)
			}
			if err != nil {
				if err = e.failed(ctx, err); err != nil {
					yield(Leader{}, err)
					return
				}
				p, err = el.doc.load(ctx, e)
				continue
			}
			e.went()
			if told == nil || !told.same(&now) {
				if told != nil && told.Claim == now.Claim {
					now.Since = told.Since
				}
				told = &now
				if !yield(now, nil) {
					return
				}
			}
			if p, err = el.doc.await(ctx, e, p, again); err != nil {
				yield(Leader{}, err)
				return
			}
		}
	}
}
