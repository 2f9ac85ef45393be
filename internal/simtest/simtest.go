// Package simtest is what the simulations share: who watches the clients, how a
// simulation ends.
package simtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// Witness watches what clients believe: who holds, and with which token.
type Witness struct {
	testing.TB
	mu     sync.Mutex
	holder map[string]interface{ Err() error }
	token  map[string]int64
	Grants int // so far
}

// NewWitness makes a witness that has seen nothing.
func NewWitness(t testing.TB) *Witness {
	return &Witness{TB: t, holder: make(map[string]interface{ Err() error }), token: make(map[string]int64)}
}

// Acquired is called after Lock.
func (w *Witness) Acquired(l *pawl.Lease) { w.Holds(l, l.Name(), l.Token()) }

// Holds is Acquired for whatever holds a name with a token.
func (w *Witness) Holds(l interface{ Err() error }, name string, token int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Err() != nil {
		return // over before anyone could use it
	}
	if other := w.holder[name]; other != nil && other.Err() == nil {
		w.Errorf("%s: token %d is held beside token %d", name, token, w.token[name])
	}
	if last := w.token[name]; token <= last {
		w.Errorf("%s: token %d after %d", name, token, last)
	}
	w.holder[name], w.token[name] = l, token
	w.Grants++
}

// Released is called before Unlock.
func (w *Witness) Released(l *pawl.Lease) { w.Frees(l, l.Name()) }

// Frees is Released for what was told to Holds.
func (w *Witness) Frees(l interface{ Err() error }, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder[name] == l {
		delete(w.holder, name)
	}
}

// Settle mends the networks, closes the clients behind them, whose TTL is 5 s,
// and checks that nothing of theirs is left.
func Settle(t *testing.T, store *memstore.Store, nets []*faultstore.Store, clients []*pawl.Client) {
	t.Helper()
	for i, f := range nets {
		f.Set(func() { f.Rate, f.Down = 0, false })
		if err := clients[i].Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	for _, f := range nets {
		f.Settle()
	}
	time.Sleep(5 * time.Second) // what late messages may have left has a TTL
	for q, err := range store.List(context.Background(), "") {
		t.Errorf("left behind: %+v, %v", q, err)
	}
}

// Use holds the lock once, in one of many ways.
func Use(ctx context.Context, w *Witness, m *pawl.Mutex, r *rand.Rand) {
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
	w.Acquired(lease)
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
	w.Released(lease)
	before := lease.Err()
	err = lease.Unlock(ctx)
	if before != nil && !errors.Is(err, pawl.ErrLost) {
		w.Errorf("unlock of a lease that ended with %v: %v", before, err)
	}
}

// Seeds returns with how many seeds a simulation is run.
func Seeds() uint64 {
	switch {
	case testing.Short():
		return 1
	case await.Soak():
		return 50
	}
	return 2
}
