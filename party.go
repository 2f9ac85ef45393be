package pawl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
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
	b      *Barrier
	effort *effort
	lease  *Lease
	claim  string

	// The generation in which it has come, or has tried to at last.
	id         string // of the record
	generation int64
	tried      bool
	made       bool // the record: it was to be a new one

	come  bool
	place int       // in the order of coming, from 0
	sound int64     // the version in which all who were counted were seen alive
	look  time.Time // when to look for them next
}

func (p *party) wait(ctx context.Context) error {
	pg, err := p.arrive(ctx)
	if err == nil && p.place == p.b.parties-1 {
		if over, _ := pg.value.fate(p.id, p.generation, p.claim); !over {
			pg, err = p.act(ctx)
		}
	}
	for err == nil {
		over, fate := pg.value.fate(p.id, p.generation, p.claim)
		if over {
			return p.explain(fate)
		}
		pg, err = p.watch(ctx, pg)
	}
	return p.leave(ctx, err)
}

func (p *party) explain(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", p.effort.what, err)
	}
	return err
}

// arrive counts this party, once there is room in a generation.
func (p *party) arrive(ctx context.Context) (page[barrierState], error) {
	p.look = time.Now().Add(firstLook)
	for {
		pg, err := p.b.doc.change(ctx, p.effort, p.join)
		if err != nil {
			return pg, err
		}
		p.locate(pg.value)
		switch {
		case p.come:
			return pg, nil
		case p.dubious(pg):
			pg, err = p.examine(ctx, pg)
		default: // the action of the generation before is running
			pg, err = p.watch(ctx, pg)
		}
		if err != nil {
			return pg, err
		}
	}
}

// locate finds this party in the record: it may have been counted by a request
// that seemed to fail.
func (p *party) locate(s *barrierState) {
	if s == nil || p.come {
		return
	}
	if at := slices.Index(s.Arrived, p.claim); at >= 0 {
		p.come, p.place, p.id, p.generation = true, at, s.ID, s.Generation
	} else if at := slices.Index(s.Last, p.claim); at >= 0 {
		p.come, p.place, p.id, p.generation = true, at, s.ID, s.Generation-1
	}
}

// join adds this party to the record.
func (p *party) join(pg page[barrierState]) (*barrierState, error) {
	s := pg.value
	if err := p.b.check(p.effort, s); err != nil {
		return nil, err
	}
	if p.locate(s); p.come {
		return s, nil
	}
	switch another := s == nil || s.ID != p.id; {
	case !p.tried || another && p.made || !another && s.Generation <= p.generation+1:
	default:
		// Whether an earlier request of this party was carried out cannot be seen
		// any longer. If it was, its generation is over; if it comes again now, it
		// may be counted twice. (Another record than the one that it was to make is
		// no such case: somebody was faster.)
		return nil, p.explain(fmt.Errorf("%w: it cannot be told whether this party was counted before the engine was out of reach", ErrBroken))
	}
	made := s == nil
	switch {
	case made:
		s = &barrierState{ID: driver.NewID(), Parties: p.b.parties, Generation: 1}
	case s.Broken != "":
		return nil, p.explain(fmt.Errorf("%w: %s", ErrBroken, s.Broken))
	case s.full() || p.dubious(pg):
		return s, nil
	}
	p.id, p.generation, p.tried, p.made = s.ID, s.Generation, true, made
	n := *s
	n.Arrived = append(slices.Clip(n.Arrived), p.claim)
	if n.full() && p.b.action == nil {
		return n.next(), nil
	}
	return &n, nil
}

// dubious tells that others have waited for a while, and may be dead by now.
// Those who came within the last second are taken to live.
func (p *party) dubious(pg page[barrierState]) bool {
	if pg.value == nil || len(pg.value.Arrived) == 0 || pg.value.full() || pg.value.Broken != "" || p.sound == pg.version {
		return false
	}
	return pg.ttl == 0 || p.b.doc.expiry-pg.ttl > firstLook
}

// act runs the barrier's action, after which the generation is over.
func (p *party) act(ctx context.Context) (page[barrierState], error) {
	if p.b.action != nil {
		why := "its action panicked" // or ended the goroutine
		defer func() {
			if why != "" {
				p.ruin(ctx, why)
			}
		}()
		err := p.b.action(ctx)
		if err != nil {
			why = "its action failed: " + err.Error()
			return page[barrierState]{}, p.explain(fmt.Errorf("%w: its action failed: %w", ErrBroken, err))
		}
		why = ""
	}
	return p.b.doc.change(ctx, p.effort, func(pg page[barrierState]) (*barrierState, error) {
		if over, _ := pg.value.fate(p.id, p.generation, p.claim); over {
			return pg.value, nil
		}
		return pg.value.next(), nil
	})
}

