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
	cl, err := l.ask(&fx, at(0), &caller{terms: terms(), ctx: t.Context()})
	if err != nil {
		t.Fatal(err)
	}
	former := cl.id
	cl.entered(&fx, at(0), former, answer{at(0), driver.Status{State: driver.Waiting, Deadline: begun.Add(10 * time.Second)}, nil}, false, false)
	cl.renewed(&fx, at(time.Second), former, answer{at(time.Second), driver.Status{State: driver.Gone}, nil})
	if cl.id == former {
		t.Fatal("it was to start over")
	}
	if left := cl.left(at(time.Second)); left > 0 {
		t.Errorf("before it was entered it is good for %v", left)
	}
	cl.entered(&fx, at(time.Second), cl.id, answer{at(time.Second), driver.Status{State: driver.Holding, Token: 1, Deadline: begun.Add(4 * time.Second)}, nil}, false, false)
	if cl.held() == nil {
		t.Fatal("it was to hold")
	}
	if err := cl.held().tenants.over(at(5 * time.Second)); err == nil {
		t.Errorf("it is believed in for %v after the store's deadline", cl.left(at(4*time.Second)))
	}
}
