package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/internal/bubble"
)

func TestSlotOf(t *testing.T) {
	for tag, want := range map[string]int{"": 0, "foo": 12182, "bar": 5061, "123456789": 0x31C3} {
		if got := slotOf(tag); got != want {
			t.Errorf("slot of %q: %d, want %d", tag, got, want)
		}
	}
	for slot, tag := range tags() {
		if tag == "" || slotOf(tag) != slot {
			t.Fatalf("the tag %q is not of slot %d", tag, slot)
		}
	}
}

// shardConn is one of a cluster. It refuses what it is told to.
type shardConn struct {
	Conn
	refuse string // what scripts and Subscribe say
	shards atomic.Int64
	ended  atomic.Int64
	misled atomic.Bool // the primary knows nothing of subscriptions
}

func (c *shardConn) Script(_ context.Context, s *Script, _, _ []string) (string, error) {
	if s == listenedScript && c.misled.Load() {
		return "n", nil
	}
	if c.refuse == "script" {
		return "ERR Script attempted to access keys that do not hash to the same slot", nil
	}
	return "o", nil
}

func (c *shardConn) Subscribe(ctx context.Context, _ string, up func(), _ func(string)) error {
	if c.refuse == "subscribe" {
		return &ServerError{Text: "NOPERM no"}
	}
	up()
	<-ctx.Done()
	return ctx.Err()
}

func (c *shardConn) SubscribeShard(ctx context.Context, _ string, up func(), _ func(string)) error {
	c.shards.Add(1)
	up()
	<-ctx.Done()
	c.ended.Add(1)
	return errors.New("ended")
}

// Where one channel cannot be told by all scripts, each slot in use has one; and not for ever.
func TestShards(t *testing.T) {
	for refuse, sharded := range map[string]bool{"": false, "script": true, "subscribe": true} {
		bubble.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			c := &shardConn{refuse: refuse}
			b := newMailbox(ctx, c, true, "box")
			for i := range 3 * manySlots {
				b.await(ctx, strconv.Itoa(i), time.Minute)
			}
			synctest.Wait()
			if got := b.sharded.Load(); got != sharded {
				t.Fatalf("%q is refused: by shards is %v", refuse, got)
			}
			if box := b.box("foo"); sharded && (!strings.HasPrefix(box, "box:{") || slotOf(strings.TrimSuffix(strings.TrimPrefix(box, "box:{"), "}")) != 12182) || !sharded && box != "box" {
				t.Errorf("mailbox %s", box)
			}
			if made, now := c.shards.Load(), c.shards.Load()-c.ended.Load(); sharded && (made < 2*manySlots || now > manySlots) || !sharded && made > 0 {
				t.Errorf("%q is refused: %d subscriptions, of which %d are left", refuse, made, now)
			}
			cancel()
			b.stop()
		})
	}
}

// A subscription of which the primary knows nothing is made again, and no other.
func TestUnheard(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := &shardConn{refuse: "script"}
		b := newMailbox(ctx, c, true, "box")
		b.await(ctx, "a", time.Hour)
		time.Sleep(10 * hearPeriod)
		if made := c.shards.Load(); made != 1 {
			t.Errorf("%d subscriptions, all heard of", made)
		}
		c.misled.Store(true)
		time.Sleep(2 * hearPeriod)
		c.misled.Store(false)
		time.Sleep(10 * hearPeriod)
		if made, now := c.shards.Load(), c.shards.Load()-c.ended.Load(); made < 2 || made > 4 || now != 1 {
			t.Errorf("%d subscriptions, of which %d are left", made, now)
		}
		cancel()
		b.stop()
	})
}
