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
	slept atomic.Int64 // clock.Slept at the last look, for those in a hurry

	mu    sync.Mutex
	heap  claimHeap
	armed time.Time // when run looks next
}

const (
	// maxBatch bounds the claims in one Renew.
	maxBatch = 500
	// look bounds the keeper's sleep while there are claims: timers stand
	// still while the machine sleeps, so it looks whether that happened.
	look = time.Second
)

func newKeeper(c *core) *keeper {
	k := &keeper{core: c, kick: make(chan struct{}, 1)}
	k.slept.Store(int64(clock.Slept()))
	return k
}

// sleptLately is what is known of the machine's sleep. It may be too little, by
// what the keeper has not noticed yet: a deadline that counts from there is
// then too early, never too late.
func (k *keeper) sleptLately() time.Duration { return time.Duration(k.slept.Load()) }

// watch puts the claim where its next date is. The cohort's mutex is held.
func (k *keeper) watch(cl *claim) {
	if cl.state != waiting && cl.state != holding {
		return
	}
	due, slack := cl.nextDue(k.sleptLately())
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

// hurry renews the claim now, to see what became of it.
func (k *keeper) hurry(cl *claim) {
	cl.co.mu.Lock()
	defer cl.co.unlock()
	cl.hurried = true // in case a renewal is under way that knows nothing yet
	cl.renewAt = time.Now()
	k.watch(cl)
}

func (k *keeper) hurryAll() {
	k.core.mu.Lock()
	claims := make([]*claim, 0, len(k.core.claims))
	for _, cl := range k.core.claims {
		claims = append(claims, cl)
	}
	k.core.mu.Unlock()
	for _, cl := range claims {
		k.hurry(cl)
	}
}

func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.kick:
		case <-timer.C:
		}
		if slept := clock.Slept(); slept > k.sleptLately()+time.Millisecond {
			k.slept.Store(int64(slept))
			k.hurryAll()
		}
		k.round(time.Now())
		timer.Reset(k.arm())
	}
}

// arm answers how long to sleep.
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

// take answers the claims whose date has come, or nearly: renewals that are
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
	for _, cl := range k.take(now) {
		cl.co.mu.Lock()
		if r, ok := cl.tend(now, k.sleptLately()); ok {
			b := batches[r.TTL]
			if b == nil {
				b = new(batch)
				batches[r.TTL] = b
			}
			b.claims = append(b.claims, cl)
			b.refs = append(b.refs, r)
			if len(b.refs) == maxBatch {
				delete(batches, r.TTL)
				k.send(b)
			}
		}
		cl.co.unlock()
	}
	for _, b := range batches {
		k.send(b)
	}
}

// batch is renewals that share a TTL.
type batch struct {
	claims []*claim
	refs   []driver.Ref
}

// send renews in a goroutine of its own, so that nobody's slowness delays the
// keeper, and no answer is waited for longer than leaves time for more tries.
func (k *keeper) send(b *batch) {
	k.core.spawn(func() {
		ctx, cancel := context.WithTimeout(k.core.ctx, min(b.refs[0].TTL/4, answerPatience))
		defer cancel()
		slept, sent := k.sleptLately(), time.Now()
		k.core.store.Renew(ctx, b.refs, func(i int, st driver.Status, err error) {
			cl := b.claims[i]
			cl.co.mu.Lock()
			defer cl.co.unlock()
			if r := b.refs[i]; cl.id == r.ID {
				cl.renewing = false
				cl.renewed(r.TTL, sent, slept, st, err)
			}
		})
	})
}

// nextDue answers when the keeper has to look at the claim, and how much
// earlier it may.
func (cl *claim) nextDue(slept time.Duration) (due time.Time, slack time.Duration) {
	ends := cl.deadline.Add(-max(0, slept-cl.slept))
	if cl.state == waiting {
		ends = time.Now().Add(cl.ttl) // it has no end; just a date
	} else if t := cl.tenure; !t.limit.IsZero() && t.limit.Before(ends) {
		ends = t.limit
	}
	if cl.renews() && !cl.renewing && cl.renewAt.Before(ends) {
		return cl.renewAt, cl.early()
	}
	return ends, 0
}

// early is how much before its date a renewal may be sent along with others.
func (cl *claim) early() time.Duration { return cl.ttl / 60 }

// renews tells whether the claim is to be renewed at renewAt.
func (cl *claim) renews() bool {
	return cl.state == waiting || !cl.co.key.noRenewal || cl.hurried
}

// tend ends the claim's tenure if its time has come, and answers whether the
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
		if cl.state == holding && cl.co.key.noRenewal && !cl.fresh {
			// A look at a plain lease must not make it longer, nor shorter.
			r.TTL = max(driver.MinTTL, cl.remaining(now, slept)+cl.ttl-driver.Deadline(now, cl.ttl).Sub(now))
		}
		cl.renewing, cl.hurried, cl.fresh = true, false, false
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
