package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

func campaign(t *testing.T, el *pawl.Election, value string) *pawl.Leadership {
	t.Helper()
	l, err := el.Campaign(t.Context(), []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func leader(t *testing.T, el *pawl.Election) pawl.Leader {
	t.Helper()
	l, err := el.Leader(t.Context())
	if err != nil {
		t.Error(err)
	}
	return l
}

func noLeader(t *testing.T, el *pawl.Election) {
	t.Helper()
	l, err := el.Leader(t.Context())
	want(t, err, pawl.ErrNoLeader)
	if l.Token != 0 {
		t.Errorf("nobody leads, but %+v", l)
	}
}

// watcher observes an election in a goroutine, and keeps all it hears.
type watcher struct {
	mu    sync.Mutex
	heard []string // values; "" for no leader
	at    []time.Time
	done  <-chan error
}

func observe(ctx context.Context, el *pawl.Election) *watcher {
	w := new(watcher)
	w.done = in(func() error {
		for l, err := range el.Observe(ctx) {
			if err != nil {
				return err
			}
			w.mu.Lock()
			w.heard, w.at = append(w.heard, string(l.Value)), append(w.at, time.Now())
			w.mu.Unlock()
		}
		return errors.New("Observe ended without an error")
	})
	return w
}

func (w *watcher) check(t *testing.T, wanted ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if fmt.Sprintf("%q", w.heard) != fmt.Sprintf("%q", wanted) {
		t.Errorf("observed %q, want %q", w.heard, wanted)
	}
}

func (w *watcher) last() (string, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heard) == 0 {
		return "nothing", time.Time{}
	}
	return w.heard[len(w.heard)-1], w.at[len(w.at)-1]
}

func TestElection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a := newClient(t, store, &pawl.Options{Label: "A"}).Election("x")
		b, far := newClient(t, store, nil).Election("x"), newClient(t, store, nil).Election("x")
		ctx, cancel := context.WithCancel(t.Context())
		w := observe(ctx, far)
		w.check(t, "")
		noLeader(t, far)

		first := campaign(t, a, "a1")
		began := time.Now()
		w.check(t, "", "a1")
		var second *pawl.Leadership
		next := in(func() (err error) { second, err = b.Campaign(t.Context(), []byte("b1")); return err })
		time.Sleep(time.Hour)
		pending(t, next, "the next one's campaign")
		got := leader(t, far)
		if got.Token != first.Token() || got.Owner.Label != "A" || !got.Since.Equal(began) || string(got.Value) != "a1" ||
			!strings.HasPrefix(first.Handle(), got.Claim+".") {
			t.Errorf("the leader is %+v", got)
		}
		want(t, first.Proclaim(t.Context(), []byte("a2")), nil)
		want(t, first.Proclaim(t.Context(), []byte("a2")), nil)
		w.check(t, "", "a1", "a2")
		if got := leader(t, b); string(got.Value) != "a2" {
			t.Errorf("the leader is %+v", got)
		}
		led := first.Context(t.Context())
		want(t, first.Resign(t.Context()), nil)
		want(t, context.Cause(led), pawl.ErrReleased)
		want(t, settled(t, next, "the next one's campaign"), nil)
		if got := leader(t, a); got.Token != second.Token() || second.Token() <= first.Token() || string(got.Value) != "b1" {
			t.Errorf("the leader is %+v", got)
		}
		want(t, first.Resign(t.Context()), pawl.ErrReleased)
		want(t, first.Proclaim(t.Context(), nil), pawl.ErrReleased)
		if got := leader(t, a); string(got.Value) != "b1" {
			t.Errorf("the leader is %+v", got)
		}
		want(t, second.Unlock(t.Context()), nil)
		noLeader(t, a)
		synctest.Wait()
		if v, at := w.last(); v != "" || !at.Equal(time.Now()) {
			t.Errorf("observed %q at %v, it is %v", v, at, time.Now())
		}
		if r, err := store.Load(t.Context(), "x"); err != nil || r.Version != 0 {
			t.Errorf("left behind: %+v, %v", r, err)
		}
		third := campaign(t, a, "")
		if got := leader(t, b); got.Token != third.Token() || len(got.Value) != 0 {
			t.Errorf("the leader is %+v", got)
		}
		want(t, third.Resign(t.Context()), nil)
		cancel()
		want(t, settled(t, w.done, "Observe"), context.Canceled)
		if a.Name() != "x" {
			t.Errorf("its name is %q", a.Name())
		}
	})
}

