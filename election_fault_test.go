package pawl_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// A leader whose words come late does not speak for its successor.
func TestElectionLateWords(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		slow := &slowSwap{Store: store, release: make(chan struct{})}
		slow.late.Store(true)
		old := campaign(t, newClient(t, slow, nil).Election("x"), "old")
		slow.late.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := old.Proclaim(ctx, []byte("late"))
		want(t, err, context.DeadlineExceeded)
		other := newClient(t, store, nil).Election("x")
		next := in(func() error { _, err := other.Campaign(t.Context(), []byte("new")); return err })
		synctest.Wait()
		store.Break(t.Context(), "x")
		want(t, settled(t, next, "the next one's campaign"), nil)
		close(slow.release)
		time.Sleep(time.Second)
		if got := leader(t, other); string(got.Value) != "new" {
			t.Errorf("the leader is %+v", got)
		}
		want(t, old.Proclaim(t.Context(), []byte("too late")), pawl.ErrLost)
	})
}

// The engine has let the lease run out before its time, and another leads: the
// first one's words are refused although it does not know.
func TestElectionUsurped(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store, RenewErr: faultstore.ErrNetwork} // it does not hear of its end so soon
		first := campaign(t, newClient(t, f, nil).Election("x"), "a")
		store.Advance(pawl.DefaultTTL)
		other := newClient(t, store, nil).Election("x")
		campaign(t, other, "b")
		if err := first.Err(); err != nil {
			t.Fatalf("it knows: %v", err)
		}
		want(t, first.Proclaim(t.Context(), []byte("c")), pawl.ErrLost)
		if got := leader(t, other); string(got.Value) != "b" {
			t.Errorf("the leader is %+v", got)
		}
		want(t, first.Resign(t.Context()), pawl.ErrLost)
		if got := leader(t, other); string(got.Value) != "b" {
			t.Errorf("the leader is %+v", got)
		}
	})
}

// The value is not written before the lease is over: the campaign goes on.
func TestElectionCampaignGoesOn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		el := newClient(t, f, nil).Election("x")
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "swap" {
					f.Set(func() { f.Hook, f.Down = nil, true })
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		var l *pawl.Leadership
		done := in(func() (err error) { l, err = el.Campaign(t.Context(), []byte("a")); return err })
		time.Sleep(time.Hour)
		pending(t, done, "Campaign without an engine")
		f.Set(func() { f.Down = false })
		want(t, <-done, nil)
		if got := leader(t, el); got.Token != l.Token() || l.Err() != nil {
			t.Errorf("the leader is %+v, %v", got, l.Err())
		}
	})
}

// Observe rides out what the engine suffers, and then knows the last state.
func TestObserveOutage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		far, near := newClient(t, f, nil).Election("x"), newClient(t, store, nil).Election("x")
		w := observe(t.Context(), far)
		w.check(t, "")
		a := campaign(t, near, "a")
		w.check(t, "", "a")
		f.Set(func() { f.Down = true })
		time.Sleep(time.Hour)
		w.check(t, "", "a")
		f.Set(func() { f.Down, f.Err = false, faultstore.ErrNetwork })
		time.Sleep(time.Hour)
		want(t, a.Resign(t.Context()), nil)
		b := campaign(t, near, "b")
		want(t, b.Proclaim(t.Context(), []byte("c")), nil)
		w.check(t, "", "a")
		f.Set(func() { f.Err = nil })
		time.Sleep(5 * time.Second)
		w.check(t, "", "a", "c")
		f.Set(func() { f.Err = driver.Permanent(faultstore.ErrNetwork) })
		time.Sleep(20 * time.Second)
		want(t, settled(t, w.done, "Observe"), faultstore.ErrNetwork)
		f.Set(func() { f.Err = nil })
	})
}

func TestObserveStops(t *testing.T) {
	el := newClient(t, memstore.New(), nil).Election("x")
	campaign(t, el, "a")
	before := runtime.NumGoroutine()
	for range 100 {
		for l, err := range el.Observe(t.Context()) {
			if err != nil || string(l.Value) != "a" {
				t.Errorf("observed %+v, %v", l, err)
			}
			break
		}
	}
	if n := runtime.NumGoroutine(); n > before+10 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// The client is closed during a campaign, while the engine is away or not.
func TestCampaignClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		campaign(t, newClient(t, f.Store, nil).Election("x"), "a")
		for _, err := range []error{nil, faultstore.ErrNetwork} {
			f.Set(func() { f.Err = err })
			c := pawl.New(f, nil)
			done := in(func() error { _, err := c.Election("x").Campaign(context.Background(), nil); return err })
			time.Sleep(time.Minute)
			pending(t, done, "Campaign")
			c.Close(t.Context())
			want(t, settled(t, done, "Campaign"), pawl.ErrClosed)
		}
	})
}

// A leader may speak as often as it likes: nothing piles up.
func TestProclaimLeavesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := campaign(t, newClient(t, memstore.New(), nil).Election("x"), "a")
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		long, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, ctx := range []context.Context{context.Background(), long} {
			var values []weak.Pointer[payload]
			for i := range 100 {
				value := &payload{i}
				values = append(values, weak.Make(value))
				want(t, l.Proclaim(context.WithValue(ctx, valueKey{}, value), []byte{byte(i)}), nil)
			}
			synctest.Wait()
			if n := kept(values); n > 10 {
				t.Errorf("the lease keeps %d contexts", n)
			}
			if n := runtime.NumGoroutine(); n > goroutines+10 { // the runtime has some, now and then
				t.Errorf("%d goroutines, %d before", n, goroutines)
			}
		}
	})
}

// A leader that speaks twice at once: what was said last is what is heard, also
// if the network is slower with the first.
func TestProclaimInOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		el := newClient(t, f, nil).Election("x")
		l := campaign(t, el, "a")
		f.Swaps(1, func() error { time.Sleep(time.Second); return nil }, nil)
		first := in(func() error { return l.Proclaim(t.Context(), []byte("first")) })
		synctest.Wait()
		second := in(func() error { return l.Proclaim(t.Context(), []byte("second")) })
		want(t, <-first, nil)
		want(t, <-second, nil)
		if got := leader(t, el); string(got.Value) != "second" {
			t.Errorf("heard %q", got.Value)
		}
	})
}
