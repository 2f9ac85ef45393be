//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/memstore"
)

func TestListWatch(t *testing.T) {
	b := newBundle(t)
	b.hold("a", "--label=one")
	b.Run("list", "--interval=1s").Want(64)
	b.Run("list", "--watch", "--interval=1ms").Want(64)
	text := b.Start("list", "--watch", "--interval=100ms")
	objects := b.Start("list", "-w", "--json", "--interval=100ms", "b")
	text.Await("EVENT", " added    a  ", " one ")
	second := b.hold("b", "--label=two")
	objects.Await(`"event":"added","name":"b"`)
	text.Await(" added    b  ")
	b.Start("run", "b", "sleep", "100")
	b.awaitWaiters("b", 1)
	text.Await(" changed  b ")
	b.Run("release", "b", "--force").Want(0)
	second.Want(79)
	proctest.Eventually(t, func() bool { return b.queue("b").Holders[0].Label == "sleep" }, "the next one does not hold")
	b.Run("release", "b", "--force").Want(0)
	text.Await(" removed  b ")
	objects.Await(`"event":"removed","name":"b"`)
	var events []string
	for line := range strings.Lines(objects.Out.String()) {
		var c struct {
			Event string
			Time  time.Time
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil || c.Time.IsZero() {
			t.Fatalf("%v in %s", err, line)
		}
		events = append(events, c.Event)
	}
	if events[0] != nameAdded || events[len(events)-1] != nameRemoved {
		t.Errorf("it tells %q", events)
	}
	if n := strings.Count(text.Out.String(), "\n"); n > 12 {
		t.Errorf("a line that nothing changed:\n%s", text.Out)
	}
}

// What a store does not tell, since it does not reply or cannot read it, is not taken to
// be free.
func TestListWatchOfAStoreThatFails(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		looks := 0
		s := &listStore{Store: memstore.New()}
		defer s.Close()
		s.list = func(_ context.Context, yield func(driver.Queue, error) bool) {
			switch looks++; {
			case looks == 1:
				_ = yield(queueNamed("a"), nil) && yield(queueNamed("b"), nil)
			case looks < 4:
				_ = yield(queueNamed("a"), nil) && yield(driver.Queue{}, errors.New("connection reset"))
			case looks < 6:
				_ = yield(queueNamed("a"), nil) && yield(driver.Queue{}, &driver.NameError{Name: "b", Err: errors.New("spoiled")})
			case looks == 6:
				yield(queueNamed("b"), nil)
			default:
				yield(driver.Queue{}, driver.Permanent(errors.New("no such user")))
			}
		}
		var out, errs bytes.Buffer
		a := &app{out: &out, err: &errs}
		err := a.watchList(t.Context(), pawl.New(s, nil), "", time.Second)
		if err == nil || classify(err).status != exitUnreachable || !strings.Contains(err.Error(), "no such user") {
			t.Error(err)
		}
		var told []string
		for line := range strings.Lines(out.String()) {
			told = append(told, strings.Join(strings.Fields(line)[1:3], " "))
		}
		if got := strings.Join(told[1:], ", "); got != "added a, added b, removed a" {
			t.Errorf("it tells %s", got)
		}
		for _, text := range []string{"connection reset; it is tried again", "the store replies again", `"b": spoiled`} {
			if strings.Count(errs.String(), text) != 1 {
				t.Errorf("%q is not told once:\n%s", text, &errs)
			}
		}
	})
}

// The first time it fails as list does.
func TestListWatchWithoutAStore(t *testing.T) {
	b := newBundle(t)
	b.Run("list", "--watch", "--store=redis://127.0.0.1:1").Want(69)
}

func TestPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ interval, took, want time.Duration }{
		{2 * time.Second, 0, 2 * time.Second},
		{2 * time.Second, 100 * time.Millisecond, 1900 * time.Millisecond},
		{2 * time.Second, time.Second, 9 * time.Second},
	} {
		if got := pause(tt.interval, tt.took); got != tt.want {
			t.Errorf("after %v: %v, want %v", tt.took, got, tt.want)
		}
	}
}
