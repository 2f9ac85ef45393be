package pawl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/record"
	"github.com/pawl-go/pawl/internal/retry"
)

// party is one call of Barrier.Wait.
//
// It puts its claim into the record of the barrier, the last one empties the
// record for the next generation, and the others see that. Whether the others
// live is seen from their claims, which their clients renew: a party that is
// counted in the record and has no claim is dead, for it enters the claim first
// and leaves it last. Claims that vanish because the engine has lost its data
// look the same, and to break the barrier is right then too.
type party struct {
	b     *Barrier
	call  *record.Call[barrierState]
	lease *Lease
	claim string

	// The generation in which it is counted, or was to be at last.
	id         string // of the record
	generation int64
	tried      bool
	created    bool // the record: it was to be a new one

	counted bool
	place   int       // in the order of arrival, from 0
	alive   int64     // the version in which all who were counted were seen alive
	look    time.Time // when to look for them next
}

type barrierSnapshot = record.Snapshot[barrierState]

func (p *party) wait(ctx context.Context) error {
	now, err := p.arrive(ctx)
	if err == nil && p.place == p.b.parties-1 {
		if over, _ := now.Value.outcome(p.id, p.generation, p.claim); !over {
			now, err = p.act(ctx)
		}
	}
	for err == nil {
		over, outcome := now.Value.outcome(p.id, p.generation, p.claim)
		if over {
			return p.call.Wrap(outcome)
		}
		now, err = p.watch(ctx, now)
	}
	return p.leave(ctx, err)
}

// arrive counts this party, once there is room in a generation.
func (p *party) arrive(ctx context.Context) (barrierSnapshot, error) {
	p.look = time.Now().Add(firstLook)
	for {
		now, err := p.call.Change(ctx, p.join)
		if err != nil {
			return now, err
		}
		p.find(now.Value)
		switch {
		case p.counted:
			return now, nil
		case p.doubtful(now):
			now, err = p.examine(ctx, now)
		default: // the action of the generation before is running
			now, err = p.watch(ctx, now)
		}
		if err != nil {
			return now, err
		}
	}
}

// find finds this party in the record: it may have been counted by a request
// that seemed to fail.
func (p *party) find(s *barrierState) {
	if s == nil || p.counted {
		return
	}
	if at := slices.Index(s.Arrived, p.claim); at >= 0 {
		p.counted, p.place, p.id, p.generation = true, at, s.ID, s.Generation
	} else if at := slices.Index(s.Last, p.claim); at >= 0 {
		p.counted, p.place, p.id, p.generation = true, at, s.ID, s.Generation-1
	}
}

// join adds this party to the record.
func (p *party) join(now barrierSnapshot) (*barrierState, error) {
	s := now.Value
	if err := p.b.check(s); err != nil {
		return nil, err
	}
	if p.find(s); p.counted {
		return s, nil
	}
	switch another := s == nil || s.ID != p.id; {
	case !p.tried || another && p.created || !another && s.Generation <= p.generation+1:
	default:
		// Whether an earlier request of this party was carried out cannot be seen
		// any longer. If it was, its generation is over; if it comes again now, it
		// may be counted twice. (Another record than the one that it was to create is
		// no such case: somebody was faster.)
		return nil, fmt.Errorf("%w: it cannot be told whether this party was counted before the engine was out of reach", ErrBroken)
	}
	created := s == nil
	switch {
	case created:
		s = &barrierState{ID: driver.NewID(), Parties: p.b.parties, Generation: 1}
	case s.Broken != "":
		return nil, fmt.Errorf("%w: %s", ErrBroken, s.Broken)
	case s.full() || p.doubtful(now):
		return s, nil
	}
	p.id, p.generation, p.tried, p.created = s.ID, s.Generation, true, created
	n := *s
	n.Arrived = append(slices.Clip(n.Arrived), p.claim)
	if n.full() && p.b.action == nil {
		return n.next(), nil
	}
	return &n, nil
}

// doubtful reports whether others have waited for a while, and may be dead by
// now. Those who came within the last second are taken to live.
func (p *party) doubtful(now barrierSnapshot) bool {
	if now.Value == nil || len(now.Value.Arrived) == 0 || now.Value.full() || now.Value.Broken != "" || p.alive == now.Version {
		return false
	}
	return now.TTL == 0 || p.b.record.Expiry-now.TTL > firstLook
}

