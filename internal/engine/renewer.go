package engine

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/clock"
	"github.com/pawl-go/pawl/internal/retry"
)

// The renewer renews all claims of an engine, waiting and holding, in batches,
// and ends the leases whose time has come. It is one goroutine, however many
// claims there are; each batch under way is one more.
//
// Renewing a waiting claim is its Heartbeat, and finds grants whose message
// was lost.
type renewer struct {
	kick  chan struct{}
	start time.Time

	slept    atomic.Int64 // clock.Slept when it was measured last
	measured atomic.Int64 // that time, since start

	mu    sync.Mutex
	dates dates
	armed time.Time // when run looks next
}

// date is when the renewer looks at a claim. It is guarded by its mutex.
type date struct {
	due   time.Time
	slack time.Duration // how much earlier it may look
	index int           // in dates, from 1
}

const (
	// maxBatch bounds the claims in one Renew.
	maxBatch = 500
	// remeasure is how old a measurement of the machine's sleep may be.
	remeasure = 10 * time.Millisecond
	// sleepStep is the least sleep that counts: less may be the measurement's error, with which
	// deadlines would waver. It is below the 2 ms of driver.Deadline.
	sleepStep = time.Millisecond
	// look bounds the renewer's sleep while there are claims: timers stand
	// still while the machine sleeps, so it looks whether that happened.
	look = time.Second
)

func newRenewer() *renewer {
	r := &renewer{kick: make(chan struct{}, 1), start: time.Now()}
	r.slept.Store(int64(clock.Slept()))
	return r
}

// at returns the instant of now. The machine's sleep was measured at most a few
// milliseconds before. If it has slept since, the deadline of a request that is sent
// now comes out too early, never too late.
func (r *renewer) at(now time.Time) instant {
	if at := now.Sub(r.start); at-time.Duration(r.measured.Load()) >= remeasure {
		if slept := int64(clock.Slept()); slept-r.slept.Load() >= int64(sleepStep) {
			r.slept.Store(slept)
		}
		r.measured.Store(int64(at))
	}
	return instant{now, time.Duration(r.slept.Load())}
}

// watch notes the claim's next date. The line's mutex is held.
func (r *renewer) watch(cl *claim) {
	due, slack, ok := cl.due(r.at(time.Now()))
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d := &cl.date
	d.due, d.slack = due, slack
	if d.index == 0 {
		heap.Push(&r.dates, cl)
	} else {
		heap.Fix(&r.dates, d.index-1)
	}
	if due.Before(r.armed) {
		r.armed = due
		select {
		case r.kick <- struct{}{}:
		default:
		}
	}
}

func (r *renewer) remove(cl *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cl.date.index > 0 {
		heap.Remove(&r.dates, cl.date.index-1)
	}
}

// arm returns how long to sleep.
func (r *renewer) arm() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	d := time.Hour
	if len(r.dates) > 0 {
		d = max(0, min(look, r.dates[0].date.due.Sub(now)))
	}
	r.armed = now.Add(d)
	return d
}

// take returns the claims whose date has come, or nearly: renewals that are
// due soon go along with those that are due.
func (r *renewer) take(now time.Time) (due []*claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.dates) > 0 && !r.dates[0].date.due.Add(-r.dates[0].date.slack).After(now) {
		due = append(due, heap.Pop(&r.dates).(*claim))
	}
	return due
}

// renew is the renewer's goroutine.
func (e *Engine) renew(ctx context.Context) {
	r := e.renewer
	timer := time.NewTimer(0)
	defer timer.Stop()
	slept := e.instant().slept
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		case <-timer.C:
		}
		at := e.instant()
		if at.slept > slept {
			slept = at.slept
			e.hurryAll()
		}
		e.round(at)
		timer.Reset(r.arm())
	}
}

// round looks at the claims whose date has come, and renews those that need it: in
// one Renew for each TTL, of maxBatch at the most.
func (e *Engine) round(at instant) {
	batches := make(map[time.Duration]*batch)
	for _, cl := range e.renewer.take(at.now) {
		var fx effects
		ref, renew := cl.tick(&fx, e.begin(cl.line))
		ttl, span := cl.ttl, cl.span()
		e.commit(cl.line, &fx)
		if !renew {
			continue
		}
		b := batches[ttl]
		if b == nil {
			b = &batch{ttl: ttl, span: span}
			batches[ttl] = b
		}
		b.span = min(b.span, span)
		b.claims = append(b.claims, cl)
		b.refs = append(b.refs, ref)
		if len(b.refs) == maxBatch {
			delete(batches, ttl)
			e.send(b)
		}
	}
	for _, b := range batches {
		e.send(b)
	}
}

// batch is renewals of claims that share a TTL.
type batch struct {
	ttl    time.Duration
	span   time.Duration // the shortest of them
	claims []*claim
	refs   []driver.Ref

	mu       sync.Mutex
	reported []bool
}

// first notes that claim i was reported, and reports whether it was not before.
func (b *batch) first(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	again := b.reported[i]
	b.reported[i] = true
	return !again
}

// send renews in a goroutine of its own, so that a slow store does not delay the
// renewer, and waits for the replies only so long that there is time for more tries.
func (e *Engine) send(b *batch) {
	e.spawn(func() {
		ctx, cancel := context.WithTimeout(e.ctx, min(b.span/4, retry.Longest))
		defer cancel()
		b.reported = make([]bool, len(b.refs))
		sent := e.instant()
		report := func(i int, st driver.Status, err error) {
			if !b.first(i) {
				return
			}
			cl, r := b.claims[i], &b.refs[i]
			if r.TTL < b.ttl {
				st.Deadline = time.Time{} // it was just a look
			}
			var fx effects
			at := e.begin(cl.line)
			cl.renewed(&fx, at, r.ID, answer{sent, st, err})
			e.commit(cl.line, &fx)
		}
		e.store.Renew(ctx, b.refs, report)
		for i := range b.refs {
			report(i, driver.Status{}, errUnreported)
		}
	})
}

// renewOne renews a claim alone, outside the renewer's rounds.
func (e *Engine) renewOne(ctx context.Context, r driver.Ref) answer {
	a := answer{sent: e.instant(), err: errUnreported}
	e.store.Renew(ctx, []driver.Ref{r}, func(_ int, st driver.Status, err error) { a.status, a.err = st, err })
	return a
}

// hurry has the claim renewed as soon as possible.
func (e *Engine) hurry(cl *claim) {
	var fx effects
	cl.hurry(&fx, e.begin(cl.line))
	e.commit(cl.line, &fx)
}

func (e *Engine) hurryAll() {
	for _, cl := range e.allClaims() {
		e.hurry(cl)
	}
}

// dates orders claims by their dates.
type dates []*claim

func (d dates) Len() int           { return len(d) }
func (d dates) Less(i, j int) bool { return d[i].date.due.Before(d[j].date.due) }
func (d dates) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].date.index, d[j].date.index = i+1, j+1
}
func (d *dates) Push(x any) {
	cl := x.(*claim)
	*d = append(*d, cl)
	cl.date.index = len(*d)
}
func (d *dates) Pop() any {
	old := *d
	cl := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	cl.date.index = 0
	return cl
}
