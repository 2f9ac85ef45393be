package etcdstore

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// tracked is a claim that is on one of the store's own leases, as far as is
// known. Guarded by the store's mutex.
type tracked struct {
	key     string
	create  int64
	lease   *lease
	expires time.Time // when its own TTL is over
	// ending: that is so, and it is being deleted; see bury.
	ending bool
	change int64 // revision of its key's last write, as far as is known

	// As it was read last.
	status   driver.Status
	revision int64
	keys     int64 // how many its queue had
	read     time.Time
	checked  time.Time // that it was so still
	used     int64     // that is written
	since    int64     // when it was first seen to hold, by the wall clock
	dated    bool      // that is written, or was when it came
	watch    *lookout  // where Wait can begin; nil: look first

	mail int64 // revision of the latest news: older ones are not to be believed
}

// track notes a claim of the store's own, as it was read, that lasts for ttl
// from from. It returns the status as noticed does.
func (s *store) track(q *snapshot, m *member, l *lease, from time.Time, ttl time.Duration) driver.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := m.id(q.name)
	t := s.claims[id]
	if t == nil || t.key != m.key || t.create != m.create {
		t = &tracked{key: m.key, create: m.create}
		if s.heard > q.revision {
			t.mail = s.heard // there may have been news, when nobody knew of the claim
		}
		s.claims[id] = t
	}
	t.lease = l
	if e := from.Add(ttl); e.After(t.expires) {
		t.expires = e
	}
	s.dueAt(t.expires)
	return s.notice(t, q, m)
}

// noticed takes over what was read of a claim that is tracked. It returns the claim's
// status, as its owner is to be told.
//
// Invariant: who was told that a claim holds is told of no other token later, unless it has
// grown. For somebody who did not know that it holds may have marked it as overtaken; then
// another token is written, and no grant of another claim has come between the two.
func (s *store) noticed(q *snapshot, m *member) driver.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.claims[m.id(q.name)]; t != nil && t.create == m.create {
		return s.notice(t, q, m)
	}
	return q.status(m.ID, m.state, time.Now())
}

// notice is noticed, with s.mu held.
func (s *store) notice(t *tracked, q *snapshot, m *member) driver.Status {
	now := time.Now()
	st, told := q.status(m.ID, m.state, now), t.status
	if st.State == driver.Holding && told.State == driver.Holding && st.Token != told.Token && m.has(told.Token) {
		st.Token = told.Token
		if m.alone {
			st.Spare = told.Spare
		}
	}
	if q.revision < t.revision {
		return st
	}
	t.status, t.revision, t.read, t.checked = st, q.revision, now, now
	t.watch, t.used = s.lookout(q, m), m.Used
	t.change, t.keys = m.change, q.keys
	if m.state == driver.Holding {
		if t.since == 0 {
			t.since = now.UnixMicro()
		}
		t.dated = m.Granted != 0
	}
	return st
}

// unchanged notes that the queue of a claim is at one revision as it was at another.
func (s *store) unchanged(id claimID, was, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.claims[id]
	if t == nil || t.revision != was {
		return
	}
	passed := time.Since(t.checked)
	t.revision, t.checked = now, t.checked.Add(passed)
	if b := t.status.Blocker; b != nil {
		aged := *b
		if aged.Age += passed; aged.Held != 0 {
			aged.Held += passed
		}
		t.status.Blocker = &aged
	}
}

