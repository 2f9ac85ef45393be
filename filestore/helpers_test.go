package filestore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/clock"
)

const (
	long    = 5 * time.Minute // a TTL that does not run out during a test
	longest = time.Minute     // for what should come at once
)

func thisMachine(t testing.TB) machine {
	t.Helper()
	c, err := clock.Open()
	if errors.Is(err, clock.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return machine{c.Boot, c.Now, time.Now, (*disk.Dir).Network, fsnotify.NewWatcher, true, probeEvery}
}

// still is this machine with a clock that moves by the test's hand only.
func still(t testing.TB) (machine, func(time.Duration)) {
	m := thisMachine(t)
	var at atomic.Int64
	at.Store(int64(m.uptime()))
	m.uptime = func() time.Duration { return time.Duration(at.Load()) }
	return m, func(d time.Duration) { at.Add(int64(d)) }
}

func noWatch() (*fsnotify.Watcher, error) { return nil, errors.New("too many watches") }

func mustOpen(t testing.TB, dir string) *Store {
	t.Helper()
	return mustOpenOn(t, dir, thisMachine(t))
}

func mustOpenOn(t testing.TB, dir string, m machine) *Store {
	t.Helper()
	s, err := open(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	return ctx
}

func claim(name string) driver.Claim {
	return driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: long}
}

func ref(c driver.Claim) driver.Ref { return driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL} }

// enter enters c and fails the test unless its state is want.
func enter(t testing.TB, s *Store, c driver.Claim, want driver.State) driver.Status {
	t.Helper()
	st, err := s.Enter(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if st.State != want {
		t.Fatalf("Enter returned %v, want %v", st.State, want)
	}
	return st
}

// hold waits until c holds.
func hold(t testing.TB, s *Store, c driver.Claim) driver.Status {
	t.Helper()
	st, err := s.Enter(t.Context(), c)
	ctx := soon(t)
	for err == nil && st.State == driver.Waiting {
		st, err = s.Wait(ctx, ref(c))
	}
	if err != nil || st.State != driver.Holding {
		t.Fatalf("%q: %v, %v", c.Name, st.State, err)
	}
	return st
}

func leave(t testing.TB, s *Store, c driver.Claim) {
	t.Helper()
	if _, err := s.Leave(t.Context(), ref(c)); err != nil {
		t.Fatal(err)
	}
}
