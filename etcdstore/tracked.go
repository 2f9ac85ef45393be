package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// tracked is a claim that is on one of the store's own leases, as far as is
// known. Guarded by the store's mutex.
type tracked struct {
	key    string
	limit  int64
	create int64
	// foreign: another store entered it, which may delete it again without
	// putting mail about that, so it is read with each renewal.
	foreign bool
	lease   *lease
	expires time.Time // when its own TTL is over

	// As it was read last.
	status   driver.Status
	revision int64
	checked  time.Time
	used     int64    // that is written
	since    int64    // when it was first seen to hold, by the wall clock
	dated    bool     // that is written, or was when it came
	watch    *lookout // where Wait can begin; nil: look first

	mail int64 // revision of the latest news: older ones are not to be believed
}

// track notes a claim of the store's own, as it was read, that lasts for ttl
// from from.
func (s *Store) track(q *snapshot, m *member, l *lease, from time.Time, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := claimID{q.name, m.ID}
	t := s.claims[id]
	if t == nil || t.key != m.key || t.create != m.create {
		t = &tracked{key: m.key, limit: m.limit, create: m.create, foreign: !s.slotted(m.key)}
		if s.read > q.revision {
			t.mail = s.read // there may have been news, when nobody knew of the claim
		}
		s.claims[id] = t
	}
	t.lease = l
	if e := from.Add(ttl); e.After(t.expires) {
		t.expires = e
	}
	s.notice(t, q, m)
	s.dueAt(t.expires)
}

// noticed takes over what was read of a claim that is tracked.
func (s *Store) noticed(q *snapshot, m *member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.claims[claimID{q.name, m.ID}]; t != nil && t.create == m.create {
		s.notice(t, q, m)
	}
}

// notice is noticed, with s.mu held.
func (s *Store) notice(t *tracked, q *snapshot, m *member) {
	if q.revision < t.revision {
		return
	}
	now := time.Now()
	t.status, t.revision, t.checked, t.watch, t.used = q.status(m.ID, m.state, now), q.revision, now, s.lookout(q, m), m.Used
	if m.state == driver.Holding {
		if t.since == 0 {
			t.since = now.UnixMicro()
		}
		t.dated = m.Granted != 0
	}
}

// extend renews a claim that is on one of the store's leases, which lasts.
func (s *Store) extend(id claimID, l *lease, from time.Time, ttl time.Duration) (driver.Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.claims[id]
	if t == nil || t.lease != l || l.gone || t.mail > t.revision {
		return driver.Status{}, false
	}
	if e := from.Add(ttl); e.After(t.expires) {
		t.expires = e
	}
	st := t.status
	st.Deadline = driver.Deadline(from, ttl)
	return st, true
}

// forget ends tracking a claim.
func (s *Store) forget(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, claimID{name, id})
	s.vacate(claimID{name, id})
}

// known answers a copy of what is known about a claim.
func (s *Store) known(name, id string) (tracked, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.claims[claimID{name, id}]; t != nil {
		return *t, true
	}
	return tracked{}, false
}

// expire deletes the claim if its own TTL is over, and is tracked still.
func (s *Store) expire(ctx context.Context, name, id string) error {
	t, ok := s.known(name, id)
	if !ok || time.Now().Before(t.expires) {
		return nil
	}
	return s.bury(ctx, claimID{name, id}, t)
}

// dueAt has the reaper look at that time, or earlier. s.mu is held.
func (s *Store) dueAt(at time.Time) {
	if !s.due.IsZero() && !at.Before(s.due) {
		return
	}
	s.due = at
	select {
	case s.alarm <- struct{}{}:
	default:
	}
}

// reaper deletes claims of this store whose own TTL is over, while others keep
// their lease alive.
func (s *Store) reaper() {
	for {
		s.mu.Lock()
		due := s.due
		s.mu.Unlock()
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(time.Until(due))
		}
		select {
		case <-s.ctx.Done():
			return
		case <-s.alarm:
			continue
		case <-timer:
		}
		ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		err := s.reap(ctx, func(*lease) bool { return true })
		cancel()
		s.mu.Lock()
		s.due = time.Time{}
		for _, t := range s.claims {
			if s.due.IsZero() || t.expires.Before(s.due) {
				s.due = t.expires
			}
		}
		for _, a := range s.tried {
			if s.due.IsZero() || a.expires.Before(s.due) {
				s.due = a.expires
			}
		}
		if err != nil && !s.due.IsZero() && time.Until(s.due) < time.Second {
			s.due = time.Now().Add(time.Second) // nobody is there: their lease ends them
		}
		s.mu.Unlock()
	}
}

// reap deletes the claims on those leases whose own TTL is over.
func (s *Store) reap(ctx context.Context, on func(*lease) bool) error {
	now := time.Now()
	over, tried := make(map[claimID]tracked), make(map[claimID]*attempt)
	s.mu.Lock()
	for id, t := range s.claims {
		if !now.Before(t.expires) && on(t.lease) {
			over[id] = *t
		}
	}
	for id, a := range s.tried {
		if !now.Before(a.expires) && on(a.lease) {
			tried[id] = a
		}
	}
	s.mu.Unlock()
	for id, t := range over {
		if err := s.bury(ctx, id, t); err != nil {
			return err
		}
	}
	for id, a := range tried {
		if err := s.cleanUp(ctx, id, a); err != nil {
			return err
		}
	}
	return nil
}

// bury deletes one claim whose TTL is over, unless it was renewed meanwhile, by
// this store or by another that put it on its own lease.
func (s *Store) bury(ctx context.Context, id claimID, t tracked) error {
	get := clientv3.OpGet(t.key)
	res, err := s.txn(ctx, nil, []clientv3.Op{get}, nil)
	for err == nil {
		kvs := res.Responses[len(res.Responses)-1].GetResponseRange().Kvs
		if len(kvs) == 0 || clientv3.LeaseID(kvs[0].Lease) != t.lease.id || kvs[0].CreateRevision != t.create {
			break
		}
		s.mu.Lock()
		now := s.claims[id]
		renewed := now != nil && now.expires.After(t.expires)
		if !renewed {
			// A renewal that is noted only in this process would not show in the
			// comparison: from here on the claim is not tracked, and who renews
			// it writes its key, or finds it gone.
			delete(s.claims, id)
		}
		s.mu.Unlock()
		if renewed {
			return nil
		}
		res, err = s.txn(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(t.key), "=", kvs[0].ModRevision)},
			append(s.removal(t.key), get), []clientv3.Op{get})
		if err == nil && res.Succeeded {
			s.forget(id.name, id.id)
			return nil
		}
		if err != nil { // it may have been deleted or not
			s.mu.Lock()
			if s.claims[id] == nil {
				s.claims[id] = &t
			}
			s.mu.Unlock()
			return err
		}
	}
	if err == nil {
		s.mu.Lock()
		if now := s.claims[id]; now != nil && !now.expires.After(t.expires) {
			delete(s.claims, id)
		}
		s.vacate(id)
		s.mu.Unlock()
	}
	return err
}
