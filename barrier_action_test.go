package pawl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

func TestBarrierAction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		bs := barriers(t, store, 3, 4)
		var ran int
		var as []*arrival
		var lateOne *arrival
		for i := range 3 {
			b := bs[i].WithAction(func(ctx context.Context) error {
				ran++
				lateOne = arrive(t.Context(), bs[3])
				time.Sleep(time.Hour)
				waiting(t, bs[0], 3)
				return ctx.Err()
			})
			as = append(as, arrive(t.Context(), b))
			synctest.Wait()
		}
		time.Sleep(time.Hour / 2)
		for _, a := range as {
			pending(t, a.done, "Wait during the action")
		}
		time.Sleep(time.Hour)
		for i, a := range as {
			want(t, settled(t, a.done, "Wait"), nil)
			if a.index != 2-i {
				t.Errorf("index %d of party %d", a.index, i)
			}
		}
		if ran != 1 {
			t.Errorf("the action ran %d times", ran)
		}
		pending(t, lateOne.done, "Wait of the next generation")
		waiting(t, bs[0], 1)
		want(t, bs[0].Reset(t.Context()), nil)
		want(t, <-lateOne.done, pawl.ErrBroken)
	})
}

func TestBarrierActionFails(t *testing.T) {
	wrong := errors.New("the disk is full")
	for name, tt := range map[string]struct {
		why    string
		action func(context.Context) error
	}{
		"error": {"the disk is full", func(context.Context) error { return wrong }},
		"panic": {"panicked", func(context.Context) error { panic(wrong) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				bs := barriers(t, memstore.New(), 2, 2)
				other := arrive(t.Context(), bs[0].WithAction(tt.action))
				synctest.Wait()
				func() {
					defer func() {
						if r := recover(); (r != nil) != (name == "panic") {
							t.Errorf("recovered %v", r)
						}
					}()
					_, err := bs[1].WithAction(tt.action).Wait(t.Context())
					want(t, err, pawl.ErrBroken)
					want(t, err, wrong)
				}()
				err := settled(t, other.done, "Wait")
				want(t, err, pawl.ErrBroken)
				if !strings.Contains(err.Error(), tt.why) {
					t.Errorf("%v does not say why", err)
				}
				broken(t, bs[0], tt.why)
			})
		})
	}
}

// The barrier is reset while its action runs: nobody goes on.
func TestBarrierResetDuringAction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		bs := barriers(t, memstore.New(), 2, 2)
		a := arrive(t.Context(), bs[0])
		synctest.Wait()
		b := arrive(t.Context(), bs[1].WithAction(func(context.Context) error { time.Sleep(time.Hour); return nil }))
		synctest.Wait()
		want(t, bs[0].Reset(t.Context()), nil)
		want(t, settled(t, a.done, "Wait"), pawl.ErrBroken)
		want(t, <-b.done, pawl.ErrBroken)
	})
}

// A party leaves while the action runs: nobody goes on, and when the action ends
// it does not send those of the next generation on either.
func TestBarrierBrokenDuringAction(t *testing.T) {
	for _, reset := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			bs := barriers(t, memstore.New(), 3, 4)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			leaves, stays := arrive(ctx, bs[0]), arrive(t.Context(), bs[1])
			synctest.Wait()
			acts := arrive(t.Context(), bs[2].WithAction(func(context.Context) error { time.Sleep(time.Hour); return nil }))
			want(t, <-leaves.done, context.DeadlineExceeded)
			want(t, settled(t, stays.done, "Wait"), pawl.ErrBroken)
			if !reset {
				if err := <-acts.done; !errors.Is(err, pawl.ErrBroken) {
					t.Fatalf("who acted goes on: %v", err)
				}
				broken(t, bs[3], "a party left")
				return
			}
			want(t, bs[3].Reset(t.Context()), nil)
			next := arrive(t.Context(), bs[3])
			want(t, <-acts.done, pawl.ErrBroken)
			pending(t, next.done, "Wait in the next generation")
			waiting(t, bs[0], 1)
			want(t, bs[0].Reset(t.Context()), nil)
			want(t, <-next.done, pawl.ErrBroken)
		})
	}
}

// The last one's reply is lost, and the barrier is broken before it knows that it
// was the last: its action does not run.
func TestBarrierBrokenBeforeAction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		near := newClient(t, f.Store, nil).Barrier("x", 2)
		ctx, cancel := context.WithCancel(t.Context())
		a := arrive(ctx, near)
		synctest.Wait()
		f.Swaps(1, nil, func() error {
			cancel()
			want(t, <-a.done, context.Canceled)
			return faultstore.ErrNetwork
		})
		_, err := newClient(t, f, nil).Barrier("x", 2).WithAction(func(context.Context) error {
			t.Error("the action runs")
			return nil
		}).Wait(t.Context())
		want(t, err, pawl.ErrBroken)
	})
}
