package quorum_test

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
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/quorum"
)

// world is nodes, and clients each with a network of its own to each of them.
type world struct {
	*testing.T
	rand  *rand.Rand
	nodes []*memstore.Store
	opts  *quorum.Options
	nets  [][]*faultstore.Node // by client, by node
	store []*quorum.Store      // by client

	mu     sync.Mutex
	inside map[string]map[*pawl.Lease]int // by name
	tokens map[string]int64
	grants int
	over   bool
}

const (
	simTTL = 5 * time.Second
	simMax = 8 * time.Second
)

// What must hold, whatever the network does, as long as a majority keeps its memory: nobody
// believes beside another, tokens rise, and in the end all go on.
func TestSimulation(t *testing.T) {
	seeds := 6
	if await.Soak() {
		seeds = 3000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { simulate(t, uint64(seed)) })
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	w := &world{
		T: t, rand: rand.New(rand.NewPCG(seed, 7)), nodes: memories(3 + 2*int(seed%2)), opts: &quorum.Options{MaxTTL: simMax},
		inside: make(map[string]map[*pawl.Lease]int), tokens: make(map[string]int64),
	}
	initialize(t, w.nodes, w.opts)
	const clients = 4
	var work, faults sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var all []*pawl.Client
	for range clients {
		all = append(all, w.client(w.rand.Uint64()))
	}
	for i, c := range all {
		for range 2 {
			r := rand.New(rand.NewPCG(w.rand.Uint64(), 1))
			work.Go(func() { w.work(i, c, r) })
		}
	}
	for range 2 {
		r := rand.New(rand.NewPCG(w.rand.Uint64(), 3))
		faults.Go(func() { w.faults(ctx, r) })
	}
	faults.Go(func() { w.losses(ctx, rand.New(rand.NewPCG(w.rand.Uint64(), 4))) })
	time.Sleep(90 * time.Second)
	cancel()
	faults.Wait()
	for _, nets := range w.nets {
		for _, n := range nets {
			n.Set(func() { n.Rate, n.Down = 0, false })
		}
	}
	time.Sleep(2 * simMax)
	before := w.end()
	work.Wait()
	for i, c := range all {
		w.hold(i, c, "a", time.Minute, 0)
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := w.store[i].Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for _, nets := range w.nets {
		for _, n := range nets {
			n.Settle()
		}
	}
	if w.grants-before < clients {
		t.Errorf("%d of %d clients go on", w.grants-before, clients)
	}
	t.Logf("%d grants", w.grants)
}

// client makes one with a network that is bad as the seed says.
func (w *world) client(seed uint64) *pawl.Client {
	r := rand.New(rand.NewPCG(seed, 5))
	var nets []*faultstore.Node
	var stores []driver.Store
	for _, n := range w.nodes {
		f := faultstore.NewNode(&shared{n})
		f.Rand, f.Rate, f.Delay = rand.New(rand.NewPCG(r.Uint64(), 6)), 0.05*r.Float64(), time.Duration(1+r.IntN(30))*time.Millisecond
		nets = append(nets, f)
		stores = append(stores, f)
	}
	w.nets = append(w.nets, nets)
	s, err := quorum.New(stores, w.opts)
	if err != nil {
		w.Fatal(err)
	}
	w.store = append(w.store, s)
	return pawl.New(s, &pawl.Options{TTL: simTTL})
}

// dump logs what the nodes have.
func (w *world) dump(name string) {
	for i, n := range w.nodes {
		q, _ := n.Inspect(context.Background(), name)
		m, _ := n.Memory(context.Background())
		w.Logf("%v node %d: %+v", time.Now(), i+1, m)
		for _, e := range q.Claims {
			w.Logf("  %+v", e)
		}
	}
}

func (w *world) work(who int, c *pawl.Client, r *rand.Rand) {
	for !w.ended() {
		span := time.Duration(r.IntN(2000)) * time.Millisecond
		if r.IntN(10) == 0 { // so long that nodes are lost and come back meanwhile
			span *= 15
		}
		w.hold(who, c, string(rune('a'+r.IntN(2))), time.Duration(1+r.IntN(30))*time.Second, span)
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
	}
}

func (w *world) ended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// end lets all finish. It returns the number of grants until then.
func (w *world) end() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	return w.grants
}

// hold locks the name, waits for it no longer than so long, and looks who else believes to
// hold it. It reports whether it was locked.
func (w *world) hold(who int, c *pawl.Client, name string, within, span time.Duration) bool {
	ctx, cancel := context.WithTimeout(w.Context(), within)
	defer cancel()
	lease, err := c.Mutex(name).Lock(ctx)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("client %d: lock %s: %v", who, name, err)
		}
		return false
	}
	w.mu.Lock()
	if w.inside[name] == nil {
		w.inside[name] = make(map[*pawl.Lease]int)
	}
	for other, whose := range w.inside[name] {
		if other.Err() == nil && lease.Err() == nil {
			w.Errorf("client %d holds %s with token %d until %v, and client %d with token %d until %v",
				whose, name, other.Token(), other.Deadline(), who, lease.Token(), lease.Deadline())
			w.dump(name)
		}
	}
	if lease.Err() == nil {
		w.grants++
		if lease.Token() <= w.tokens[name] {
			w.Errorf("client %d has token %d of %s after %d", who, lease.Token(), name, w.tokens[name])
		}
		w.tokens[name] = lease.Token()
	}
	w.inside[name][lease] = who
	w.mu.Unlock()
	time.Sleep(span)
	w.mu.Lock()
	delete(w.inside[name], lease)
	w.mu.Unlock()
	if err := lease.Unlock(w.Context()); err != nil && !errors.Is(err, pawl.ErrLost) {
		w.Logf("client %d: unlock: %v", who, err)
	}
	return true
}

// faults cuts nodes off, from one client or from all.
func (w *world) faults(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
		node, only := r.IntN(len(w.nodes)), r.IntN(2*len(w.nets))
		set := func(down bool) {
			for i, nets := range w.nets {
				if only >= len(w.nets) || i == only {
					nets[node].Set(func() { nets[node].Down = down })
				}
			}
		}
		set(true)
		time.Sleep(time.Duration(r.IntN(15000)) * time.Millisecond)
		set(false)
	}
}

// losses lets nodes lose all they have, as long as a majority remembers.
func (w *world) losses(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
		without := 0
		for _, n := range w.nodes {
			if m, err := n.Memory(context.Background()); err != nil || m.Epoch == "" {
				without++
			}
		}
		if without < len(w.nodes)/2 {
			i := r.IntN(len(w.nodes))
			w.nodes[i].Lose()
			w.Logf("%v node %d loses its memory", time.Now(), i+1)
		}
	}
}
