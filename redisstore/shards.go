package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
			err := classify(b.hear(ctx, s.channel, up), true)
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

// hearPeriod is how often a store asks whether it is heard of where it listens.
const hearPeriod = 3 * time.Second

var errUnheard = errors.New("the primary of the slot knows nothing of it: the connection leads to another server")

// hear is SubscribeShard, which ends also when the primary of the slot knows nothing of it: a
// connection may go on with a server that has become a replica. Messages come there, too, but
// the primary takes whoever waits for one whom nobody can wake, and passes it over.
func (b *mailbox) hear(ctx context.Context, channel string, up func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var stands atomic.Bool
	var asking sync.WaitGroup
	defer func() {
		cancel(nil)
		asking.Wait()
	}()
	asking.Go(func() {
		for ctx.Err() == nil {
			if sleep(ctx, hearPeriod); stands.Load() && b.unheard(ctx, channel) {
				cancel(errUnheard)
			}
		}
	})
	err := b.shards.SubscribeShard(ctx, channel, func() {
		up()
		stands.Store(true)
	}, b.message)
	if cause := context.Cause(ctx); cause == errUnheard {
		return fmt.Errorf("listen to %s: %w", channel, cause)
	}
	return err
}

// unheard reports whether nobody listens to a channel at the primary of its slot.
func (b *mailbox) unheard(ctx context.Context, channel string) bool {
	ctx, cancel := context.WithTimeout(ctx, hearPeriod)
	defer cancel()
	reply, err := b.conn.Script(ctx, listenedScript, []string{channel}, []string{channel})
	return err == nil && reply == "n"
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
