package record_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/internal/record"
)

func TestBegin(t *testing.T) {
	f := newFixture(t)
	begin := func(ctx context.Context, name string, invalid error) error {
		h := f.handle(0)
		h.Name = name
		_, _, err := h.Begin(ctx, "test", invalid)
		return err
	}
	reason, unusable := errors.New("no longer"), errors.New("unusable")
	isError(t, begin(t.Context(), "", nil), driver.ErrInvalid)
	if err := begin(t.Context(), "x", reason); err == nil || err.Error() != `test latch "x": no longer` {
		t.Error(err)
	}
	f.Usable = func() error { return unusable }
	isError(t, begin(t.Context(), "x", reason), unusable)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if err := begin(over, "", nil); err != (interrupted{record.Interrupted{What: `test latch ""`, Early: true}, reason}) {
		t.Errorf("the context has ended before: %v", err)
	}
	if n := f.faults.Calls.Load(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// Failures count in a row. A read between two failed writes does not end the row,
// a write that succeeds does.
func TestGivesUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.faults.Set(func() {
			f.faults.Hook = func(op string) error {
				if op == "swap" {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		ctx, c := begin(t, f.handle(0))
		_, err := c.Change(ctx, add("a"))
		isError(t, err, faultstore.ErrNetwork)
		if err == nil || err.Error() != `test latch "x": gave up after 5 attempts: connection reset` {
			t.Error(err)
		}
		if !slices.Equal(f.retries, []int{1, 2, 3, 4, 5}) {
			t.Errorf("told of the failures %v", f.retries)
		}

		f.retries = nil
		n := 0
		f.faults.Set(func() {
			f.faults.Hook = func(string) error {
				if n++; n%4 != 0 {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		ctx, c = begin(t, f.handle(0))
		for range 5 {
			if _, err := c.Load(ctx); err != nil {
				t.Error(err)
			}
		}
		if !slices.Equal(slices.Compact(f.retries), slices.Repeat([]int{1, 2, 3}, 5)) {
			t.Errorf("told of the failures %v", f.retries)
		}
	})
}

// A call that does not retry returns the first error, and so does every call if
// the error is permanent.
func TestNoRetry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for err, once := range map[error]bool{faultstore.ErrNetwork: true, driver.Permanent(errors.New("no permission")): false, driver.ErrUnsupported: false} {
			f.faults.Set(func() { f.faults.Err = err })
			ctx, c := begin(t, f.handle(0))
			if once {
				c.NoRetry()
			}
			_, got := c.Load(ctx)
			isError(t, got, err)
			_, got = c.Change(ctx, add("a"))
			isError(t, got, err)
		}
		if f.retries != nil {
			t.Errorf("told of the failures %v", f.retries)
		}
		// It waits longer for its reply than one that will be sent again.
		for timeout, once := range map[time.Duration]bool{2 * time.Second: false, 10 * time.Second: true} {
			f.faults.Set(func() { f.faults.Err, f.faults.Down = nil, true })
			f.Backoff = func(int, error) (time.Duration, bool) { return 0, false }
			ctx, c := begin(t, f.handle(0))
			if once {
				c.NoRetry()
			}
			began := time.Now()
			_, err := c.Inspect(ctx)
			isError(t, err, context.DeadlineExceeded)
			if d := time.Since(began); d != timeout {
				t.Errorf("waited %v for a reply, want %v", d, timeout)
			}
		}
		// The error is the engine's, whether that or the context was first.
		_, c := begin(t, f.handle(0))
		c.NoRetry()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Inspect(short)
		isError(t, err, context.DeadlineExceeded)
		if _, ok := errors.AsType[interrupted](err); ok {
			t.Errorf("error is %v", err)
		}
	})
}

// Every call ends with its context, and says why the engine was not reached if that
// is so.
func TestContextEnds(t *testing.T) {
	reason := errors.New("no longer")
	await := func(ctx context.Context, c *record.Call[list]) error {
		_, err := c.Await(ctx, record.Snapshot[list]{}, time.Hour)
		return err
	}
	load := func(ctx context.Context, c *record.Call[list]) error {
		_, err := c.Load(ctx)
		return err
	}
	for name, tt := range map[string]struct {
		do        func(context.Context, *record.Call[list]) error
		down      bool
		err       error
		engine    error
		engineHas string
	}{
		"Await":          {do: await},
		"no reply":       {do: load, down: true, engine: context.Canceled, engineHas: "no reply yet"},
		"between two":    {do: load, err: faultstore.ErrNetwork, engine: faultstore.ErrNetwork},
		"Await, engine":  {do: await, err: faultstore.ErrNetwork, engine: faultstore.ErrNetwork},
		"Await, silence": {do: await, down: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.faults.Set(func() { f.faults.Down, f.faults.Err = tt.down, tt.err })
				outer, cancel := context.WithCancelCause(t.Context())
				ctx, c, err := f.handle(0).Begin(outer, "test", nil)
				if err != nil {
					t.Fatal(err)
				}
				defer c.End()
				time.AfterFunc(time.Second/2, func() { cancel(reason) })
				began := time.Now()
				err = tt.do(ctx, c)
				got, ok := errors.AsType[interrupted](err)
				if !ok || got.error != reason || got.What != `test latch "x"` || got.Name != "x" || got.Early || time.Since(began) != time.Second/2 {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
				if !errors.Is(got.Engine, tt.engine) || tt.engine != nil && !strings.Contains(got.Engine.Error(), tt.engineHas) {
					t.Errorf("the engine's error is %v", got.Engine)
				}
			})
		})
	}
}

func TestClientClosed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, err := range []error{nil, faultstore.ErrNetwork} {
			f.faults.Set(func() { f.faults.Err = err })
			f.Closed, f.close = context.WithCancel(t.Context())
			ctx, c := begin(t, f.handle(0))
			time.AfterFunc(time.Second/2, f.close)
			_, err := c.Await(ctx, record.Snapshot[list]{}, time.Hour)
			if !errors.Is(err, driver.ErrClosed) || err.Error() != `test latch "x": client or store is closed` {
				t.Error(err)
			}
		}
		// A call of no user's goes on.
		f.faults.Set(func() { f.faults.Err = nil })
		if _, err := f.handle(0).Call("clean up").Change(t.Context(), add("a")); err != nil {
			t.Error(err)
		}
	})
}
