package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/bubble"
)

// The context ends as one with a timer does, whether Done was called
// before that, after it, or never.
func TestWithTimeout(t *testing.T) {
	reason := errors.New("reason")
	ends := map[string]struct {
		end   func(parent context.CancelCauseFunc, cancel context.CancelFunc)
		err   error
		cause error
	}{
		"deadline": {func(context.CancelCauseFunc, context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded, context.DeadlineExceeded},
		"parent":   {func(parent context.CancelCauseFunc, _ context.CancelFunc) { parent(reason) }, context.Canceled, reason},
		"cancel":   {func(_ context.CancelCauseFunc, cancel context.CancelFunc) { cancel() }, context.Canceled, context.Canceled},
		"cancel, then deadline": {func(_ context.CancelCauseFunc, cancel context.CancelFunc) {
			cancel()
			time.Sleep(time.Second)
		}, context.Canceled, context.Canceled},
	}
	for name, c := range ends {
		for _, asked := range []string{"before", "after", "not"} {
			t.Run(name+"/"+asked, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					parent, cancelParent := context.WithCancelCause(t.Context())
					defer cancelParent(nil)
					begun := time.Now()
					ctx, cancel := WithTimeout(parent, time.Second)
					defer cancel()
					if end, ok := ctx.Deadline(); !ok || !end.Equal(begun.Add(time.Second)) {
						t.Errorf("deadline %v, %v", end, ok)
					}
					if asked == "before" {
						derived, stop := context.WithCancel(ctx)
						defer stop()
						defer func() {
							if derived.Err() == nil {
								t.Error("the derived context has not ended")
							}
						}()
					}
					if err := ctx.Err(); err != nil {
						t.Errorf("ended at once: %v", err)
					}
					c.end(cancelParent, cancel)
					synctest.Wait()
					for range 2 {
						if err := ctx.Err(); err != c.err {
							t.Errorf("Err is %v", err)
						}
						if err := context.Cause(ctx); err != c.cause {
							t.Errorf("Cause is %v", err)
						}
						if asked == "not" {
							continue
						}
						select {
						case <-ctx.Done():
						default:
							t.Error("Done is open")
						}
					}
				})
			})
		}
	}
}

func TestWithTimeoutKeepsEarlierDeadline(t *testing.T) {
	parent, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	want, _ := parent.Deadline()
	ctx, cancel := WithTimeout(parent, time.Hour)
	defer cancel()
	if end, ok := ctx.Deadline(); !ok || !end.Equal(want) {
		t.Errorf("deadline %v, want %v", end, want)
	}
}

func TestOutlast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		reason := errors.New("reason")
		parent, end := context.WithCancelCause(t.Context())
		ctx, cancel := Outlast(parent, time.Second)
		defer cancel()
		end(reason)
		time.Sleep(time.Second - 1)
		if ctx.Err() != nil {
			t.Error("it has ended too early")
		}
		time.Sleep(2 * time.Nanosecond)
		if context.Cause(ctx) != reason {
			t.Errorf("a second later its cause is %v", context.Cause(ctx))
		}
	})
}

type valueKey struct{}

func TestDetached(t *testing.T) {
	for _, asked := range []string{"Err", "Done"} {
		bubble.Test(t, func(t *testing.T) {
			parent, end := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "kept"))
			end(errors.New("reason"))
			ctx, cancel := Detached(parent, time.Second)
			defer cancel()
			if asked == "Done" {
				ctx.Done()
			}
			if done, until := Ends(ctx); done != nil || until.IsZero() {
				t.Errorf("it ends by %v, at %v", done, until)
			}
			if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(valueKey{}) != "kept" {
				t.Errorf("it has ended with ctx: %v, %v", ctx.Err(), context.Cause(ctx))
			}
			derived, stop := context.WithCancel(ctx)
			defer stop()
			if derived.Err() != nil {
				t.Errorf("a context derived from it has ended: %v", derived.Err())
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if ctx.Err() != context.DeadlineExceeded || derived.Err() != context.DeadlineExceeded {
				t.Errorf("a second later: %v, %v", ctx.Err(), derived.Err())
			}
		})
	}
}

// The engine makes two for each lock, and nothing else there is as dear.
func TestOneAllocation(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	for name, f := range map[string]func(){
		"WithTimeout": func() {
			one, cancel := WithTimeout(ctx, time.Second)
			defer cancel()
			two, cancel := WithTimeout(one, time.Hour)
			defer cancel()
			two.Deadline()
		},
		"Detached": func() {
			one, cancel := Detached(ctx, time.Second)
			defer cancel()
			one.Deadline()
		},
	} {
		if n := testing.AllocsPerRun(100, f); n > 1 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
}
