package pawl_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/memstore"
)

// The tests of this file are of what was wrong once; their comments say how.

// ErrDeadlock by a lease that is over.
func TestDeadlockWithReleasedLease(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	l := lock(t, c.Mutex("x"))
	ctx := context.WithoutCancel(l.Context(t.Context()))
	unlock(t, l)
	l, err := c.Mutex("x").Lock(ctx)
	if err != nil {
		t.Fatalf("nobody holds: %v", err)
	}
	unlock(t, l)
}

// An old error of the engine is blamed for a wait that was just busy.
func TestStaleEngineError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClient(t, f, nil)
		var bad atomic.Bool
		bad.Store(true)
		f.set(func() {
			f.hook = func(op string) error {
				switch {
				case op == "enter" && bad.Load():
					return errNetwork
				case op == "leave" && bad.Load():
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.Mutex("x").Lock(ctx); close(done) }()
		synctest.Wait()
		cancel()
		time.Sleep(10 * time.Millisecond) // it waits for its claim to leave
		bad.Store(false)
		l := lock(t, c.Mutex("x"))
		<-done
		time.Sleep(time.Minute)
		wctx, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		_, err := c.Mutex("x").Lock(wctx)
		if errors.Is(err, errNetwork) {
			t.Errorf("the engine is fine for a minute, the lock is held here: %v", err)
		}
		unlock(t, l)
	})
}

// The TTL of Extend stays for the next lease.
func TestExtendInherited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		l := lock(t, c.Mutex("x"))
		got := make(chan *pawl.Lease)
		go func() { got <- lock(t, c.Mutex("x")) }()
		synctest.Wait()
		if err := l.Extend(t.Context(), 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		unlock(t, l)
		next := <-got
		if d := time.Until(next.Deadline()); d > pawl.DefaultTTL {
			t.Errorf("another goroutine's lease with TTL 15 s has a deadline in %v: a crash costs the others that", d)
		}
		time.Sleep(10 * time.Hour)
		t.Logf("10 h later: %v", time.Until(next.Deadline()))
		unlock(t, next)
	})
}

// Lock answers a lease that is over.
func TestLockAnswersExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClient(t, f, &pawl.Options{TTL: 5 * time.Second})
		f.set(func() {
			f.after = func(op string) error {
				if op == "enter" {
					time.Sleep(4990 * time.Millisecond)
				}
				return nil
			}
		})
		l, err := c.Mutex("x").Lock(t.Context())
		if err == nil {
			if d := time.Until(l.Deadline()); d <= 0 {
				t.Errorf("Lock answered a lease whose deadline was %v ago", -d)
			}
			l.Unlock(t.Context())
		}
	})
}

// Leases that end with Close or HandOver have no event; failing renewals
// neither.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		f := &faulty{Store: memstore.New()}
		c := pawl.New(f, &pawl.Options{Observer: func(e pawl.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e.Kind.String()+" "+e.Name)
		}})
		lock(t, c.Mutex("a"))
		l := lock(t, c.Mutex("b"))
		f.set(func() { f.err = errNetwork })
		time.Sleep(10 * time.Second)
		f.set(func() { f.err = nil })
		time.Sleep(3 * time.Second)
		if _, err := l.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Close(t.Context())
		got := strings.Join(seen, ", ")
		if !strings.Contains(got, "lost a") && !strings.Contains(got, "released a") {
			t.Errorf("a ended by Close, b by HandOver, renewals failed for 5 s; seen: %s", got)
		}
	})
}

// Looking after plain leases is one request each.
func TestPlainLeasesAreNotBatched(t *testing.T) {
	var calls, renewed, peak atomic.Int64
	store := &counting{Store: memstore.New(), calls: &calls, renewed: &renewed}
	h := &checks{Store: store, f: make(chan func(driver.Notice), 1)}
	c := newClient(t, h, &pawl.Options{NoRenewal: true, TTL: time.Hour})
	for range 2000 {
		lock(t, c.Mutex("l "+driver.NewID()))
	}
	f := <-h.f
	f(driver.Notice{Kind: driver.Check})
	for renewed.Load() < 2000 {
		peak.Store(max(peak.Load(), int64(runtime.NumGoroutine())))
		time.Sleep(100 * time.Microsecond)
	}
	if n := calls.Load(); n > 100 {
		t.Errorf("%d calls for %d plain leases after a reconnect, %d goroutines seen", n, renewed.Load(), peak.Load())
	}
}

type checks struct {
	driver.Store
	f chan func(driver.Notice)
}

func (c *checks) Listen(ctx context.Context, f func(driver.Notice)) error {
	c.f <- f
	<-ctx.Done()
	return ctx.Err()
}

// Errors of Lock and the causes of contexts.
func TestCauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		other := lock(t, c.Mutex("x"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
		defer cancel()
		_, err := c.Mutex("x").Lock(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is not DeadlineExceeded", err)
		}
		l := lock(t, c.Mutex("y"))
		got := make(chan error, 1)
		go func() { _, err := c.Mutex("x").Lock(l.Context(t.Context())); got <- err }()
		synctest.Wait()
		unlock(t, l)
		err = <-got
		if errors.Is(err, pawl.ErrReleased) && !errors.Is(err, context.Canceled) {
			t.Errorf("Lock(x) was never granted, its error is ErrReleased, and not Canceled: %v", err)
		}
		unlock(t, other)
	})
}

