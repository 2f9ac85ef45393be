package plain

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/await"
)

func newClient(t *testing.T, s *server) *pawl.Client {
	store, err := New(&fakeConn{server: s}, &Options{MaxPause: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	c := pawl.New(store, nil)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		store.Close()
	})
	return c
}

// Several clients with several goroutines each count under a mutex.
func TestClientsCount(t *testing.T) {
	const clients, workers, rounds = 3, 4, 10
	s := newServer()
	count, last := 0, int64(0)
	var wg sync.WaitGroup
	for range clients {
		c := newClient(t, s)
		for range workers {
			wg.Go(func() {
				for range rounds {
					l, err := c.Mutex("count").Lock(await.Context(t))
					if err != nil {
						t.Error(err)
						return
					}
					count++ // the race detector looks
					if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					}
					last = l.Token()
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	if want := clients * workers * rounds; count != want {
		t.Errorf("counted to %d, want %d", count, want)
	}
	if len(s.keys) != 0 {
		t.Errorf("left behind: %v", s.keys)
	}
}

// What a plain lock cannot do is refused with the reason, and costs nothing.
func TestClientIsTold(t *testing.T) {
	c := newClient(t, newServer())
	ctx := await.Context(t)
	l, err := c.Mutex("told").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"RWMutex":   func() error { _, err := c.RWMutex("rw").RLock(ctx); return err },
		"Semaphore": func() error { _, err := c.Semaphore("sem", 2).Acquire(ctx, 1); return err },
		"Election":  func() error { _, err := c.Election("e").Campaign(ctx, []byte("v")); return err },
		"Latch":     func() error { return c.Latch("l", 1).Wait(ctx) },
		"Once":      func() error { return c.Once("o", time.Hour).Do(ctx, func(context.Context) error { return nil }) },
		"HandOver":  func() error { _, err := l.HandOver(ctx); return err },
		"yield":     func() error { return c.RequestYield(ctx, "told") },
	} {
		if err := f(); !errors.Is(err, pawl.ErrUnsupported) || !strings.Contains(err.Error(), "plain") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := l.Err(); err != nil {
		t.Errorf("after a HandOver that was refused: %v", err)
	}
	if err := l.Extend(ctx, time.Hour); err != nil {
		t.Error(err)
	}
	if _, err := c.Mutex("told").TryLock(ctx); !errors.Is(err, pawl.ErrHeld) {
		t.Errorf("TryLock: %v", err)
	}
	if err := l.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

// Several names are taken one after the other, and given back together.
func TestClientTakesAll(t *testing.T) {
	s := newServer()
	a, b := newClient(t, s), newClient(t, s)
	l, err := a.LockAll(await.Context(t), "x", "y", "z")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLockAll(await.Context(t), "w", "y"); !errors.Is(err, pawl.ErrHeld) {
		t.Errorf("TryLockAll: %v", err)
	}
	if err := l.Unlock(await.Context(t)); err != nil {
		t.Error(err)
	}
	if s.mu.Lock(); len(s.keys) != 0 {
		t.Errorf("left behind: %v", s.keys)
	}
	s.mu.Unlock()
}

// A context ends while a mutex is waited for: nothing is left of the claim.
func TestClientGivesUp(t *testing.T) {
	s := newServer()
	a, b := newClient(t, s), newClient(t, s)
	l, err := a.Mutex("up").Lock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mutex("up").Lock(await.Brief(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it gave up with %v", err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	l, err = b.Mutex("up").TryLock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// Somebody deletes the key: the holder learns of it with the next renewal.
func TestClientLoses(t *testing.T) {
	s := newServer()
	c := newClient(t, s)
	l, err := c.With(func(o *pawl.Options) { o.TTL = 300 * time.Millisecond }).Mutex("gone").Lock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.put("gone", nil)
	s.mu.Unlock()
	select {
	case <-l.Lost():
	case <-time.After(await.Limit):
		t.Fatal("it is not told")
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, pawl.ErrLost) {
		t.Error(err)
	}
}
