package quorum_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/quorum"
)

// Clients that reach other nodes than each other, but a majority each, all go on, though
// for a while each takes now this node for slow and now that one: so they do not agree on
// which node orders the claims. One reaches only a minority, tries all the time, and stops
// nobody.
func TestPartlyCutOff(t *testing.T) {
	seeds := 8
	if await.Soak() {
		seeds = 2000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { partlyCutOff(t, uint64(seed)) })
		})
	}
}

func partlyCutOff(t *testing.T, seed uint64) {
	w := &world{
		T: t, rand: rand.New(rand.NewPCG(seed, 8)), nodes: memories(3 + 2*int(seed%3)), opts: &quorum.Options{MaxTTL: simMax},
		inside: make(map[string]map[*pawl.Lease]int), tokens: make(map[string]int64),
	}
	initialize(t, w.nodes, w.opts)
	var all []*pawl.Client
	reached := make([][]*faultstore.Node, 6) // by client
	const few = 5
	for i := range reached {
		all = append(all, w.client(w.rand.Uint64()))
		nets := w.nets[i]
		away := len(nets) / 2
		if i == few {
			away++
		}
		for k, node := range w.rand.Perm(len(nets)) {
			if k < away {
				nets[node].Set(func() { nets[node].Down = true })
			} else {
				reached[i] = append(reached[i], nets[node])
			}
		}
	}
	var work, flaps sync.WaitGroup
	done := make([]int, len(all))
	for i, c := range all {
		r := rand.New(rand.NewPCG(w.rand.Uint64(), 1))
		work.Go(func() {
			for !w.ended() {
				within := time.Hour
				if i == few {
					within = 10 * time.Second
				}
				if w.hold(i, c, "a", within, time.Duration(r.IntN(50))*time.Millisecond) {
					w.mu.Lock()
					done[i]++
					w.mu.Unlock()
				}
			}
		})
		chance := rand.New(rand.NewPCG(w.rand.Uint64(), 2))
		flaps.Go(func() { flap(reached[i], chance, 20*time.Second) })
	}
	flaps.Wait()
	w.mu.Lock()
	before := slices.Clone(done)
	w.mu.Unlock()
	time.Sleep(30 * time.Second)
	w.mu.Lock()
	for i := range all {
		// They take some 0.1 s each. A circle that only the end of a TTL breaks takes 5.
		if n := done[i] - before[i]; i != few && n < 10 {
			t.Errorf("client %d has held it %d times in 30 s", i, n)
		}
	}
	t.Logf("%v holds, %v before", done, before)
	w.mu.Unlock()
	if t.Failed() {
		w.dump("a")
	}
	w.end()
	work.Wait()
	for i, c := range all {
		c.Close(t.Context())
		w.store[i].Close()
	}
	for _, nets := range w.nets {
		for _, n := range nets {
			n.Settle()
		}
	}
}

// flap makes one of the nodes after the other slow for a moment, and all fast in the end.
func flap(nets []*faultstore.Node, r *rand.Rand, span time.Duration) {
	for end := time.Now().Add(span); time.Now().Before(end); {
		n := nets[r.IntN(len(nets))]
		n.Set(func() { n.Delay = 300 * time.Millisecond })
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
		n.Set(func() { n.Delay = 5 * time.Millisecond })
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
	}
	for _, n := range nets {
		n.Set(func() { n.Rate, n.Delay = 0, 5*time.Millisecond })
	}
}
