package memstore

import (
	"context"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// memory is what makes a store one of a quorum; see driver.Node. Store.mu guards it.
type memory struct {
	epoch      string
	admitted   int64 // the mark of the admission
	high       int64 // no token of any queue was higher
	quarantine string
	ends       int64
}

// Lose lets the store lose all that it has, as an engine that is started anew without
// its data: a test's way to see what happens then. Calls under way go on.
func (s *Store) Lose() {
	in := s.in
	in.mu.Lock()
	in.queues, in.records = make(map[string]*queue.Queue), make(map[string]*record)
	in.memory = memory{}
	in.mu.Unlock()
	in.claims.RingAll()
	in.values.RingAll()
}

func (s *store) Vote(_ context.Context, v driver.Vote) (st driver.Status, err error) {
	sent := time.Now()
	s.do(v.Name, func(q *queue.Queue, o *queue.Op) {
		if v.Epoch != s.memory.epoch {
			err = &driver.EpochError{Want: v.Epoch, Have: s.memory.epoch}
			return
		}
		var state driver.State
		state, err = o.Vote(q, &v, s.memory.admitted)
		st = q.Status(v.ID, state, o.Now, sent, v.TTL)
	})
	return st, queue.NameLimit(err, v.Name)
}

func (s *store) Withdraw(_ context.Context, name, id string, token int64) (is driver.State, err error) {
	s.do(name, func(q *queue.Queue, o *queue.Op) { is = o.Withdraw(q, id, token) })
	s.claims.Ring(id)
	return is, nil
}

func (s *store) Memory(context.Context) (driver.Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remembered(), nil
}

func (s *store) remembered() driver.Memory {
	m := driver.Memory{Epoch: s.memory.epoch, Mark: s.memory.high, Quarantine: s.memory.quarantine}
	if m.Quarantine != "" {
		m.Left = queue.Span(max(0, s.memory.ends-s.now()))
	}
	return m
}

func (s *store) Quarantine(_ context.Context, d time.Duration) (driver.Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := &s.memory; m.epoch == "" && m.quarantine == "" {
		m.quarantine, m.ends = driver.NewID(), s.now()+queue.Micros(d)
	}
	return s.remembered(), nil
}

func (s *store) Remember(_ context.Context, a driver.Admission) (driver.Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.memory
	if m.epoch == "" && m.quarantine == a.Quarantine && (a.AtOnce || m.ends <= s.now()) {
		high := max(m.high, a.Mark)
		*m = memory{epoch: a.Epoch, admitted: high, high: high}
	}
	return s.remembered(), nil
}
