package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/internal/simtest"
	"github.com/pawl-go/pawl/memstore"
)

// permits watches what clients believe to hold of one semaphore.
type permits struct {
	t      *testing.T
	limit  int64
	mu     sync.Mutex
	held   map[*pawl.Lease]int64
	tokens map[int64]bool
}

func (p *permits) acquired(l *pawl.Lease, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Err() != nil {
		return // over before anyone could use it
	}
	if p.tokens[l.Token()] {
		p.t.Errorf("token %d was granted twice", l.Token())
	}
	p.tokens[l.Token()] = true
	p.held[l] = n
	var sum int64
	for other, n := range p.held {
		if other.Err() != nil {
			delete(p.held, other)
			continue
		}
		sum += n
	}
	if sum > p.limit {
		p.t.Errorf("%d permits of %d are held", sum, p.limit)
	}
}

// released is called before Unlock.
func (p *permits) released(l *pawl.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, l)
}

// TestSemaphoreSimulation lets many clients share a semaphore behind a network
// that loses, delays and repeats messages, for a while.
func TestSemaphoreSimulation(t *testing.T) {
	for seed := range simtest.Seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { simulateSemaphore(t, seed) })
		})
	}
}

func simulateSemaphore(t *testing.T, seed uint64) {
	const (
		clients = 8
		users   = 4 // goroutines of each client
		limit   = 5
	)
	store := memstore.New()
	p := &permits{t: t, limit: limit, held: make(map[*pawl.Lease]int64), tokens: make(map[int64]bool)}
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Minute)
	defer stop()
	var work sync.WaitGroup
	var nets []*faultstore.Store
	var all []*pawl.Client
	for i := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		f := &faultstore.Store{Store: store, Rand: r, Rate: 0.05, Delay: 200 * time.Millisecond}
		c := pawl.New(f, &pawl.Options{TTL: 5 * time.Second, NoRenewal: i%5 == 4, Overtake: i%4 == 3})
		nets, all = append(nets, f), append(all, c)
		for u := range users {
			r := rand.New(rand.NewPCG(seed, uint64(1000+i*users+u)))
			work.Go(func() {
				for ctx.Err() == nil {
					useSome(ctx, p, c.Semaphore("x", limit), r)
					time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
				}
			})
		}
		work.Go(func() { f.Outages(ctx, rand.New(rand.NewPCG(seed, uint64(5000+i))), 5*time.Minute) })
	}
	work.Wait()
	simtest.Settle(t, store, nets, all)
	if len(p.tokens) < 1000 {
		t.Errorf("%d grants in 15 minutes: somebody waits for the dead", len(p.tokens))
	}
	t.Logf("%d grants", len(p.tokens))
}

// useSome holds some permits once, in one of many ways.
func useSome(ctx context.Context, p *permits, s *pawl.Semaphore, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(time.Minute))))
	defer cancel()
	n := 1 + r.Int64N(p.limit)
	get := s.Acquire
	if r.IntN(4) == 0 {
		get = s.TryAcquire
	}
	l, err := get(ctx, n)
	if err != nil {
		return
	}
	p.acquired(l, n)
	d := time.Duration(r.Int64N(int64(3 * time.Second)))
	if r.IntN(20) == 0 {
		d = 20 * time.Second
	}
	select {
	case <-time.After(d):
	case <-l.Context(ctx).Done():
	case <-l.YieldRequested():
	}
	p.released(l)
	before := l.Err()
	err = l.Unlock(ctx)
	if before != nil && !errors.Is(err, pawl.ErrLost) {
		p.t.Errorf("unlock of a lease that ended with %v: %v", before, err)
	}
}
