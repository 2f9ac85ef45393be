package pawl_test

import (
	"context"
	"errors"
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

// units returns how many units of the name the claim has that holds it, alone.
func units(t *testing.T, s driver.Store, name string) int64 {
	t.Helper()
	q, err := s.Inspect(context.Background(), name)
	if err != nil || len(q.Claims) != 1 {
		t.Fatalf("%+v, %v", q, err)
	}
	return q.Claims[0].Units
}

func TestDowngrade(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		w := wlock(t, a.RWMutex("x"))
		token := w.Token()
		writers := make(chan *pawl.RWLease, 2)
		for range 2 { // who would get the lock next, without asking the store
			go func() { writers <- wlock(t, a.RWMutex("x")) }()
			synctest.Wait()
		}
		readers := make(chan *pawl.RWLease, 2)
		for _, c := range []*pawl.Client{a, b} {
			go func() { readers <- rlock(t, c.RWMutex("x")) }()
		}
		synctest.Wait()
		if err := w.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		first, second := <-readers, <-readers
		if first.Token() <= token || second.Token() <= token || w.Token() != token {
			t.Errorf("tokens %d, %d beside %d of the writer, then %d", first.Token(), second.Token(), token, w.Token())
		}
		if err := w.Downgrade(t.Context()); err != nil {
			t.Errorf("twice: %v", err)
		}
		time.Sleep(time.Minute)
		if w.Err() != nil || len(writers) > 0 {
			t.Errorf("a minute later: %v, %d writers", w.Err(), len(writers))
		}
		unlock(t, w)
		synctest.Wait()
		if len(writers) > 0 {
			t.Error("a writer beside readers: the claim was passed on")
		}
		unlock(t, first)
		unlock(t, second)
		next := <-writers
		if next.Token() <= second.Token() {
			t.Errorf("token %d after %d", next.Token(), second.Token())
		}
		unlock(t, next)
		unlock(t, <-writers)
		want(t, w.Downgrade(t.Context()), pawl.ErrReleased)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	})
}

func TestTryUpgrade(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, &pawl.Options{Label: "a"}), newClient(t, store, &pawl.Options{Label: "b"})
		held := func(err error, label string) {
			t.Helper()
			var h *pawl.HeldError
			if !errors.As(err, &h) || h.Holder == nil || h.Holder.Owner.Label != label {
				t.Errorf("error is %v, want one that names %q", err, label)
			}
		}
		l, other := rlock(t, a.RWMutex("x")), rlock(t, a.RWMutex("x"))
		token := l.Token()
		held(l.TryUpgrade(t.Context()), "a")
		unlock(t, other)
		other = rlock(t, b.RWMutex("x"))
		held(l.TryUpgrade(t.Context()), "b")
		held(other.TryUpgrade(t.Context()), "a") // at once, both
		joined := rlock(t, a.RWMutex("x"))
		if n := claims(t, store, "x"); n != 2 {
			t.Errorf("%d claims: nobody joins after an upgrade that was refused", n)
		}
		unlock(t, joined)
		last := other.Token()
		unlock(t, other)
		if l.Token() != token || l.Err() != nil {
			t.Errorf("refused, and token %d became %d, %v", token, l.Token(), l.Err())
		}

		if err := l.TryUpgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		if err := l.TryUpgrade(t.Context()); err != nil {
			t.Errorf("twice: %v", err)
		}
		for _, c := range []*pawl.Client{a, b} {
			_, err := c.RWMutex("x").TryRLock(t.Context())
			held(err, "a")
		}
		readers := make(chan *pawl.RWLease, 2)
		for _, c := range []*pawl.Client{a, b} {
			go func() { readers <- rlock(t, c.RWMutex("x")) }()
		}
		time.Sleep(time.Minute)
		if l.Err() != nil || len(readers) > 0 {
			t.Fatalf("a minute later: %v, %d readers", l.Err(), len(readers))
		}
		token = l.Token()
		if err := l.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		first, second := <-readers, <-readers
		want(t, l.TryUpgrade(t.Context()), pawl.ErrHeld)
		unlock(t, first)
		unlock(t, second)
		if err := l.TryUpgrade(t.Context()); err != nil || l.Token() <= max(token, first.Token(), second.Token()) {
			t.Errorf("again: %v, token %d after %d, %d and %d", err, l.Token(), token, first.Token(), second.Token())
		}
		unlock(t, l)
		want(t, l.TryUpgrade(t.Context()), pawl.ErrReleased)
		if n := claims(t, store, "x"); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	})
}

// Writers who wait are passed by an upgrade; they come after it.
func TestUpgradePassesWriters(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		l := rlock(t, a.RWMutex("x"))
		writers := make(chan *pawl.RWLease, 2)
		for _, c := range []*pawl.Client{a, b} {
			go func() { writers <- wlock(t, c.RWMutex("x")) }()
		}
		synctest.Wait()
		if err := l.TryUpgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		token := l.Token()
		unlock(t, l)
		for range cap(writers) {
			w := <-writers
			if w.Token() <= token {
				t.Errorf("token %d after %d", w.Token(), token)
			}
			token = w.Token()
			unlock(t, w)
		}
	})
}

