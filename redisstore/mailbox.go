package redisstore

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/wake"
)

const (
	firstPause = 50 * time.Millisecond // between attempts to subscribe
	lastPause  = 2 * time.Second
	// How long after the beginning of an attempt to subscribe an Enter still waits
	// for it. Without a subscription it is woken by its own heartbeat only.
	settleTime = 500 * time.Millisecond
)

// mailbox is where the scripts of all clients leave messages for this store:
// one channel, subscribed by one goroutine from the first need until stop.
type mailbox struct {
	channel string
	conn    Conn
	granted func(key, id string) // called for each claim that is told of its grant
	ctx     context.Context      // the store's
	done    sync.WaitGroup
	up      atomic.Bool

	records wake.Hub // by record name

	// telling is held while a grant is told, so that it is told either before the reply
	// by which its claim waits, and is forgotten then, or is known to be of an earlier one.
	telling sync.Mutex

	mu      sync.Mutex
	begun   bool          // the goroutine was started, or must not be any more
	settled chan struct{} // closed once the attempt under way has an outcome
	since   time.Time     // when that attempt began
	fault   error         // of the last attempt, if permanent
	faults  chan struct{} // closed when fault is set
	next    int
	hears   map[int]func(driver.Notice)
	claims  map[string]expected
	sweep   int // number of claims at which to look for dead ones

	lastOwner atomic.Pointer[ownerText]
}

// expected is a claim that waits, or may.
type expected struct {
	key     string         // of its queue
	grant   *driver.Status // once the message is there
	floor   int64          // no grant with this token or less is the claim's; see floor
	news    chan struct{}  // closed on news; nil while nobody waits for any
	expires time.Time      // by then the claim has run out, or was renewed
}

type ownerText struct {
	owner driver.Owner
	text  string
}

// stopTimeout bounds how long stop waits.
const stopTimeout = 2 * time.Second

func newMailbox(ctx context.Context, conn Conn, channel string) *mailbox {
	return &mailbox{
		channel: channel, conn: conn, ctx: ctx, granted: func(string, string) {},
		settled: make(chan struct{}), faults: make(chan struct{}),
		hears: make(map[int]func(driver.Notice)), claims: make(map[string]expected),
		sweep: 64,
	}
}

// begin starts the goroutine if it was not yet.
func (b *mailbox) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.begun {
		b.begun = true
		b.since = time.Now()
		b.done.Go(b.run)
	}
}

// stop waits for the goroutine; the context has ended already. A client that does
// not end a subscription with its context is not waited for, so that Close ends.
func (b *mailbox) stop() {
	b.mu.Lock()
	b.begun = true
	b.mu.Unlock()
	waitBriefly(&b.done)
}

// waitBriefly waits for goroutines, but not for those that hang in a client.
func waitBriefly(wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

func (b *mailbox) run() {
	pause := firstPause
	for b.ctx.Err() == nil {
		stood := false
		err := b.conn.Subscribe(b.ctx, b.channel, func() {
			stood = true
			b.subscribed()
		}, b.message)
		b.up.Store(false)
		b.failed(classify(err))
		if stood {
			pause = firstPause
		}
		sleep(b.ctx, pause)
		pause = min(2*pause, lastPause)
		b.mu.Lock()
		b.settled, b.since = make(chan struct{}), time.Now()
		b.mu.Unlock()
	}
}

// sleep waits for half to all of d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// subscribed is called when the subscription stands. What came before is lost:
// everything is looked at again.
func (b *mailbox) subscribed() {
	b.up.Store(true)
	b.mu.Lock()
	b.settle()
	for id := range b.claims {
		b.ring(id)
	}
	b.mu.Unlock()
	b.records.RingAll()
	b.notify(driver.Notice{Kind: driver.Check})
}

func (b *mailbox) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
	if driver.IsPermanent(err) {
		b.fault = err
		close(b.faults)
		b.faults = make(chan struct{})
	}
}

func (b *mailbox) settle() {
	select {
	case <-b.settled:
	default:
		close(b.settled)
	}
}

// await waits until the subscription stands, if it is being made.
func (b *mailbox) await(ctx context.Context) {
	if b.up.Load() {
		return
	}
	b.begin()
	b.mu.Lock()
	settled, left := b.settled, settleTime-time.Since(b.since)
	b.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
}

