package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
)

// plain is a store that enters claims one by one only.
type plain struct{ driver.Store }

// onBoth runs a test on a store that enters several claims at once, and on one
// that does not.
func onBoth(t *testing.T, f func(t *testing.T, s driver.Store)) {
	t.Helper()
	for name, s := range map[string]func() driver.Store{
		"in one step":     func() driver.Store { return memstore.New() },
		"one by one":      func() driver.Store { return plain{memstore.New()} },
		"found to be not": func() driver.Store { return &faultstore.Store{Store: plain{memstore.New()}} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) { f(t, s()) })
		})
	}
}

func lockAll(t *testing.T, c *pawl.Client, names ...string) *pawl.Lease {
	t.Helper()
	s, err := c.LockAll(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func isHeld(t *testing.T, c *pawl.Client, names string, want bool) {
	t.Helper()
	for _, name := range strings.Fields(names) {
		l, err := c.Mutex(name).TryLock(t.Context())
		if err == nil {
			unlock(t, l)
		}
		if errors.Is(err, pawl.ErrHeld) != want || !want && err != nil {
			t.Errorf("%s: held is %v, want %v (%v)", name, !want, want, err)
		}
	}
}

func TestLockAll(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, nil), newClient(t, store, nil)
		s := lockAll(t, c, "b", "a", "c", "a")
		if got := s.Names(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("the names are %q", got)
		}
		isHeld(t, other, "a b c", true)
		if s.TokenOf("d") != 0 || s.TokenOf("") != 0 {
			t.Error("a name that is not held has a token")
		}
		ctx := s.Context(t.Context())
		time.Sleep(time.Minute) // it is renewed
		if err := s.Err(); err != nil || ctx.Err() != nil {
			t.Fatalf("%v, %v", err, ctx.Err())
		}
		if d := time.Until(s.Deadline()); d <= 5*time.Second || d > 15*time.Second {
			t.Errorf("the deadline is in %v", d)
		}
		select {
		case <-s.YieldRequested():
			t.Error("requested, but nobody waits")
		default:
		}
		if err := other.RequestYield(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case <-s.YieldRequested():
		default:
			t.Error("asked for, but the holder is not told")
		}
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		want(t, context.Cause(ctx), pawl.ErrReleased)
		want(t, s.Err(), pawl.ErrReleased)
		want(t, s.Unlock(t.Context()), pawl.ErrReleased)
		select {
		case <-s.Lost():
			t.Error("a set that was unlocked is lost")
		default:
		}
		isHeld(t, other, "a b c", false)
		again := lockAll(t, other, "c", "a")
		for _, name := range again.Names() {
			if again.TokenOf(name) <= s.TokenOf(name) {
				t.Errorf("%s: token %d after %d", name, again.TokenOf(name), s.TokenOf(name))
			}
		}
		if err := again.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// All that are free are taken by one request, however many they are.
func TestLockAllInOneStep(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		f := &faultstore.Store{Store: memstore.New(), Hook: func(op string) error {
			if strings.HasPrefix(op, "enter") {
				calls.Add(1)
			}
			return nil
		}}
		c := newClient(t, f, nil)
		for _, n := range []int{1, 2, 1000} {
			calls.Store(0)
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprint("name ", i)
			}
			s := lockAll(t, c, names...)
			if calls.Load() != 1 {
				t.Errorf("%d names: %d requests", n, calls.Load())
			}
			if err := s.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTryLockAll(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, nil), newClient(t, store, &pawl.Options{Label: "other"})
		l := lock(t, other.Mutex("b"))
		_, err := c.TryLockAll(t.Context(), "c", "b", "a")
		want(t, err, pawl.ErrHeld)
		if h, ok := errors.AsType[*pawl.HeldError](err); !ok || h.Name != "b" || h.Holder == nil || h.Holder.Owner.Label != "other" {
			t.Errorf("the error is %v", err)
		}
		isHeld(t, other, "a c", false)
		unlock(t, l)
		s, err := c.TryLockAll(t.Context(), "c", "b", "a")
		if err != nil {
			t.Fatal(err)
		}
		isHeld(t, other, "a b c", true)
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// It waits in the queue of the one that is busy, holding what comes before that,
// and nothing that comes after.
func TestLockAllWaits(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, nil), newClient(t, store, nil)
		b, d := lock(t, other.Mutex("b")), lock(t, other.Mutex("d"))
		var s *pawl.Lease
		go func() { s = lockAll(t, c, "a", "b", "c", "d", "e") }()
		synctest.Wait()
		isHeld(t, other, "a", true)
		isHeld(t, other, "c e", false)
		if q, _ := store.Inspect(t.Context(), "b"); len(q.Claims) != 2 {
			t.Errorf("it does not wait for b: %+v", q)
		}
		late := false
		go func() {
			unlock(t, lock(t, other.Mutex("b")))
			late = true
		}()
		time.Sleep(time.Hour) // what it holds already is renewed
		unlock(t, b)
		time.Sleep(time.Second)
		synctest.Wait()
		isHeld(t, other, "a b c", true)
		isHeld(t, other, "e", false)
		if s != nil || late {
			t.Error("one that is busy was not waited for")
		}
		unlock(t, d)
		time.Sleep(time.Second)
		synctest.Wait()
		if s == nil {
			t.Fatal("all are free, but not locked")
		}
		select {
		case <-s.YieldRequested():
		default:
			t.Error("somebody waits for b, but the holder is not told")
		}
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !late {
			t.Error("b was not handed on")
		}
	})
}

