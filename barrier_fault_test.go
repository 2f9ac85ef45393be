package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// Who was cut off while the barrier was broken and reset, again and again,
// learns that it was broken; and who was cut off while it tripped, that.
func TestBarrierLateNews(t *testing.T) {
	for _, resets := range []int{0, 1, 99, 250} {
		t.Run(fmt.Sprint(resets), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				f := &faultstore.Store{Store: store}
				far := newClient(t, f, &pawl.Options{TTL: time.Hour}).Barrier("x", 2)
				near := barriers(t, store, 2, 2)
				late := arrive(t.Context(), far)
				synctest.Wait()
				f.Set(func() { f.Down = true })
				time.Sleep(time.Minute)
				turn := func() {
					a, b := arrive(t.Context(), near[0]), arrive(t.Context(), near[1])
					<-a.done
					<-b.done
				}
				if resets == 0 { // one of them is the second party, the other waits
					a := arrive(t.Context(), near[0])
					want(t, settled(t, a.done, "Wait"), nil)
				}
				for range resets {
					want(t, near[0].Reset(t.Context()), nil)
					a := arrive(t.Context(), near[0])
					synctest.Wait()
					waiting(t, near[1], 1)
					want(t, near[1].Reset(t.Context()), nil)
					want(t, settled(t, a.done, "Wait that was reset"), pawl.ErrBroken)
					turn()
				}
				f.Set(func() { f.Down = false })
				if err := <-late.done; resets == 0 && err != nil || resets > 0 && !errors.Is(err, pawl.ErrBroken) {
					t.Errorf("after %d resets: %v", resets, err)
				}
			})
		})
	}
}

// A party that dies breaks the barrier a TTL later at the most; where claims
// end with their process, after a heartbeat.
func TestBarrierDeath(t *testing.T) {
	cutOff := func(_ *memstore.Store, f *faultstore.Store) { f.Set(func() { f.Down = true }) }
	for _, tt := range []struct {
		name  string
		ttl   time.Duration
		after time.Duration
		die   func(store *memstore.Store, f *faultstore.Store)
	}{
		{"cut off", time.Minute, time.Minute, cutOff},
		{"cut off, short TTL", time.Second / 2, time.Second / 2, cutOff},
		{"claim gone", time.Minute, 7 * time.Second, func(store *memstore.Store, f *faultstore.Store) {
			f.Set(func() { f.Down = true })
			store.Leave(context.Background(), driver.Ref{Name: "x", ID: f.Last()})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 5 { // it depends on when they look
				bubble.Test(t, func(t *testing.T) {
					store := memstore.New()
					f := &faultstore.Store{Store: store}
					var bs []*pawl.Barrier
					for range 3 {
						bs = append(bs, newClient(t, store, &pawl.Options{TTL: tt.ttl}).Barrier("x", 4))
					}
					dying := arrive(t.Context(), newClient(t, f, &pawl.Options{TTL: tt.ttl}).Barrier("x", 4))
					synctest.Wait()
					a, b := arrive(t.Context(), bs[0]), arrive(t.Context(), bs[1])
					synctest.Wait()
					time.Sleep(10 * time.Minute)
					pending(t, a.done, "Wait")
					tt.die(store, f)
					died := time.Now()
					for _, a := range []*arrival{a, b} {
						err := <-a.done
						want(t, err, pawl.ErrBroken)
						if !strings.Contains(err.Error(), "died or lost its claim") {
							t.Errorf("%v does not say why", err)
						}
					}
					if d := time.Since(died); d > tt.after+time.Second {
						t.Errorf("it took %v", d)
					}
					err := <-dying.done
					want(t, err, pawl.ErrBroken)
					broken(t, bs[2], "died")
					want(t, bs[0].Reset(t.Context()), nil)
					waiting(t, bs[2], 0)
					f.Set(func() { f.Down = false })
				})
			}
		})
	}
}

// All who waited died long ago: those who come now do not count them.
func TestBarrierDeathOfAll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, nil)
		dead := []*arrival{arrive(t.Context(), c.Barrier("x", 3)), arrive(t.Context(), c.Barrier("x", 3))}
		synctest.Wait()
		f.Set(func() { f.Down = true })
		for _, a := range dead {
			want(t, <-a.done, pawl.ErrLost)
		}
		time.Sleep(time.Minute)
		f.Set(func() { f.Down = false })
		b := barriers(t, store, 3, 1)[0]
		waiting(t, b, 2) // nobody has looked
		_, err := b.Wait(t.Context())
		want(t, err, pawl.ErrBroken)
		broken(t, b, "died")
	})
	// Likewise, but they had all come, and the last one was running the action.
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		b := newClient(t, f, nil).Barrier("x", 2).WithAction(func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		dead := []*arrival{arrive(t.Context(), b), arrive(t.Context(), b)}
		synctest.Wait()
		f.Set(func() { f.Down = true })
		for _, a := range dead {
			want(t, <-a.done, pawl.ErrLost)
		}
		late := arrive(t.Context(), barriers(t, store, 2, 1)[0])
		want(t, <-late.done, pawl.ErrBroken)
		f.Set(func() { f.Down = false })
	})
}

