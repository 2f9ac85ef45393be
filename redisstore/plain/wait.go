package plain

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// A claim that waits is known to this store alone: the server hears of it only when it
// takes the key.

// waiters are the claims that wait.
type waiters struct {
	mu    sync.Mutex
	byID  map[string]*waiter
	sweep int // size at which to look for those that nobody renews
}

type waiter struct {
	claim   driver.Claim
	until   time.Time // when it runs out unless it is renewed
	blocker driver.Entry
	at      time.Time // that it was so
}

// get returns the claim if it still waits. The mutex is held.
func (w *waiters) get(id string) *waiter {
	e := w.byID[id]
	if e != nil && !e.until.After(time.Now()) {
		delete(w.byID, id)
		return nil
	}
	return e
}

// knows reports whether the claim waits.
func (w *waiters) knows(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.get(id) != nil
}

// enter notes that the claim waits, until then at the least.
func (w *waiters) enter(c *driver.Claim, until time.Time, blocker *driver.Entry) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.get(c.ID)
	if e == nil {
		if w.byID == nil {
			w.byID = make(map[string]*waiter)
		}
		if len(w.byID) >= w.sweep {
			maps.DeleteFunc(w.byID, func(_ string, e *waiter) bool { return !e.until.After(now) })
			w.sweep = max(64, 2*len(w.byID))
		}
		e = &waiter{claim: *c}
		w.byID[c.ID] = e
	}
	if until.After(e.until) {
		e.until = until
	}
	e.blocker, e.at = *blocker, now
}

// renew lets the claim wait until then at the least, and reports whether it waits.
func (w *waiters) renew(id string, until time.Time) (blocker *driver.Entry, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.get(id)
	if e == nil {
		return nil, false
	}
	if until.After(e.until) {
		e.until = until
	}
	b, since := e.blocker, time.Since(e.at)
	b.Held, b.Age, b.TTL = b.Held+since, b.Age+since, max(0, b.TTL-since)
	return &b, true
}

// leave ends the waiting, and reports whether the claim waited.
func (w *waiters) leave(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waited := w.get(id) != nil
	delete(w.byID, id)
	return waited
}

// waiting returns a claim that waits, and until when.
func (w *waiters) waiting(id string) (c driver.Claim, until time.Time, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.get(id); e != nil {
		return e.claim, e.until, true
	}
	return c, until, false
}

// saw notes who holds what the claim waits for.
func (w *waiters) saw(id string, k *seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.byID[id]; e != nil {
		e.blocker, e.at = *k.entry(), time.Now()
	}
}

// held is what has become of a claim that waited while a request took the key for it.
type held uint8

const (
	absent  held = iota // it did not wait, or waits no longer
	granted             // it waited until now
	renewed             // it was renewed meanwhile, for longer than it has the key: it still waits
)

// hold ends the waiting of a claim that has the key until then at the least.
//
// Invariant: a claim holds for as long as it was last renewed, as its owner believes. So
// what was told of a claim that waits is told of the key before it holds.
func (w *waiters) hold(id string, until time.Time) held {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.byID[id]
	switch {
	case e == nil:
		return absent
	case e.until.After(until):
		return renewed
	}
	delete(w.byID, id)
	return granted
}

// firstPause is the shortest between two looks.
const firstPause = time.Millisecond

func (s *store) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	if r.Mark != "" {
		return driver.Status{}, nil
	}
	begun := time.Now()
	for {
		c, _, waits := s.waiters.waiting(r.ID)
		k, err := s.look(ctx, s.key(r.Name))
		if err != nil {
			return driver.Status{}, err
		}
		v, mine := k.mine(r.ID)
		switch {
		case !waits && mine && !v.lingering:
			return driver.Status{State: driver.Holding, Token: v.token}, nil
		case !waits:
			return driver.Status{}, nil
		case !k.there || mine:
			if st, done, err := s.grab(ctx, &c); done || err != nil {
				return st, err
			}
		default:
			s.waiters.saw(r.ID, k)
		}
		if err := s.pause(ctx, time.Since(begun), k); err != nil {
			return driver.Status{}, err
		}
	}
}

// look reads the key.
func (s *store) look(ctx context.Context, key string) (*seen, error) {
	rs, err := s.pipe(ctx, key, []string{"GET", key}, []string{"PTTL", key})
	if err == nil {
		err = firstErr(rs)
	}
	if err != nil {
		return nil, err
	}
	k := &seen{}
	return k, k.fill(&rs[0], &rs[1], nil)
}

// grab takes the key, which was free, for a claim that waits. It returns false if
// somebody was faster.
func (s *store) grab(ctx context.Context, c *driver.Claim) (st driver.Status, done bool, err error) {
	for {
		_, until, waits := s.waiters.waiting(c.ID)
		if !waits {
			return st, true, nil
		}
		got, err := s.takeFor(ctx, c, max(time.Until(until), time.Millisecond))
		switch {
		case err != nil:
			return st, false, err
		case got.token == 0:
			return st, false, nil
		}
		switch s.waiters.hold(c.ID, until) {
		case granted:
			return driver.Status{State: driver.Holding, Token: got.token}, true, nil
		case absent: // it left, or ran out: the key is nobody's
			s.sweep(s.key(c.Name), c.ID, until)
			return st, true, nil
		}
	}
}

// pause waits until the next look: ever longer, never in step with others, and no longer
// than the holder's key can last.
func (s *store) pause(ctx context.Context, waited time.Duration, k *seen) error {
	d := min(max(waited/4, firstPause), s.most)
	d -= retry.Jitter(d / 2)
	if k.there && k.left >= 0 {
		d = min(d, time.Duration(k.left+1)*time.Millisecond)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return driver.ErrClosed
	}
}
