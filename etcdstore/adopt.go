package etcdstore

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

func (s *store) Adopt(ctx context.Context, a driver.Adoption) (st driver.Status, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	for {
		if st, err = s.adopt(ctx, &a); !again(err) || ctx.Err() != nil {
			return st, err
		}
	}
}

// adopt is one attempt on one lease, as enter is.
func (s *store) adopt(ctx context.Context, a *driver.Adoption) (st driver.Status, err error) {
	id := claimID{a.Name, a.ID, a.Mark}
	if err := s.expire(ctx, id); err != nil {
		return st, err
	}
	q, err := s.look(ctx, a.Name)
	if err != nil {
		return st, err
	}
	for {
		if err := q.is(a.Kind, q.limit); err != nil {
			return st, err
		}
		m := q.find(a.ID)
		switch {
		case m == nil || m.Lingering || m.state != driver.Holding:
			return st, nil
		case m.Mark == a.Mark && m.Units == a.Units: // it is adopted already
			return s.refresh(ctx, q, id, a.TTL, 0)
		case m.Mark == a.Mark || m.Units != a.Units || a.Token < m.Used || !m.has(a.Token):
			e := m.entry(time.Now())
			return driver.Status{State: driver.Refused, Blocker: &e}, nil
		}
		var done bool
		if q, st, done, err = s.handOver(ctx, q, m, a); done || err != nil {
			return st, err
		}
	}
}

// handOver writes the claim for its new owner, if the queue is as it is in q.
//
// Invariant: with the owner the key changes. So what the old owner has asked for finds
// nothing where it looks for the claim, and a condition that it has got from Held is
// false. The claim keeps its place, and gets the next token; so those who wait, whose
// tokens were to follow from when they came, are marked, as for one that grows. It lives
// for its new owner's TTL from now, also if that is less than it had: when that is over
// the new owner no longer takes it for its own.
func (s *store) handOver(ctx context.Context, q *snapshot, m *member, a *driver.Adoption) (now *snapshot, st driver.Status, done bool, err error) {
	id := claimID{a.Name, a.ID, a.Mark}
	w, err := s.overtakeAll(ctx, q)
	if err != nil {
		return nil, st, false, err
	}
	if w.q != q {
		return w.q, st, false, nil // that took more than one transaction: look again
	}
	l, from, err := s.leaseFor(ctx, a.TTL)
	if err != nil {
		return nil, st, false, err
	}
	end, err := s.attempting(ctx, id, l, from.Add(a.TTL))
	if err != nil {
		return nil, st, false, err
	}
	told := false
	defer func() { end(told) }()

	c, key := m.claim, s.keys.claim(q.name, m.sort, q.slot(a.Mark))
	c.Mark, c.Owner, c.Store, c.TTL, c.Came, c.Used = a.Mark, a.Owner, s.id, l.seconds, m.came(), 0
	c.Grown = true
	c.Alone = m.alone && q.used() == m.Units // after a change of the limit others may hold beside it
	w.draw(&c)
	w.attempt(l)
	w.cmps = append(w.cmps, m.same(), absent(key))
	w.puts = append(w.puts, clientv3.OpDelete(m.key), clientv3.OpPut(key, c.encode(), clientv3.WithLease(l.id)),
		clientv3.OpPut(s.keys.mail(m.Store, m.key), check+m.ID, clientv3.WithLease(m.lease)))
	now, wrote, err := w.try(ctx)
	if errors.Is(err, errNoLease) {
		s.drop(l)
		told = true
	}
	if err != nil {
		return nil, st, false, err
	}
	mine := now.owned(id)
	if told = true; wrote && mine != nil {
		s.track(now, mine, l, from, a.TTL)
	}
	if now, err = s.settle(ctx, now); err != nil {
		return nil, st, false, err
	}
	if mine = now.owned(id); !wrote || mine == nil {
		if !s.open(l) {
			err = errBarred
		}
		return now, st, false, err
	}
	st = now.status(a.ID, mine.state, time.Now())
	st.Deadline = driver.Deadline(from, a.TTL)
	return now, st, true, nil
}

