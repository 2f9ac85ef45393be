package pawl_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
)

// hasty is a store whose notices come before the answers they follow, as they
// may where the two travel on connections of their own, and come only once.
type hasty struct {
	*memstore.Store
	rival  driver.Claim // enters right after the first claim was granted
	notice atomic.Pointer[func(driver.Notice)]
	told   atomic.Bool
}

func (h *hasty) Listen(ctx context.Context, f func(driver.Notice)) error {
	h.notice.Store(&f)
	<-ctx.Done()
	return ctx.Err()
}

func (h *hasty) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	st, err := h.Store.Enter(ctx, c)
	if err == nil && c.Name == h.rival.Name && !h.told.Swap(true) {
		if _, err := h.Store.Enter(ctx, h.rival); err != nil {
			return st, err
		}
		(*h.notice.Load())(driver.Notice{Kind: driver.Wanted, ID: c.ID})
	}
	return st, err
}

// Who waits in the store gets its turn after those who waited here by then,
// also if the notice that it waits overtakes the news of the grant.
func TestRivalIsNotOverlooked(t *testing.T) {
	store := &hasty{Store: memstore.New(), rival: driver.Claim{Name: "a", ID: driver.NewID(), Units: 1, Limit: 1, TTL: time.Minute}}
	c := newClient(t, store, nil)
	warm, err := c.Mutex("warm").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	warm.Unlock(t.Context())
	for store.notice.Load() == nil {
		time.Sleep(time.Millisecond)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var sections atomic.Int64
	done := make(chan struct{})
	const goroutines = 4
	for range goroutines {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				lease, err := c.Mutex("a").Lock(ctx)
				if err != nil {
					return
				}
				sections.Add(1)
				lease.Unlock(ctx)
			}
		}()
	}
	ref := driver.Ref{Name: "a", ID: store.rival.ID}
	for {
		st, err := store.Wait(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if st.State == driver.Holding {
			break
		}
	}
	// One section for each that waited, and those that came before the notice.
	if n := sections.Load(); n > 1000 {
		t.Errorf("the rival had to wait for %d sections", n)
	}
	cancel()
	for range goroutines {
		<-done
	}
}
