package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/retry"
)

// How a claim leaves the store, by what has ended it:
//
//	released              Engine.release sends the first Leave, for two seconds at the
//	                      most; if there is none, or an error, the next line
//	lost, given up, not   retire: Leave until there is a reply or a permanent error, or
//	adopted in time,      until departure.ends
//	closed
//	refused, or unknown   nothing
//	to the store
//	handed over           nothing
//
// If an Enter is unanswered (departure.again), it may enter the claim after that. So
// leaveAgain repeats the Leave until departure.ends, or Close, whatever was replied; of a claim
// that the store has refused or no longer knows, retire does so, and of one that was
// handed over guard.

// departure is a claim on its way out of the store.
type departure struct {
	ref     driver.Ref
	ttl     time.Duration
	lingers time.Time       // the name stays taken until then
	ends    time.Time       // when the store has forgotten the claim at the latest
	again   bool            // an Enter may still reach the store, and enter the claim for nobody
	told    *sync.WaitGroup // its holders must have been told before
	heard   chan struct{}   // closed when the claim has left, or Leave is given up; nil: nobody waits for that
	err     error           // why Leave was given up; the store may keep the claim until ends
	handed  *handed         // the claim was handed over, and must not leave before it is adopted
}

const (
	// leaveTimeout is how long an Acquire that gives up waits for its claim to
	// leave.
	leaveTimeout = 200 * time.Millisecond
	// maxRetirers bounds the goroutines that send Leave: if the store does not reply,
	// many claims may be lost at the same time.
	maxRetirers = 256
)

// retirer is the departures that the store has not been told of.
type retirer struct {
	mu      sync.Mutex
	queue   []*departure
	workers int
}

// retire sends Leave for a claim in the background.
func (e *Engine) retire(d *departure) {
	r := &e.retirer
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, d)
	if r.workers == maxRetirers {
		return
	}
	r.workers++
	if !e.spawn(e.retireAll) { // the engine is closed
		r.workers--
		for _, d := range r.queue {
			e.departed(d)
		}
		r.queue = nil
	}
}

func (e *Engine) retireAll() {
	r := &e.retirer
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.workers--
			r.queue = nil
			r.mu.Unlock()
			return
		}
		d := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		d.told.Wait()
		ctx, cancel := context.WithDeadline(e.ctx, d.ends)
		if ctx.Err() == nil {
			_, d.err = e.leave(ctx, d)
		}
		cancel()
		e.departed(d)
		if d.again {
			e.spawn(func() { e.leaveAgain(d) })
		}
	}
}

// leave sends Leave until the store replies, ctx ends or the claim has run out, and
// reports whether the store still knew the claim.
func (e *Engine) leave(ctx context.Context, d *departure) (known bool, err error) {
	for attempt := 1; ; attempt++ {
		r := d.ref
		r.Linger = max(0, time.Until(d.lingers))
		try, cancel := retry.WithTimeout(ctx, min(retry.Cleanup, d.ttl))
		was, err := e.store.Leave(try, r)
		cancel()
		if err == nil {
			// A repeat that finds nothing: the first one did it, its reply was
			// lost.
			return was == driver.Holding || attempt > 1, nil
		}
		pause := min(10*time.Millisecond<<min(attempt, 6), d.ttl/8)
		if driver.IsPermanent(err) || time.Until(d.ends) < pause || !retry.Sleep(ctx, pause) {
			return true, fmt.Errorf("release %q: %w", r.Name, err)
		}
	}
}

// leaveAgain repeats Leave for an Enter that got no reply: it may reach the store after
// the claim has left.
func (e *Engine) leaveAgain(d *departure) {
	ctx, cancel := context.WithDeadline(e.ctx, d.ends)
	defer cancel()
	again := *d // the call that released the claim may still read d
	again.ref.Used = 0
	for pause := 20 * time.Millisecond; retry.Sleep(ctx, pause); pause = min(2*pause, d.ttl/4) {
		e.leave(ctx, &again)
	}
}

// handed is a claim that was handed over.
type handed struct {
	look  driver.Ref // to see what became of it
	token int64      // that its grant had
}

// guard sends Leave, after the claim was handed over, for an Enter that got no reply:
// it may reach the store when the adopter has released the claim, and would enter it
// again, for nobody.
//
// Invariant: there is no Leave before the store has replied that the claim is adopted
// or over. From then on a claim with this mark belongs to nobody.
func (e *Engine) guard(d *departure) {
	e.spawn(func() {
		ctx, cancel := context.WithDeadline(e.ctx, d.ends)
		defer cancel()
		for pause := 20 * time.Millisecond; retry.Sleep(ctx, pause); pause = min(2*pause, d.ttl/4) {
			one, cancel := retry.WithTimeout(ctx, min(retry.Cleanup, d.ttl))
			a := e.renewOne(one, d.handed.look)
			cancel()
			if a.err == nil && (a.status.State != driver.Holding || a.status.Token != d.handed.token) {
				e.leave(ctx, d)
				e.leaveAgain(d)
				return
			}
		}
	})
}

// awaitLeft waits a moment for claims to leave.
func awaitLeft(left ...<-chan struct{}) {
	var late <-chan time.Time
	for _, l := range left {
		select {
		case <-l:
			continue
		default:
		}
		if late == nil {
			t := time.NewTimer(leaveTimeout)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-l:
		case <-late:
			return
		}
	}
}
