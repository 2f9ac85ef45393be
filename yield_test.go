package pawl_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

func requested(l *pawl.Lease) bool {
	select {
	case <-l.YieldRequested():
		return true
	default:
		return false
	}
}

// mute is a store that cannot push.
type mute struct{ *memstore.Store }

func (mute) Listen(context.Context, func(driver.Notice)) error { return driver.ErrUnsupported }
func (mute) Ask(context.Context, string) error                 { return driver.ErrUnsupported }

// expect checks whether the lease is requested, at the latest after a look at the
// store.
func expect(t *testing.T, what string, l *pawl.Lease, yes bool) {
	t.Helper()
	l.YieldRequested()
	time.Sleep(100 * time.Millisecond)
	if requested(l) != yes {
		t.Errorf("%s: requested is %v", what, !yes)
	}
}

func TestYieldRequested(t *testing.T) {
	for name, tt := range map[string]struct {
		store func() driver.Store
		local bool
		most  time.Duration // until it is told
	}{
		"by another process":          {func() driver.Store { return memstore.New() }, false, 0},
		"by this process":             {func() driver.Store { return memstore.New() }, true, 0},
		"by another, without pushing": {func() driver.Store { return mute{memstore.New()} }, false, pawl.DefaultTTL / 3},
		"by this, without pushing":    {func() driver.Store { return mute{memstore.New()} }, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := tt.store()
				a, b := newClient(t, store, nil), newClient(t, store, nil)
				if tt.local {
					b = a
				}
				l := lock(t, a.Mutex("x"))
				early := l.YieldRequested()
				time.Sleep(time.Minute)
				_, err := b.Mutex("x").TryLock(t.Context())
				want(t, err, pawl.ErrHeld)
				expect(t, "after a minute and a try", l, false)
				asked := time.Now()
				got := make(chan *pawl.Lease)
				go func() { got <- lock(t, b.Mutex("x")) }()
				<-early
				if d := time.Since(asked); d > tt.most {
					t.Errorf("told after %v", d)
				}
				if !requested(l) {
					t.Error("another channel")
				}
				unlock(t, l)
				next := <-got
				expect(t, "the next one", next, false)
				time.Sleep(time.Minute)
				expect(t, "the next one, later", next, false)
				unlock(t, next)
			})
		})
	}
}

// Who waits already when the lock is granted, or when YieldRequested is called for the
// first time, is not overlooked.
func TestYieldRequestedFromTheStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		held := lock(t, newClient(t, store, nil).Mutex("x"))
		order := make(chan *pawl.Lease)
		for range 3 {
			m := newClient(t, store, nil).Mutex("x")
			go func() { order <- lock(t, m) }()
			synctest.Wait()
		}
		expect(t, "three wait", held, true)
		unlock(t, held)
		for i, still := range []bool{true, true, false} {
			l := <-order
			if still && !requested(l) {
				t.Errorf("lease %d: it has to ask whether others wait", i+1)
			}
			expect(t, "lease "+string(rune('1'+i)), l, still)
			unlock(t, l)
		}
	})
}

// Each lease of one claim is told for itself.
func TestYieldRequestedAfterAPass(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		enqueue := func(c *pawl.Client) chan *pawl.Lease {
			got := make(chan *pawl.Lease, 1)
			go func() { got <- lock(t, c.Mutex("x")) }()
			synctest.Wait()
			return got
		}
		first := lock(t, a.Mutex("x"))
		local := enqueue(a)
		if err := b.RequestYield(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		expect(t, "asked", first, true)
		unlock(t, first)
		second := <-local
		expect(t, "the next one, whom nobody asked", second, false)

		local = enqueue(a)
		expect(t, "one waits here", second, true)
		other := enqueue(b)
		unlock(t, second)
		third := <-local
		expect(t, "one waits elsewhere", third, true)
		unlock(t, third)
		unlock(t, <-other)

		first = lock(t, a.Mutex("x"))
		waiting := []chan *pawl.Lease{enqueue(a), enqueue(a)}
		time.Sleep(time.Second) // else the clock stands still, and nothing is passed
		unlock(t, first)
		second = <-waiting[0]
		if !requested(second) {
			t.Error("the other one waits on")
		}
		unlock(t, second)
		unlock(t, <-waiting[1])
	})
}

