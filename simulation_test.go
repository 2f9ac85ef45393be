package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

// witness watches what clients believe: who holds, and with which token.
type witness struct {
	t      *testing.T
	mu     sync.Mutex
	holder map[string]interface{ Err() error }
	token  map[string]int64
	grants int
}

func newWitness(t *testing.T) *witness {
	return &witness{t: t, holder: make(map[string]interface{ Err() error }), token: make(map[string]int64)}
}

func (w *witness) acquired(l *pawl.Lease) { w.holds(l, l.Name(), l.Token()) }

func (w *witness) holds(l interface{ Err() error }, name string, token int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Err() != nil {
		return // over before anyone could use it
	}
	if other := w.holder[name]; other != nil && other.Err() == nil {
		w.t.Errorf("%s: token %d is held beside token %d", name, token, w.token[name])
	}
	if last := w.token[name]; token <= last {
		w.t.Errorf("%s: token %d after %d", name, token, last)
	}
	w.holder[name], w.token[name] = l, token
	w.grants++
}

// released is called before Unlock.
func (w *witness) released(l *pawl.Lease) { w.frees(l, l.Name()) }

func (w *witness) frees(l interface{ Err() error }, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder[name] == l {
		delete(w.holder, name)
	}
}

// TestSimulation lets many clients fight over few locks behind a network that
// loses, delays and repeats messages, for an hour of their time.
func TestSimulation(t *testing.T) {
	seeds := 3
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulate(t, uint64(seed)) })
		})
	}
}

// outages cuts a client off for a while now and then, until ctx ends; most is the
// longest time between two.
func (f *faulty) outages(ctx context.Context, r *rand.Rand, most time.Duration) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.Int64N(int64(most))))
		f.set(func() { f.down = true })
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
		f.set(func() { f.down = false })
	}
}

// settle mends the networks, closes the clients behind them, whose TTL is 5 s,
// and checks that nothing of theirs is left.
func settle(t *testing.T, store *memstore.Store, nets []*faulty, clients []*pawl.Client) {
	t.Helper()
	for i, f := range nets {
		f.set(func() { f.rate, f.down = 0, false })
		if err := clients[i].Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for _, f := range nets {
		f.late.Wait()
	}
	time.Sleep(5 * time.Second) // what late messages may have left has a TTL
	for q, err := range store.List(context.Background(), "") {
		t.Errorf("left behind: %+v, %v", q, err)
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
	w := newWitness(t)
	nets := make([]*faulty, clients)
	var all []*pawl.Client
	ctx, stop := context.WithTimeout(t.Context(), hours*time.Hour)
	defer stop()
	var work sync.WaitGroup
	for i := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		f := &faulty{Store: store, rand: r, rate: 0.05, delay: 200 * time.Millisecond}
		nets[i] = f
		c := pawl.New(f, &pawl.Options{TTL: 5 * time.Second, NoRenewal: i%5 == 4})
		all = append(all, c)
		for u := range users {
			r := rand.New(rand.NewPCG(seed, uint64(1000+i*users+u)))
			work.Go(func() {
				for ctx.Err() == nil {
					use(ctx, w, c.Mutex(fmt.Sprint("lock ", r.IntN(names))), r)
					time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
				}
			})
		}
		work.Go(func() { f.outages(ctx, rand.New(rand.NewPCG(seed, uint64(5000+i))), 5*time.Minute) })
	}
	work.Wait()
	settle(t, store, nets, all)
	if w.grants < 1000 {
		t.Errorf("%d grants in %d hours: somebody waits for the dead", w.grants, hours)
	}
	t.Logf("%d grants", w.grants)
}

// use holds the lock once, in one of many ways.
func use(ctx context.Context, w *witness, m *pawl.Mutex, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(time.Minute))))
	defer cancel()
	lock := m.Lock
	if r.IntN(4) == 0 {
		lock = m.TryLock
	}
	lease, err := lock(ctx)
	if err != nil {
		return
	}
	w.acquired(lease)
	d := time.Duration(r.Int64N(int64(3 * time.Second)))
	if r.IntN(20) == 0 {
		d = 30 * time.Second
	}
	held := lease.Context(ctx)
	select {
	case <-time.After(d):
	case <-held.Done():
	}
	switch r.IntN(50) {
	case 0: // a holder that is stuck for a while
		time.Sleep(time.Minute)
	case 1:
		lease.Extend(ctx, 5*time.Second)
	}
	w.released(lease)
	before := lease.Err()
	err = lease.Unlock(ctx)
	if before != nil && !errors.Is(err, pawl.ErrLost) {
		w.t.Errorf("unlock of a lease that ended with %v: %v", before, err)
	}
}
