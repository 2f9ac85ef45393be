package etcdstore

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// adopt renews the claim id if it is in the queue, and puts it on a lease of
// this store's if it is on another. q is settled.
func (s *Store) adopt(ctx context.Context, q *snapshot, id string, ttl time.Duration, used int64) (driver.Status, error) {
	for {
		m := q.find(id)
		if m == nil || m.Lingering { // of a lingering one there is no owner any more
			s.forget(q.name, id)
			return driver.Status{}, nil
		}
		t, ours := s.known(q.name, id)
		ours = ours && t.create == m.create && t.lease.id == m.lease
		if ours && t.lease.seconds >= seconds(ttl) {
			from, err := s.keep(ctx, t.lease, ttl)
			if err != nil {
				return driver.Status{}, err
			}
			s.noticed(q, m)
			if st, ok := s.extend(claimID{q.name, id}, t.lease, from, ttl); ok {
				return st, nil
			}
		}
		// It never gets less than it had: the lease it comes from says how much,
		// or what was given to it here.
		left := time.Until(t.expires)
		if !ours {
			leases := map[clientv3.LeaseID]time.Duration{m.lease: 0}
			if err := s.timesToLive(ctx, leases); err != nil {
				return driver.Status{}, err
			}
			left = leases[m.lease]
		}
		moved, err := s.move(ctx, q, m, ttl, max(ttl, left), used)
		if err != nil {
			return driver.Status{}, err
		}
		if q, err = s.settle(ctx, moved.q); err != nil {
			return driver.Status{}, err
		}
		if m := q.find(id); moved.done && m != nil {
			s.noticed(q, m)
			st := q.status(id, m.state, time.Now())
			st.Deadline = driver.Deadline(moved.from, ttl)
			return st, nil
		}
	}
}

type moved struct {
	q    *snapshot
	done bool
	from time.Time // the TTL counts from here
}

// move puts a claim on a lease of this store's that lasts for at least life.
func (s *Store) move(ctx context.Context, q *snapshot, m *member, ttl, life time.Duration, used int64) (moved, error) {
	l, from, err := s.leaseFor(ctx, life)
	if err != nil {
		return moved{}, err
	}
	done, err := s.attempting(ctx, claimID{q.name, m.ID}, l, from.Add(life))
	if err != nil {
		return moved{}, err
	}
	told := false
	defer func() { done(told) }()
	c := m.claim
	c.Store, c.TTL = s.id, l.seconds
	if m.state == driver.Holding && used > m.token {
		c.Used = max(c.Used, used)
	}
	read := s.keys.ofQueue(q.name)
	then := []clientv3.Op{clientv3.OpPut(m.key, c.encode(), clientv3.WithLease(l.id))}
	if m.Store != s.id {
		// Its owner takes the claim to be on its own lease: see letter.
		then = append(then, clientv3.OpPut(s.keys.mail(m.Store, m.key), check+m.ID, clientv3.WithLease(m.lease)))
	}
	res, err := s.txn(ctx, []clientv3.Cmp{m.same(), s.barred(l)}, append(then, read), []clientv3.Op{read})
	if errors.Is(err, errNoLease) {
		s.drop(l)
		told = true
	}
	if err != nil {
		return moved{}, err
	}
	told = true
	now, err := s.snapshot(q.name, res.Responses[len(res.Responses)-1].GetResponseRange().Kvs, res.Header.Revision)
	if err != nil {
		return moved{}, err
	}
	if res.Succeeded {
		s.track(now, now.find(m.ID), l, from, life)
	}
	return moved{now, res.Succeeded, from}, nil
}

// note is what others shall see of a claim of this store's: the highest token used,
// and since when it holds if it had to wait. Neither decides anything; if the claim
// changes meanwhile it is written with the next renewal.
func (m *member) note(used, since int64) (op clientv3.Op, needed bool) {
	c := m.claim
	if m.state != driver.Holding {
		return op, false
	}
	if used > m.token {
		c.Used = max(c.Used, used)
	}
	if c.Granted == 0 {
		c.Granted = since
	}
	return clientv3.OpTxn([]clientv3.Cmp{m.same()}, []clientv3.Op{m.put(c)}, nil), c != m.claim
}
