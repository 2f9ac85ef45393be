package record_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/internal/record"
)

// eternal cannot do records that expire.
type eternal struct{ driver.Store }

func (s eternal) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if r.TTL != 0 {
		return driver.Record{}, fmt.Errorf("a record's TTL: %w", driver.ErrUnsupported)
	}
	return s.Store.CompareAndSwap(ctx, r)
}

func TestExpiryUnsupported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Client.Store = eternal{f.store}
		if now := mustAdd(t, f.handle(time.Minute), "a"); now.TTL != 0 || now.NearlyExpired {
			t.Errorf("written: %+v", now)
		}
		time.Sleep(time.Hour)
		now := names(t, f.handle(time.Minute), "a")
		exact := f.handle(time.Minute)
		exact.Exact = true
		ctx, c := begin(t, exact)
		_, err := c.ChangeFrom(ctx, now, add("b"))
		isError(t, err, driver.ErrUnsupported)
		names(t, exact, "a")
	})
}

// Of several handles the longest expiry counts, unless it is exact.
func TestExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		short, long, never, exact := f.handle(time.Minute), f.handle(time.Hour), f.handle(0), f.handle(time.Minute)
		exact.Exact = true
		written := func(h *record.Handle[list], want time.Duration) {
			t.Helper()
			if now := mustAdd(t, h, time.Now().String()); now.TTL != want {
				t.Errorf("TTL %v, want %v", now.TTL, want)
			}
			time.Sleep(time.Second)
		}
		written(short, time.Minute)
		written(long, time.Hour)
		written(short, time.Hour-time.Second)
		written(exact, time.Minute)
		written(never, 0)
		written(long, 0)
		written(exact, time.Minute)
		time.Sleep(time.Minute)
		names(t, short)
	})
}

func TestNearlyExpired(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		h := f.handle(time.Hour)
		mustAdd(t, h, "a")
		for wait, want := range map[*record.Handle[list]]bool{h: false, f.handle(time.Minute): false, f.handle(3 * time.Hour): true, f.handle(0): true} {
			if now := names(t, wait, "a"); now.NearlyExpired != want {
				t.Errorf("with expiry %v: %+v", wait.Expiry, now)
			}
		}
		time.Sleep(time.Hour / 2)
		if names(t, h, "a").NearlyExpired {
			t.Error("nearly expired with half of its time left")
		}
		time.Sleep(time.Millisecond)
		if !names(t, h, "a").NearlyExpired {
			t.Error("not nearly expired with less than half of its time left")
		}
	})
}

// Who watches a record keeps it, who only awaits its change does not.
func TestWatchKeeps(t *testing.T) {
	for name, keeps := range map[string]bool{"Watch": true, "Await": false} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := newFixture(t)
				h := f.handle(time.Hour)
				now := mustAdd(t, h, "a")
				swaps := f.faults.Count("swap")
				ctx, c := begin(t, h)
				for began := time.Now(); time.Since(began) < 10*time.Hour; {
					var err error
					if keeps {
						now, err = c.Watch(ctx, now, 5*time.Hour)
					} else {
						now, err = c.Await(ctx, now, 5*time.Hour)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if keeps {
					names(t, h, "a")
				} else {
					names(t, h)
				}
				if n := swaps.Load(); (n != 0) != keeps || n > 20 {
					t.Errorf("written %d times in 10 hours", n)
				}
			})
		})
	}
}

// Of several who watch a record that is nearly expired, one writes it again.
func TestManyWatchers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		h := f.handle(time.Hour)
		mustAdd(t, h, "a")
		time.Sleep(50 * time.Minute)
		before := names(t, h, "a")
		swaps := f.faults.Count("swap")
		for range 20 {
			ctx, c := begin(t, h)
			if now, err := c.Watch(ctx, before, time.Hour); err != nil || now.NearlyExpired {
				t.Errorf("%+v, %v", now, err)
			}
		}
		if n := swaps.Load(); n != 1 {
			t.Errorf("written %d times", n)
		}
	})
}

// deaf does not tell of changes.
type deaf struct{ driver.Store }

func (deaf) WaitChange(ctx context.Context, _ string, _ int64) (driver.Record, error) {
	<-ctx.Done()
	return driver.Record{}, ctx.Err()
}

// A change is seen at once; if the message is lost, at the end of the wait.
func TestAwait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		h := f.handle(0)
		first := mustAdd(t, h, "a")
		await := func(name string, want time.Duration) {
			t.Helper()
			time.AfterFunc(time.Second, func() { mustAdd(t, h, name) })
			ctx, c := begin(t, h)
			began := time.Now()
			now, err := c.Await(ctx, first, 5*time.Second)
			if d := time.Since(began); d != want || err != nil || now.Version == first.Version {
				t.Errorf("after %v: %+v, %v; want it after %v", d, now, err, want)
			}
			first = now
		}
		await("b", time.Second)
		f.Client.Store = deaf{f.store}
		await("c", 5*time.Second)

		// The engine is away for a while.
		f.Client.Store = f.faults
		f.faults.Set(func() { f.faults.Err = faultstore.ErrNetwork })
		time.AfterFunc(5*time.Second/2, func() { f.faults.Set(func() { f.faults.Err = nil }) })
		go func() {
			_, _ = (&record.Handle[list]{Client: &record.Client{Store: f.store, TTL: time.Minute}, Kind: driver.KindLatch, Name: "x"}).Call("add to").Change(t.Context(), add("d"))
		}()
		ctx, c := begin(t, h)
		now, err := c.Await(ctx, first, 5*time.Second)
		if err != nil || !slices.Contains(now.Value.Names, "d") || !slices.Equal(f.retries, []int{1, 2, 3}) {
			t.Errorf("%+v, %v after the failures %v", now, err, f.retries)
		}
	})
}

// A writer writes in the order in which it is told to, although the engine is
// slow, and keeps what it wrote last.
func TestWriter(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		h := f.handle(time.Hour)
		w := h.Writer(func(now record.Snapshot[list], mine *list) (*list, error) {
			if now.Value != nil && slices.Equal(now.Value.Names, mine.Names) && !now.NearlyExpired {
				return now.Value, nil
			}
			return mine, nil
		})
		write := func(ctx context.Context, name string) error {
			return w.Write(ctx, h.Call("write"), &list{[]string{name}})
		}
		f.faults.Swaps(1, func() error { time.Sleep(time.Second); return faultstore.ErrNetwork }, nil)
		done := make(chan error)
		go func() { done <- write(t.Context(), "a") }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, ok := errors.AsType[interrupted](write(short, "b")); !ok {
			t.Error("it was written although it was not its turn")
		}
		if err := write(t.Context(), "c"); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		names(t, h, "c")

		ctx, stop := context.WithCancel(t.Context())
		w.KeepUntil(ctx)
		swaps := f.faults.Count("swap")
		time.Sleep(10 * time.Hour)
		names(t, h, "c")
		if n := swaps.Load(); n < 10 || n > 20 {
			t.Errorf("written %d times in 10 hours", n)
		}
		stop()
		time.Sleep(time.Hour)
		names(t, h)
	})
}
