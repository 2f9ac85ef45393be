package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// Leave does not need Ref.Used: tokens of a claim that holds alone are in a block of
// their own.
func (s *store) Leave(ctx context.Context, r driver.Ref) (_ driver.State, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	if err := s.expire(ctx, idOf(&r)); err != nil {
		return driver.Gone, err
	}
	if r.Linger == 0 {
		if was, left, err := s.leaveFast(ctx, idOf(&r)); left || err != nil {
			return was, err
		}
	}
	leave, err := s.leaving.enter(ctx, r.Name)
	if err != nil {
		return driver.Gone, err
	}
	defer leave()
	if err := s.abandon(ctx, idOf(&r)); err != nil {
		return driver.Gone, err
	}
	for {
		q, err := s.look(ctx, r.Name)
		if err != nil {
			return driver.Gone, err
		}
		was, done, err := s.remove(ctx, q, r)
		if done && err == nil {
			s.settled(idOf(&r))
		}
		if done || err != nil {
			return was, err
		}
	}
}

// leaveFast deletes a claim of which is known that it holds, or that it waits, without
// reading the queue: who holds does so until it is deleted, and who waits as long as
// the claim that it watches is as it was. It is compared that the claim is the one that
// came then, and is on the lease on which this store has put it: one that another store
// has taken over, or left to linger, is on another. Mail about it is deleted when the
// mailbox is read next.
func (s *store) leaveFast(ctx context.Context, id claimID) (was driver.State, left bool, err error) {
	s.mu.Lock()
	t := s.claims[id]
	if t == nil || t.mail > t.revision || s.tried[id] != nil {
		s.mu.Unlock()
		return was, false, nil
	}
	there := []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.create),
		clientv3.Compare(clientv3.LeaseValue(t.key), "=", t.lease.id),
	}
	was = t.status.State
	if o := t.watch; was == driver.Waiting {
		if o == nil || !o.mutex {
			s.mu.Unlock()
			return was, false, nil
		}
		there = append(there, clientv3.Compare(clientv3.ModRevision(t.key), "=", t.change),
			clientv3.Compare(clientv3.CreateRevision(o.key), ">", 0), clientv3.Compare(clientv3.ModRevision(o.key), "<", o.revision+1))
	}
	s.mu.Unlock()
	res, err := s.txn(ctx, there, []clientv3.Op{clientv3.OpDelete(t.key)}, nil)
	if err != nil || !res.Succeeded {
		return was, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[id] == t {
		delete(s.claims, id)
	}
	return was, true, nil
}

// removal deletes a claim of this store's, and the mail about it.
func (s *store) removal(key string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete(s.keys.mail(s.id, key))}
}

// remove takes the claim out of the queue, if it is still as it is in q.
func (s *store) remove(ctx context.Context, q *snapshot, r driver.Ref) (was driver.State, done bool, err error) {
	m := q.find(r.ID)
	if m == nil || m.Mark != r.Mark {
		s.forget(idOf(&r))
		return driver.Gone, true, nil
	}
	if m.Lingering { // a repeated Leave
		return m.state, true, nil
	}
	// What the queue is in the moment before tells whether it held.
	then := []clientv3.Op{s.keys.ofQueue(r.Name)}
	var lease clientv3.LeaseID // that a lingering claim has for itself
	switch {
	case r.Linger > 0 && m.state == driver.Holding:
		if lease, err = s.newLease(ctx, seconds(r.Linger)); err != nil {
			return m.state, false, err
		}
		c := m.claim
		c.Lingering, c.TTL = true, seconds(r.Linger)
		if used := m.spoken(r.Used); used > m.token {
			c.Used = used
		}
		then = append(then, clientv3.OpPut(m.key, c.encode(), clientv3.WithLease(lease)))
	case m.Store == s.id:
		then = append(then, s.removal(m.key)...)
	default:
		then = append(then, clientv3.OpDelete(m.key))
	}
	if m.Store != s.id {
		then = append(then, clientv3.OpPut(s.keys.mail(m.Store, m.key), check+m.ID, clientv3.WithLease(m.lease)))
	}
	res, err := s.txn(ctx, []clientv3.Cmp{m.same()}, then, nil)
	if err != nil {
		return driver.Gone, false, err
	}
	if !res.Succeeded {
		s.revoke(ctx, lease) // nothing came to be on it
		return driver.Gone, false, nil
	}
	s.forget(idOf(&r))
	before, err := s.snapshot(r.Name, res.Responses[0].GetResponseRange().Kvs, res.Header.Revision)
	if err != nil {
		return driver.Gone, true, err
	}
	if m := before.find(r.ID); m != nil {
		was = m.state
	}
	return was, true, nil
}

// Break deletes those who hold when it begins, not who comes after them.
func (s *store) Break(ctx context.Context, name string) (broken []driver.Entry, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	q, err := s.look(ctx, name)
	if err != nil {
		return nil, err
	}
	holders := make(map[string]int64)
	for i := range q.members {
		if m := &q.members[i]; m.state == driver.Holding {
			holders[m.ID] = m.create
		}
	}
	for {
		var ops []clientv3.Op
		var entries []driver.Entry
		var alone []clientv3.LeaseID // of those that linger, each for itself; else 0
		for i := range q.members {
			m := &q.members[i]
			if holders[m.ID] != m.create || len(ops) == chunk {
				continue
			}
			then := []clientv3.Op{clientv3.OpDelete(m.key)}
			if alone = append(alone, 0); m.Lingering {
				alone[len(alone)-1] = m.lease
			} else {
				then = append(then, clientv3.OpPut(s.keys.mail(m.Store, m.key), check+m.ID, clientv3.WithLease(m.lease)))
			}
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{m.same()}, then, nil))
			entries = append(entries, m.entry(time.Now()))
		}
		if len(ops) == 0 {
			return broken, nil
		}
		res, err := s.txn(ctx, nil, ops, nil)
		if err != nil {
			return broken, err
		}
		for i, op := range res.Responses {
			if op.GetResponseTxn().Succeeded {
				broken = append(broken, entries[i])
				delete(holders, entries[i].ID)
				s.revoke(ctx, alone[i])
			}
		}
		// Others may have changed meanwhile.
		if q, err = s.look(ctx, name); err != nil {
			return broken, err
		}
	}
}