// The reply to an arrival is lost, and before it is repeated the others go on.
func TestBarrierLostReply(t *testing.T) {
	for generations, wanted := range []error{nil, nil, pawl.ErrBroken} {
		t.Run(fmt.Sprint(generations), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := &faultstore.Store{Store: memstore.New()}
				c, far := newClient(t, f.Store, nil), newClient(t, f, nil)
				f.Set(func() {
					f.After = func(op string) error {
						if op != "swap" {
							return nil
						}
						f.Set(func() { f.After = nil })
						// Others come for it, in as many generations.
						for range 2*generations - min(generations, 1) {
							arrive(t.Context(), c.Barrier("x", 2))
							synctest.Wait()
						}
						return faultstore.ErrNetwork
					}
				})
				a := arrive(t.Context(), far.Barrier("x", 2))
				time.Sleep(time.Minute)
				if generations == 0 {
					waiting(t, c.Barrier("x", 2), 1)
					arrive(t.Context(), c.Barrier("x", 2))
				}
				want(t, settled(t, a.done, "Wait"), wanted)
				if wanted == nil && a.index != 1 {
					t.Errorf("index %d", a.index)
				}
				waiting(t, c.Barrier("x", 2), 0)
			})
		})
	}
}

// A party gives up when all have come, and has not heard of it: it has not failed.
func TestBarrierGivesUpTooLate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		a := arrive(ctx, newClient(t, deaf{store}, nil).Barrier("x", 2))
		time.Sleep(2 * time.Second)
		b := arrive(t.Context(), newClient(t, store, nil).Barrier("x", 2))
		want(t, settled(t, b.done, "Wait"), nil)
		pending(t, a.done, "Wait of the one that does not hear")
		want(t, <-a.done, nil)
		if a.index != 1 {
			t.Errorf("index %d", a.index)
		}
	})
}

// deaf does not hear of changes.
type deaf struct{ driver.Store }

func (deaf) WaitChange(ctx context.Context, _ string, _ int64) (driver.Record, error) {
	<-ctx.Done()
	return driver.Record{}, ctx.Err()
}

// A request that counts a party comes after it has left: it does not count.
func TestBarrierLateRequest(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		near := barriers(t, store, 2, 2)
		a := arrive(t.Context(), near[0])
		synctest.Wait()
		slow := &slowSwap{Store: store, release: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := newClient(t, slow, nil).Barrier("x", 2).Wait(ctx)
		want(t, err, context.DeadlineExceeded)
		close(slow.release)
		time.Sleep(time.Second)
		pending(t, a.done, "Wait beside a party that was never counted")
		waiting(t, near[0], 1)
		b := arrive(t.Context(), near[1])
		want(t, settled(t, a.done, "Wait"), nil)
		want(t, settled(t, b.done, "Wait"), nil)
	})
}

// slowSwap carries out its first CompareAndSwap when it is released.
type slowSwap struct {
	*memstore.Store
	release chan struct{}
	late    atomic.Bool
}

func (s *slowSwap) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if s.late.Swap(true) {
		return s.Store.CompareAndSwap(ctx, r)
	}
	go func() {
		<-s.release
		s.Store.CompareAndSwap(context.Background(), r)
	}()
	<-ctx.Done()
	return driver.Record{}, ctx.Err()
}

// The engine loses its data, or an operator releases the claims: broken.
func TestBarrierLosses(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, store *memstore.Store){
		"record": func(t *testing.T, store *memstore.Store) {
			r, err := store.Load(t.Context(), "x")
			if err == nil {
				_, err = store.CompareAndSwap(t.Context(), driver.Record{Name: "x", Version: r.Version})
			}
			if err != nil {
				t.Error(err)
			}
		},
		"claims": func(t *testing.T, store *memstore.Store) {
			if _, err := store.Break(t.Context(), "x"); err != nil {
				t.Error(err)
			}
		},
		"older": func(t *testing.T, store *memstore.Store) {
			r, err := store.Load(t.Context(), "x")
			if err == nil {
				r.Value = []byte(strings.Replace(string(r.Value), `"arrived"`, `"late"`, 1))
				_, err = store.CompareAndSwap(t.Context(), r)
			}
			if err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				store := memstore.New()
				bs := barriers(t, store, 3, 3)
				a, b := arrive(t.Context(), bs[0]), arrive(t.Context(), bs[1])
				synctest.Wait()
				lose(t, store)
				want(t, settled(t, a.done, "Wait"), pawl.ErrBroken)
				want(t, settled(t, b.done, "Wait"), pawl.ErrBroken)
			})
		})
	}
}
