package pawl_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// remote is a store behind a network with a round trip of 2 ms, and counts the
// renewals.
type remote struct {
	driver.Store
	recheck     func(time.Time) time.Time // what Renew returns instead of the store's
	calls, refs atomic.Int64
}

func (r *remote) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	r.calls.Add(1)
	r.refs.Add(int64(len(rs)))
	sent := time.Now()
	time.Sleep(time.Millisecond)
	r.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) {
		time.Sleep(time.Millisecond)
		if !st.Deadline.IsZero() {
			st.Deadline = driver.Deadline(sent, rs[i].TTL)
		}
		if st.State == driver.Waiting && r.recheck != nil {
			st.Recheck = r.recheck(time.Now())
		}
		report(i, st, err)
	})
}

// queueUp makes n claims of a minute wait, those of one client, while done is
// open, and returns when all stand in the queue.
func queueUp(t *testing.T, c *pawl.Client, n int) (leave func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for range n {
		waiting.Go(func() {
			if l, err := c.Semaphore("x", 1).Acquire(ctx, 1); err == nil {
				t.Errorf("token %d was granted while another holds", l.Token())
				l.Unlock(context.Background())
			}
		})
	}
	synctest.Wait()
	return func() {
		cancel()
		waiting.Wait()
	}
}

// TestRecheckOfShortHolder: claims of a minute wait behind a holder whose TTL is
// 300 ms. They look when that would run out, not before and not again and again.
func TestRecheckOfShortHolder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const waiters, seconds = 8, 6
		store := memstore.New()
		far := &remote{Store: store}
		holder := newClient(t, store, &pawl.Options{TTL: 300 * time.Millisecond})
		l, err := holder.Semaphore("x", 1).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		leave := queueUp(t, newClient(t, far, &pawl.Options{TTL: time.Minute}), waiters)
		before := far.refs.Load()
		time.Sleep(seconds * time.Second)
		// The holder renews every 100 ms: there are 200 to 300 ms between two looks.
		if n := far.refs.Load() - before; n > waiters*seconds*5 {
			t.Errorf("%d claims were renewed %d times in %d s", waiters, n, seconds)
		}
		leave()
		unlock(t, l)
	})
}

// TestRecheckThatBringsNothing: the store names a date that has come already. It
// is not asked without end.
func TestRecheckThatBringsNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		far := &remote{Store: store, recheck: func(now time.Time) time.Time { return now }}
		l, err := newClient(t, store, nil).Semaphore("x", 1).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		leave := queueUp(t, newClient(t, far, &pawl.Options{TTL: time.Minute}), 1)
		far.refs.Store(0)
		time.Sleep(time.Minute)
		if n := far.refs.Load(); n > 60*5 {
			t.Errorf("renewed %d times in a minute", n)
		}
		leave()
		unlock(t, l)
	})
}

// TestHeartbeatsAreBatched: a crowd that waits is renewed in few requests.
func TestHeartbeatsAreBatched(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const waiters = 400
		store := memstore.New()
		far := &remote{Store: store, recheck: func(time.Time) time.Time { return time.Time{} }}
		l, err := newClient(t, store, nil).Semaphore("x", 1).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		leave := queueUp(t, newClient(t, far, &pawl.Options{TTL: time.Minute}), waiters)
		far.calls.Store(0)
		far.refs.Store(0)
		time.Sleep(time.Minute)
		calls, refs := far.calls.Load(), far.refs.Load()
		if refs < waiters*10 || refs > waiters*16 {
			t.Errorf("%d claims were renewed %d times in a minute, want about every 5 s", waiters, refs)
		}
		if calls > 12*5 {
			t.Errorf("%d requests for %d renewals", calls, refs)
		}
		leave()
		unlock(t, l)
	})
}
