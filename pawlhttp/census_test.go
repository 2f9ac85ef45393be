package pawlhttp_test

import (
	"context"
	"errors"
	"iter"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/pawlhttp"
)

// listed is a store whose lists are counted, and take long or fail.
type listed struct {
	driver.Store
	n    atomic.Int64
	took atomic.Int64
	err  atomic.Pointer[error]
}

func (l *listed) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	l.n.Add(1)
	return func(yield func(driver.Queue, error) bool) {
		select {
		case <-time.After(time.Duration(l.took.Load())):
		case <-ctx.Done():
			yield(driver.Queue{}, ctx.Err())
			return
		}
		if err := l.err.Load(); err != nil {
			yield(driver.Queue{}, *err)
			return
		}
		for q, err := range l.Store.List(ctx, prefix) {
			if !yield(q, err) {
				return
			}
		}
		yield(driver.Queue{}, &driver.NameError{Name: "a/unreadable", Err: errors.New("what is this")})
	}
}

func (l *listed) fail(err error) {
	if err == nil {
		l.err.Store(nil)
		return
	}
	l.err.Store(&err)
}

// Who holds and waits is counted in the whole store, whoever asks, and not at each
// request.
func TestCensus(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &listed{Store: memstore.New()}
		d := newDirect(t, store)
		c := pawl.New(store.Store, nil) // beside the server
		if _, err := c.Mutex("a/x").Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Semaphore("s", 3).Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		other := pawl.New(store.Store, nil)
		go func() {
			_, err := other.Mutex("a/x").Lock(ctx)
			waits <- err
		}()
		time.Sleep(5 * time.Second)
		stands := map[string]float64{
			`store_names_held,kind="mutex"`: 1, `store_claims_holding,kind="mutex"`: 1, `store_claims_waiting,kind="mutex"`: 1,
			`store_oldest_wait_seconds,kind="mutex"`: 5, `store_longest_hold_seconds,kind="mutex"`: 5,
			`store_names_held,kind="semaphore"`: 0, `server_grants_total`: 0,
		}
		d.want(stands)
		for range 14 {
			time.Sleep(time.Second)
			d.want(stands)
		}
		now := d.metrics()
		if n := store.n.Load(); n != 1 || now["pawl_store_up"] != 1 || now["pawl_store_reads_total"] != 1 || now["pawl_store_names_unreadable"] != 1 {
			t.Errorf("15 requests in 15 s have read the store %d times; %v", n, now)
		}
		if n := now[`pawl_store_names_held{prefix="other",kind="semaphore"}`]; n != 1 {
			t.Errorf("%v semaphores, want 1", n)
		}
		time.Sleep(time.Second)
		stands[`store_oldest_wait_seconds,kind="mutex"`], stands[`store_longest_hold_seconds,kind="mutex"`] = 20, 20
		d.want(stands)
		if n := store.n.Load(); n != 2 {
			t.Errorf("after 15 s the store was read %d times, want 2", n)
		}
		cancel()
		<-waits
		for _, c := range []*pawl.Client{c, other} {
			c.Close(t.Context())
		}
	})
}

// A store that takes long is read less often, and holds nobody up. While it cannot be
// read, no numbers are told.
func TestCensusOfBadStore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &listed{Store: memstore.New()}
		d := newDirect(t, store)
		const known = `pawl_store_names_held{prefix="a/",kind="mutex"}`
		look := func() (up float64, ok bool, took time.Duration) {
			begun := time.Now()
			now := d.metrics()
			_, ok = now[known]
			return now["pawl_store_up"], ok, time.Since(begun)
		}
		store.took.Store(int64(10 * time.Second))
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if up, ok, took := look(); up != 0 || ok || took != 2*time.Second {
					t.Errorf("while it is read: up %v, known %v, after %v", up, ok, took)
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		for range 8 { // of the 100 s in which it is not read
			if up, ok, took := look(); up != 1 || !ok || took != 0 {
				t.Errorf("when it was read: up %v, known %v, after %v", up, ok, took)
			}
			time.Sleep(10 * time.Second)
		}
		if n := store.n.Load(); n != 1 {
			t.Errorf("it was read %d times, want once", n)
		}
		store.took.Store(0)
		store.fail(errors.New("gone away"))
		time.Sleep(10 * time.Second)
		if up, ok, _ := look(); up != 0 || ok {
			t.Errorf("when it has failed: up %v, known %v", up, ok)
		}
		store.fail(nil)
		time.Sleep(15 * time.Second)
		if up, ok, _ := look(); up != 1 || !ok {
			t.Errorf("when it replies again: up %v, known %v", up, ok)
		}
		if n := d.metrics()["pawl_store_read_failures_total"]; n != 1 {
			t.Errorf("%v failures, want 1", n)
		}

		// Close waits for the reading that it ends, and none begins after it.
		store.took.Store(int64(time.Hour))
		time.Sleep(15 * time.Second)
		go look()
		synctest.Wait()
		begun := time.Now()
		d.Close()
		if took := time.Since(begun); took != 0 {
			t.Errorf("Close has taken %v", took)
		}
		n := store.n.Load()
		if time.Sleep(time.Hour); n != 4 {
			t.Errorf("it was read %d times, want 4", n)
		}
		if look(); store.n.Load() != n {
			t.Error("it is read after Close")
		}
	})
}

// However many ask whether the store replies, it is asked once a second.
func TestReadyIsCached(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		network := &faultstore.Store{Store: memstore.New()}
		s := pawlhttp.New(network, nil)
		var asked atomic.Int64
		network.Set(func() { network.Hook = func(string) error { asked.Add(1); return nil } })
		ask := func(status int, took time.Duration, times int64) {
			t.Helper()
			asked.Store(0)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					begun := time.Now()
					w := httptest.NewRecorder()
					s.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
					if w.Code != status || time.Since(begun) != took {
						t.Errorf("%d after %v, want %d after %v: %s", w.Code, time.Since(begun), status, took, w.Body)
					}
				})
			}
			wg.Wait()
			if n := asked.Load(); n != times {
				t.Errorf("the store was asked %d times, want %d", n, times)
			}
		}
		ask(200, 0, 1)
		ask(200, 0, 0)
		time.Sleep(time.Second)
		ask(200, 0, 1)
		time.Sleep(time.Second)
		network.Set(func() { network.Down = true })
		ask(503, 5*time.Second, 0) // hangs before it is counted
		network.Set(func() { network.Down = false })
		ask(503, 0, 0)
		time.Sleep(time.Second)
		ask(200, 0, 1)
		s.Close()
		ask(503, 0, 0)
	})
}
