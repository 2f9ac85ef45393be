// Package storetest is what the tests of all engines say in short.
package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
)

// Mutex makes a claim for all of a name.
func Mutex(name string, ttl time.Duration) driver.Claim {
	return driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: ttl}
}

// Ref refers to that claim.
func Ref(c driver.Claim) driver.Ref { return driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL} }

// Enter enters the claim, and fails the test unless it is in that state then. It
// rides out errors that pass, as of a server that takes its time to start.
func Enter(t testing.TB, s driver.Store, c driver.Claim, want driver.State) driver.Status {
	t.Helper()
	ctx := await.Context(t)
	for {
		st, err := s.Enter(ctx, c)
		switch {
		case err == nil && st.State == want:
			return st
		case err == nil || ctx.Err() != nil || driver.IsPermanent(err):
			t.Fatalf("enter: %v, %v; want %v", st.State, err, want)
		}
		t.Logf("enter: %v", err)
		time.Sleep(10 * time.Millisecond)
	}
}

// Renew renews one claim.
func Renew(ctx context.Context, s driver.Store, c driver.Claim) (st driver.Status, err error) {
	s.Renew(ctx, []driver.Ref{Ref(c)}, func(_ int, got driver.Status, e error) { st, err = got, e })
	return st, err
}

// Renewed returns the status of c once it can be asked for.
func Renewed(t testing.TB, s driver.Store, c driver.Claim) (st driver.Status) {
	t.Helper()
	await.That(t, "the claim can be renewed", func() bool {
		var err error
		st, err = Renew(await.Context(t), s, c)
		return err == nil
	})
	return st
}

// Get waits for c as a client does: by Wait, and by renewing every third of
// the TTL; it rides out errors.
func Get(ctx context.Context, s driver.Store, c driver.Claim) (st driver.Status, err error) {
	for {
		if st, err = s.Enter(ctx, c); err == nil && st.State == driver.Holding {
			return st, nil
		}
		for err == nil && st.State == driver.Waiting {
			wait, cancel := context.WithTimeout(ctx, c.TTL/3)
			st, err = s.Wait(wait, Ref(c))
			cancel()
			if err != nil && ctx.Err() == nil {
				st, err = Renew(ctx, s, c)
			}
			if st.State == driver.Holding {
				return st, nil
			}
		}
		if ctx.Err() != nil || driver.IsPermanent(err) {
			return st, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Leave has c leave, and rides out errors. It returns what the claim was.
func Leave(t testing.TB, s driver.Store, c driver.Claim) driver.State {
	t.Helper()
	ctx := await.Context(t)
	for {
		was, err := s.Leave(ctx, Ref(c))
		if err == nil {
			return was
		}
		if ctx.Err() != nil || driver.IsPermanent(err) {
			t.Fatalf("leave: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// IDs returns the ids of the claims of a name, in their order.
func IDs(t testing.TB, s driver.Store, name string) (ids []string) {
	t.Helper()
	q, err := s.Inspect(await.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range q.Claims {
		ids = append(ids, c.ID)
	}
	return ids
}

// List returns the first error of a list.
func List(ctx context.Context, s driver.Store, prefix string) error {
	for _, err := range s.List(ctx, prefix) {
		if err != nil {
			return err
		}
	}
	return nil
}

// TakenOver has near take a lock from far, which the fault cuts off while it
// holds, and fails the test unless the old holder is told first.
func TakenOver(t *testing.T, far, near *pawl.Client, fault func()) (old, next *pawl.Lease) {
	t.Helper()
	old, err := far.Mutex("x").Lock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	context.AfterFunc(old.Context(t.Context()), func() { close(told) })
	first := old.Deadline()
	await.That(t, "the lease is renewed", func() bool { return old.Deadline().After(first) })
	fault()
	if next, err = near.Mutex("x").Lock(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	held := time.Now()
	if err := old.Err(); !errors.Is(err, pawl.ErrLost) {
		t.Errorf("another holds, and the lease says %v", err)
	}
	if end := old.Deadline(); end.After(held) {
		t.Errorf("another holds %v before the lease ends", end.Sub(held))
	}
	await.Value(t, "the end of its context", told) // when is tested without a network
	return old, next
}
