package main

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"

	"github.com/pawl-go/pawl/bench/internal/wire"
)

// Locker is a lock library under test.
type Locker interface {
	// Lock waits until it has the name or ctx ends.
	Lock(ctx context.Context, name string) (Held, error)
	Close() error
}

// Held is a lock that is held. It is an interface and not a function so that
// the bench adds no allocation to those it counts.
type Held interface{ Unlock() error }

// ttl of the locks: that of pawl, so that nobody renews in a short run.
const ttl = 15 * time.Second

// peer is one library with one setting.
type peer struct {
	name  string
	about string
	// openTTL opens it with locks of that TTL; sent counts what it sends, where
	// the bench can see that on its way.
	openTTL func(addr string, sent *wire.Counter, ttl time.Duration) (Locker, error)

	floor bool // cannot wait: for uncontended locks only
	// patient: the setting concerns waiting alone, so it takes no part in the
	// uncontended scenarios.
	patient bool
}

var redisPeers = []peer{
	{name: "pawl", about: "this project, redisstore on rueidis", openTTL: openPawlRedis},
	{name: "floor", about: "bare SET NX PX and EVALSHA compare-and-delete, same client as pawl", openTTL: openFloor(true), floor: true},
	{name: "floor-nocancel", about: "the same, deaf to the end of the caller's context: rueidis saves two goroutines", openTTL: openFloor(false), floor: true},
	{name: "queue", about: "a bare queue: one script appends, one removes the first and tells the next", openTTL: openQueue, floor: true},
	{name: "redsync", about: "go-redsync/redsync v4 on go-redis, default delays (50 to 250 ms)", openTTL: openRedsync(0)},
	{name: "redsync-5ms", about: "the same, polling every 5 ms", openTTL: openRedsync(5 * time.Millisecond), patient: true},
	{name: "redislock", about: "bsm/redislock on go-redis, polling every 100 ms", openTTL: openRedislock(100 * time.Millisecond)},
	{name: "redislock-5ms", about: "the same, polling every 5 ms", openTTL: openRedislock(5 * time.Millisecond), patient: true},
	{name: "rueidislock", about: "rueidis/rueidislock, default settings", openTTL: openRueidislock(false)},
	{name: "rueidislock-1", about: "the same, KeyMajority 1 and NoLoopTracking", openTTL: openRueidislock(true)},
}

// quorumPeers lock on five servers; rueidislock is not one, for it has all its keys on one.
var quorumPeers = []peer{
	{name: "pawl", about: "this project, quorum of redisstore on rueidis", openTTL: openPawlQuorum},
	{name: "floor", about: "bare SET NX PX and EVALSHA compare-and-delete at all, until most have replied", openTTL: openQuorumFloor, floor: true},
	{name: "redsync", about: "go-redsync/redsync v4 on go-redis, default delays (50 to 250 ms)", openTTL: openRedsyncQuorum()},
	{name: "redsync-ff", about: "the same, WithFailFast", openTTL: openRedsyncQuorum(redsync.WithFailFast(true))},
}

func (p peer) open(addr string, sent *wire.Counter) (Locker, error) {
	return p.openTTL(addr, sent, ttl)
}
