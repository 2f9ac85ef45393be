package pawl_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
)

// events is an Observer that keeps what it is told.
type events struct {
	mu   sync.Mutex
	seen []pawl.Event
}

func (e *events) observe(ev pawl.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, ev)
}

// take returns what was seen since the last call.
func (e *events) take() []pawl.Event {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.seen
	e.seen = nil
	return seen
}

// TestEventsOfWaiting: who waits for others of its process is told of, and who
// gives up, with the context of its call and who was in the way.
func TestEventsOfWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		store := memstore.New()
		e := &events{}
		c := newClient(t, store, &pawl.Options{Observer: e.observe, Label: "here"})
		other := newClient(t, store, &pawl.Options{Label: "there"})
		ctx := context.WithValue(t.Context(), valueKey{}, "trace")
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		late, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()

		check := func(what string, want ...pawl.EventKind) (last pawl.Event) {
			t.Helper()
			seen := e.take()
			var kinds []pawl.EventKind
			for _, ev := range seen {
				kinds = append(kinds, ev.Kind)
				if ev.Context.Value(valueKey{}) != "trace" {
					t.Errorf("%s: %v has another context than its call", what, ev.Kind)
				}
				last = ev
			}
			if len(kinds) != len(want) {
				t.Fatalf("%s: %v, want %v", what, kinds, want)
			}
			for i := range want {
				if kinds[i] != want[i] {
					t.Fatalf("%s: %v, want %v", what, kinds, want)
				}
			}
			return last
		}

		l, err := c.Mutex("x").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		check("lock", pawl.EventAcquired)
		go c.Mutex("x").Lock(short)
		synctest.Wait()
		if ev := check("waiting in the process", pawl.EventWaiting); !ev.Local || ev.Ahead != 0 || ev.Blocker == nil || ev.Blocker.Owner.Label != "here" {
			t.Errorf("waiting: %+v", ev)
		}
		time.Sleep(2 * time.Second)
		ev := check("timeout", pawl.EventGaveUp)
		if ev.Waited != time.Second || !errors.Is(ev.Err, context.DeadlineExceeded) || ev.Blocker == nil || ev.Blocker.Owner.Label != "here" {
			t.Errorf("gave up: %+v", ev)
		}
		if _, err := c.Mutex("x").TryLock(ctx); !errors.Is(err, pawl.ErrHeld) {
			t.Error(err)
		}
		if ev := check("busy", pawl.EventGaveUp); !errors.Is(ev.Err, pawl.ErrHeld) || ev.Name != "x" {
			t.Errorf("gave up: %+v", ev)
		}
		if _, err := c.TryLockAll(ctx, "w", "x"); !errors.Is(err, pawl.ErrHeld) {
			t.Error(err)
		}
		if ev := check("one of several is busy", pawl.EventGaveUp); ev.Name != "x" || ev.Blocker == nil {
			t.Errorf("gave up: %+v", ev)
		}
		if err := l.Unlock(ctx); err != nil {
			t.Error(err)
		}
		check("unlock", pawl.EventReleased)

		o := lock(t, other.Mutex("x"))
		time.Sleep(3 * time.Second)
		_, err = c.Mutex("x").Lock(late)
		w, ok := errors.AsType[*pawl.WaitError](err)
		if !ok || w.Holder == nil || w.Holder.Owner.Label != "there" || w.Holder.Held < 50*time.Second || !strings.Contains(err.Error(), `held by "there"`) {
			t.Errorf("timed out: %v", err)
		}
		if ev := check("timeout in the store", pawl.EventWaiting, pawl.EventGaveUp); ev.Blocker != w.Holder {
			t.Errorf("gave up: %+v", ev)
		}
		unlock(t, o)
	})
}

func TestLogValues(t *testing.T) {
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	c := newClient(t, memstore.New(), &pawl.Options{Label: "worker"})
	l := lock(t, c.Mutex("x"))
	_, err := c.Mutex("x").TryLock(t.Context())
	held, ok := errors.AsType[*pawl.HeldError](err)
	if !ok {
		t.Fatal(err)
	}
	s, err := c.LockAll(t.Context(), "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		value any
		want  []string
	}{
		{l, []string{"v.name=x", "v.token=", "v.claim=", "v.deadline="}},
		{s, []string{"a", "b", "v.deadline="}},
		{c, []string{"v.owner.label=worker", "v.owner.pid=", "v.ttl=15s"}},
		{held.Holder, []string{"v.state=holding", "v.owner.label=worker", "v.held="}},
		{pawl.Event{Kind: pawl.EventGaveUp, Name: "x", Waited: time.Second, Blocker: held.Holder, Err: err, Context: t.Context()},
			[]string{`v.kind="gave up"`, "v.name=x", "v.waited=1s", "v.blocker.owner.label=worker"}},
	} {
		text.Reset()
		log.Info("", "v", tt.value)
		for _, want := range tt.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("%T: no %s in %s", tt.value, want, text.String())
			}
		}
	}
	unlock(t, l)
	if err := s.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	text.Reset()
	log.Info("", "v", l)
	if !strings.Contains(text.String(), "already released") {
		t.Errorf("a lease that is over: %s", text.String())
	}
}