// Who gets the lock from another of its process, while a third one waits
// elsewhere, need not wait for the next renewal to hear of that.
func TestYieldRequestedByOthersAfterAPass(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil).Mutex("x"), newClient(t, store, nil).Mutex("x")
		first := lock(t, a)
		here, there := make(chan *pawl.Lease), make(chan *pawl.Lease)
		go func() { here <- lock(t, a) }()
		synctest.Wait()
		go func() { there <- lock(t, b) }()
		time.Sleep(time.Second)
		unlock(t, first)
		second := <-here
		if second.Handle()[:26] != first.Handle()[:26] {
			t.Fatal("it was not passed")
		}
		second.YieldRequested()
		expect(t, "one waits elsewhere", second, true)
		unlock(t, second)
		unlock(t, <-there)
	})
}

func TestRequestYield(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		if err := b.RequestYield(t.Context(), "x"); err != nil {
			t.Errorf("asked for what nobody holds: %v", err)
		}
		l := lock(t, a.Mutex("x"))
		other := lock(t, a.Mutex("y"))
		expect(t, "asked before", l, false)
		if err := b.RequestYield(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		expect(t, "asked", l, true)
		expect(t, "another name", other, false)
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Errorf("a question took the lease away: %v", err)
		}
		unlock(t, l)
		expect(t, "unlocked", l, true)
		unlock(t, other)
		again := lock(t, a.Mutex("x"))
		expect(t, "the next one", again, false)
		time.Sleep(time.Minute)
		expect(t, "the next one, later", again, false)
		unlock(t, again)
		if err := b.RequestYield(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		expect(t, "after Unlock", again, false)
	})
}

func TestRequestYieldErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		want(t, newClient(t, f, nil).RequestYield(t.Context(), "{"), pawl.ErrInvalid)
		want(t, newClient(t, nil, nil).RequestYield(t.Context(), "x"), pawl.ErrInvalid)
		want(t, newClient(t, mute{memstore.New()}, nil).RequestYield(t.Context(), "x"), pawl.ErrUnsupported)
		f.Set(func() { f.Down = true })
		start := time.Now()
		want(t, newClient(t, f, nil).RequestYield(t.Context(), "x"), context.DeadlineExceeded)
		if d := time.Since(start); d > 15*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestRemoved: the Observer of who calls ForceRelease hears whom it removed, the
// holder's that its lease is lost.
func TestRemoved(t *testing.T) {
	f := &faultstore.Store{Store: memstore.New()}
	var mu sync.Mutex
	seen := make(map[string][]pawl.Event)
	client := func(label string) *pawl.Client {
		return pawl.New(f, &pawl.Options{Label: label, Observer: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen[label] = append(seen[label], e)
		}})
	}
	holder, operator := client("holder"), client("operator")
	if gone, err := operator.ForceRelease(t.Context(), "x"); len(gone) > 0 || err != nil {
		t.Errorf("nobody holds: %v, %v", gone, err)
	}
	l := lock(t, holder.Mutex("x"))
	if _, err := operator.ForceRelease(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	<-l.Lost()
	f.Set(func() { f.Err = faultstore.ErrNetwork })
	_, err := operator.ForceRelease(t.Context(), "x")
	want(t, err, faultstore.ErrNetwork)
	f.Set(func() { f.Err = nil })
	for _, c := range []*pawl.Client{holder, operator} {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	var kinds []string
	for _, e := range seen["holder"] {
		kinds = append(kinds, e.Kind.String())
	}
	if !slices.Equal(kinds, []string{"acquired", "lost"}) {
		t.Errorf("the holder heard %v", kinds)
	}
	es := seen["operator"]
	if len(es) != 2 || es[0].Kind != pawl.EventRemoved || es[1].Kind != pawl.EventRemoved {
		t.Fatalf("the operator heard %+v", es)
	}
	if e := es[0]; e.Name != "x" || e.By.Label != "operator" || e.By.PID == 0 || e.Err != nil || len(e.Removed) != 1 ||
		e.Removed[0].Owner.Label != "holder" || e.Removed[0].Token != l.Token() {
		t.Errorf("%+v", e)
	}
	if e := es[1]; e.Removed != nil {
		t.Errorf("%+v", e)
	} else {
		want(t, e.Err, faultstore.ErrNetwork)
	}
}
