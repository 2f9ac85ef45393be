package pawl_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// asks are the calls that ask the store about a name at once.
var asks = map[string]func(context.Context, *pawl.Client) error{
	"Inspect":      func(ctx context.Context, c *pawl.Client) error { _, err := c.Inspect(ctx, "x"); return err },
	"ForceRelease": func(ctx context.Context, c *pawl.Client) error { _, err := c.ForceRelease(ctx, "x"); return err },
	"Ask":          func(ctx context.Context, c *pawl.Client) error { return c.RequestYield(ctx, "x") },
	"SetLimit": func(ctx context.Context, c *pawl.Client) error {
		return c.Semaphore("x", 5).SetLimit(ctx, 5)
	},
}

func list(ctx context.Context, c *pawl.Client) error {
	var errs []error
	for _, err := range c.List(ctx, "") {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// A client without a store, or one that was closed, says so, and asks nothing.
func TestClientUnusable(t *testing.T) {
	store := memstore.New()
	f := &faultstore.Store{Store: store}
	closed := pawl.New(f, nil)
	want(t, closed.Close(t.Context()), nil)
	for _, tt := range []struct {
		c   *pawl.Client
		err error
	}{
		{pawl.New(nil, nil), pawl.ErrInvalid},
		{pawl.New(nil, nil).With(func(o *pawl.Options) { o.Label = "a" }), pawl.ErrInvalid},
		{pawl.New(f, &pawl.Options{TTL: 1}), pawl.ErrInvalid},
		{closed, pawl.ErrClosed},
	} {
		for name, ask := range asks {
			if err := ask(t.Context(), tt.c); !errors.Is(err, tt.err) {
				t.Errorf("%s: %v, want %v", name, err, tt.err)
			}
		}
		want(t, list(t.Context(), tt.c), tt.err)
	}
	if n := f.Calls.Load(); n != 0 {
		t.Errorf("%d calls reached the store", n)
	}
}

// No call hangs with an engine that does not reply, whatever its context.
func TestClientEngineSilent(t *testing.T) {
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				c := newClient(t, &faultstore.Store{Store: memstore.New(), Down: true}, nil)
				begun := time.Now()
				want(t, ask(context.Background(), c), context.DeadlineExceeded)
				if d := time.Since(begun); d > 15*time.Second {
					t.Errorf("it took %v", d)
				}
			})
		})
	}
}

// Who only tries is told after ten seconds, however many of its requests got no reply.
func TestTryLockEngineSilent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newClient(t, &faultstore.Store{Store: memstore.New(), Down: true}, nil)
		begun := time.Now()
		_, err := c.Mutex("x").TryLock(context.Background())
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(begun); d != 10*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

func TestList(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	lock(t, c.Mutex("a/1"))
	lock(t, c.Mutex("a/2"))
	lock(t, c.Mutex("b"))
	found := map[string]pawl.Queue{}
	for q, err := range c.List(t.Context(), "a/") {
		want(t, err, nil)
		found[q.Name] = q
	}
	if len(found) != 2 || len(found["a/1"].Claims) != 1 || len(found["a/2"].Claims) != 1 {
		t.Errorf("listed %+v", found)
	}
}

// Close drops MinHold.
func TestCloseDropsMinHold(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := pawl.New(store, &pawl.Options{MinHold: time.Minute})
		lock(t, c.Mutex("x"))
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		start := time.Now()
		unlock(t, lock(t, newClient(t, store, nil).Mutex("x")))
		if d := time.Since(start); d < time.Minute-time.Second {
			t.Errorf("free %v after Close", d)
		}
	})
}

// Close without a deadline never ends while the engine is away.
func TestCloseForever(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := pawl.New(f, nil)
		lock(t, c.Mutex("x"))
		f.Set(func() { f.Err = faultstore.ErrNetwork })
		done := make(chan struct{})
		go func() { c.Close(context.Background()); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Error("Close(Background) still tries to release a claim whose TTL of 15 s ended an hour ago")
			f.Set(func() { f.Err = nil })
			<-done
		}
	})
}

func TestCloseUnderAnEndedContext(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		f := &faultstore.Store{Store: memstore.New()}
		c := pawl.New(f, nil)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		lock(t, c.Mutex("stays"))
		f.Set(func() { f.Down = true })
		start := time.Now()
		err := c.Close(over)
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d != unlockTimeout || err == nil || !strings.Contains(err.Error(), `"stays"`) {
			t.Errorf("%v, after %v", err, d)
		}
		// It has a moment, and if that is enough all is well.
		f = &faultstore.Store{Store: memstore.New()}
		c = pawl.New(f, nil)
		lock(t, c.Mutex("goes"))
		want(t, c.Close(over), nil)
		if claims(t, f.Store, "goes") != 0 {
			t.Error("a claim is left")
		}
	})
}

func TestOptionsNotAllowed(t *testing.T) {
	c := newClient(t, memstore.New(), nil)
	for _, o := range []pawl.Options{
		{TTL: -1}, {MinHold: -1}, {MinHold: driver.MaxTTL + 1}, {MaxHold: -1}, {Label: "a\nb"}, {Label: "\xff"},
	} {
		bad := c.With(func(p *pawl.Options) { *p = o })
		err := bad.Mutex("x").Do(t.Context(), never(t))
		want(t, err, pawl.ErrInvalid)
		_, err = bad.With(func(o *pawl.Options) { o.TTL = time.Second }).Inspect(t.Context(), "x")
		want(t, err, pawl.ErrInvalid)
	}
}

// What a client has switched on can be switched off again, and does not change with
// the other one.
func TestWith(t *testing.T) {
	observed := make(map[string]bool)
	on := newClient(t, memstore.New(), &pawl.Options{
		TTL: time.Hour, Reentrant: true, Observer: func(e pawl.Event) { observed[e.Name] = true },
	})
	off := on.With(func(o *pawl.Options) {
		if o.TTL != time.Hour || !o.Reentrant || o.Observer == nil || o.Backoff == nil {
			t.Errorf("it began with %+v", o)
		}
		o.TTL, o.Reentrant, o.Observer, o.Backoff = 0, false, nil, nil
	})
	l := lock(t, off.Mutex("x"))
	if left := time.Until(l.Deadline()); left > pawl.DefaultTTL {
		t.Errorf("no TTL: %v are left", left)
	}
	_, err := off.Mutex("x").Lock(l.Context(t.Context()))
	want(t, err, pawl.ErrDeadlock)
	again, err := on.Mutex("y").Lock(lock(t, on.Mutex("y")).Context(t.Context()))
	want(t, err, nil)
	unlock(t, again)
	unlock(t, l)
	want(t, on.Close(t.Context()), nil)
	if observed["x"] || !observed["y"] {
		t.Errorf("observed: %v", observed)
	}
}
