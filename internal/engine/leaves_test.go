package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/memstore"
)

// When the context of the only caller ends, its Enter is the last one that is sent; a
// Leave follows.
func TestNoEnterForWhoHasLeft(t *testing.T) {
	at := instant{now: time.Now()}
	var fx effects
	l := &line{key: mutex("x")}
	c := &caller{terms: terms(), ctx: t.Context()}
	cl, err := l.add(&fx, at, c)
	if err != nil {
		t.Fatal(err)
	}
	fx = effects{}
	late := context.DeadlineExceeded
	cl.entered(&fx, at, cl.id, answer{sent: at, err: late}, true, c, ended{late, late})
	var wait *WaitError
	if !errors.As(c.err, &wait) || wait.Engine == nil {
		t.Errorf("it gets %v", c.err)
	}
	leaves := 0
	for _, x := range fx.few[:fx.n] {
		switch x.kind {
		case fxAttempt:
			t.Error("another Enter is sent")
		case fxRetire:
			leaves++
		}
	}
	if leaves != 1 {
		t.Errorf("%d leave", leaves)
	}
}

// A try ends within its time also if it shares the request of a caller that waits.
func TestTryBesideOneWhoWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		e := newEngine(t, &faultstore.Store{Store: memstore.New(), Down: true})
		ctx, cancel := context.WithCancel(t.Context())
		patient := make(chan error, 1)
		go func() { patient <- e.Acquire(ctx, mutex("x"), terms(), false, new(Grant)) }()
		time.Sleep(40 * time.Second) // its requests are waited for as long as any
		for range 3 {
			began := time.Now()
			err := e.Acquire(t.Context(), mutex("x"), terms(), true, new(Grant))
			if d := time.Since(began); err == nil || errors.Is(err, ErrHeld) || d > 10*time.Second+time.Millisecond {
				t.Errorf("after %v it returned %v", d, err)
			}
			time.Sleep(700 * time.Millisecond)
		}
		cancel()
		<-patient
	})
}

// What a permanent error has left unsettled is settled once it is mended.
func TestUnsettledUntilMended(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := &faultstore.Store{Store: memstore.New()}
		e := newEngine(t, store)
		g := acquire(t, e, writer("x"), terms())
		defer g.Release(t.Context())
		denied := driver.Permanent(errors.New("denied"))
		first := true
		store.Set(func() {
			store.After = func(op string) error { // the first one is carried out, its reply is lost
				if op == "resize" && first {
					first = false
					return faultstore.ErrNetwork
				}
				return nil
			}
			store.Hook = func(op string) error {
				if op == "resize" && !first {
					return denied
				}
				return nil
			}
		})
		if err := g.Downgrade(t.Context()); !errors.Is(err, denied) {
			t.Errorf("Downgrade returned %v", err)
		}
		time.Sleep(time.Minute)
		store.Set(func() { store.Hook, store.After = nil, nil })
		time.Sleep(2 * permanentPause)
		if err := g.TryUpgrade(t.Context()); err != nil {
			t.Errorf("TryUpgrade returned %v", err)
		}
	})
}

// Who is refused since the claim is adopted already keeps no mark for another attempt.
func TestAdoptedAlready(t *testing.T) {
	store := memstore.New()
	former, e := newEngine(t, store), newEngine(t, store)
	g := acquire(t, former, mutex("x"), terms())
	h, err := g.HandOver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	adopted := new(Grant)
	if err := e.Adopt(t.Context(), mutex("x"), terms(), h, adopted); err != nil {
		t.Fatal(err)
	}
	defer adopted.Release(t.Context())
	if err := e.Adopt(t.Context(), mutex("x"), terms(), h, new(Grant)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("the second one returned %v", err)
	}
	if n := len(e.adoptions.all); n > 0 {
		t.Errorf("%d attempts are kept", n)
	}
}

func writer(name string) Key {
	k := reader(name)
	k.Units = k.Limit
	return k
}