// Several candidates of one process are leaders in turn, each under a claim of
// its own.
func TestElectionInOneProcess(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		el := newClient(t, memstore.New(), nil).Election("x")
		var all sync.WaitGroup
		var mu sync.Mutex
		terms := make(map[string]bool) // claims
		for i := range 20 {
			all.Go(func() {
				l := campaign(t, el, fmt.Sprint(i))
				if got := leader(t, el); got.Token != l.Token() || string(got.Value) != fmt.Sprint(i) {
					t.Errorf("%d leads, the leader is %+v", i, got)
				}
				time.Sleep(time.Second)
				got := leader(t, el)
				if got.Token != l.Token() {
					t.Errorf("%d leads, the leader is %+v", i, got)
				}
				mu.Lock()
				terms[got.Claim] = true
				mu.Unlock()
				want(t, l.Resign(t.Context()), nil)
			})
		}
		all.Wait()
		if len(terms) != 20 {
			t.Errorf("20 leaders had %d claims", len(terms))
		}
		noLeader(t, el)
	})
}

// A leader dies: those who observe are told when its claim has run out, also if
// nobody follows; its successor leads a TTL later at the most.
func TestElectionDeath(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		dying, other := newClient(t, f, nil).Election("x"), newClient(t, store, nil).Election("x")
		w := observe(t.Context(), other)
		w.check(t, "")
		l := campaign(t, dying, "a")
		time.Sleep(time.Hour)
		f.Set(func() { f.Down = true })
		died := time.Now()
		<-l.Lost()
		if got := leader(t, other); got.Token != l.Token() {
			t.Errorf("its claim lives, and the leader is %+v", got)
		}
		time.Sleep(pawl.DefaultTTL + time.Second - time.Since(died))
		noLeader(t, other)
		w.check(t, "", "a", "")
		want(t, l.Proclaim(t.Context(), []byte("b")), pawl.ErrLost)
		f.Set(func() { f.Down = false })
		want(t, l.Proclaim(t.Context(), []byte("b")), pawl.ErrLost)
		noLeader(t, other)

		l = campaign(t, dying, "c")
		next := in(func() error { _, err := other.Campaign(t.Context(), []byte("d")); return err })
		time.Sleep(time.Minute)
		f.Set(func() { f.Down = true })
		died = time.Now()
		want(t, <-next, nil)
		if d := time.Since(died); d > pawl.DefaultTTL+time.Second {
			t.Errorf("the next one leads after %v", d)
		}
		if l.Err() == nil {
			t.Error("the first does not know")
		}
		f.Set(func() { f.Down = false })
		want(t, l.Resign(t.Context()), pawl.ErrLost)
		if got := leader(t, other); string(got.Value) != "d" {
			t.Errorf("the leader is %+v", got)
		}
	})
}

// An operator takes the name away: those who observe see it within a heartbeat.
func TestElectionReleased(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := newClient(t, store, nil)
		l := campaign(t, c.Election("x"), "a")
		w := observe(t.Context(), c.Election("x"))
		time.Sleep(time.Minute)
		if _, err := c.ForceRelease(t.Context(), "x"); err != nil {
			t.Error(err)
		}
		<-l.Lost()
		noLeader(t, c.Election("x"))
		time.Sleep(6 * time.Second)
		w.check(t, "a", "")
		// With MinHold the name stays taken after the resignation, but nobody leads.
		l = campaign(t, c.With(func(o *pawl.Options) { o.MinHold = time.Hour }).Election("y"), "a")
		want(t, l.Resign(t.Context()), nil)
		noLeader(t, c.Election("y"))
		if n := claims(t, store, "y"); n != 1 {
			t.Errorf("%d claims", n)
		}
		// Likewise where the record tells of it still.
		l = campaign(t, c.With(func(o *pawl.Options) { o.MinHold = time.Hour }).Election("v"), "a")
		want(t, l.Lease.Unlock(t.Context()), nil)
		noLeader(t, c.Election("v"))
		l = campaign(t, c.Election("w"), "a")
		want(t, l.Lease.Unlock(t.Context()), nil)
		m := lock(t, c.Mutex("w"))
		noLeader(t, c.Election("w"))
		unlock(t, m)
		// A term that is limited.
		l = campaign(t, c.With(func(o *pawl.Options) { o.MaxHold = time.Hour }).Election("z"), "a")
		began := time.Now()
		<-l.Lost()
		if d := time.Since(began); d != time.Hour {
			t.Errorf("it led for %v", d)
		}
		l.Resign(t.Context())
		// Whoever just holds the lock does not lead.
		m = lock(t, c.Mutex("m"))
		noLeader(t, c.Election("m"))
		unlock(t, m)
	})
}

