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

// rwWitness watches what the clients of one RWMutex believe.
type rwWitness struct {
	t       *testing.T
	mu      sync.Mutex
	writer  *pawl.RWLease
	readers map[*pawl.RWLease]bool
	wrote   int64 // the highest token of a writer
	token   int64 // the highest of all
	reads   int
	writes  int
	changes int
}

func (w *rwWitness) alone(l *pawl.RWLease) {
	if w.writer != nil && w.writer != l && w.writer.Err() == nil {
		w.t.Errorf("token %d is held beside the writer's %d", l.Token(), w.writer.Token())
	}
}

func (w *rwWitness) read(l *pawl.RWLease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Err() != nil {
		return
	}
	w.alone(l)
	if l.Token() <= w.wrote {
		w.t.Errorf("a reader's token %d after the writer's %d", l.Token(), w.wrote)
	}
	w.token = max(w.token, l.Token())
	w.readers[l] = true
	w.reads++
}

func (w *rwWitness) holds(l *pawl.RWLease) {
	if l.Err() != nil {
		return
	}
	w.alone(l)
	for r := range w.readers {
		if r != l && r.Err() == nil {
			w.t.Errorf("a writer with token %d beside a reader with %d", l.Token(), r.Token())
		}
	}
	if l.Token() <= w.token {
		w.t.Errorf("a writer's token %d after %d", l.Token(), w.token)
	}
	w.token, w.wrote, w.writer = l.Token(), l.Token(), l
	delete(w.readers, l)
	w.writes++
}

func (w *rwWitness) write(l *pawl.RWLease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds(l)
}

func (w *rwWitness) upgrade(ctx context.Context, l *pawl.RWLease) {
	before := l.Token()
	err := l.TryUpgrade(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && l.Token() != before { // else it was a writer's
		w.changes++
		w.holds(l)
	}
}

// downgrade makes l a reader's for the witness first: others may hold before
// the reply is here.
func (w *rwWitness) downgrade(ctx context.Context, l *pawl.RWLease) {
	w.mu.Lock()
	if w.writer == l {
		w.writer = nil
		w.readers[l] = true
		w.changes++
	}
	w.mu.Unlock()
	l.Downgrade(ctx) // whatever it returns, it is a reader's then
}

func (w *rwWitness) released(l *pawl.RWLease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.readers, l)
	if w.writer == l {
		w.writer = nil
	}
}

// TestRWSimulation lets readers and writers of many clients, who downgrade and
// upgrade too, fight over a lock behind a network that loses, delays and repeats
// messages.
func TestRWSimulation(t *testing.T) {
	for seed := range simtest.Seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			bubble.Test(t, func(t *testing.T) { simulateRW(t, seed) })
		})
	}
}

func simulateRW(t *testing.T, seed uint64) {
	const (
		clients = 6
		users   = 6 // goroutines of each client
		span    = time.Hour
	)
	store := memstore.New()
	w := &rwWitness{t: t, readers: make(map[*pawl.RWLease]bool)}
	nets := make([]*faultstore.Store, clients)
	var all []*pawl.Client
	ctx, stop := context.WithTimeout(t.Context(), span)
	defer stop()
	var work sync.WaitGroup
	for i := range clients {
		f := &faultstore.Store{Store: store, Rand: rand.New(rand.NewPCG(seed, uint64(i))), Rate: 0.05, Delay: 200 * time.Millisecond}
		nets[i] = f
		c := pawl.New(f, &pawl.Options{TTL: 5 * time.Second, NoRenewal: i == clients-1})
		all = append(all, c)
		for u := range users {
			r := rand.New(rand.NewPCG(seed, uint64(1000+i*users+u)))
			work.Go(func() {
				m := c.RWMutex("x")
				if u == 0 {
					m = c.With(func(o *pawl.Options) { o.MaxHold = 4 * time.Second }).RWMutex("x")
				}
				for ctx.Err() == nil {
					useRW(ctx, w, m, r)
					time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
				}
			})
		}
		work.Go(func() { f.Outages(ctx, rand.New(rand.NewPCG(seed, uint64(5000+i))), 5*time.Minute) })
	}
	work.Wait()
	simtest.Settle(t, store, nets, all)
	if w.reads < 1000 || w.writes < 200 || w.changes < 50 {
		t.Errorf("%d reads, %d writes, %d changes in %v: somebody waits for the dead", w.reads, w.writes, w.changes, span)
	}
	t.Logf("%d reads, %d writes, %d changes", w.reads, w.writes, w.changes)
}

// useRW holds the lock once, in one of many ways.
func useRW(ctx context.Context, w *rwWitness, m *pawl.RWMutex, r *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(2*time.Minute))))
	defer cancel()
	writes := r.IntN(5) == 0
	lock := [][]func(context.Context) (*pawl.RWLease, error){{m.RLock, m.TryRLock}, {m.Lock, m.TryLock}}[map[bool]int{true: 1}[writes]][r.IntN(4)/3]
	lease, err := lock(ctx)
	if err != nil {
		return
	}
	if writes {
		w.write(lease)
	} else {
		w.read(lease)
	}
	held := lease.Context(ctx)
	for range 1 + r.IntN(3) {
		select {
		case <-time.After(time.Duration(r.Int64N(int64(time.Second)))):
		case <-held.Done():
		}
		brief, cancel := context.WithTimeout(ctx, time.Duration(r.Int64N(int64(time.Second))))
		switch r.IntN(6) {
		case 0:
			w.upgrade(brief, lease)
		case 1:
			w.downgrade(brief, lease)
		}
		cancel()
	}
	if r.IntN(50) == 0 { // a holder that is stuck for a while
		time.Sleep(time.Minute)
	}
	w.released(lease)
	before := lease.Err()
	err = lease.Unlock(ctx)
	if before != nil && !errors.Is(err, pawl.ErrLost) {
		w.t.Errorf("unlock of a lease that ended with %v: %v", before, err)
	}
}
