package plain

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// doubts are the claims of which a request to take the key got no reply: it may come
// late, when the claim has left, and would take the key for nobody.
type doubts struct {
	mu     sync.Mutex
	until  map[string]time.Time // by claim: when what it takes has run out, unless it comes later still
	size   int                  // at which to look for those that never left
	work   sync.WaitGroup       // sweeps
	closed bool
}

func (d *doubts) add(id string, until time.Time) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = make(map[string]time.Time)
	}
	if len(d.until) >= d.size {
		maps.DeleteFunc(d.until, func(_ string, t time.Time) bool { return t.Before(now) })
		d.size = max(64, 2*len(d.until))
	}
	d.until[id] = until
}

// of reports whether there is a doubt about a claim; with settle it is none from now on.
func (d *doubts) of(id string, settle bool) (until time.Time, doubt bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	until, doubt = d.until[id]
	if settle {
		delete(d.until, id)
	}
	return until, doubt
}

// spawn runs f in a goroutine that close waits for.
func (d *doubts) spawn(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.work.Go(f)
	}
}

// close ends the sweeps, by end, and waits for them.
func (d *doubts) close(end func()) {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	end()
	d.work.Wait()
}

// takeFor is take for a caller whose context may end while the request is under way: the
// reply is waited for some time longer, for it is not known what a request does that was
// given up.
func (s *store) takeFor(ctx context.Context, c *driver.Claim, ttl time.Duration) (taken, error) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	defer context.AfterFunc(ctx, func() {
		if retry.Sleep(longer, retry.Cleanup) {
			cancel()
		}
	})()
	if err := s.ended(ctx); err != nil {
		return taken{}, err
	}
	sent := time.Now()
	got, err := s.take(longer, c, ttl)
	if err != nil {
		s.doubts.add(c.ID, sent.Add(ttl))
		switch {
		case s.ctx.Err() != nil:
			err = driver.ErrClosed
		case ctx.Err() != nil:
			err = ctx.Err()
		}
	}
	return got, err
}

// Pauses of a sweep.
const (
	firstSweep = 20 * time.Millisecond
	lastSweep  = 5 * time.Second
)

// sweep deletes the key, in the background, whenever the claim has it, until then.
func (s *store) sweep(key, id string, until time.Time) {
	s.doubts.spawn(func() {
		for pause := time.Duration(0); retry.Sleep(s.ctx, pause); pause = min(max(2*pause, firstSweep), lastSweep) {
			ctx, cancel := context.WithTimeout(s.ctx, retry.Cleanup)
			s.release(ctx, key, id, 0) // an error may pass until the next one
			cancel()
			if time.Now().After(until) {
				return
			}
		}
	})
}
