package pawl_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// TestPassedOnWithTimeLeft: renewals have failed for most of the TTL. Nobody new
// is given what is left of it.
func TestPassedOnWithTimeLeft(t *testing.T) {
	for _, tt := range []struct {
		name string
		lock func(*pawl.Client) (*pawl.Lease, error)
		free bool // the first one unlocks
	}{
		{"Mutex", func(c *pawl.Client) (*pawl.Lease, error) { return c.Mutex("x").Lock(context.Background()) }, true},
		{"readers", func(c *pawl.Client) (*pawl.Lease, error) {
			l, err := c.RWMutex("x").RLock(context.Background())
			if err != nil {
				return nil, err
			}
			return &l.Lease, nil
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := &faultstore.Store{Store: memstore.New()}
				c := newClient(t, f, nil)
				first, err := tt.lock(c)
				if err != nil {
					t.Fatal(err)
				}
				f.Set(func() { f.RenewErr = faultstore.ErrNetwork })
				time.Sleep(11 * time.Second)
				f.Set(func() { f.RenewErr = nil })
				got := make(chan *pawl.Lease, 1)
				go func() {
					l, err := tt.lock(c)
					if err != nil {
						t.Error(err)
					}
					if left := time.Until(l.Deadline()); left < pawl.DefaultTTL/3 {
						t.Errorf("granted with %v left", left)
					}
					got <- l
				}()
				if tt.free {
					synctest.Wait()
					unlock(t, first)
					unlock(t, <-got)
				} else {
					unlock(t, <-got)
					unlock(t, first)
				}
			})
		})
	}
}

// TestDoTellsOfLoss: f has failed for the lease was lost. The error says both.
func TestDoTellsOfLoss(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, memstore.New(), &pawl.Options{NoRenewal: true})
		failure := errors.New("broken off")
		f := func(ctx context.Context) error {
			<-ctx.Done()
			return failure
		}
		for name, err := range map[string]error{
			"Mutex":     c.Mutex("x").Do(t.Context(), f),
			"RWMutex":   c.RWMutex("y").Do(t.Context(), f),
			"readers":   c.RWMutex("y").RDo(t.Context(), f),
			"Semaphore": c.Semaphore("z", 2).Do(t.Context(), 1, f),
		} {
			if !errors.Is(err, failure) || !errors.Is(err, pawl.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestContextOverBefore: an error of a wait that was none is a WaitError, too.
func TestContextOverBefore(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, lock := c.Mutex("x").Lock(ctx)
	_, barrier := c.Barrier("b", 2).Wait(ctx)
	_, all := c.LockAll(ctx, "x", "y")
	for name, err := range map[string]error{
		"Lock":    lock,
		"LockAll": all,
		"Barrier": barrier,
	} {
		w, ok := errors.AsType[*pawl.WaitError](err)
		if !ok || w.Cause != why || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("%s: %#v", name, err)
		}
	}
}
