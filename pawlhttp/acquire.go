package pawlhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// acquireRequest asks for a lock.
type acquireRequest struct {
	Name  string `json:"name"`
	Claim string `json:"claim"`
	kindRequest
	TTLMS    int64 `json:"ttl_ms"`
	WaitMS   int64 `json:"wait_ms"`
	Overtake bool  `json:"overtake"`
	owner
}

// claim returns what to enter, and how long to wait for it.
func (c *call) claim(q *acquireRequest) (cl driver.Claim, wait time.Duration, err error) {
	cl = driver.Claim{Name: q.Name, ID: q.Claim, Overtake: q.Overtake}
	if cl.Kind, cl.Units, cl.Limit, err = q.kindRequest.of(); err != nil {
		return cl, 0, err
	}
	if cl.TTL, err = ttlOf(q.TTLMS); err != nil {
		return cl, 0, err
	}
	if wait, err = millis("wait_ms", q.WaitMS, 0, c.opts.MaxWait); err != nil {
		return cl, 0, err
	}
	if cl.Owner, err = q.owner.of(c.r); err != nil {
		return cl, 0, err
	}
	cl.Try = wait == 0
	return cl, wait, cl.Check()
}

// acquire enters a claim and waits for its grant, as long as the caller wants and is
// there. The claim stays in the queue when the request ends.
func (c *call) acquire() error {
	var q acquireRequest
	if err := c.decode(&q); err != nil {
		return err
	}
	cl, wait, err := c.claim(&q)
	if err != nil {
		return err
	}
	if err := c.may(Lock, cl.Name); err != nil {
		return err
	}
	if wait > 0 {
		leave, err := c.admit(&c.waiting, c.opts.MaxWaiting, "acquires that wait")
		if err != nil {
			return err
		}
		defer leave()
	}
	ctx, cancel := c.within()
	defer cancel()
	sent := time.Now()
	st, err := c.store.Enter(ctx, cl)
	if err != nil {
		return err
	}
	ref := driver.Ref{Name: cl.Name, ID: cl.ID, TTL: cl.TTL}
	switch st.State {
	case driver.Refused:
		return held(fmt.Sprintf("%q is held", cl.Name), st.Blocker)
	case driver.Waiting:
		if wait > 0 {
			c.counts.told(ref, st, c.arrived)
			st, sent, err = c.await(ref, st, sent, c.arrived.Add(wait))
		}
	case driver.Holding:
		st, sent, err = c.keep(ctx, ref)
	}
	if err != nil {
		return err
	}
	c.counts.told(ref, st, c.arrived)
	return c.tell(ref, cl.Kind, cl.Units, st, sent)
}

// await waits until the claim holds or end has come, and renews it meanwhile.
//
// Invariant: it never enters the claim. The caller may have released it by another
// request, and would not know of one that came back.
func (c *call) await(r driver.Ref, st driver.Status, sent, end time.Time) (driver.Status, time.Time, error) {
	beat := r.TTL / 3
	last, failures := st, 0 // last is what renewed it
	for {
		next := sent.Add(beat)
		if at := last.Recheck; !at.IsZero() && at.Before(next) {
			next = at
		}
		got, err := c.listen(r, earlier(next, end))
		switch {
		case c.r.Context().Err() != nil:
			return st, sent, errAway
		case err == nil && got.State == driver.Waiting && time.Now().Before(next):
			if last.Ahead = got.Ahead; got.Blocker != nil {
				last.Blocker = got.Blocker
			}
			if c.over(end) {
				return last, sent, nil
			}
			continue
		case c.over(end) && (err != nil || got.State == driver.Waiting):
			return last, sent, nil
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			if driver.IsPermanent(err) {
				return st, sent, err
			}
			retry.Sleep(c.r.Context(), min(beat, 20*time.Millisecond<<min(failures, 6)))
		}
		// It may hold, or its heartbeat is due: renewing it tells.
		ctx, cancel := context.WithTimeout(c.r.Context(), min(retry.Timeout(failures), r.TTL))
		got, at, err := c.keep(ctx, r)
		cancel()
		switch {
		case err == nil && got.State == driver.Waiting:
			last, sent, failures = got, at, 0
		case err == nil:
			return got, at, nil
		case driver.IsPermanent(err), c.over(end):
			return st, sent, err
		default:
			failures++
			retry.Sleep(c.r.Context(), min(beat, 20*time.Millisecond<<min(failures, 6)))
		}
	}
}

// listen waits for news of a claim, until then or until the server ends.
func (c *call) listen(r driver.Ref, until time.Time) (driver.Status, error) {
	ctx, cancel := context.WithDeadline(c.r.Context(), until)
	defer cancel()
	stop := context.AfterFunc(c.open, cancel)
	defer stop()
	return c.store.Wait(ctx, r)
}

// over reports whether there is no waiting any longer.
func (c *call) over(end time.Time) bool {
	return c.open.Err() != nil || !time.Now().Before(end)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// admit counts one of those of which there may be only so many at a time, until leave
// is called.
func (c *call) admit(n interface{ Add(int64) int64 }, most int, what string) (leave func(), err error) {
	if c.open.Err() != nil {
		return nil, errClosing
	}
	if n.Add(1) > int64(most) {
		n.Add(-1)
		return nil, &problem{status: http.StatusServiceUnavailable, code: "busy", text: fmt.Sprintf("too many %s: allowed are %d", what, most), after: 1}
	}
	return func() { n.Add(-1) }, nil
}
