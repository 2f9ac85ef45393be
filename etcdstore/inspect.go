package etcdstore

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// Inspect: Age and Held are differences of wall clocks, of this machine and the
// claim's; Held is 0 until the owner's next renewal for a claim that had to wait.
// TTL is what is left of the claim's lease, which others may share.
func (s *store) Inspect(ctx context.Context, name string) (_ driver.Queue, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	q, err := s.read(ctx, name)
	if err != nil {
		return driver.Queue{}, err
	}
	leases := make(map[clientv3.LeaseID]time.Duration)
	err = s.timesToLive(ctx, leases, q)
	return s.show(q, leases), err
}

// show is how others see a queue. What this store is about to delete has run out.
func (s *store) show(q *snapshot, leases map[clientv3.LeaseID]time.Duration) driver.Queue {
	v := driver.Queue{Name: q.name, Kind: q.kind, Limit: q.limit}
	if q.set != 0 {
		v.Declared = q.declared
	}
	now := time.Now()
	for i := range q.members {
		m := &q.members[i]
		e := m.entry(now)
		e.TTL = leases[m.lease]
		if t, ok := s.known(m.id(q.name)); ok && t.create == m.create && t.lease.id == m.lease {
			e.TTL = min(e.TTL, t.expires.Sub(now)) // the store ends it then
			if e.TTL <= 0 {
				continue
			}
		}
		v.Claims = append(v.Claims, e)
	}
	return v
}

func (s *store) List(caller context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		ctx, end := s.begin(caller)
		defer end(new(error))
		for v, err := range s.list(ctx, prefix) {
			if (err != nil || len(v.Claims) > 0) && !yield(v, ended(caller, err)) {
				return
			}
		}
	}
}

// page is how many keys a list reads at a time. etcd 3.4 looks through all that are
// left for each page, so they are not small.
const page = 4000

// list reads many queues at a time. The last one of a page may go on in the next, so
// it is read again, by itself: that each is as of one moment.
func (s *store) list(ctx context.Context, prefix string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		from := s.keys.queues(prefix)
		end := clientv3.GetPrefixRangeEnd(from)
		leases := make(map[clientv3.LeaseID]time.Duration)
		for more := true; more; {
			res, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(page))}, nil)
			if err != nil {
				yield(driver.Queue{}, err)
				return
			}
			found := res.Responses[0].GetResponseRange()
			kvs := found.Kvs
			more = found.More
			var read []*snapshot
			for len(kvs) > 0 {
				n, name, known := 1, "", false
				if name, known = s.keys.nameOf(string(kvs[0].Key)); known {
					queue := s.keys.queue(name)
					for n < len(kvs) && strings.HasPrefix(string(kvs[n].Key), queue) {
						n++
					}
				}
				part := kvs[:n]
				from, kvs = string(part[n-1].Key)+"\x00", kvs[n:]
				var q *snapshot
				switch invalid := driver.CheckName(name); {
				case !known:
					name = string(part[0].Key)
					err = foreign(name, errors.New("no such key is written"))
				case invalid != nil:
					err = foreign(string(part[0].Key), invalid)
				default:
					q, err = s.snapshot(name, part, res.Header.Revision)
				}
				if known && more && len(kvs) == 0 {
					from = clientv3.GetPrefixRangeEnd(s.keys.queue(name))
					if q, err = s.read(ctx, name); err != nil && !driver.IsPermanent(err) {
						yield(driver.Queue{}, err)
						return
					}
				}
				if err != nil {
					if !yield(driver.Queue{Name: name}, &driver.NameError{Name: name, Err: err}) {
						return
					}
					continue
				}
				read = append(read, q)
			}
			if err := s.timesToLive(ctx, leases, read...); err != nil {
				yield(driver.Queue{}, err)
				return
			}
			for _, q := range read {
				if !yield(s.show(q, leases), nil) {
					return
				}
			}
		}
	}
}