func TestResizeNotAllowed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, store, &pawl.Options{Reentrant: true})
		resized := store.Count("resize")
		shown := wlock(t, c.RWMutex("shown"))
		shown.Handle()
		want(t, shown.Downgrade(t.Context()), pawl.ErrInvalid)
		want(t, shown.TryUpgrade(t.Context()), pawl.ErrInvalid)
		unlock(t, shown)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		w := wlock(t, c.RWMutex("x"))
		want(t, w.Downgrade(over), context.Canceled)
		inner, err := c.RWMutex("x").RLock(w.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		want(t, inner.Downgrade(t.Context()), pawl.ErrInvalid)
		if n := resized.Load(); n > 0 {
			t.Errorf("%d requests for what is not allowed", n)
		}
		unlock(t, w) // the outer one
		if err := inner.Downgrade(t.Context()); err != nil {
			t.Error(err)
		}
		// Both leases of a reader are a writer's then.
		again, err := c.RWMutex("x").RLock(inner.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.TryUpgrade(t.Context()); err != nil || again.Token() != inner.Token() {
			t.Errorf("%v, tokens %d and %d", err, again.Token(), inner.Token())
		}
		unlock(t, again)
		if n := units(t, store, "x"); n != driver.MaxLimit {
			t.Errorf("%d units are left", n)
		}
		unlock(t, inner)
	})
}

// An engine that cannot do it: the lease is what it was.
func TestResizeUnsupported(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, store, nil)
		store.Set(func() {
			store.Hook = func(op string) error {
				if op == "resize" {
					return driver.ErrUnsupported
				}
				return nil
			}
		})
		w := wlock(t, c.RWMutex("x"))
		want(t, w.Downgrade(t.Context()), pawl.ErrUnsupported)
		next := make(chan *pawl.RWLease)
		go func() { next <- wlock(t, c.RWMutex("x")) }()
		synctest.Wait()
		time.Sleep(time.Millisecond) // tokens keep to the clock
		before := store.Calls.Load()
		unlock(t, w)
		w = <-next
		if n := store.Calls.Load() - before; n > 0 {
			t.Errorf("%d requests: the lock is not passed on any longer", n)
		}
		unlock(t, w)
		l := rlock(t, c.RWMutex("x"))
		want(t, l.TryUpgrade(t.Context()), pawl.ErrUnsupported)
		other := rlock(t, c.RWMutex("x"))
		if n := claims(t, store, "x"); n != 1 {
			t.Errorf("%d claims", n)
		}
		unlock(t, l)
		unlock(t, other)
	})
}

// A reply is lost: the request is repeated, and the outcome is one.
func TestResizeReplyLost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &faultstore.Store{Store: memstore.New()}
		c := newClient(t, store, nil)
		for _, lost := range []int64{1, 3} {
			l := rlock(t, c.RWMutex("x"))
			token := l.Token()
			var n atomic.Int64
			store.Set(func() {
				store.After = func(op string) error {
					if op == "resize" && n.Add(1) <= lost {
						return faultstore.ErrNetwork
					}
					return nil
				}
			})
			if err := l.TryUpgrade(t.Context()); err != nil || l.Token() <= token {
				t.Fatalf("%v, token %d after %d", err, l.Token(), token)
			}
			if n := units(t, store, "x"); n != driver.MaxLimit {
				t.Errorf("%d units", n)
			}
			n.Store(0)
			if err := l.Downgrade(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := units(t, store, "x"); n != 1 {
				t.Errorf("%d units", n)
			}
			time.Sleep(time.Minute)
			unlock(t, l)
			store.Set(func() { store.After = nil })
		}
	})
}

