package etcdstore

import (
	"context"
	"fmt"
	"iter"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// Inspect implements driver.Store. Age and Held are differences of wall clocks,
// of this machine and the claim's; Held is 0 until the owner's next renewal for
// a claim that had to wait. TTL is what is left of the claim's lease, which
// others may share.
func (s *Store) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := driver.CheckName(name); err != nil {
		return driver.Queue{}, fmt.Errorf("etcd: inspect: %w", err)
	}
	c, err := s.begin(ctx, fmt.Sprintf("inspect %q", name))
	if err != nil {
		return driver.Queue{}, err
	}
	defer c.end()
	v, err := s.view(c, name)
	return v, s.failed(c, err)
}

func (s *Store) view(ctx context.Context, name string) (driver.Queue, error) {
	v := driver.Queue{Name: name}
	q, err := s.look(ctx, name)
	if err != nil {
		return v, err
	}
	if v.Limit = q.limit; q.set != 0 {
		v.Declared = q.declared
	}
	leases := make(map[clientv3.LeaseID]time.Duration)
	for i := range q.members {
		leases[q.members[i].lease] = 0
	}
	if err := s.timesToLive(ctx, leases); err != nil {
		return v, err
	}
	now := time.Now()
	for i := range q.members {
		m := &q.members[i]
		e := m.entry(now)
		e.TTL = leases[m.lease]
		if t, ok := s.known(name, m.ID); ok && t.create == m.create && t.lease.id == m.lease {
			e.TTL = max(0, min(e.TTL, t.expires.Sub(now))) // the store ends it then
		}
		v.Claims = append(v.Claims, e)
	}
	return v, nil
}

// List implements driver.Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		c, err := s.begin(ctx, fmt.Sprintf("list %q", prefix))
		if err != nil {
			yield(driver.Queue{}, err)
			return
		}
		defer c.end()
		for name, err := range s.names(c, prefix) {
			var v driver.Queue
			if err == nil {
				v, err = s.view(c, name)
			}
			if err != nil {
				yield(driver.Queue{}, s.failed(c, err))
				return
			}
			if len(v.Claims) > 0 && !yield(v, nil) {
				return
			}
		}
	}
}

// names yields the names of the queues that have keys.
func (s *Store) names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		const page = 1000
		from := s.keys.queues(prefix)
		end := clientv3.GetPrefixRangeEnd(from)
		last := ""
		for {
			res, err := s.txn(ctx, nil, []clientv3.Op{
				clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(page)),
			}, nil)
			if err != nil {
				yield("", err)
				return
			}
			found := res.Responses[0].GetResponseRange()
			for _, kv := range found.Kvs {
				name, ok := s.keys.nameOf(string(kv.Key))
				if !ok || name == last || driver.CheckName(name) != nil {
					continue
				}
				last = name
				if !yield(name, nil) {
					return
				}
			}
			if !found.More {
				return
			}
			from = string(found.Kvs[len(found.Kvs)-1].Key) + "\x00"
		}
	}
}
