package pawl_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// late is a network that delivers resizing requests again, when told to.
type late struct {
	driver.Store
	mu    sync.Mutex
	again []func() (driver.Status, error)
	lose  bool // and does not deliver them at all before
}

func (s *late) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	s.mu.Lock()
	s.again = append(s.again, func() (driver.Status, error) { return s.Store.Resize(context.Background(), r, units) })
	lose := s.lose
	s.mu.Unlock()
	if lose {
		return driver.Status{}, faultstore.ErrNetwork
	}
	return s.Store.Resize(ctx, r, units)
}

// deliver delivers all that were sent so far once more.
func (s *late) deliver(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	again := s.again
	s.mu.Unlock()
	for _, f := range again {
		if _, err := f(); err != nil {
			t.Error(err)
		}
	}
}

// Old requests arrive when others have had their replies since: what was agreed last
// stays.
func TestLateResize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &late{Store: memstore.New()}
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		l := wlock(t, a.RWMutex("x"))
		for range 3 {
			if err := l.Downgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := l.TryUpgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			token := l.Token()
			store.deliver(t)
			_, err := b.RWMutex("x").TryRLock(t.Context())
			want(t, err, pawl.ErrHeld) // or a reader is let in beside the writer
			time.Sleep(time.Minute)
			if l.Err() != nil || l.Token() != token {
				t.Fatalf("%v, token %d was %d", l.Err(), l.Token(), token)
			}
		}
		unlock(t, l)
		store.deliver(t)

		// An upgrade that was given up is carried out late.
		l = rlock(t, a.RWMutex("x"))
		store.mu.Lock()
		store.lose, store.again = true, nil
		store.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.TryUpgrade(ctx); err == nil {
			t.Fatal("upgraded without a reply")
		}
		store.mu.Lock()
		upgrades := store.again
		store.lose = false
		store.mu.Unlock()
		time.Sleep(5 * time.Second) // it is settled by now
		unlock(t, rlock(t, b.RWMutex("x")))
		for _, f := range upgrades[:1] {
			if _, err := f(); err != nil {
				t.Error(err)
			}
		}
		if n := units(t, store, "x"); n != driver.MaxLimit {
			t.Fatalf("%d units: it did not come late", n)
		}
		start := time.Now()
		unlock(t, rlock(t, b.RWMutex("x")))
		if d := time.Since(start); d > pawl.DefaultTTL/3+time.Second {
			t.Errorf("a reader had to wait for %v", d)
		}
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		unlock(t, l)
	})
}

// Resize returns what it never should.
type oddResize struct {
	driver.Store
	driver.Status
}

func (s oddResize) Resize(context.Context, driver.Ref, int64) (driver.Status, error) {
	return s.Status, nil
}

// The error of such a reply was "%!w(<nil>)".
func TestOddResize(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, st := range []driver.Status{{State: driver.Waiting}, {State: driver.Holding, Token: 1 << 62}} {
			c := newClient(t, oddResize{memstore.New(), st}, nil)
			l, err := c.RWMutex("x").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Downgrade(t.Context()); err == nil || !strings.Contains(err.Error(), st.State.String()) {
				t.Errorf("downgrade, told %+v: %v", st, err)
			}
			l.Unlock(t.Context())
		}
		c := newClient(t, oddResize{memstore.New(), driver.Status{State: driver.Holding}}, nil)
		l, err := c.RWMutex("x").RLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.TryUpgrade(t.Context()); err == nil || !strings.Contains(err.Error(), "token 0") {
			t.Errorf("upgrade: %v", err)
		}
		l.Unlock(t.Context())
	})
}
