package etcdstore

import (
	"context"
	"encoding/json"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

func (s *store) Resize(ctx context.Context, r driver.Ref, units int64) (st driver.Status, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	if err := s.expire(ctx, idOf(&r)); err != nil {
		return st, err
	}
	for {
		q, err := s.look(ctx, r.Name)
		if err != nil {
			return st, err
		}
		m := q.owned(idOf(&r))
		switch {
		case m == nil:
			return st, nil
		case m.state == driver.Waiting, units == m.Units, r.Used != 0 && r.Used < m.token && !m.has(r.Used): // the same again, or late
			return s.noticed(q, m), nil
		case units > m.Units && q.used()-m.Units+units > q.limit:
			return q.status(r.ID, driver.Refused, time.Now()), nil
		}
		var w *writing
		if units > m.Units {
			// It gets ahead of all who wait, so they are marked.
			if w, err = s.overtakeAll(ctx, q); err != nil {
				return st, err
			}
			if w.q != q { // that took more than one transaction
				q = w.q
				if m = q.owned(idOf(&r)); m == nil || m.state != driver.Holding || q.used()-m.Units+units > q.limit {
					continue
				}
			}
			c := m.claim
			c.Units, c.Alone, c.Grown = units, units == q.limit, true
			w.grant(m, c)
		} else {
			base, err := s.epoch(ctx)
			if err != nil {
				return st, err
			}
			w = s.write(q, base)
			w.cmps = []clientv3.Cmp{m.same()} // who has come meanwhile does not matter
			c := m.claim
			c.Units, c.Alone = units, false
			if used := m.spoken(r.Used); used > m.token {
				c.Used = used
			}
			w.put(m, c)
		}
		q, wrote, err := w.try(ctx)
		if err != nil {
			return st, err
		}
		if q, err = s.settle(ctx, q); err != nil {
			return st, err
		}
		if m := q.owned(idOf(&r)); wrote && m != nil {
			return s.noticed(q, m), nil
		}
	}
}

// SetLimit writes the limit, and with it all claims that are there: those that
// hold do so whatever the limit, and those that wait get tokens of their own, for
// the order in which they are granted may be another than that in which they
// came. Who watches only the claim in front hears of it by that, too.
func (s *store) SetLimit(ctx context.Context, name string, kind driver.Kind, was, limit int64) (err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	key := s.keys.limit(name)
	for {
		q, err := s.look(ctx, name)
		if err != nil {
			return err
		}
		if err := q.is(kind, was); err != nil {
			return err
		}
		if q.limit == 0 {
			q.kind, q.limit, q.declared = kind, was, was
		}
		if was != q.limit && was != q.declared {
			return &driver.MismatchError{Name: name, Have: q.limit, Want: was}
		}
		if limit == q.declared && q.set == 0 {
			return nil // it is so already
		}
		base, err := s.epoch(ctx)
		if err != nil {
			return err
		}
		w := s.write(q, base)
		last := w.overtake()
		for i := range q.members {
			if m := &q.members[i]; last && m.state == driver.Holding && m.Token == 0 && len(w.puts) < chunk {
				c := m.claim
				c.Token, c.Alone = m.token, m.alone
				w.put(m, c)
			}
		}
		last = last && len(w.puts) < chunk
		switch {
		case !last:
		case limit != q.declared:
			value, err := json.Marshal(limits{q.kind, q.declared, limit})
			if err != nil {
				return err
			}
			w.puts = append(w.puts, clientv3.OpPut(key, string(value)))
		default:
			w.puts = append(w.puts, clientv3.OpDelete(key))
		}
		q, wrote, err := w.try(ctx)
		if err != nil {
			return err
		}
		if wrote && last {
			_, err := s.settle(ctx, q)
			return err
		}
	}
}