// What the leader said is kept for as long as it leads, and not for ever.
func TestElectionExpiry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		const expiry = 20 * time.Minute
		el := newClient(t, f, nil).Election("x").Expiring(expiry)
		l := campaign(t, el, "a")
		time.Sleep(10 * expiry)
		if got := leader(t, el); string(got.Value) != "a" || l.Err() != nil {
			t.Errorf("the leader is %+v, %v", got, l.Err())
		}
		f.Set(func() { f.Down = true })
		<-l.Lost()
		time.Sleep(expiry)
		if r, err := store.Load(t.Context(), "x"); err != nil || r.Version != 0 {
			t.Errorf("left behind: %+v, %v", r, err)
		}
		f.Set(func() { f.Down = false })
	})
}

func TestElectionErrors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		c := newClient(t, f, &pawl.Options{Backoff: pawl.LimitBackoff(5, pawl.ConstantBackoff(time.Second))})
		each := func(el *pawl.Election, ctx context.Context, targets ...error) {
			t.Helper()
			_, err := el.Campaign(ctx, nil)
			_, err2 := el.Leader(ctx)
			for i, err := range []error{err, err2, <-observe(ctx, el).done} {
				for _, target := range targets {
					if !errors.Is(err, target) {
						t.Errorf("%s: error is %v, want %v", []string{"Campaign", "Leader", "Observe"}[i], err, target)
					}
				}
			}
		}
		ctx := t.Context()
		each(c.Election("{"), ctx, pawl.ErrInvalid)
		each(c.With(func(o *pawl.Options) { o.TTL = 1 }).Election("x"), ctx, pawl.ErrInvalid)
		big := make([]byte, 64<<10+1)
		_, err := c.Election("x").Campaign(ctx, big)
		want(t, err, pawl.ErrInvalid)
		over, cancel := context.WithCancel(ctx)
		cancel()
		each(c.Election("x"), over, context.Canceled)
		if n := f.Calls.Load(); n != 0 {
			t.Errorf("%d calls of the store before the arguments were checked", n)
		}

		l, err := c.Election("x").Campaign(ctx, big[1:])
		want(t, err, nil)
		if got := leader(t, c.Election("x")); len(got.Value) != 64<<10 {
			t.Errorf("a value of %d bytes", len(got.Value))
		}
		want(t, l.Proclaim(ctx, big), pawl.ErrInvalid)
		want(t, l.Proclaim(over, nil), context.Canceled)
		_, err = c.Election("x").Campaign(l.Context(ctx), nil)
		want(t, err, pawl.ErrDeadlock)
		wait, cancelWait := context.WithTimeout(ctx, time.Minute)
		defer cancelWait()
		_, err = c.Election("x").Campaign(wait, nil)
		var we *pawl.WaitError
		if !errors.As(err, &we) || we.Engine != nil {
			t.Errorf("Campaign: %v", err)
		}
		want(t, l.Resign(over), nil)
		noLeader(t, c.Election("x"))
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims left", n)
		}

		countDown(t, c.Latch("latch", 2), "", 1)
		m := lock(t, c.Mutex("latch")) // nobody waits before that is told
		short, cancelShort := context.WithTimeout(ctx, time.Second)
		defer cancelShort()
		each(c.Election("latch"), short, pawl.ErrMismatch)
		unlock(t, m)
		p, err := c.Semaphore("s", 2).Acquire(ctx, 1)
		want(t, err, nil)
		_, err = c.Election("s").Campaign(ctx, nil)
		want(t, err, pawl.ErrMismatch)
		unlock(t, p)

		f.Set(func() { f.Err = faultstore.ErrNetwork })
		each(c.Election("x"), ctx, faultstore.ErrNetwork)
		f.Set(func() { f.Err = fmt.Errorf("records: %w", driver.ErrUnsupported) })
		each(c.Election("x"), ctx, pawl.ErrUnsupported)
		f.Set(func() { f.Err = nil })

		// Elected, but the value cannot be written: no claim stays behind.
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "swap" {
					return driver.Permanent(faultstore.ErrNetwork)
				}
				return nil
			}
		})
		_, err = c.Election("x").Campaign(ctx, nil)
		want(t, err, faultstore.ErrNetwork)
		f.Set(func() { f.Hook = nil })
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims left", n)
		}

		closing := pawl.New(store, nil)
		l = campaign(t, closing.Election("x"), "")
		w := observe(ctx, closing.Election("x"))
		synctest.Wait()
		want(t, closing.Close(ctx), nil)
		want(t, settled(t, w.done, "Observe while the client is closed"), pawl.ErrClosed)
		each(closing.Election("x"), ctx, pawl.ErrClosed)
		want(t, l.Proclaim(ctx, nil), pawl.ErrClosed)
		noLeader(t, c.Election("x"))
	})
}

const ttlOfTerms = 5 * time.Second