// Who gives up leaves nothing behind, whatever it held or waited for.
func TestLockAllGivesUp(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, &pawl.Options{MinHold: time.Hour}), newClient(t, store, nil)
		for _, busy := range []string{"a", "b", "c"} {
			l := lock(t, other.Mutex(busy))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			_, err := c.LockAll(ctx, "a", "b", "c")
			want(t, err, context.DeadlineExceeded)
			if w, ok := errors.AsType[*pawl.WaitError](err); !ok || w.Name != busy || w.Engine != nil {
				t.Errorf("the error is %v, want that %s was busy", err, busy)
			}
			if d := time.Since(began); d > time.Minute+time.Second {
				t.Errorf("it took %v", d)
			}
			cancel()
			time.Sleep(time.Second)
			for _, name := range []string{"a", "b", "c"} {
				n := 0
				if name == busy {
					n = 1
				}
				if got := claims(t, store, name); got != n {
					t.Errorf("%d claims of %s are left, while %s was busy", got, name, busy)
				}
			}
			unlock(t, l)
		}
	})
}

// If one is lost, all are, and the others are free again.
// A call that waits tells that its context has ended, also if the reply to its last
// request says who is in the way.
func TestLockAllEndsWithItsContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		lock(t, newClient(t, store, nil).Mutex("a"))
		ctx, cancel := context.WithCancel(t.Context())
		f.Set(func() {
			f.After = func(op string) error {
				if op == "enter all" {
					cancel()
				}
				return nil
			}
		})
		_, err := newClient(t, f, nil).LockAll(ctx, "a", "b")
		want(t, err, context.Canceled)
		if w, ok := errors.AsType[*pawl.WaitError](err); !ok || w.Name != "a" || w.Holder == nil || errors.Is(err, pawl.ErrHeld) {
			t.Errorf("error is %v", err)
		}
	})
}

func TestLockAllLosesAll(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		var mu sync.Mutex
		var events []string
		observer := func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e.Kind.String()+" "+e.Name)
		}
		c, other := newClient(t, store, &pawl.Options{Observer: observer}), newClient(t, store, nil)
		s := lockAll(t, c, "a", "b", "c")
		ctx := s.Context(t.Context())
		if _, err := other.ForceRelease(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-s.Lost():
		default:
			t.Error("the holder is not told")
		}
		for _, err := range []error{context.Cause(ctx), s.Err(), context.Cause(s.Context(t.Context()))} {
			want(t, err, pawl.ErrLost)
			if err == nil || !strings.Contains(err.Error(), `"b"`) {
				t.Errorf("%v does not say which", err)
			}
		}
		isHeld(t, other, "a b c", false)
		want(t, s.Extend(t.Context(), 0), pawl.ErrLost)
		want(t, s.Unlock(t.Context()), pawl.ErrLost)
		want(t, s.Unlock(t.Context()), pawl.ErrReleased)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, e := range []string{"acquired a", "acquired b", "acquired c", "lost b", "released a", "released c"} {
			if !slices.Contains(events, e) {
				t.Errorf("not observed: %s (%q)", e, events)
			}
		}
	})
}

// slow takes its time to remove a claim.
type slow struct{ driver.Store }

func (s slow) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	time.Sleep(time.Second)
	return s.Store.Leave(ctx, r)
}

// lateExtend renews the claim of one name late, alone.
type lateExtend struct {
	driver.Store
	name string
}

func (s lateExtend) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if len(rs) == 1 && rs[0].Name == s.name {
		time.Sleep(time.Second)
	}
	s.Store.Renew(ctx, rs, report)
}

// Extend of a set that is lost meanwhile says so, and not that the rest was released for that.
func TestLockAllLostInExtend(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, lateExtend{store, "a"}, nil), newClient(t, store, nil)
		s := lockAll(t, c, "a", "b")
		done := make(chan error)
		go func() { done <- s.Extend(t.Context(), 0) }()
		synctest.Wait()
		if _, err := other.ForceRelease(t.Context(), "b"); err != nil {
			t.Error(err)
		}
		want(t, <-done, pawl.ErrLost)
	})
}

// Who unlocks what was lost may end its process then: the others are released.
func TestLockAllUnlocksAfterALoss(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, slow{store}, nil), newClient(t, store, nil)
		s := lockAll(t, c, "a", "b", "c")
		if _, err := other.ForceRelease(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		<-s.Lost()
		want(t, s.Unlock(t.Context()), pawl.ErrLost)
		isHeld(t, other, "a b c", false)
	})
}

