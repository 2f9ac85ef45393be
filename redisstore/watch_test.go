package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
)

// trackerConn is a server that tells of changes.
type trackerConn struct {
	Conn
	mu      sync.Mutex
	refuse  error
	held    map[string]bool // by id
	tracked map[string]bool // by key
	changed func([]string)
	lost    context.CancelFunc
	opened  int
	looks   []string // the claims of each
}

func (c *trackerConn) Cluster() bool { return false }

func (c *trackerConn) Track(ctx context.Context, changed func([]string), use func(context.Context, ScriptRunner) error) error {
	c.mu.Lock()
	c.opened++
	refuse := c.refuse
	ctx, c.lost = context.WithCancel(ctx)
	c.changed, c.tracked = changed, make(map[string]bool)
	c.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	return use(ctx, c.run)
}

func (c *trackerConn) run(_ context.Context, _ *Script, keys, args []string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reply strings.Builder
	var ids []string
	for i, key := range keys {
		c.tracked[key] = true
		ids = append(ids, args[2*i])
		if c.held[args[2*i]] {
			reply.WriteByte('h')
		} else {
			reply.WriteByte('g')
		}
	}
	slices.Sort(ids)
	c.looks = append(c.looks, strings.Join(ids, " "))
	return reply.String(), nil
}

// change is what the server does when a key changes.
func (c *trackerConn) change(key string) {
	c.mu.Lock()
	tell := c.tracked[key]
	delete(c.tracked, key)
	c.mu.Unlock()
	if tell {
		c.changed([]string{key})
	}
}

func (c *trackerConn) set(id string, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[id] = held
}

// taken returns the looks since it was called last.
func (c *trackerConn) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	looks := c.looks
	c.looks = nil
	return looks
}

// watching runs a test with a watch in fake time.
func watching(t *testing.T, run func(t *testing.T, c *trackerConn, w *watch, told func() []string)) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &trackerConn{held: make(map[string]bool)}
		var mu sync.Mutex
		var gone []string
		w := newWatch(ctx, c, func(id string) {
			mu.Lock()
			defer mu.Unlock()
			gone = append(gone, id)
		})
		run(t, c, w, func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			told := gone
			gone = nil
			return told
		})
		cancel()
		w.stop()
	})
}

func TestWatchTells(t *testing.T) {
	watching(t, func(t *testing.T, c *trackerConn, w *watch, told func() []string) {
		for range 1000 { // held briefly
			w.holds("k", "brief", "-")
			time.Sleep(age / 10)
			w.ended("k", "brief")
		}
		if c.opened != 0 {
			t.Error("claims that are held briefly are looked at")
		}
		c.set("a", true)
		c.set("b", true)
		w.holds("k", "a", "-")
		w.holds("k2", "b", "-")
		time.Sleep(3 * age)
		if got, looks := told(), c.taken(); got != nil || len(looks) != 1 || looks[0] != "a b" {
			t.Errorf("looks: %q; told: %q", looks, got)
		}
		time.Sleep(time.Hour)
		c.change("k") // by the claim itself
		if got := told(); got != nil {
			t.Errorf("%q are told that they are gone", got)
		}
		c.set("a", false)
		time.Sleep(time.Second)
		c.change("k")
		if got := told(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q are told, want a", got)
		}
		c.change("k")
		if got := told(); got != nil {
			t.Errorf("%q are told again", got)
		}
		c.taken()
		time.Sleep(time.Hour)
		if looks := c.taken(); looks != nil || len(w.list.keys) != 1 {
			t.Errorf("in an hour without a change it looks: %q", looks)
		}
	})
}

// What changed while the connection was lost is seen on the next one.
func TestWatchConnectsAgain(t *testing.T) {
	watching(t, func(t *testing.T, c *trackerConn, w *watch, told func() []string) {
		c.set("a", true)
		w.holds("k", "a", "-")
		time.Sleep(3 * age)
		synctest.Wait()
		c.mu.Lock()
		c.refuse = errors.New("no route")
		c.mu.Unlock()
		c.lost()
		c.set("a", false)
		time.Sleep(time.Minute)
		if got := told(); got != nil {
			t.Errorf("%q are told", got)
		}
		c.mu.Lock()
		c.refuse = nil
		c.mu.Unlock()
		time.Sleep(lastPause)
		if got := told(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q are told, want a", got)
		}
	})
}

// A name that changes all the while is looked at less and less often, and as before
// once it has come to rest.
func TestWatchRests(t *testing.T) {
	watching(t, func(t *testing.T, c *trackerConn, w *watch, told func() []string) {
		c.set("a", true)
		w.holds("k", "a", "-")
		for range 60_000 {
			time.Sleep(time.Millisecond)
			c.change("k")
		}
		synctest.Wait()
		if n := len(c.taken()); n < 20 || n > 50 {
			t.Errorf("in a minute it has looked %d times", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		c.set("a", false)
		c.change("k")
		if got := told(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%q are told at once, want a", got)
		}
	})
}

// Where the server cannot tell, nothing is kept.
func TestWatchGivesUp(t *testing.T) {
	watching(t, func(t *testing.T, c *trackerConn, w *watch, told func() []string) {
		c.refuse = fmt.Errorf("by RESP2: %w", driver.ErrUnsupported)
		w.holds("k", "a", "-")
		time.Sleep(time.Minute)
		w.holds("k", "b", "-")
		w.ended("k", "a")
		w.changed(nil)
		time.Sleep(time.Minute)
		if c.opened != 1 || w.list != nil {
			t.Errorf("asked %d times; %v", c.opened, w.list)
		}
	})
}

func TestWatchIsBounded(t *testing.T) {
	watching(t, func(t *testing.T, c *trackerConn, w *watch, told func() []string) {
		for i := range 2 * maxWatched {
			id := fmt.Sprint(i)
			c.set(id, true)
			w.holds("k"+id, id, "-")
		}
		time.Sleep(10 * age)
		synctest.Wait()
		for range 3 { // renewals
			for i := range 2 * maxWatched {
				w.holds("k"+fmt.Sprint(i), fmt.Sprint(i), "-")
			}
			time.Sleep(10 * age)
		}
		synctest.Wait()
		if n := len(w.list.keys) + len(w.list.young) + len(w.list.old); n != maxWatched || w.list.count != maxWatched {
			t.Errorf("%d are watched, %d counted", n, w.list.count)
		}
		for i := range 2 * maxWatched {
			w.ended("k"+fmt.Sprint(i), fmt.Sprint(i))
		}
		if len(w.list.keys) != 0 || w.list.count != 0 {
			t.Errorf("%d are left, %d counted", len(w.list.keys), w.list.count)
		}
	})
}
