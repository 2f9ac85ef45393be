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
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/internal/lacking"
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
	nodes    []*node
	most     int // how many are a majority
	pause    time.Duration
	patience time.Duration

	ctx    context.Context // ends when the store is closed
	cancel context.CancelFunc

	spawning sync.Mutex
	closed   bool
	work     sync.WaitGroup

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
	if n := len(nodes); n < 3 || n > 7 || n%2 == 0 {
		return nil, fmt.Errorf("%w number of nodes %d: allowed are 3, 5 and 7", driver.ErrInvalid, n)
	}
	if o.Names != nil && len(o.Names) != len(nodes) {
		return nil, fmt.Errorf("%w names: %d for %d nodes", driver.ErrInvalid, len(o.Names), len(nodes))
	}
	s := &store{Reasons: &cannot, most: len(nodes)/2 + 1, claims: new(registry)}
	var err error
	if s.pause, err = span("MaxPause", o.MaxPause, DefaultMaxPause); err != nil {
		return nil, err
	}
	if s.patience, err = span("Patience", o.Patience, DefaultPatience); err != nil {
		return nil, err
	}
	for i, d := range nodes {
		name := fmt.Sprintf("node %d", i+1)
		if o.Names != nil {
			name = o.Names[i]
		}
		for _, other := range nodes[:i] {
			if d == other {
				return nil, fmt.Errorf("%w nodes: %s is there twice", driver.ErrInvalid, name)
			}
		}
		s.nodes = append(s.nodes, &node{Store: d, index: i, name: name, limit: requestLimit, quiet: max(silence, s.patience)})
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
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

// End implements checked.Ender: it ends the calls under way.
func (s *store) End() { s.cancel() }

// Close ends what goes on in the background, and closes the nodes.
func (s *store) Close() error {
	s.spawning.Lock()
	s.closed = true
	s.spawning.Unlock()
	s.cancel()
	s.work.Wait()
	var errs []error
	for _, n := range s.nodes {
		if err := n.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.name, err))
		}
	}
	return errors.Join(errs...)
}

// spawn runs f in the background, and reports whether it does: not when the store is
// closed. Close waits for it.
func (s *store) spawn(f func()) bool {
	s.spawning.Lock()
	defer s.spawning.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}
