package rueidis

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// source is where the adapter has its client from: a caller, or it makes one when
// it needs the first, for to make it is to connect.
type source struct {
	make func() (rueidis.Client, error) // nil for a caller's

	made atomic.Pointer[rueidis.Client]

	mu      sync.Mutex
	attempt *attempt // under way
	end     func()   // ends the client; nil while there is none
	closed  bool
}

// attempt is one to make the client.
type attempt struct {
	done   chan struct{} // closed at the end
	client rueidis.Client
	err    error
}

// have returns a source of that client, which end ends.
func have(c rueidis.Client, end func()) *source {
	s := &source{end: end}
	s.made.Store(&c)
	return s
}

// client returns the client, nil if there is none yet.
func (s *source) client() rueidis.Client {
	if c := s.made.Load(); c != nil {
		return *c
	}
	return nil
}

// get returns the client once there is one. Who comes while it is being made waits for
// the same attempt.
func (s *source) get(ctx context.Context, closed <-chan struct{}) (rueidis.Client, error) {
	if c := s.client(); c != nil {
		return c, nil
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, rueidis.ErrClosing
	}
	a := s.attempt
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		s.attempt = a
		go s.try(a) // it ends when the client gives up connecting
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.client, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-closed:
		return nil, rueidis.ErrClosing
	}
}

func (s *source) try(a *attempt) {
	defer close(a.done)
	c, err := s.make()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = nil
	switch {
	case err != nil:
		a.err = err
	case s.closed:
		c.Close()
		a.err = rueidis.ErrClosing
	default:
		a.client, s.end = c, c.Close
		s.made.Store(&c)
	}
}

// close ends the client, also one that is being made.
func (s *source) close() {
	s.mu.Lock()
	end := s.end
	s.closed, s.end = true, nil
	s.mu.Unlock()
	if end != nil {
		end()
	}
}