// extend renews a claim that is on one of the store's leases, which lasts.
func (s *store) extend(id claimID, l *lease, from time.Time, ttl time.Duration) (driver.Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.claims[id]
	if t == nil || t.ending || t.lease != l || l.gone || t.mail > t.revision {
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
func (s *store) forget(id claimID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, id)
}

// known returns a copy of what is known about a claim.
func (s *store) known(id claimID) (tracked, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.claims[id]; t != nil {
		return *t, true
	}
	return tracked{}, false
}

// expire deletes the claim if its own TTL is over, and is tracked still.
func (s *store) expire(ctx context.Context, id claimID) error {
	s.mu.Lock()
	b, over := s.overdue(id, time.Now())
	s.mu.Unlock()
	if !over {
		return nil
	}
	return s.bury(ctx, []burial{b})
}

// dueAt has the reaper look at that time, or earlier. s.mu is held.
func (s *store) dueAt(at time.Time) {
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
func (s *store) reaper() {
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
		err := s.reap(ctx)
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
		// Those that run out within a moment are deleted together; and if nobody is
		// there, their lease ends them.
		soonest := time.Now().Add(20 * time.Millisecond)
		if err != nil {
			soonest = time.Now().Add(time.Second)
		}
		if !s.due.IsZero() && s.due.Before(soonest) {
			s.due = soonest
		}
		s.mu.Unlock()
	}
}

// reap deletes the claims whose own TTL is over. What goes wrong with some of them
// does not keep it from the others.
func (s *store) reap(ctx context.Context) error {
	now := time.Now()
	var over []burial
	tried := make(map[claimID]*attempt)
	s.mu.Lock()
	for id := range s.claims {
		if b, ok := s.overdue(id, now); ok {
			over = append(over, b)
		}
	}
	for id, a := range s.tried {
		if !now.Before(a.expires) {
			tried[id] = a
		}
	}
	s.mu.Unlock()
	return errors.Join(s.bury(ctx, over), s.cleanUp(ctx, tried))
}

// burial is a claim to be deleted, as it was when its TTL was over.
type burial struct {
	id             claimID
	t              *tracked
	key            string
	create, change int64
	lease          clientv3.LeaseID
}

// overdue marks the claim as ending if its own TTL is over. s.mu is held.
//
// Invariant: a claim that is ending is given no more time by this store: nothing
// extends it, and no attempt for it begins; and it is not marked while an attempt is
// under way that may give it more. So who is told by this store that a claim of his
// goes on has a claim that is not being deleted.
func (s *store) overdue(id claimID, now time.Time) (b burial, over bool) {
	t := s.claims[id]
	if t == nil {
		return b, false
	}
	if a := s.tried[id]; now.Before(t.expires) || !t.ending && a != nil && now.Before(a.expires) {
		return b, false
	}
	t.ending = true
	return burial{id, t, t.key, t.create, t.change, t.lease.id}, true
}

// bury deletes claims whose TTL is over, many by one transaction.
//
// Invariant: it deletes only what nobody has written since it was last seen on this
// store's lease: whoever else takes a claim over writes it. So it may arrive as late
// or as often as it likes.
func (s *store) bury(ctx context.Context, over []burial) error {
	var errs []error
	for part := range slices.Chunk(over, chunk) {
		if err := s.buryPart(ctx, part); err != nil {
			errs = append(errs, err) // they are ending still: the reaper comes again
		}
	}
	return errors.Join(errs...)
}

func (s *store) buryPart(ctx context.Context, part []burial) error {
	for len(part) > 0 {
		ops := make([]clientv3.Op, len(part))
		for i, b := range part {
			ops[i] = clientv3.OpTxn([]clientv3.Cmp{
				clientv3.Compare(clientv3.CreateRevision(b.key), "=", b.create),
				clientv3.Compare(clientv3.ModRevision(b.key), "=", b.change),
				clientv3.Compare(clientv3.LeaseValue(b.key), "=", b.lease),
			}, s.removal(b.key), []clientv3.Op{clientv3.OpGet(b.key, clientv3.WithKeysOnly())})
		}
		res, err := s.txn(ctx, nil, ops, nil)
		if err != nil {
			return err
		}
		var changed []burial // by others, and on this store's lease still
		s.mu.Lock()
		for i, b := range part {
			if got := res.Responses[i].GetResponseTxn(); !got.Succeeded {
				kvs := got.Responses[0].GetResponseRange().Kvs
				if len(kvs) > 0 && kvs[0].CreateRevision == b.create && clientv3.LeaseID(kvs[0].Lease) == b.lease {
					b.change = kvs[0].ModRevision
					changed = append(changed, b)
					continue
				}
			}
			if s.claims[b.id] == b.t {
				delete(s.claims, b.id)
			}
		}
		s.mu.Unlock()
		part = changed
	}
	return nil
}
