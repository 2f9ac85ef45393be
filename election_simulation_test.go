package pawl_test

import (
	"context"
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

// TestElectionSimulation lets candidates on bad networks lead, crash, be cut off
// and resign. By their own clocks, two never lead at once; when one dies, the
// next leads a TTL and a second later; and those who observe know the last state
// when all is over.
func TestElectionSimulation(t *testing.T) {
	for _, tt := range []struct {
		name string
		rate float64       // of messages that are lost or late
		most time.Duration // without a leader
	}{
		{"slow network", 0, ttlOfTerms + time.Second},
		// Here a request may be swallowed, which is noticed a TTL later, several
		// times in a row.
		{"bad network", 0.05, 5 * ttlOfTerms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { simulateElection(t, tt.rate, tt.most) })
		})
	}
}

func simulateElection(t *testing.T, rate float64, most time.Duration) {
	const candidates, seed = 12, 7
	store := memstore.New()
	w := simtest.NewWitness(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	var all sync.WaitGroup
	var nets []*faultstore.Store
	net := func(i int, rate float64) *pawl.Election {
		f := &faultstore.Store{Store: store, Rand: rand.New(rand.NewPCG(seed, uint64(i))), Rate: rate, Delay: 50 * time.Millisecond}
		nets = append(nets, f)
		return newClient(t, f, &pawl.Options{TTL: ttlOfTerms}).Election("x")
	}
	var (
		mu      sync.Mutex
		crashed time.Time // the leader, and nobody leads since
		slowest time.Duration
		crashes int
	)
	for i := range candidates {
		el := net(i, rate)
		f := nets[i]
		r := rand.New(rand.NewPCG(seed, uint64(100+i)))
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l, err := el.Campaign(ctx, []byte(fmt.Sprint(i, " ", n)))
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					continue
				}
				w.Acquired(l.Lease)
				mu.Lock()
				if !crashed.IsZero() {
					slowest = max(slowest, time.Since(crashed))
					crashed = time.Time{}
				}
				mu.Unlock()
				held := l.Context(ctx)
				for range r.IntN(5) {
					select {
					case <-held.Done():
					case <-time.After(time.Duration(r.Int64N(int64(2 * time.Second)))):
					}
					err := l.Proclaim(held, []byte(fmt.Sprint(i, " ", n, " again")))
					if err != nil && held.Err() == nil {
						t.Error(err)
					}
				}
				if r.IntN(3) > 0 {
					w.Released(l.Lease)
					l.Resign(ctx)
					continue
				}
				f.Set(func() { f.Down = true }) // it crashes
				mu.Lock()
				if l.Err() == nil {
					crashed = time.Now()
					crashes++
				}
				mu.Unlock()
				time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
				w.Released(l.Lease)
				f.Set(func() { f.Down = false }) // and starts again
				mu.Lock()
				if l.Err() == nil {
					crashed = time.Time{} // it was not away for that long
				}
				mu.Unlock()
				l.Resign(ctx)
			}
		})
	}
	observing, end := context.WithCancel(t.Context())
	defer end()
	var watchers []*watcher
	for i := range 5 {
		watchers = append(watchers, observe(observing, net(1000+i, 4*rate)))
	}
	all.Wait()
	for _, f := range nets {
		f.Settle()
	}
	l := campaign(t, newClient(t, store, nil).Election("x"), "the last")
	time.Sleep(3 * time.Minute) // some look for news only now and then, over that network
	for i, w := range watchers {
		if v, _ := w.last(); v != "the last" {
			t.Errorf("observer %d heard %q last", i, v)
		}
	}
	want(t, l.Resign(t.Context()), nil)
	time.Sleep(3 * time.Minute)
	for i, w := range watchers {
		if v, _ := w.last(); v != "" {
			t.Errorf("observer %d heard %q last", i, v)
		}
	}
	end()
	for _, w := range watchers {
		want(t, <-w.done, context.Canceled)
	}
	if slowest > most {
		t.Errorf("after a crash nobody led for %v, at the most it should be %v", slowest, most)
	}
	if w.Grants < 100 || crashes < 20 {
		t.Errorf("%d leaders, %d crashes: too few to see anything", w.Grants, crashes)
	}
	t.Logf("%d leaders, %d crashes, %v without one at the most", w.Grants, crashes, slowest)
}
