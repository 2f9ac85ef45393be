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

// TestSimulation lets many clients fight over few locks behind a network that
// loses, delays and repeats messages, for an hour of their time.
func TestSimulation(t *testing.T) {
	for seed := range simtest.Seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	const (
		clients = 12
		users   = 5 // goroutines of each client
		names   = 4
		hours   = 1
	)
	store := memstore.New()
	w := simtest.NewWitness(t)
	nets := make([]*faultstore.Store, clients)
	var all []*pawl.Client
	ctx, stop := context.WithTimeout(t.Context(), hours*time.Hour)
	defer stop()
	var work sync.WaitGroup
	for i := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		f := &faultstore.Store{Store: store, Rand: r, Rate: 0.05, Delay: 200 * time.Millisecond}
		nets[i] = f
		c := pawl.New(f, &pawl.Options{TTL: 5 * time.Second, NoRenewal: i%5 == 4})
		all = append(all, c)
		for u := range users {
			r := rand.New(rand.NewPCG(seed, uint64(1000+i*users+u)))
			work.Go(func() {
				for ctx.Err() == nil {
					simtest.Use(ctx, w, c.Mutex(fmt.Sprint("lock ", r.IntN(names))), r)
					time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
				}
			})
		}
		work.Go(func() { f.Outages(ctx, rand.New(rand.NewPCG(seed, uint64(5000+i))), 5*time.Minute) })
	}
	work.Wait()
	simtest.Settle(t, store, nets, all)
	if w.Grants < 1000 {
		t.Errorf("%d grants in %d hours: somebody waits for the dead", w.Grants, hours)
	}
	t.Logf("%d grants", w.Grants)
}
