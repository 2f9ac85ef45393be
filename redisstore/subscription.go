package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

const (
	firstPause = 50 * time.Millisecond // between attempts to subscribe
	lastPause  = 2 * time.Second
	// How long after the beginning of an attempt to subscribe an Enter still waits
	// for it. Without a subscription it is woken by its own heartbeat only.
	settleTime = 500 * time.Millisecond
)

// subscription is to one channel: one goroutine keeps it, from the first need on.
type subscription struct {
	channel string
	up      atomic.Bool

	mu      sync.Mutex
	begun   bool          // the goroutine was started, or must not be any more
	settled chan struct{} // closed once the attempt under way has an outcome
	since   time.Time     // when that attempt began
	fault   error         // of the last attempt, if permanent
	faults  chan struct{} // closed when fault is set
	cancel  func()        // ends it; of a shard's
	until   time.Time     // when nobody needs it any more; of a shard's
}

func newSubscription(channel string) *subscription {
	return &subscription{channel: channel, settled: make(chan struct{}), faults: make(chan struct{})}
}

// begin starts the goroutine if it was not yet.
func (s *subscription) begin(work *sync.WaitGroup, run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun = true
		s.since = time.Now()
		work.Go(run)
	}
}

// end lets begin start nothing any more.
func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
}

// keep subscribes, and again whenever that ends, until ctx has. Before each attempt it
// asks whether to go on. subscribe marks what is permanent.
func (s *subscription) keep(ctx context.Context, again func() bool, subscribe func(up func()) error, up func()) {
	pause := firstPause
	for ctx.Err() == nil {
		if !again() {
			s.settle()
			return
		}
		stood := false
		err := subscribe(func() {
			stood = true
			s.up.Store(true)
			s.settle()
			up()
		})
		s.up.Store(false)
		s.failed(err)
		if stood {
			pause = firstPause
		}
		sleep(ctx, pause)
		pause = min(2*pause, lastPause)
		s.mu.Lock()
		s.settled, s.since = make(chan struct{}), time.Now()
		s.mu.Unlock()
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

func (s *subscription) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
}

func (s *subscription) settleLocked() {
	select {
	case <-s.settled:
	default:
		close(s.settled)
	}
}

func (s *subscription) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
	if driver.IsPermanent(err) {
		s.fault = err
		close(s.faults)
		s.faults = make(chan struct{})
	}
}

// lastFault is why it does not stand, if repeating is useless.
func (s *subscription) lastFault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// late reports whether nobody waits any more for the attempt under way.
func (s *subscription) late() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.since) > settleTime
}

// await waits until the subscription stands, if it is being made.
func (s *subscription) await(ctx, closed context.Context) {
	s.mu.Lock()
	settled, left := s.settled, settleTime-time.Since(s.since)
	s.mu.Unlock()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	case <-ctx.Done():
	case <-closed.Done():
	}
}