// watch waits for a change of the record, and sees to what must be seen to
// meanwhile.
func (p *party) watch(ctx context.Context, pg page[barrierState]) (page[barrierState], error) {
	doc := &p.b.doc
	switch pause := time.Until(p.look); {
	case pause <= 0:
		return p.examine(ctx, pg)
	case doc.fading(pg):
		return doc.change(ctx, p.effort, func(now page[barrierState]) (*barrierState, error) {
			if !doc.fading(now) {
				return now.value, nil
			}
			again := *now.value
			return &again, nil
		})
	default:
		return doc.await(ctx, p.effort, pg, doc.patience(pg, pause))
	}
}

// examine looks whether all who are counted live, and breaks the barrier if
// not. It sets the time of the next look: when the first of the claims ends
// unless it is renewed before, for one that lives has renewed it by then; some
// engines drop the claims of the dead earlier than that.
func (p *party) examine(ctx context.Context, pg page[barrierState]) (page[barrierState], error) {
	q, err := p.inspect(ctx)
	if err != nil {
		return pg, p.effort.failed(ctx, err)
	}
	p.effort.went()
	ttl := make(map[string]time.Duration, len(q.Claims))
	for _, c := range q.Claims {
		ttl[c.ID] = c.TTL
	}
	pause := heartbeat
	if pg.value != nil {
		for at, id := range pg.value.Arrived {
			left, ok := ttl[id]
			if !ok && id != p.claim { // of its own claim's end the lease tells
				return p.missing(ctx, pg, fmt.Sprintf("party %d, with claim %s, died or lost its claim", at+1, id))
			}
			pause = min(pause, left)
		}
	}
	p.sound = pg.version
	pause = max(pause, driver.MinTTL/2)
	p.look = time.Now().Add(pause + jitter(pause/8))
	return pg, nil
}

func (p *party) inspect(ctx context.Context) (driver.Queue, error) {
	c := p.b.doc.client
	ctx, cancel := p.effort.bound(ctx)
	defer cancel()
	return c.core.store.Inspect(ctx, p.b.doc.name)
}

// missing breaks the barrier for a party that is counted on page pg and has no
// claim.
//
// Invariant: only on that very page. On another one it may be gone because its
// generation is over.
func (p *party) missing(ctx context.Context, pg page[barrierState], why string) (page[barrierState], error) {
	return p.b.doc.change(ctx, p.effort, func(now page[barrierState]) (*barrierState, error) {
		if now.version != pg.version || now.value.Broken != "" {
			return now.value, nil
		}
		return now.value.broken(why), nil
	})
}

// leave ends the waiting with err, and breaks the barrier for the others; unless
// it turns out that they had all come: then the result is nil.
func (p *party) leave(ctx context.Context, err error) error {
	lost := p.lease.Err()
	switch {
	case errors.Is(lost, ErrClosed):
		err = p.explain(lost)
	case errors.Is(lost, ErrLost):
		err = p.explain(fmt.Errorf("%w: this party could not keep its claim: %w", ErrBroken, lost))
	}
	if !p.tried {
		return err // it was never counted
	}
	owner := p.b.doc.client.core.owner
	owner.Label = p.b.doc.client.opts.Label
	cause := context.Cause(ctx)
	if cause == nil {
		cause = err
	}
	why := fmt.Sprintf("a party left (%s): %v", describe(&driver.Entry{ID: p.claim, Owner: owner}), cause)
	if pg, e := p.ruin(ctx, why); e == nil && p.come {
		if over, fate := pg.value.fate(p.id, p.generation, p.claim); over && fate == nil {
			return nil
		}
	}
	return err
}

// ruin breaks this party's generation unless it is over. It does so under a
// context that has ended, too, for a moment: if the engine does not reply, the
// others will miss the claim.
func (p *party) ruin(ctx context.Context, why string) (page[barrierState], error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockPatience)
	defer cancel()
	return p.b.doc.change(ctx, p.effort, func(pg page[barrierState]) (*barrierState, error) {
		s := pg.value
		switch p.locate(s); {
		case s == nil || s.ID != p.id || s.Generation != p.generation || s.Broken != "":
			return s, nil
		case p.come:
			return s.broken(why), nil
		default:
			// A request that would count it may be on its way: a new version makes
			// that come too late.
			again := *s
			return &again, nil
		}
	})
}
