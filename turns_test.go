package pawl_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// hasty is a store whose notices come before the replies they follow, as they
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
	store := &hasty{Store: memstore.New(), rival: driver.Claim{Name: "a", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}}
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

// Who is told of a grant the short way need not wait for Wait; news about a
// claim that is no longer the one at hand changes nothing.
func TestGrantedByNotice(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		pushed := &pushing{Store: store, notice: make(chan func(driver.Notice), 1)}
		a, b := newClient(t, store, nil), newClient(t, pushed, nil)
		held := lock(t, a.Mutex("x"))
		got := make(chan *pawl.Lease)
		go func() { got <- lock(t, b.Mutex("x")) }()
		synctest.Wait()
		notice := <-pushed.notice
		q, err := store.Inspect(t.Context(), "x")
		if err != nil || len(q.Claims) != 2 {
			t.Fatal(q, err)
		}
		notice(driver.Notice{Kind: driver.Granted, ID: "somebody-else", Status: driver.Status{State: driver.Holding, Token: 1}})
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("granted by the news of another claim")
		default:
		}
		unlock(t, held)
		q, err = store.Inspect(t.Context(), "x")
		if err != nil || len(q.Claims) != 1 {
			t.Fatal(q, err)
		}
		start := time.Now()
		notice(driver.Notice{Kind: driver.Granted, ID: q.Claims[0].ID, Status: driver.Status{State: driver.Holding, Token: q.Claims[0].Token}})
		l := <-got
		if d := time.Since(start); d > 0 {
			t.Errorf("it took %v", d)
		}
		unlock(t, l)
	})
}

// pushing is a store whose Wait is deaf, and whose notices are the test's.
type pushing struct {
	*memstore.Store
	notice chan func(driver.Notice)
}

func (p *pushing) Listen(ctx context.Context, f func(driver.Notice)) error {
	p.notice <- f
	<-ctx.Done()
	return ctx.Err()
}

func (p *pushing) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	<-ctx.Done()
	return driver.Status{}, ctx.Err()
}

// The store says that a holding claim waits (restored from an old copy).
type saysWaiting struct {
	driver.Store
	on atomic.Bool
}

func (s *saysWaiting) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	s.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
		if s.on.Load() {
			st.State, st.Token, st.Spare = driver.Waiting, 0, 0
		}
		report(i, st, err)
	})
}

func TestHolderIsToldItWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &saysWaiting{Store: memstore.New()}
		a := newClient(t, s, nil)
		l := lock(t, a.Mutex("x"))
		s.on.Store(true)
		time.Sleep(time.Minute)
		if l.Err() == nil {
			t.Error("for a minute the store says that this claim waits; the lease holds")
		}
		s.on.Store(false)
		l.Unlock(t.Context())
	})
}

func TestNewcomer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New(), Err: faultstore.ErrNetwork}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(10, pawl.ConstantBackoff(time.Second))})
		go c.Mutex("x").Lock(t.Context())
		time.Sleep(8500 * time.Millisecond)
		start := time.Now()
		_, err := c.Mutex("x").Lock(t.Context())
		t.Logf("newcomer: %v, %v", time.Since(start), err)
		if d := time.Since(start); d < 5*time.Second {
			t.Errorf("LimitBackoff(10, 1 s) gave up after %v: %v", d, err)
		}
	})
}
