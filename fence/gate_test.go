package fence_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/internal/bubble"
)

func one(value int64) []fence.Token { return []fence.Token{{Name: "n", Value: value}} }

func wantStale(t *testing.T, err error, want fence.StaleError) {
	t.Helper()
	stale, ok := errors.AsType[*fence.StaleError](err)
	if !ok || *stale != want || !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v, want %v", err, &want)
	}
}

func TestGateCheck(t *testing.T) {
	var g fence.Gate
	for _, token := range []int64{5, 5, 7} {
		if err := g.Check("n", token); err != nil {
			t.Errorf("%d: %v", token, err)
		}
	}
	wantStale(t, g.Check("n", 6), fence.StaleError{Name: "n", Token: 6, Seen: 7})
	if err := g.Check("other", 1); err != nil {
		t.Errorf("another name: %v", err)
	}
	if err := g.Check("n", 0); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("0: %v", err)
	}
	if err := g.Check("n", math.MaxInt64); err != nil {
		t.Errorf("the greatest: %v", err)
	}
	if got := g.Seen("n"); got != math.MaxInt64 {
		t.Errorf("seen %d", got)
	}
	g.Forget("n")
	if err := g.Check("n", 1); err != nil {
		t.Errorf("a name that was forgotten: %v", err)
	}
}

// A greater token ends the context of an older section, waits for its end, and
// refuses those that come later, also while it waits.
func TestGateDo(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var g fence.Gate
		var events []string
		go func() {
			err := g.Do(t.Context(), one(5), func(ctx context.Context) error {
				<-ctx.Done()
				wantStale(t, context.Cause(ctx), fence.StaleError{Name: "n", Token: 5, Seen: 6})
				time.Sleep(time.Second) // it takes its time
				events = append(events, "5 ends")
				return ctx.Err()
			})
			wantStale(t, err, fence.StaleError{Name: "n", Token: 5, Seen: 6})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v hides what the section returned", err)
			}
		}()
		synctest.Wait()
		go func() {
			time.Sleep(time.Millisecond)
			wantStale(t, g.Do(t.Context(), one(5), nil), fence.StaleError{Name: "n", Token: 5, Seen: 6})
		}()
		err := g.Do(t.Context(), one(6), func(context.Context) error {
			events = append(events, "6 begins")
			return nil
		})
		if err != nil || len(events) != 2 || events[0] != "5 ends" {
			t.Errorf("%v, %v", err, events)
		}
	})
}

// Who waits for an older section gives way to a greater token, or to its context's end.
func TestGateDoWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var g fence.Gate
		var wg sync.WaitGroup
		end := make(chan struct{})
		wg.Go(func() {
			if err := g.Do(t.Context(), one(5), func(context.Context) error { <-end; return nil }); err != nil {
				t.Errorf("a section that has written: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := g.Do(ctx, one(6), nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it waits for too long: %v", err)
			}
		})
		wg.Go(func() {
			time.Sleep(2 * time.Second)
			wantStale(t, g.Do(t.Context(), one(7), nil), fence.StaleError{Name: "n", Token: 7, Seen: 8})
		})
		wg.Go(func() {
			time.Sleep(3 * time.Second)
			if err := g.Do(t.Context(), one(8), func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(4 * time.Second)
		close(end)
		wg.Wait()
	})
}

// Sections of one holder run side by side; one of several names notes all or none.
func TestGateDoSeveral(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var g fence.Gate
		two := []fence.Token{{Name: "b", Value: 3}, {Name: "a", Value: 3}}
		err := g.Do(t.Context(), two, func(ctx context.Context) error {
			return g.Do(ctx, two[:1], func(context.Context) error { return nil })
		})
		if err != nil {
			t.Errorf("within another of the same token: %v", err)
		}
		err = g.Do(t.Context(), []fence.Token{{Name: "a", Value: 9}, {Name: "b", Value: 2}}, nil)
		wantStale(t, err, fence.StaleError{Name: "b", Token: 2, Seen: 3})
		if got := g.Seen("a"); got != 3 {
			t.Errorf("seen %d of a, though it was refused for b", got)
		}
	})
}

// Whatever comes in whatever order: no section runs beside or after one with a greater
// token.
func TestGateCrowd(t *testing.T) {
	var g fence.Gate
	var latest atomic.Int64
	running := map[string]*atomic.Int64{"a": {}, "b": {}} // the token that writes
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 300 {
				token := latest.Add(rand.Int64N(2)) + 8 - rand.Int64N(4)
				tokens := []fence.Token{{Name: "a", Value: token}, {Name: "b", Value: token}}
				if i >= 4 {
					tokens = tokens[i%2:][:1]
				}
				err := g.Do(t.Context(), tokens, func(context.Context) error {
					for _, tk := range tokens {
						if was := running[tk.Name].Swap(token); was > token {
							t.Errorf("%d of %q writes after %d", token, tk.Name, was)
						}
					}
					runtime.Gosched()
					for _, tk := range tokens {
						if is := running[tk.Name].Load(); is != token {
							t.Errorf("%d of %q writes beside %d", is, tk.Name, token)
						}
					}
					return nil
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if latest.Load() < 100 {
		t.Errorf("no more than %d tokens", latest.Load())
	}
}
