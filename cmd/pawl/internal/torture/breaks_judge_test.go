package torture

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
)

const hurtTTL = 300 * time.Millisecond

// operator has a good network for what an operator does to a name: done once more after its
// reply, which no connection does, it would be something that the judge does not know of.
type operator struct{ *faultstore.Store }

func (s operator) Break(ctx context.Context, name string) ([]driver.Entry, error) {
	return s.Store.Store.Break(ctx, name)
}

func (s operator) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) error {
	return s.Store.Store.SetLimit(ctx, name, kind, was, limit)
}

// judgeHurt is the verdict on processes with a bad network between them and the store, in
// made-up time: messages are late, lost and repeated, and now and then a process is cut
// off, for up to two TTLs.
func judgeHurt(t *testing.T, seed uint64, how string) (v *Verdict) {
	bubble.Test(t, func(t *testing.T) {
		store := inMemory(t)(0)
		quit := make(chan struct{})
		var outages sync.WaitGroup
		var nets []*faultstore.Store
		p := &play{TB: t, fake: true, processes: 4, c: Config{Seed: seed, TTL: hurtTTL, Break: how}}
		p.store = func(i int) driver.Store {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			net := &faultstore.Store{Store: store, Rand: rand.New(rand.NewPCG(seed, r.Uint64())), Rate: 0.02, Delay: 5 * time.Millisecond}
			nets = append(nets, net)
			outages.Go(func() {
				for down := false; ; down = !down {
					net.Set(func() { net.Down = down })
					span := 8 * hurtTTL
					if down {
						span = 2 * hurtTTL
					}
					select {
					case <-time.After(time.Duration(r.Int64N(int64(span)))):
					case <-quit:
						net.Set(func() { net.Down = false })
						return
					}
				}
			})
			return operator{net}
		}
		history := p.run(3 * time.Second)
		close(quit)
		outages.Wait()
		for _, net := range nets {
			net.Settle()
		}
		time.Sleep(2 * hurtTTL) // what processes held that are over has run out
		for q, err := range store.List(t.Context(), "") {
			if err != nil {
				t.Error(err)
			}
			history = append(history, Event{At: int64(fakeNow()), What: Left, Name: q.Name})
		}
		v = Judge(history)
	})
	return v
}

// A pawl that is not broken bears what hurts it.
func TestJudgeFindsNothing(t *testing.T) {
	seeds, lost := uint64(5), 0
	if await.Soak() {
		seeds = 1000
	}
	for seed := range seeds {
		v := judgeHurt(t, seed, "")
		for _, f := range v.Findings {
			t.Errorf("seed %d: %s, %s: %s", seed, f.Rule, f.Name, f.Text)
		}
		lost += v.Counts.Lost
	}
	if lost == 0 {
		t.Error("nothing is hurt")
	}
}

// Each break is found among processes that are hurt, by a rule that says what it did.
func TestJudgeFindsBreaks(t *testing.T) {
	byRules := map[string]string{
		"adopt":    "adoption exclusion",
		"kinds":    "exclusion",
		"margin":   "exclusion told",
		"marks":    "adoption exclusion tokens",
		"owner":    "exclusion lost told",
		"release":  "leftover",
		"renewals": "exclusion told",
		"tokens":   "tokens",
		"upgrade":  "exclusion",
		"wake":     "exclusion told",
	}
	for _, how := range AllBreaks {
		t.Run(how, func(t *testing.T) {
			for seed := range uint64(20) {
				for _, f := range judgeHurt(t, seed, how).Findings {
					if strings.Contains(byRules[how], f.Rule) {
						t.Logf("seed %d: %s: %s", seed, f.Rule, f.Text)
						return
					}
				}
			}
			t.Error("it is not found")
		})
	}
}