// The engine has made a reader a writer, and does not reply: the reader is told
// that it is none, and others may read once the engine replies again.
func TestUpgradeUnanswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		a, b := newClient(t, f, nil), newClient(t, store, nil)
		l := rlock(t, a.RWMutex("x"))
		ctx := l.Context(t.Context())
		token := l.Token()
		f.Set(func() {
			f.After = func(op string) error {
				if op == "resize" {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		start := time.Now()
		err := l.TryUpgrade(t.Context())
		want(t, err, faultstore.ErrNetwork)
		want(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d > 11*time.Second {
			t.Errorf("it took %v", d)
		}
		if l.Err() != nil || l.Token() != token {
			t.Errorf("the reader's lease: %v, token %d was %d", l.Err(), l.Token(), token)
		}
		if err := l.TryUpgrade(t.Context()); err == nil || errors.Is(err, pawl.ErrHeld) {
			t.Errorf("again, before it is settled: %v", err)
		}
		readers := make(chan *pawl.RWLease, 2)
		for _, c := range []*pawl.Client{a, b} {
			go func() { readers <- rlock(t, c.RWMutex("x")) }()
		}
		time.Sleep(time.Minute)
		f.Set(func() { f.After = nil })
		start = time.Now()
		first, second := <-readers, <-readers
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("the readers were let in after %v", d)
		}
		unlock(t, first)
		unlock(t, second)
		time.Sleep(time.Minute)
		if l.Err() != nil || ctx.Err() != nil {
			t.Errorf("lost: %v", l.Err())
		}
		if err := l.TryUpgrade(t.Context()); err != nil || l.Token() <= max(token, first.Token(), second.Token()) {
			t.Errorf("%v, token %d after %d, %d, %d", err, l.Token(), token, first.Token(), second.Token())
		}
		unlock(t, l)
	})
}

// The engine may have made a writer a reader: it is one.
func TestDowngradeUnanswered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		a, b := newClient(t, f, nil), newClient(t, store, nil)
		w := wlock(t, a.RWMutex("x"))
		writer := make(chan *pawl.RWLease, 1)
		go func() { writer <- wlock(t, a.RWMutex("x")) }()
		synctest.Wait()
		f.Set(func() {
			f.Hook = func(op string) error {
				if op == "resize" {
					return faultstore.ErrNetwork
				}
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := w.Downgrade(ctx)
		want(t, err, faultstore.ErrNetwork)
		want(t, err, context.DeadlineExceeded)
		_, err = a.With(func(o *pawl.Options) { o.Reentrant = true }).RWMutex("x").Lock(w.Context(t.Context()))
		want(t, err, pawl.ErrDeadlock)
		f.Set(func() { f.Hook = nil })
		time.Sleep(2 * time.Second)
		if n := len(writer); n > 0 {
			t.Error("a writer beside one that reads now")
		}
		q, err := store.Inspect(t.Context(), "x")
		if err != nil || len(q.Claims) != 2 || q.Claims[0].Units != 1 {
			t.Errorf("%+v, %v", q, err)
		}
		unlock(t, w)
		unlock(t, <-writer)
		unlock(t, wlock(t, b.RWMutex("x")))
	})
}

// What the engine replies may be that the lease is over.
func TestResizeOfALostLease(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := mute{memstore.New()}
		a, b := newClient(t, store, nil), newClient(t, store, nil)
		for what, resize := range map[string]func(*pawl.RWLease) error{
			"upgrade":   func(l *pawl.RWLease) error { return l.TryUpgrade(t.Context()) },
			"downgrade": func(l *pawl.RWLease) error { return l.Downgrade(t.Context()) },
		} {
			l := rlock(t, a.RWMutex("x"))
			if what == "downgrade" {
				unlock(t, l)
				l = wlock(t, a.RWMutex("x"))
			}
			if _, err := b.ForceRelease(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			if err := resize(l); !errors.Is(err, pawl.ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
			want(t, l.Err(), pawl.ErrLost)
			want(t, resize(l), pawl.ErrLost)
			want(t, l.Unlock(t.Context()), pawl.ErrLost)
		}
	})
}

// While an upgrade is under way nobody joins its claim; Unlock need not wait for
// it.
func TestWhileUpgrading(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		f := &faultstore.Store{Store: store}
		a, b := newClient(t, f, nil), newClient(t, store, nil)
		slow := func(op string) error {
			if op == "resize" {
				time.Sleep(time.Second)
			}
			return nil
		}
		l := rlock(t, a.RWMutex("x"))
		f.Set(func() { f.After = slow })
		done := make(chan error)
		go func() { done <- l.TryUpgrade(t.Context()) }()
		synctest.Wait()
		reader := make(chan *pawl.RWLease, 1)
		go func() { reader <- rlock(t, a.RWMutex("x")) }()
		synctest.Wait()
		if len(reader) > 0 {
			t.Error("a reader joined a claim that is a writer's")
		}
		if err := l.TryUpgrade(t.Context()); err == nil || errors.Is(err, pawl.ErrHeld) {
			t.Errorf("a second one at the same time: %v", err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if len(reader) > 0 {
			t.Error("a reader joined a claim that is a writer's")
		}
		unlock(t, l)
		unlock(t, <-reader)

		// It is refused: who came meanwhile reads too.
		other := rlock(t, b.RWMutex("x"))
		l = rlock(t, a.RWMutex("x"))
		go func() { done <- l.TryUpgrade(t.Context()) }()
		synctest.Wait()
		go func() { reader <- rlock(t, a.RWMutex("x")) }()
		want(t, <-done, pawl.ErrHeld)
		synctest.Wait()
		for _, l := range []*pawl.RWLease{other, l, <-reader} {
			unlock(t, l)
		}

		f.Set(func() { f.After, f.Hook = nil, slow })
		l = rlock(t, a.RWMutex("x"))
		go func() { done <- l.TryUpgrade(t.Context()) }()
		synctest.Wait()
		start := time.Now()
		unlock(t, l)
		if d := time.Since(start); d > 0 {
			t.Errorf("Unlock took %v", d)
		}
		want(t, <-done, pawl.ErrReleased)
		f.Set(func() { f.Hook = nil })
		unlock(t, wlock(t, b.RWMutex("x")))
	})
}
