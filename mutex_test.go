package pawl_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
)

func newClient(t *testing.T, s *memstore.Store, o *pawl.Options) *pawl.Client {
	t.Helper()
	c := pawl.New(s, o)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func TestMutexExcludes(t *testing.T) {
	store := memstore.New()
	clients := []*pawl.Client{newClient(t, store, nil), newClient(t, store, nil), newClient(t, store, nil)}
	var (
		wg      sync.WaitGroup
		counter int
		last    int64
	)
	for i := range 30 {
		m := clients[i%len(clients)].Mutex("counter")
		wg.Go(func() {
			for range 100 {
				lease, err := m.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				counter++
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if counter != 3000 {
		t.Errorf("counter = %d, want 3000", counter)
	}
}

func TestRenewalKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		lease, err := c.Mutex("a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := lease.Err(); err != nil {
			t.Errorf("after an hour: %v", err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, pawl.ErrReleased) {
			t.Errorf("second unlock: %v", err)
		}
	})
}
