package pawl_test

import (
	"context"
	"runtime"
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

// A plain lease that waited long gets its TTL only if one renewal works.
func TestPlainLeaseShort(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		other, c := newClient(t, store, nil), newClient(t, f, &pawl.Options{NoRenewal: true})
		o := lock(t, other.Mutex("x"))
		fail := 1
		time.AfterFunc(64*time.Second, func() {
			f.Set(func() {
				f.After = func(op string) error {
					if op == "renew" && fail > 0 {
						fail--
						return faultstore.ErrNetwork
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

// Looks at a plain lease make it longer.
func TestLooksMovePlainLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
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
