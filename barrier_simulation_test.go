package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/internal/simtest"
	"github.com/pawl-go/pawl/memstore"
)

// TestBarrierGenerations sends parties through many generations, over a good
// network and bad ones. None is ever ahead by one.
func TestBarrierGenerations(t *testing.T) {
	for _, tt := range []struct {
		generations int64
		rate        float64
		delay       time.Duration
		action      bool
	}{
		{1000, 0, time.Millisecond, false},
		{200, 0, time.Millisecond, true},
		{200, 0.1, 50 * time.Millisecond, false},
		{100, 0.1, 50 * time.Millisecond, true},
	} {
		t.Run(fmt.Sprint(tt), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) {
				const parties = 4
				store := memstore.New()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
				defer cancel()
				var begun, ended [parties]atomic.Int64 // generations
				var ran atomic.Int64
				var all sync.WaitGroup
				for i := range parties {
					f := &faultstore.Store{Store: store, Rand: rand.New(rand.NewPCG(3, uint64(i))), Rate: tt.rate, Delay: tt.delay}
					b := newClient(t, f, &pawl.Options{TTL: time.Minute}).Barrier("x", parties)
					if tt.action {
						b = b.WithAction(func(context.Context) error { ran.Add(1); return nil })
					}
					all.Go(func() {
						defer f.Settle()
						for g := range tt.generations {
							begun[i].Store(g + 1)
							if _, err := b.Wait(ctx); err != nil {
								t.Errorf("party %d, generation %d: %v", i, g, err)
								return
							}
							for j := range parties {
								if n := begun[j].Load(); n < g+1 {
									t.Errorf("party %d went on from generation %d, party %d was in %d", i, g+1, j, n)
									cancel()
								}
							}
							if n := ran.Load(); tt.action && n != g+1 {
								t.Errorf("the action ran %d times in %d generations", n, g+1)
								cancel()
							}
							ended[i].Store(g + 1)
						}
					})
				}
				all.Wait()
				for i := range ended {
					if n := ended[i].Load(); n != tt.generations {
						t.Errorf("party %d went through %d generations", i, n)
					}
				}
				if n := ran.Load(); tt.action && n != tt.generations {
					t.Errorf("the action ran %d times", n)
				}
			})
		})
	}
}

// TestBarrierSimulation lets parties time out, be cut off and reset at random.
// Whoever goes on was together with all others of its generation.
func TestBarrierSimulation(t *testing.T) {
	for seed := range simtest.Seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { simulateBarrier(t, seed) })
		})
	}
}

func simulateBarrier(t *testing.T, seed uint64) {
	const parties, ttl = 4, 2 * time.Second
	store := memstore.New()
	type span struct {
		from, to time.Time // of a call, and as long as it may be counted after that
		went     bool
	}
	var (
		calls [parties][]span
		fails atomic.Int64
		all   sync.WaitGroup
	)
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	for i := range parties {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		f := &faultstore.Store{Store: store, Rand: r, Rate: 0.05, Delay: 50 * time.Millisecond}
		c := newClient(t, f, &pawl.Options{TTL: ttl})
		own := rand.New(rand.NewPCG(seed, uint64(100+i)))
		cut := rand.New(rand.NewPCG(seed, uint64(200+i)))
		all.Go(func() {
			defer f.Settle()
			b := c.Barrier("x", parties)
			for ctx.Err() == nil {
				limit := time.Duration(own.Int64N(int64(time.Minute)))
				wait, cancel := context.WithTimeout(ctx, limit)
				s := span{from: time.Now()}
				_, err := b.Wait(wait)
				cancel()
				s.to = time.Now()
				if d := s.to.Sub(s.from); d > limit+unlockTimeout*3 {
					t.Errorf("Wait took %v, its context %v", d, limit)
				}
				if s.went = err == nil; err != nil {
					// If the engine could not be told, its claim counts to its end.
					s.to = s.to.Add(ttl)
					fails.Add(1)
				}
				calls[i] = append(calls[i], s)
				if errors.Is(err, pawl.ErrBroken) {
					b.Reset(ctx)
				}
				time.Sleep(time.Duration(own.Int64N(int64(time.Second))))
			}
		})
		all.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(cut.Int64N(int64(4 * time.Minute))))
				f.Set(func() { f.Down = true })
				time.Sleep(time.Duration(cut.Int64N(int64(5 * time.Second))))
				f.Set(func() { f.Down = false })
			}
		})
	}
	all.Wait()
	// Whoever went on was there at one moment with all the others: when the last
	// of them came.
	together := func(at time.Time) bool {
		for _, of := range calls {
			if !slices.ContainsFunc(of, func(s span) bool { return !at.Before(s.from) && !at.After(s.to) }) {
				return false
			}
		}
		return true
	}
	went := 0
	for i, of := range calls {
		for _, s := range of {
			if !s.went {
				continue
			}
			went++
			met := together(s.from)
			for _, others := range calls {
				for _, o := range others {
					met = met || o.from.After(s.from) && !o.from.After(s.to) && together(o.from)
				}
			}
			if !met {
				t.Errorf("party %d went on from %v, %v later, and was never there with all the others", i, s.from, s.to.Sub(s.from))
			}
		}
	}
	if went < 100 || fails.Load() < 10 {
		t.Errorf("%d calls went on, %d failed: too few to see anything", went, fails.Load())
	}
	t.Logf("%d went on, %d failed", went, fails.Load())
}