// refresh renews the claim if it is in the queue, and puts it on a lease of
// this store's if it is on another. q is settled.
func (s *store) refresh(ctx context.Context, q *snapshot, id claimID, ttl time.Duration, used int64) (driver.Status, error) {
	for {
		m := q.owned(id)
		if m == nil {
			s.forget(id)
			return driver.Status{}, nil
		}
		t, ours := s.known(id)
		ours = ours && t.create == m.create && t.lease.id == m.lease
		if ours && t.lease.seconds >= seconds(ttl) {
			from, err := s.keep(ctx, t.lease, ttl)
			if err != nil {
				return driver.Status{}, err
			}
			s.noticed(q, m)
			if st, ok := s.extend(id, t.lease, from, ttl); ok {
				return st, nil
			}
		}
		life, err := s.life(ctx, m, id, ttl)
		if err != nil {
			return driver.Status{}, err
		}
		moved, err := s.move(ctx, q, m, ttl, life, used)
		if err != nil {
			return driver.Status{}, err
		}
		if q, err = s.settle(ctx, moved.q); err != nil {
			return driver.Status{}, err
		}
		if m := q.owned(id); moved.done && m != nil {
			st := s.noticed(q, m)
			st.Deadline = driver.Deadline(moved.from, ttl)
			return st, nil
		}
	}
}

// life is how long a claim is to live that gets ttl: it never gets less than it had.
// The lease that it comes from says how much, or what was given to it here.
func (s *store) life(ctx context.Context, m *member, id claimID, ttl time.Duration) (time.Duration, error) {
	if t, ok := s.known(id); ok && t.create == m.create && t.lease.id == m.lease {
		return max(ttl, time.Until(t.expires)), nil
	}
	left, err := s.timeToLive(ctx, m.lease)
	return max(ttl, left), err
}

type moved struct {
	q    *snapshot
	done bool
	from time.Time // the TTL counts from here
}

// move puts a claim on a lease of this store's that lasts for at least life.
func (s *store) move(ctx context.Context, q *snapshot, m *member, ttl, life time.Duration, used int64) (moved, error) {
	l, from, err := s.leaseFor(ctx, life)
	if err != nil {
		return moved{}, err
	}
	done, err := s.attempting(ctx, m.id(q.name), l, from.Add(life))
	if err != nil {
		return moved{}, err
	}
	told := false
	defer func() { done(told) }()
	c := m.claim
	c.Store, c.TTL = s.id, l.seconds
	if m.state == driver.Holding && used > m.token {
		c.Used = m.spoken(used)
	}
	read := s.keys.ofQueue(q.name)
	then := []clientv3.Op{clientv3.OpPut(m.key, c.encode(), clientv3.WithLease(l.id))}
	if m.Store != s.id {
		// Its owner takes the claim to be on its own lease: see letter.
		then = append(then, clientv3.OpPut(s.keys.mail(m.Store, m.key), check+m.ID, clientv3.WithLease(m.lease)))
	}
	res, err := s.txn(ctx, []clientv3.Cmp{m.same(), s.barred(l)}, append(then, read), []clientv3.Op{s.readBar(l), read})
	if errors.Is(err, errNoLease) {
		s.drop(l)
		told = true
	}
	if err != nil {
		return moved{}, err
	}
	told = true
	if !res.Succeeded {
		if err := s.sawBar(l, res.Responses[0].GetResponseRange(), res.Header.Revision); err != nil {
			return moved{}, err
		}
	}
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
		c.Used = m.spoken(used)
	}
	if c.Granted == 0 {
		c.Granted = since
	}
	return clientv3.OpTxn([]clientv3.Cmp{m.same()}, []clientv3.Op{m.put(c)}, nil), c != m.claim
}
