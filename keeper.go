package pawl

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/clock"
)

// The keeper renews all claims of a client, waiting and holding, in batches,
// and ends the leases whose time has come. It is one goroutine, however many
// claims there are; each batch under way is one more.
//
// Renewing a waiting claim is its heartbeat, and finds grants whose message
// was lost.
type keeper struct {
	core  *core
	kick  chan struct{}
	start time.Time

	slept    atomic.Int64 // clock.Slept when it was measured last
	measured atomic.Int64 // that time, since start

	mu    sync.Mutex
	heap  claimHeap
	armed time.Time // when run looks next
}

const (
	// maxBatch bounds the claims in one Renew.
	maxBatch = 500
	// remeasure is how old a measurement of the machine's sleep may be.
	remeasure = 10 * time.Millisecond
	// look bounds the keeper's sleep while there are claims: timers stand
	// still while the machine sleeps, so it looks whether that happened.
	look = time.Second
)

func newKeeper(c *core) *keeper {
	k := &keeper{core: c, kick: make(chan struct{}, 1), start: time.Now()}
	k.slept.Store(int64(clock.Slept()))
	return k
}

// sleptBy is how long the machine has slept, as measured a few milliseconds
// before now at the earliest. If that is too little for a request that is
// sent, its deadline comes out too early, never too late.
func (k *keeper) sleptBy(now time.Time) time.Duration {
	if at := now.Sub(k.start); at-time.Duration(k.measured.Load()) >= remeasure {
		k.slept.Store(int64(clock.Slept()))
		k.measured.Store(int64(at))
	}
	return time.Duration(k.slept.Load())
}

// watch puts the claim where its next date is. The cohort's mutex is held.
func (k *keeper) watch(cl *claim) {
	if cl.state != waiting && cl.state != holding {
		return
	}
	due, slack := cl.nextDue()
	k.mu.Lock()
	defer k.mu.Unlock()
	cl.due, cl.slack = due, slack
	if cl.index == 0 {
		heap.Push(&k.heap, cl)
	} else {
		heap.Fix(&k.heap, cl.index-1)
	}
	if due.Before(k.armed) {
		k.armed = due
		k.wake()
	}
}

func (k *keeper) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

func (k *keeper) remove(cl *claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if cl.index > 0 {
		heap.Remove(&k.heap, cl.index-1)
	}
}

func (k *keeper) hurryAll() {
	k.core.mu.Lock()
	claims := make([]*claim, 0, len(k.core.claims))
	for _, cl := range k.core.claims {
		claims = append(claims, cl)
	}
	k.core.mu.Unlock()
	for _, cl := range claims {
		cl.co.mu.Lock()
		cl.hurry()
		cl.co.mu.Unlock()
	}
}

func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	slept := k.sleptBy(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.kick:
		case <-timer.C:
		}
		now := time.Now()
		if s := k.sleptBy(now); s > slept+time.Millisecond {
			slept = s
			k.hurryAll()
		}
		k.round(now)
		timer.Reset(k.arm())
	}
}

// arm returns how long to sleep.
func (k *keeper) arm() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	d := time.Hour
	if len(k.heap) > 0 {
		d = max(0, min(look, k.heap[0].due.Sub(now)))
	}
	k.armed = now.Add(d)
	return d
}

// take returns the claims whose date has come, or nearly: renewals that are
// due soon go along with those that are due.
func (k *keeper) take(now time.Time) (due []*claim) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.heap) > 0 && !k.heap[0].due.Add(-k.heap[0].slack).After(now) {
		due = append(due, heap.Pop(&k.heap).(*claim))
	}
	return due
}

func (k *keeper) round(now time.Time) {
	batches := make(map[time.Duration]*batch)
	slept := k.sleptBy(now)
	for _, cl := range k.take(now) {
		cl.co.mu.Lock()
		if r, ok := cl.tend(now, slept); ok {
			b := batches[cl.ttl]
			if b == nil {
				b = &batch{ttl: cl.ttl, span: cl.span()}
				batches[cl.ttl] = b
			}
			b.span = min(b.span, cl.span())
			b.claims = append(b.claims, cl)
			b.refs = append(b.refs, r)
			if len(b.refs) == maxBatch {
				delete(batches, cl.ttl)
				k.send(b)
			}
		}
		cl.co.mu.Unlock()
	}
	for _, b := range batches {
		k.send(b)
	}
}

