// Package crew hurts clusters while clients count under a lock.
package crew

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
)

const (
	TTL = 3 * time.Second
	// SteadyTTL gives a holder time to find another endpoint.
	SteadyTTL = 30 * time.Second
)

// Crew is clients, each with a store of its own, that count under one lock while
// their cluster is being hurt.
//
// What they see is judged by their own words alone, as a holder without fenced
// resources would have to: whoever's lease says that it holds, holds.
type Crew struct {
	testing.TB
	Clients map[string]*pawl.Client
	Ctx     context.Context // of their locks
	work    sync.WaitGroup

	mu     sync.Mutex
	count  int // read and written under the lock, in two steps
	token  int64
	inside map[*pawl.Lease]string
	done   map[string]int // increments, by client
	lost   int
	news   chan struct{} // closed with the next increment
	drawn  int64         // the latest token of a name that is free
	over   bool
	began  time.Time
}

// New makes a crew of nobody.
func New(t testing.TB) *Crew {
	return &Crew{
		TB: t, Ctx: await.Context(t),
		Clients: make(map[string]*pawl.Client), inside: make(map[*pawl.Lease]string),
		done: make(map[string]int), news: make(chan struct{}), began: time.Now(),
	}
}

// Client makes a client on that store, which ends with the test.
func (cr *Crew) Client(s driver.Store, ttl time.Duration) *pawl.Client {
	c := pawl.New(s, &pawl.Options{TTL: ttl})
	cr.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		c.Close(ctx) // some cannot reach their server any more
	})
	return c
}

// Hire has one more client count, until the end.
func (cr *Crew) Hire(who string, s driver.Store, ttl time.Duration) {
	c := cr.Client(s, ttl)
	cr.Clients[who] = c
	cr.work.Go(func() {
		for !cr.ended() {
			cr.Hold(who, c, func(*pawl.Lease) { time.Sleep(2 * time.Millisecond) })
		}
	})
}

func (cr *Crew) ended() bool {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	return cr.over
}

// Hold counts once, and reports whether that was under the lock from beginning to
// End; in between it runs f.
func (cr *Crew) Hold(who string, c *pawl.Client, f func(*pawl.Lease)) bool {
	lease, err := c.Mutex("count").Lock(cr.Ctx)
	if err != nil {
		cr.Errorf("%s: lock: %v", who, err)
		cr.stop()
		return false
	}
	n := cr.enter(who, lease)
	f(lease)
	done := cr.leave(who, lease, n)
	if err := lease.Unlock(cr.Ctx); err != nil && !errors.Is(err, pawl.ErrLost) {
		cr.Errorf("%s: unlock: %v", who, err)
	}
	return done
}

// enter reads the count. All that is looked at is looked at in the crew's mutex:
// who is valid when asked here was so when those who came before were asked.
func (cr *Crew) enter(who string, lease *pawl.Lease) int {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	for other, whose := range cr.inside {
		if other.Err() == nil && lease.Err() == nil {
			cr.Errorf("%s holds with token %d until %v, and %s with token %d until %v",
				whose, other.Token(), other.Deadline(), who, lease.Token(), lease.Deadline())
		}
	}
	if lease.Err() == nil {
		if lease.Token() <= cr.token {
			cr.Errorf("%s has token %d after %d", who, lease.Token(), cr.token)
		}
		cr.token = lease.Token()
	}
	cr.inside[lease] = who
	return cr.count
}

// leave writes the count, and takes that back if the lease turns out to be lost:
// nobody has seen it then.
func (cr *Crew) leave(who string, lease *pawl.Lease, n int) bool {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	delete(cr.inside, lease)
	was := cr.count
	if lease.Err() == nil {
		cr.count = n + 1
	}
	if err := lease.Err(); err != nil {
		cr.count = was
		cr.lost++
		cr.Logf("%s: %v", who, err)
		return false
	}
	cr.done[who]++
	close(cr.news)
	cr.news = make(chan struct{})
	return true
}

// GoOn waits until each of those clients, or, without names, all, have counted n
// times more.
func (cr *Crew) GoOn(n int, who ...string) {
	cr.Helper()
	if len(who) == 0 {
		who = slices.Collect(maps.Keys(cr.Clients))
	}
	cr.mu.Lock()
	before := maps.Clone(cr.done)
	cr.mu.Unlock()
	ctx := await.Context(cr)
	for {
		cr.mu.Lock()
		rest := slices.DeleteFunc(slices.Clone(who), func(who string) bool { return cr.done[who] >= before[who]+n })
		news := cr.news
		cr.mu.Unlock()
		if len(rest) == 0 {
			cr.Logf("%v after the beginning all go on", time.Since(cr.began).Round(time.Millisecond))
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			cr.Fatalf("%v do not go on", rest)
		}
	}
}

// Draw takes a lock that nobody else wants: where nothing is kept of a name that is
// free, its tokens rise all the same.
func (cr *Crew) Draw(c *pawl.Client) {
	cr.Helper()
	lease, err := c.Mutex("free").Lock(cr.Ctx)
	if err != nil {
		cr.Fatal(err)
	}
	if lease.Token() <= cr.drawn {
		cr.Errorf("token %d after %d", lease.Token(), cr.drawn)
	}
	cr.drawn = lease.Token()
	if err := lease.Unlock(cr.Ctx); err != nil {
		cr.Error(err)
	}
}

func (cr *Crew) Others(not ...string) (who []string) {
	for name := range cr.Clients {
		if !slices.Contains(not, name) {
			who = append(who, name)
		}
	}
	return who
}

func (cr *Crew) stop() {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.over = true
}

// End lets all finish, and checks that no increment was lost.
func (cr *Crew) End() {
	cr.Helper()
	cr.stop()
	cr.work.Wait()
	sum := 0
	for _, n := range cr.done {
		sum += n
	}
	if cr.count != sum {
		cr.Errorf("counted to %d in %d holds", cr.count, sum)
	}
	cr.Logf("%d holds, of which %d were lost: %v", sum+cr.lost, cr.lost, cr.done)
}

// Extended renews the lease for as long as that takes: the engine has replied,
// whatever has become of a part of it.
func (cr *Crew) Extended(lease *pawl.Lease) {
	cr.Helper()
	began := time.Now()
	for lease.Err() == nil {
		ctx, cancel := context.WithTimeout(cr.Ctx, 2*time.Second)
		err := lease.Extend(ctx, 0)
		cancel()
		if err == nil {
			cr.Logf("the holder was renewed after %v", time.Since(began).Round(time.Millisecond))
			return
		}
	}
	cr.Errorf("the holder did not go on: %v", lease.Err())
}

// Told waits until the lease is lost.
func (cr *Crew) Told(lease *pawl.Lease) {
	cr.Helper()
	select {
	case <-lease.Lost():
	case <-time.After(90 * time.Second):
		cr.Error("the holder is not told that it has lost the lock")
	}
}

// Only names the client that knows one server.
func Only(i int) string { return fmt.Sprintf("only %d", i) }
