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
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/internal/simtest"
	"github.com/pawl-go/pawl/memstore"
)

// TestLockAllSimulation lets clients fight over sets of names, and over single
// ones among them, behind a network that loses, delays and repeats messages, and
// is cut.
func TestLockAllSimulation(t *testing.T) {
	for name, one := range map[string]func(*memstore.Store) driver.Store{
		"in one step": func(s *memstore.Store) driver.Store { return s },
		"one by one":  func(s *memstore.Store) driver.Store { return plain{s} },
	} {
		for seed := range simtest.Seeds() {
			t.Run(fmt.Sprint(name, ", seed ", seed), func(t *testing.T) {
				t.Parallel()
				bubble.Test(t, func(t *testing.T) { simulateSets(t, seed, one) })
			})
		}
	}
}

func simulateSets(t *testing.T, seed uint64, view func(*memstore.Store) driver.Store) {
	const clients, users, names = 6, 3, 5
	store := memstore.New()
	w := simtest.NewWitness(t)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Minute)
	defer stop()
	var nets []*faultstore.Store
	var all []*pawl.Client
	var work sync.WaitGroup
	sets := make([]int, clients)
	for i := range clients {
		f := &faultstore.Store{Store: view(store), Rand: rand.New(rand.NewPCG(seed, uint64(i))), Rate: 0.05, Delay: 200 * time.Millisecond}
		c := pawl.New(f, &pawl.Options{TTL: 5 * time.Second, NoRenewal: i == 4})
		nets, all = append(nets, f), append(all, c)
		var mu sync.Mutex
		for u := range users {
			r := rand.New(rand.NewPCG(seed, uint64(1000+i*users+u)))
			work.Go(func() {
				for ctx.Err() == nil {
					if r.IntN(4) == 0 {
						simtest.Use(ctx, w, c.Mutex(fmt.Sprint("lock ", r.IntN(names))), r)
					} else if useSet(ctx, w, c, r, names) {
						mu.Lock()
						sets[i]++
						mu.Unlock()
					}
					time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
				}
			})
		}
		work.Go(func() { f.Outages(ctx, rand.New(rand.NewPCG(seed, uint64(5000+i))), 5*time.Minute) })
	}
	work.Wait()
	simtest.Settle(t, store, nets, all)
	for i, n := range sets {
		if n < 20 {
			t.Errorf("client %d had %d sets in half an hour: it starves", i, n)
		}
	}
	t.Logf("sets: %v, grants: %d", sets, w.Grants)
}

// useSet holds several locks once.
func useSet(ctx context.Context, w *simtest.Witness, c *pawl.Client, r *rand.Rand, names int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(2*time.Minute))))
	defer cancel()
	var set []string
	for _, i := range r.Perm(names)[:1+r.IntN(3)] {
		set = append(set, fmt.Sprint("lock ", i))
	}
	lock := c.LockAll
	if r.IntN(4) == 0 {
		lock = c.TryLockAll
	}
	s, err := lock(ctx, set...)
	if err != nil {
		return false
	}
	for _, name := range s.Names() {
		w.Holds(s, name, s.TokenOf(name))
	}
	d := time.Duration(r.Int64N(int64(2 * time.Second)))
	if r.IntN(20) == 0 {
		d = 20 * time.Second
	}
	held := s.Context(ctx)
	select {
	case <-time.After(d):
	case <-held.Done():
	}
	if r.IntN(50) == 0 { // a holder that is stuck for a while
		time.Sleep(time.Minute)
	}
	for _, name := range s.Names() {
		w.Frees(s, name)
	}
	before := s.Err()
	if err := s.Unlock(ctx); before != nil && !errors.Is(err, pawl.ErrLost) {
		w.Errorf("unlock of a set that ended with %v: %v", before, err)
	}
	return true
}
