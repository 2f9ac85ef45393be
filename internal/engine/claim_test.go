package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// What was adopted while the machine slept for longer than the TTL is no grant.
func TestAdoptedAsleep(t *testing.T) {
	l := &line{key: Key{Name: "n", Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: 15 * time.Second}}
	at := instant{now: time.Unix(1e6, 0)}
	cl, err := l.adopting(at, driver.NewID(), driver.NewID())
	if err != nil {
		t.Fatal(err)
	}
	a := answer{sent: at, status: driver.Status{State: driver.Holding, Token: 7, Deadline: driver.Deadline(at.now, cl.ttl)}}
	var fx effects
	at = instant{at.now.Add(time.Second), 20 * time.Second}
	if _, err := l.adopted(&fx, at, cl, a, &Terms{}, context.Background(), at.now); !errors.Is(err, ErrLost) {
		t.Errorf("adopted, and over for 6 s: %v", err)
	}
	if fx.n == 0 || fx.few[fx.n-1].kind != fxRetire {
		t.Error("the claim does not leave")
	}
}

// A notice of a grant may come so late that the claim has run out since. If an Enter
// got no reply, a later one may have entered the claim again: the notice is about what is
// no more.
func TestGrantedBeforeItWasEnteredAgain(t *testing.T) {
	l := &line{key: Key{Name: "n", Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: 15 * time.Second}}
	at := instant{now: time.Unix(1e6, 0)}
	var fx effects
	c := &caller{terms: &Terms{}}
	cl, err := l.add(&fx, at, c)
	if err != nil {
		t.Fatal(err)
	}
	cl.entered(&fx, at, cl.id, answer{sent: at, err: context.DeadlineExceeded}, true, nil, ended{})
	c.consulting = false // its Backoff wants the next one at once
	sent := instant{now: at.now.Add(30 * time.Second)}
	waiting := driver.Status{State: driver.Waiting, Ahead: 2, Deadline: driver.Deadline(sent.now, cl.ttl)}
	cl.entered(&fx, sent, cl.id, answer{sent: sent, status: waiting}, false, nil, ended{})
	n := driver.Notice{Kind: driver.Granted, ID: cl.id, Status: driver.Status{State: driver.Holding, Token: 7}}
	cl.noticed(&fx, sent, &n)
	if c.tenant != nil {
		t.Fatal("granted by a notice that may be older than the claim")
	}
	if due, _, ok := cl.due(sent); !ok || due.After(sent.now) {
		t.Fatal("it is not renewed to see")
	}
	a := answer{sent: sent, status: driver.Status{State: driver.Holding, Token: 9, Deadline: driver.Deadline(sent.now, cl.ttl)}}
	cl.renewed(&fx, sent, cl.id, a)
	if c.tenant == nil || c.tenant.token.Load() != 9 {
		t.Fatal("not granted by the renewal")
	}
}

// Who gets a claim passed on may have terms by which it is passed to nobody after that:
// those who still wait have the next one entered at once, not when this one leaves.
func TestPassedToMinHold(t *testing.T) {
	l := &line{key: Key{Name: "n", Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: 15 * time.Second}}
	at := instant{now: time.Unix(1e6, 0)}
	var fx effects
	var callers []*caller
	for _, terms := range []*Terms{{}, {MinHold: time.Second}, {}} {
		callers = append(callers, &caller{terms: terms})
	}
	cl, err := l.add(&fx, at, callers[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range callers[1:] {
		if _, err := l.add(&fx, at, c); err != nil {
			t.Fatal(err)
		}
	}
	st := driver.Status{State: driver.Holding, Token: 7, Spare: 1000, Deadline: driver.Deadline(at.now, cl.ttl)}
	cl.entered(&fx, at, cl.id, answer{sent: at, status: st}, false, nil, ended{})
	at.now = at.now.Add(time.Second)
	if d, err := callers[0].tenant.release(&fx, at, context.Background()); d != nil || err != nil {
		t.Fatalf("not passed on: %v, %v", d, err)
	}
	if callers[1].tenant == nil || callers[1].tenant.token.Load() != 8 {
		t.Fatal("the second caller has not got the claim")
	}
	if l.next == nil {
		t.Error("nothing was entered for the third caller")
	}
}
