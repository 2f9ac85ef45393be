package engine

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// A claim that has started over is another one: how long it may be believed in is
// what the store has given to that, also if the former one was given more.
func TestStartsOverWithNoBelief(t *testing.T) {
	begun := time.Now()
	at := func(d time.Duration) instant { return instant{now: begun.Add(d)} }
	var fx effects
	l := &line{key: mutex("x")}
	cl, err := l.add(&fx, at(0), &caller{terms: terms(), ctx: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	former := cl.id
	cl.entered(&fx, at(0), former, answer{at(0), driver.Status{State: driver.Waiting, Deadline: begun.Add(10 * time.Second)}, nil}, false, nil, ended{})
	cl.renewed(&fx, at(time.Second), former, answer{at(time.Second), driver.Status{State: driver.Gone}, nil})
	if cl.id == former {
		t.Fatal("it was to start over")
	}
	if left := cl.left(at(time.Second)); left > 0 {
		t.Errorf("before it was entered it is good for %v", left)
	}
	cl.entered(&fx, at(time.Second), cl.id, answer{at(time.Second), driver.Status{State: driver.Holding, Token: 1, Deadline: begun.Add(4 * time.Second)}, nil}, false, nil, ended{})
	if cl.held() == nil {
		t.Fatal("it was to hold")
	}
	if err := cl.held().tenants.over(at(5 * time.Second)); err == nil {
		t.Errorf("it is believed in for %v after the store's deadline", cl.left(at(4*time.Second)))
	}
}

// A claim that others wait for serves those who are here when that is known: not the one
// that it was granted to, nor who comes later.
func TestTurnsAreForWhoIsHere(t *testing.T) {
	for waiting := range 3 {
		at := instant{now: time.Now()}
		var fx effects
		l := &line{key: mutex("x")}
		cl, err := l.add(&fx, at, &caller{terms: terms(), ctx: t.Context()})
		for range waiting {
			if _, err := l.add(&fx, at, &caller{terms: terms(), ctx: t.Context()}); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		st := driver.Status{State: driver.Holding, Token: 1, Spare: 100, Behind: 1, Deadline: at.now.Add(ttl)}
		cl.entered(&fx, at, cl.id, answer{sent: at, status: st}, false, nil, ended{})
		if got := cl.room(); got != waiting {
			t.Errorf("with %d who wait it serves %d more", waiting, got)
		}
	}
}