// Cut off, the holder is told before others can hold any of the names.
func TestLockAllCutOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		s := lockAll(t, c, "a", "b", "c")
		time.Sleep(time.Minute)
		f.Set(func() { f.Down = true })
		ends := s.Deadline()
		ctx := s.Context(t.Context())
		lock(t, other.Mutex("b"))
		want(t, context.Cause(ctx), pawl.ErrLost)
		if now := time.Now(); !now.After(ends) || now.After(ends.Add(15*time.Second)) {
			t.Errorf("another holds %v after the deadline", now.Sub(ends))
		}
		f.Set(func() { f.Down = false })
		time.Sleep(time.Minute)
		isHeld(t, other, "a c", false)
		want(t, s.Unlock(t.Context()), pawl.ErrLost)
	})
}

// What it holds already can be lost while it waits for the rest: it begins anew.
func TestLockAllPartLost(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, nil), newClient(t, store, nil)
		b := lock(t, other.Mutex("b"))
		done := make(chan *pawl.Lease)
		go func() { done <- lockAll(t, c, "a", "b") }()
		synctest.Wait()
		if _, err := other.ForceRelease(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := claims(t, store, "b"); n != 1 {
			t.Errorf("%d claims of b while it begins anew", n)
		}
		time.Sleep(time.Minute)
		isHeld(t, other, "a", true)
		unlock(t, b)
		s := <-done
		if err := s.Err(); err != nil {
			t.Error(err)
		}
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if n := claims(t, store, "a") + claims(t, store, "b"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	})
}

// A request of which the reply is lost, or that comes late, holds nothing.
func TestLockAllLostReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c, other := newClient(t, f, nil), newClient(t, store, nil)
		var once atomic.Bool
		once.Store(true)
		f.Set(func() {
			f.After = func(op string) error {
				if op == "enter all" && once.Swap(false) {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		s := lockAll(t, c, "a", "b", "c")
		if once.Load() {
			t.Fatal("no reply was lost")
		}
		time.Sleep(time.Second)
		for _, name := range s.Names() {
			if n := claims(t, store, name); n != 1 {
				t.Errorf("%d claims of %s", n, name)
			}
		}
		if err := s.Unlock(t.Context()); err != nil {
			t.Error(err)
		}

		once.Store(true)
		_, err := c.TryLockAll(t.Context(), "a", "b", "c")
		want(t, err, faultstore.ErrNetwork)
		time.Sleep(time.Second)
		isHeld(t, other, "a b c", false)

		f.Set(func() { f.After, f.Down = nil, true })
		names := make([]string, 100)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err = c.LockAll(ctx, names...)
		want(t, err, context.DeadlineExceeded)
		if w, ok := errors.AsType[*pawl.WaitError](err); !ok || w.Engine == nil {
			t.Errorf("the error is %v, want that the engine did not reply", err)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
		f.Set(func() { f.Down = false })
		time.Sleep(time.Minute)
	})
}

// Clients that take overlapping sets, and single locks among them, in any order
// all come to their turns, and none much more often than the others.
func TestLockAllNoDeadlock(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		const clients, names = 8, 5
		var holders [names]atomic.Int32
		var turns [clients]int
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var work sync.WaitGroup
		for i := range clients {
			c := newClient(t, store, nil)
			work.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					// Neighbours on a ring, always another way round.
					a, b := (i+round)%names, (i+round*3+1)%names
					s, err := c.LockAll(ctx, fmt.Sprint(a), fmt.Sprint(b))
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					for _, name := range s.Names() {
						if holders[name[0]-'0'].Add(1) != 1 {
							t.Errorf("%s is held twice", name)
						}
					}
					time.Sleep(10 * time.Millisecond)
					for _, name := range s.Names() {
						holders[name[0]-'0'].Add(-1)
					}
					if err := s.Unlock(ctx); err != nil {
						t.Error(err)
					}
					turns[i]++
				}
			})
		}
		work.Wait()
		least, most := slices.Min(turns[:]), slices.Max(turns[:])
		if least < most/2 || most < 100 {
			t.Errorf("turns: %v", turns)
		}
		t.Logf("turns: %v", turns)
	})
}

// The time is up while a part is lost again and again: the error says both.
func TestLockAllTimeUpAfterALoss(t *testing.T) {
	onBoth(t, func(t *testing.T, store driver.Store) {
		c, other := newClient(t, store, nil), newClient(t, store, nil)
		l := lock(t, other.Mutex("b"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := in(func() error {
			_, err := c.LockAll(ctx, "a", "b")
			return err
		})
		for ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			other.ForceRelease(t.Context(), "a")
		}
		err := <-done
		want(t, err, context.DeadlineExceeded)
		if _, ok := errors.AsType[*pawl.WaitError](err); !ok {
			t.Errorf("the error is %v", err)
		}
		isHeld(t, other, "a", false)
		unlock(t, l)
	})
}
