package torture

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// lateStore is "margin".
type lateStore struct{ wrapped }

func late(st driver.Status, ttl time.Duration) driver.Status {
	if !st.Deadline.IsZero() {
		st.Deadline = st.Deadline.Add(ttl / 2)
	}
	return st
}

func (s *lateStore) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	st, err := s.Store.Enter(ctx, c)
	return late(st, c.TTL), err
}

func (s *lateStore) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	sts, err := s.wrapped.EnterAll(ctx, cs)
	for i := range sts {
		sts[i] = late(sts[i], cs[i].TTL)
	}
	return sts, err
}

func (s *lateStore) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	st, err := s.Store.Adopt(ctx, a)
	return late(st, a.TTL), err
}

func (s *lateStore) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	s.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) { report(i, late(st, rs[i].TTL), err) })
}

// deafStore is "renewals".
type deafStore struct {
	wrapped
	mu      sync.Mutex
	holding map[string]driver.Status // by claim
}

func (s *deafStore) note(id string, st driver.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.State == driver.Holding {
		s.holding[id] = st
	} else {
		delete(s.holding, id)
	}
}

func (s *deafStore) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	st, err := s.Store.Enter(ctx, c)
	s.note(c.ID, st)
	return st, err
}

func (s *deafStore) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	sts, err := s.wrapped.EnterAll(ctx, cs)
	for i := range sts {
		s.note(cs[i].ID, sts[i])
	}
	return sts, err
}

func (s *deafStore) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	st, err := s.Store.Wait(ctx, r)
	s.note(r.ID, st)
	return st, err
}

func (s *deafStore) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	st, err := s.Store.Adopt(ctx, a)
	s.note(a.ID, st)
	return st, err
}

func (s *deafStore) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	st, err := s.Store.Resize(ctx, r, units)
	if err == nil && st.State == driver.Holding {
		s.note(r.ID, st)
	}
	return st, err
}

func (s *deafStore) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	s.note(r.ID, driver.Status{})
	return s.Store.Leave(ctx, r)
}

func (s *deafStore) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	var rest []driver.Ref
	var at []int
	for i, r := range rs {
		s.mu.Lock()
		st, ok := s.holding[r.ID]
		s.mu.Unlock()
		if !ok {
			rest, at = append(rest, r), append(at, i)
			continue
		}
		st.Deadline = driver.Deadline(time.Now(), r.TTL)
		report(i, st, nil)
	}
	if len(rest) > 0 {
		s.Store.Renew(ctx, rest, func(i int, st driver.Status, err error) {
			s.note(rest[i].ID, st)
			report(at[i], st, err)
		})
	}
}

// countStore is "tokens".
type countStore struct {
	wrapped
	mu    sync.Mutex
	names map[string]string // by claim
	base  map[string]int64  // of each name: what its tokens here are less than the store's
}

func (s *countStore) count(name, id string, st driver.Status) driver.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[id] = name
	if st.Token == 0 {
		return st
	}
	if _, ok := s.base[name]; !ok {
		s.base[name] = st.Token - 1
	}
	st.Token -= s.base[name]
	return st
}

func (s *countStore) ref(r driver.Ref) driver.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Used != 0 {
		r.Used += s.base[r.Name]
	}
	return r
}

func (s *countStore) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	st, err := s.Store.Enter(ctx, c)
	return s.count(c.Name, c.ID, st), err
}

func (s *countStore) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	sts, err := s.wrapped.EnterAll(ctx, cs)
	for i := range sts {
		sts[i] = s.count(cs[i].Name, cs[i].ID, sts[i])
	}
	return sts, err
}

func (s *countStore) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	st, err := s.Store.Wait(ctx, s.ref(r))
	return s.count(r.Name, r.ID, st), err
}

func (s *countStore) Resize(ctx context.Context, r driver.Ref, units int64) (driver.Status, error) {
	st, err := s.Store.Resize(ctx, s.ref(r), units)
	return s.count(r.Name, r.ID, st), err
}

func (s *countStore) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	return s.Store.Leave(ctx, s.ref(r))
}

func (s *countStore) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	rs = slices.Clone(rs)
	for i := range rs {
		rs[i] = s.ref(rs[i])
	}
	s.Store.Renew(ctx, rs, func(i int, st driver.Status, err error) { report(i, s.count(rs[i].Name, rs[i].ID, st), err) })
}

// Adopt asks the store for the token, which another process has counted.
func (s *countStore) Adopt(ctx context.Context, a driver.Adoption) (driver.Status, error) {
	q, err := s.Store.Inspect(ctx, a.Name)
	if err != nil {
		return driver.Status{}, err
	}
	for _, e := range q.Claims {
		if e.ID == a.ID && e.Token > 0 {
			a.Token = e.Token
		}
	}
	st, err := s.Store.Adopt(ctx, a)
	return s.count(a.Name, a.ID, st), err
}

func (s *countStore) Listen(ctx context.Context, f func(driver.Notice)) error {
	return s.Store.Listen(ctx, func(n driver.Notice) {
		s.mu.Lock()
		name, ok := s.names[n.ID]
		s.mu.Unlock()
		if ok {
			n.Status = s.count(name, n.ID, n.Status)
		}
		f(n)
	})
}
