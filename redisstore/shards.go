package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Slots that a store listens to, at which it gives up half of them: whoever locks ever new
// names does not listen to all slots for ever. What is missed then is found by heartbeats.
const manySlots = 1024

// shard returns the subscription for what concerns a name, made for that long at least.
func (b *mailbox) shard(name string, ttl time.Duration) *subscription {
	slot, until := slotOf(name), time.Now().Add(ttl)
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.slots[slot]; s != nil {
		if until.After(s.until) {
			s.until = until
		}
		return s
	}
	if len(b.slots) >= manySlots {
		b.fewer()
	}
	ctx, cancel := context.WithCancel(b.ctx)
	s := newSubscription(b.box(name))
	s.until, s.cancel = until, cancel
	b.slots[slot] = s
	s.begin(&b.done, func() {
		first := true
		s.keep(ctx, func() bool { return true }, func(up func()) error {
			err := classify(b.shards.SubscribeShard(ctx, s.channel, up, b.message), true)
			if driver.IsPermanent(err) {
				b.all.failed(err) // who listens hears of it
			}
			return err
		}, func() {
			// The first time, what is to come is awaited, and nothing was missed.
			if !first || s.late() {
				b.subscribed(slot)
			}
			first = false
		})
	})
	return s
}

// fewer ends the subscriptions that are of use for the shortest time; b.mu is held.
func (b *mailbox) fewer() {
	ends := make([]time.Time, 0, len(b.slots))
	for _, s := range b.slots {
		ends = append(ends, s.until)
	}
	slices.SortFunc(ends, time.Time.Compare)
	for slot, s := range b.slots {
		if !s.until.After(ends[len(ends)/2]) {
			s.cancel()
			delete(b.slots, slot)
		}
	}
}

// use says that the claims of a name need its mailbox for that long.
func (b *mailbox) use(name string, ttl time.Duration) {
	if b.sharded.Load() {
		b.shard(name, ttl)
	}
}
