package redisstore

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/wake"
)

// mailbox is where the scripts of all clients leave messages for this store: one
// channel; or, on a cluster whose scripts may not tell it, one for each slot that is in use.
type mailbox struct {
	conn    Conn
	cluster bool
	shards  ShardSubscriber      // nil: there is only the one channel
	probe   string               // a key of another slot than the channel's, on a cluster
	hints   bool                 // a grant that is told does not count: it is looked at
	granted func(key, id string) // called for each claim that is told of its grant
	ctx     context.Context      // the store's
	done    sync.WaitGroup
	all     *subscription // of the one channel

	sharded atomic.Bool // since the one channel cannot be told

	records wake.Hub // by record name

	// telling is held while a grant is told, so that it is told either before the reply
	// by which its claim waits, and is forgotten then, or is known to be of an earlier one.
	telling sync.Mutex

	mu     sync.Mutex
	slots  map[int]*subscription
	next   int
	hears  map[int]func(driver.Notice)
	claims map[string]expected
	sweep  int // number of claims at which to look for dead ones

	lastOwner atomic.Pointer[ownerText]
}

// expected is a claim that waits, or may.
type expected struct {
	key     string         // of its queue
	grant   *driver.Status // once the message is there
	floor   int64          // no grant with this token or less is the claim's; see floor
	news    chan struct{}  // closed on news; nil while nobody waits for any
	expires time.Time      // by then the claim has run out, or was renewed
	slot    int            // of its name, where messages come by slot
}

type ownerText struct {
	owner driver.Owner
	text  string
}

// stopTimeout bounds how long stop waits.
const stopTimeout = 2 * time.Second

func newMailbox(ctx context.Context, conn Conn, cluster bool, channel string) *mailbox {
	b := &mailbox{
		conn: conn, cluster: cluster, ctx: ctx, granted: func(string, string) {}, all: newSubscription(channel), slots: make(map[int]*subscription),
		hears: make(map[int]func(driver.Notice)), claims: make(map[string]expected),
		sweep: 64,
	}
	if cluster {
		b.shards, _ = conn.(ShardSubscriber)
		b.probe = channel + "{" + tags()[(slotOf(channel)+1)%slots] + "}"
	}
	return b
}

// begin subscribes to the one channel if that was not done yet.
func (b *mailbox) begin() {
	b.all.begin(&b.done, func() {
		subscribe := func(up func()) error {
			err := classify(b.conn.Subscribe(b.ctx, b.all.channel, up, b.message), b.cluster)
			if b.shards != nil && driver.IsPermanent(err) {
				b.divide()
				return nil
			}
			return err
		}
		b.all.keep(b.ctx, b.tellable, subscribe, func() { b.subscribed(-1) })
	})
}

// tellable reports whether scripts can tell the one channel. Some services refuse that
// where its slot is not that of the script's keys.
func (b *mailbox) tellable() bool {
	if b.sharded.Load() {
		return false
	}
	if b.shards == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(b.ctx, lastPause)
	defer cancel()
	reply, err := b.conn.Script(ctx, probeScript, []string{b.probe}, []string{b.all.channel})
	if err == nil && reply != "o" {
		b.divide()
		return false
	}
	return true
}

// divide gives up the one channel.
func (b *mailbox) divide() {
	b.sharded.Store(true)
	b.notify(driver.Notice{Kind: driver.Check}) // who listens is told from now on
}

// stop waits for the goroutines; the context has ended already. A client that does
// not end a subscription with its context is not waited for, so that Close ends.
func (b *mailbox) stop() {
	b.all.end()
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

// subscribed is called when a subscription stands: of a slot, or of all with -1. What
// came before is lost: everything is looked at again.
func (b *mailbox) subscribed(slot int) {
	b.mu.Lock()
	for id, e := range b.claims {
		if slot < 0 || e.slot == slot {
			b.ring(id)
		}
	}
	b.mu.Unlock()
	b.records.RingAll()
	b.notify(driver.Notice{Kind: driver.Check})
}

// box returns the channel by which the store is told what concerns a name.
func (b *mailbox) box(name string) string {
	if b.sharded.Load() {
		return b.all.channel + ":{" + slotTag(name) + "}"
	}
	return b.all.channel
}

// await waits until the store can be told what concerns a name, if that is being made
// possible; from now on for that long.
func (b *mailbox) await(ctx context.Context, name string, ttl time.Duration) {
	if b.all.up.Load() {
		return
	}
	b.begin()
	if !b.sharded.Load() {
		b.all.await(ctx, b.ctx)
	}
	if b.sharded.Load() {
		if s := b.shard(name, ttl); !s.up.Load() {
			s.await(ctx, b.ctx)
		}
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
			if !b.hints {
				b.granted(e.key, id)
			}
			n := driver.Notice{Kind: driver.Granted, ID: id, Status: st}
			if b.hints {
				n = driver.Notice{Kind: driver.Check, ID: id}
			}
			b.notify(n)
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
	b.all.mu.Lock()
	faults := b.all.faults
	b.all.mu.Unlock()
	b.mu.Lock()
	key := b.next
	b.next++
	b.hears[key] = f
	b.mu.Unlock()
	if b.all.up.Load() || b.sharded.Load() { // and may have been before f was heard of
		f(driver.Notice{Kind: driver.Check})
	}
	defer func() {
		b.mu.Lock()
		delete(b.hears, key)
		b.mu.Unlock()
	}()
	select {
	case <-faults:
		return b.all.lastFault()
	case <-ctx.Done():
		return ctx.Err()
	case <-b.ctx.Done():
		return driver.ErrClosed
	}
}

// expect keeps a grant for the claim until wait fetches it.
func (b *mailbox) expect(name, key, id string, ttl time.Duration) {
	now, slot := time.Now(), 0
	if b.sharded.Load() {
		slot = slotOf(name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.claims[id]; ok {
		e.expires, e.slot = now.Add(ttl), slot
		b.claims[id] = e
		return
	}
	if len(b.claims) >= b.sweep {
		// Claims whose owner neither left nor went on.
		maps.DeleteFunc(b.claims, func(_ string, e expected) bool { return e.news == nil && e.expires.Before(now) })
		b.sweep = max(64, 2*len(b.claims))
	}
	b.claims[id] = expected{key: key, expires: now.Add(ttl), slot: slot}
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