// batch is renewals of claims that share a TTL.
type batch struct {
	ttl    time.Duration
	span   time.Duration // the shortest of them
	claims []*claim
	refs   []driver.Ref
}

// send renews in a goroutine of its own, so that nobody's slowness delays the
// keeper, and no reply is waited for longer than leaves time for more tries.
func (k *keeper) send(b *batch) {
	k.core.spawn(func() {
		ctx, cancel := context.WithTimeout(k.core.ctx, min(b.span/4, replyPatience))
		defer cancel()
		sent := time.Now()
		slept := k.sleptBy(sent)
		var mu sync.Mutex
		reported := make([]bool, len(b.refs))
		report := func(i int, st driver.Status, err error) {
			mu.Lock()
			again := reported[i]
			reported[i] = true
			mu.Unlock()
			cl, r := b.claims[i], b.refs[i]
			cl.co.mu.Lock()
			defer cl.co.mu.Unlock()
			if again || cl.id != r.ID {
				return
			}
			cl.renewing = false
			if r.TTL < b.ttl {
				st.Deadline = time.Time{} // it was just a look
			}
			cl.renewed(sent, slept, st, err)
		}
		k.core.store.Renew(ctx, b.refs, report)
		for i := range b.refs {
			mu.Lock()
			missing := !reported[i]
			mu.Unlock()
			if missing {
				report(i, driver.Status{}, errUnreported)
			}
		}
	})
}

// nextDue returns when the keeper has to look at the claim, and how much
// earlier it may.
func (cl *claim) nextDue() (due time.Time, slack time.Duration) {
	now := time.Now()
	ends := now.Add(cl.remaining(now, cl.co.core.keeper.sleptBy(now)))
	if cl.state == waiting {
		ends = now.Add(cl.ttl) // it has no end; just a date
	} else {
		for t := cl.tenure; t != nil; t = t.next {
			if !t.maxHoldEnds.IsZero() && t.maxHoldEnds.Before(ends) {
				ends = t.maxHoldEnds
			}
		}
	}
	if cl.renews() && !cl.renewing && cl.renewAt.Before(ends) {
		return cl.renewAt, cl.early()
	}
	return ends, 0
}

// early is how much before its date a renewal may be sent along with others.
func (cl *claim) early() time.Duration {
	if cl.exact {
		return 0
	}
	return cl.span() / 60
}

// renews tells whether the claim is to be renewed at renewAt.
func (cl *claim) renews() bool {
	return cl.state == waiting || !cl.plain.Load() || cl.hurried
}

// tend ends the claim's tenure if its time has come, and reports whether the
// claim is to be renewed now.
func (cl *claim) tend(now time.Time, slept time.Duration) (r driver.Ref, ok bool) {
	if cl.state == holding {
		cl.checkExpired(now, slept)
	}
	if cl.state != waiting && cl.state != holding {
		return r, false
	}
	if cl.renews() && !cl.renewing && !cl.renewAt.After(now.Add(cl.early())) {
		r = cl.ref()
		if cl.state == holding && cl.plain.Load() && !cl.fresh {
			r.TTL = driver.MinTTL // a look at a plain lease must not make it longer
		}
		cl.ends = later(cl.ends, now.Add(r.TTL))
		cl.renewing, cl.hurried = true, false
		ok = true
	}
	cl.co.core.keeper.watch(cl)
	return r, ok
}

// claimHeap orders claims by their dates.
type claimHeap []*claim

func (h claimHeap) Len() int           { return len(h) }
func (h claimHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h claimHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}
func (h *claimHeap) Push(x any) {
	cl := x.(*claim)
	*h = append(*h, cl)
	cl.index = len(*h)
}
func (h *claimHeap) Pop() any {
	old := *h
	cl := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	cl.index = 0
	return cl
}
