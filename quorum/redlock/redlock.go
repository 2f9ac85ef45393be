// Package redlock keeps mutexes on 3, 5 or 7 servers of Redis or Valkey by the algorithm of
// that name: the key of a lock is taken on all of them at once, and a majority is enough. On
// the same keys of the same servers pawl and other libraries that do so, as redsync or
// node-redlock with several clients, exclude each other. It is for the time in which not
// all who lock are users of pawl.
//
//	var nodes []driver.Store
//	for _, host := range []string{"a", "b", "c"} {
//		node, err := rueidis.OpenPlain("redis://"+host, nil)
//		…
//		nodes = append(nodes, node)
//	}
//	store, err := redlock.New(nodes, nil)
//
// What each node does is up to that node: package plain has the recipe that other
// libraries use. Any other store can be one, too.
//
// # What it promises
//
// While fewer than half of the servers are down, locks go on. One at a time holds as long
// as no server forgets a key before its TTL has passed, and no server's clock jumps. A
// server that is started again without its data, or with old data, does forget: keep it out for the
// longest TTL, or it may give to another what it gave before. Package quorum, whose servers know
// that they have forgotten, does so by itself.
//
// # What its tokens are worth
//
// Each node draws a token by its own clock when its key is taken; the token of a lock is the
// greatest of the majority that was first to reply. It is greater than that of the holder
// before if any two servers' clocks differ by less than the time for which that one
// had the lock. Nothing more: the nodes keep no mark that a later grant would
// have to pass, and what other libraries hold in between has no token. Package quorum has tokens
// that always rise.
//
// # What it cannot do
//
// What one plain lock cannot: there is no queue, who waits tries again after a pause, and several
// who try at the same moment may each get some of the servers, and none a majority. Then they
// give back what they have, and try again. There are mutexes only; a holder is not told that others
// wait, nor that its keys are gone before its next renewal. What a server has lost that
// a claim held is not taken again by a renewal: a claim goes on while a majority has it.
package redlock

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/internal/lacking"
	"github.com/pawl-go/pawl/quorum/internal/majority"
)

// Defaults of Options.
const (
	DefaultPatience = 50 * time.Millisecond
	DefaultMaxPause = 100 * time.Millisecond
)

const longest = 10 * time.Second // allowed for options

// Options of a store. The zero value is the default.
type Options struct {
	// MaxPause is the longest pause between two tries of a claim that waits; DefaultMaxPause
	// if 0. Allowed are 1 ms to 10 s.
	MaxPause time.Duration
	// Patience is how long the other nodes' replies are waited for when a majority has
	// replied and that does not decide; DefaultPatience if 0. Allowed are 1 ms to 10 s.
	Patience time.Duration
	// Names of the nodes, for errors; "node 1" and so on if nil.
	Names []string
}

// Store is a [driver.Store] out of several. Claims stay until they run out when it is
// closed.
type Store struct {
	*checked.Store
	in *store
}

type store struct {
	*lacking.Reasons
	*majority.Group
	nodes    []*node
	pause    time.Duration
	patience time.Duration

	claims *registry
}

// New makes a store of nodes, and owns them from now on. It does no I/O. o may be nil.
func New(nodes []driver.Store, o *Options) (*Store, error) {
	s, err := newStore(nodes, o)
	if err != nil {
		return nil, err
	}
	return &Store{checked.New("redlock", s), s}, nil
}

func newStore(nodes []driver.Store, o *Options) (*store, error) {
	if o == nil {
		o = new(Options)
	}
	g, err := majority.New(nodes, o.Names)
	if err != nil {
		return nil, err
	}
	s := &store{Reasons: &cannot, Group: g, claims: new(registry)}
	if s.pause, err = span("MaxPause", o.MaxPause, DefaultMaxPause); err != nil {
		return nil, err
	}
	if s.patience, err = span("Patience", o.Patience, DefaultPatience); err != nil {
		return nil, err
	}
	for i, d := range nodes {
		s.nodes = append(s.nodes, &node{Store: d, index: i, limit: requestLimit, quiet: max(silence, s.patience)})
	}
	return s, nil
}

func span(what string, d, standard time.Duration) (time.Duration, error) {
	if d == 0 {
		return standard, nil
	}
	if d < time.Millisecond || d > longest {
		return 0, fmt.Errorf("%w %s %v: allowed are 1ms to %v", driver.ErrInvalid, what, d, longest)
	}
	return d, nil
}