// message is one of
//
//	g ID TOKEN BEHIND ALONE    granted
//	w ID                       wanted
//	b ID                       broken, or adopted by another
//	r NAME                     a record changed
//
// Others may come from a later version, and are ignored.
func (b *mailbox) message(text string) {
	kind, rest, _ := strings.Cut(text, " ")
	switch kind {
	case "g":
		id, rest, _ := strings.Cut(rest, " ")
		st, err := parseStatus("h "+rest, time.Time{}, 0)
		if err != nil {
			return
		}
		b.telling.Lock()
		defer b.telling.Unlock()
		b.mu.Lock()
		e, ok := b.claims[id]
		if ok = ok && st.Token > e.floor; ok {
			e.grant = &st
			b.claims[id] = e
		}
		b.mu.Unlock()
		if ok {
			b.granted(e.key, id)
			b.notify(driver.Notice{Kind: driver.Granted, ID: id, Status: st})
			b.mu.Lock()
			b.ring(id)
			b.mu.Unlock()
		}
	case "w":
		b.notify(driver.Notice{Kind: driver.Wanted, ID: rest})
	case "b":
		b.forget(rest)
		b.notify(driver.Notice{Kind: driver.Check, ID: rest})
	case "r":
		b.records.Ring(rest)
	}
}

// ring wakes who waits for news of the claim; b.mu is held.
func (b *mailbox) ring(id string) {
	if e := b.claims[id]; e.news != nil {
		close(e.news)
		e.news = nil
		b.claims[id] = e
	}
}

func (b *mailbox) notify(n driver.Notice) {
	b.mu.Lock()
	hears := slices.Collect(maps.Values(b.hears))
	b.mu.Unlock()
	for _, f := range hears {
		f(n)
	}
}

func (b *mailbox) listen(ctx context.Context, f func(driver.Notice)) error {
	b.begin()
	b.mu.Lock()
	key, faults := b.next, b.faults
	b.next++
	b.hears[key] = f
	b.mu.Unlock()
	if b.up.Load() { // and may have been before f was heard of
		f(driver.Notice{Kind: driver.Check})
	}
	defer func() {
		b.mu.Lock()
		delete(b.hears, key)
		b.mu.Unlock()
	}()
	select {
	case <-faults:
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.fault
	case <-ctx.Done():
		return ctx.Err()
	case <-b.ctx.Done():
		return driver.ErrClosed
	}
}

// expect keeps a grant for the claim until wait fetches it.
func (b *mailbox) expect(key, id string, ttl time.Duration) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.claims[id]; ok {
		e.expires = now.Add(ttl)
		b.claims[id] = e
		return
	}
	if len(b.claims) >= b.sweep {
		// Claims whose owner neither left nor went on.
		maps.DeleteFunc(b.claims, func(_ string, e expected) bool { return e.news == nil && e.expires.Before(now) })
		b.sweep = max(64, 2*len(b.claims))
	}
	b.claims[id] = expected{key: key, expires: now.Add(ttl)}
}

func (b *mailbox) known(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.claims[id]
	return ok
}

// stands is told that the claim waits, and that no grant up to that token is its own.
func (b *mailbox) stands(id string, floor int64) {
	b.telling.Lock()
	defer b.telling.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.claims[id]
	if !ok {
		return
	}
	e.floor = max(e.floor, floor)
	if e.grant != nil && e.grant.Token <= e.floor {
		e.grant = nil
	}
	b.claims[id] = e
}

// renewed is told the outcome of a renewal.
func (b *mailbox) renewed(id string, s driver.State, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.claims[id]
	if !ok {
		return
	}
	if s != driver.Waiting {
		b.drop(id)
		return
	}
	e.expires = time.Now().Add(ttl)
	b.claims[id] = e
}

// forget ends the interest in the claim; who still waits for it looks itself.
func (b *mailbox) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(id)
}

func (b *mailbox) drop(id string) {
	b.ring(id)
	delete(b.claims, id)
}

// wait returns the grant of the claim, or Waiting when there may be other news.
func (b *mailbox) wait(ctx context.Context, id string) (driver.Status, error) {
	b.mu.Lock()
	e, ok := b.claims[id]
	if !ok {
		b.mu.Unlock()
		return driver.Status{State: driver.Waiting}, nil
	}
	if e.grant != nil {
		delete(b.claims, id)
		b.mu.Unlock()
		return *e.grant, nil
	}
	if e.news == nil {
		e.news = make(chan struct{})
		b.claims[id] = e
	}
	news := e.news
	b.mu.Unlock()
	select {
	case <-news:
	case <-ctx.Done():
		return driver.Status{}, ctx.Err()
	case <-b.ctx.Done():
		return driver.Status{}, driver.ErrClosed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.claims[id]; e.grant != nil {
		delete(b.claims, id)
		return *e.grant, nil
	}
	return driver.Status{State: driver.Waiting}, nil
}

// ownerText is an owner as the scripts keep it. A client says the same each time.
func (b *mailbox) ownerText(o driver.Owner) string {
	if l := b.lastOwner.Load(); l != nil && l.owner == o {
		return l.text
	}
	text, err := json.Marshal(o)
	if err != nil {
		text = []byte("{}") // strings and a number: it does not fail
	}
	b.lastOwner.Store(&ownerText{o, string(text)})
	return string(text)
}