// act runs the barrier's action, after which the generation is over.
func (p *party) act(ctx context.Context) (barrierSnapshot, error) {
	if p.b.action != nil {
		why := "its action panicked" // or ended the goroutine
		defer func() {
			if why != "" {
				p.breakOwn(ctx, why)
			}
		}()
		err := p.b.action(ctx)
		if err != nil {
			why = "its action failed: " + err.Error()
			return barrierSnapshot{}, p.call.Wrap(fmt.Errorf("%w: its action failed: %w", ErrBroken, err))
		}
		why = ""
	}
	return p.call.Change(ctx, func(now barrierSnapshot) (*barrierState, error) {
		if over, _ := now.Value.outcome(p.id, p.generation, p.claim); over {
			return now.Value, nil
		}
		return now.Value.next(), nil
	})
}

// watch waits for a change of the record, and looks meanwhile whether all who are
// counted live.
func (p *party) watch(ctx context.Context, now barrierSnapshot) (barrierSnapshot, error) {
	pause := time.Until(p.look)
	if pause <= 0 {
		return p.examine(ctx, now)
	}
	return p.call.Watch(ctx, now, pause)
}

// examine looks whether all who are counted live, and breaks the barrier if
// not. It sets the time of the next look: when the first of the claims ends
// unless it is renewed before, for one that lives has renewed it by then; some
// engines drop the claims of the dead earlier than that.
func (p *party) examine(ctx context.Context, now barrierSnapshot) (barrierSnapshot, error) {
	q, err := p.call.Inspect(ctx)
	if err != nil {
		return now, err
	}
	ttl := make(map[string]time.Duration, len(q.Claims))
	for _, c := range q.Claims {
		ttl[c.ID] = c.TTL
	}
	pause := record.Poll
	if now.Value != nil {
		for at, id := range now.Value.Arrived {
			left, ok := ttl[id]
			if !ok && id != p.claim { // the end of its own claim is the end of its lease
				return p.breakAt(ctx, now, fmt.Sprintf("party %d, with claim %s, died or lost its claim", at+1, id))
			}
			pause = min(pause, left)
		}
	}
	p.alive = now.Version
	pause = max(pause, driver.MinTTL/2)
	p.look = time.Now().Add(pause + retry.Jitter(pause/8))
	return now, nil
}

// breakAt breaks the barrier for a party that is counted in a snapshot and has no
// claim.
//
// Invariant: only if the record is still that one. In another one it may be gone
// because its generation is over.
func (p *party) breakAt(ctx context.Context, at barrierSnapshot, why string) (barrierSnapshot, error) {
	return p.call.Change(ctx, func(now barrierSnapshot) (*barrierState, error) {
		if now.Version != at.Version || now.Value.Broken != "" {
			return now.Value, nil
		}
		return now.Value.broken(why), nil
	})
}

// leave ends the waiting with err, and breaks the barrier for the others; unless
// it turns out that they had all come: then the result is nil.
func (p *party) leave(ctx context.Context, err error) error {
	lost := p.lease.Err()
	switch {
	case errors.Is(lost, ErrClosed):
		err = p.call.Wrap(lost)
	case errors.Is(lost, ErrLost):
		err = p.call.Wrap(fmt.Errorf("%w: this party could not keep its claim: %w", ErrBroken, lost))
	}
	if !p.tried {
		return err // it was never counted
	}
	owner := p.b.client.owner()
	cause := context.Cause(ctx)
	if cause == nil {
		cause = err
	}
	why := fmt.Sprintf("a party left (%s): %v", describe(&Entry{ID: p.claim, Owner: owner}), cause)
	if now, e := p.breakOwn(ctx, why); e == nil && p.counted {
		if over, outcome := now.Value.outcome(p.id, p.generation, p.claim); over && outcome == nil {
			return nil
		}
	}
	return err
}

// breakOwn breaks this party's generation unless it is over. It does so under a
// context that has ended, too, for a moment: if the engine does not reply, the
// others will miss the claim.
func (p *party) breakOwn(ctx context.Context, why string) (barrierSnapshot, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retry.Cleanup)
	defer cancel()
	return p.call.Change(ctx, func(now barrierSnapshot) (*barrierState, error) {
		s := now.Value
		switch p.find(s); {
		case s == nil || s.ID != p.id || s.Generation != p.generation || s.Broken != "":
			return s, nil
		case p.counted:
			return s.broken(why), nil
		default:
			// A request that would count it may be on its way: a new version makes
			// that come too late.
			again := *s
			return &again, nil
		}
	})
}