// A plain lease that waited long gets its TTL only if one renewal works.
func TestPlainLeaseShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		other, c := newClient(t, store, nil), newClient(t, f, &pawl.Options{NoRenewal: true})
		o := lock(t, other.Mutex("x"))
		fail := 1
		time.AfterFunc(64*time.Second, func() {
			f.set(func() {
				f.after = func(op string) error {
					if op == "renew" && fail > 0 {
						fail--
						return errNetwork
					}
					return nil
				}
			})
			unlock(t, o)
		})
		l := lock(t, c.Mutex("x"))
		start := time.Now()
		<-l.Lost()
		if d := time.Since(start); d < 14*time.Second {
			t.Errorf("a plain lease of 15 s ended %v after its grant, the engine was away for one request", d)
		}
	})
}

// After a failed Extend, Unlock gives up on the claim at once.
func TestUnlockAfterFailedExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faulty{Store: store}
		c := newClient(t, f, &pawl.Options{TTL: time.Hour, NoRenewal: true})
		l := lock(t, c.Mutex("x"))
		time.Sleep(time.Minute)
		f.set(func() { f.err = errNetwork })
		l.Extend(t.Context(), 20*time.Second)
		unlock(t, l)
		time.Sleep(time.Second)
		f.set(func() { f.err = nil })
		time.Sleep(5 * time.Minute)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("engine away for 3 s at Unlock: 5 min later %d claim", n)
		}
	})
}

// Looks at a plain lease make it longer.
func TestLooksMovePlainLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		h := &checks{Store: store, f: make(chan func(driver.Notice), 1)}
		c := newClient(t, h, &pawl.Options{NoRenewal: true, TTL: 10 * time.Minute})
		l := lock(t, c.Mutex("x"))
		f := <-h.f
		d := l.Deadline()
		for range 300 {
			time.Sleep(time.Second)
			f(driver.Notice{Kind: driver.Check})
		}
		synctest.Wait()
		if moved := l.Deadline().Sub(d); moved > time.Second {
			t.Errorf("300 looks moved the deadline of a plain lease of 10 min by %v", moved)
		}
		unlock(t, l)
	})
}

// Adopt in the same client, then HandOver: the adopted lease loses its notices.
func TestUnregisterByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, &pawl.Options{TTL: time.Hour})
		l := lock(t, c.Mutex("x"))
		ad, err := c.Mutex("x").Adopt(t.Context(), l.Claim())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.HandOver(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Release(t.Context(), "x")
		time.Sleep(time.Second)
		if ad.Err() == nil {
			t.Error("released by an operator, and not told at once")
		}
	})
}

// Deadline of a lease that is over.
func TestDeadlineOfReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), nil)
		l := lock(t, c.Mutex("x"))
		got := make(chan *pawl.Lease)
		go func() { got <- lock(t, c.Mutex("x")) }()
		synctest.Wait()
		time.Sleep(time.Second)
		unlock(t, l)
		next := <-got
		time.Sleep(time.Hour)
		if time.Until(l.Deadline()) > 0 {
			t.Errorf("unlocked an hour ago, its deadline is in %v", time.Until(l.Deadline()))
		}
		unlock(t, next)
	})
}

// HandOver of an inner lease ends the outer ones.
func TestHandOverInner(t *testing.T) {
	c := newClient(t, memstore.New(), &pawl.Options{Reentrant: true})
	outer := lock(t, c.Mutex("x"))
	inner, err := c.Mutex("x").Lock(outer.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	_, err = inner.HandOver(t.Context())
	want(t, err, pawl.ErrInvalid)
	unlock(t, inner)
	unlock(t, outer)
}

// An engine that answers Gone to every Enter is asked without a pause.
type goneEnter struct {
	driver.Store
	n atomic.Int64
}

func (g *goneEnter) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if g.n.Add(1) == 1 {
		return driver.Status{}, errNetwork
	}
	return driver.Status{State: driver.Gone}, nil
}

func TestGoneLoop(t *testing.T) {
	g := &goneEnter{Store: memstore.New()}
	c := newClient(t, g, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := c.Mutex("x").Lock(ctx)
	if n := g.n.Load(); n > 100 {
		t.Errorf("%d Enters in 0.3 s; %v", n, err)
	}
}

// The next lease is told of before the one before it has ended.
func TestAcquiredBeforeReleased(t *testing.T) {
	var mu sync.Mutex
	held, inverted := 0, 0
	c := newClient(t, memstore.New(), &pawl.Options{Observer: func(e pawl.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case pawl.Acquired:
			held++
		case pawl.Released:
			held--
		}
		if held > 1 || held < 0 {
			inverted++
		}
	}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 3000 {
				unlock(t, lock(t, c.Mutex("x")))
			}
		})
	}
	wg.Wait()
	if inverted > 0 {
		t.Errorf("%d times a gauge of held leases of one mutex was above 1 or below 0", inverted)
	}
}
