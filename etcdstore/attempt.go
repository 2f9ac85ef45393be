package etcdstore

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// attempt is a request to put a claim on a lease of this store's, which has not
// had a reply. It may be carried out later, and then the claim would live as
// long as the lease does, which is for others' sake.
//
// So each such request compares the revision of the lease's bar, a key on that
// lease, and to write the bar is to refuse all requests that are still on their way
// (those that are waited for are sent again). That happens when the claim leaves, or
// its time is over.
type attempt struct {
	lease   *lease
	expires time.Time
	running int  // requests that are waited for
	untold  bool // one has ended without a reply
}

// errEnding: the claim's TTL is over, and it is being deleted.
var errEnding = errors.New("the claim has run out")

// attempting notes an attempt before it is sent. done is called when it has ended,
// with what has become of it, and after the claim that it has put there is tracked:
// so the reaper sees one of the two.
func (s *store) attempting(ctx context.Context, id claimID, l *lease, expires time.Time) (done func(told bool), err error) {
	s.mu.Lock()
	a := s.tried[id]
	s.mu.Unlock()
	if a != nil && a.lease != l {
		if err := s.raiseBar(ctx, a.lease); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.claims[id]; t != nil && t.ending {
		return nil, errEnding
	}
	if a = s.tried[id]; a == nil || a.lease != l {
		a = &attempt{lease: l}
		s.tried[id] = a
	}
	a.expires = later(a.expires, expires)
	a.running++
	s.dueAt(a.expires)
	return func(told bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		a.running--
		a.untold = a.untold || !told
		if a.running == 0 && !a.untold && s.tried[id] == a {
			delete(s.tried, id)
		}
	}, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// settled notes that the claim's attempts are over: they were refused, or carried out.
func (s *store) settled(id claimID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tried, id)
}

func (s *store) unanswered(id claimID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried[id] != nil
}

// barred is the comparison that goes with each attempt on a lease. If it does not
// hold, what readBar reads goes to sawBar before another attempt is made: so no
// attempt is made twice with the same bar in vain.
func (s *store) barred(l *lease) clientv3.Cmp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clientv3.Compare(clientv3.ModRevision(s.keys.bar(l.id)), "=", l.bar)
}

func (s *store) readBar(l *lease) clientv3.Op {
	return clientv3.OpGet(s.keys.bar(l.id), clientv3.WithKeysOnly())
}

// sawBar takes over the bar of a lease as it was read at a revision. errBarred: it had
// one and has none, so the lease has ended, or somebody has deleted the key.
func (s *store) sawBar(l *lease, r *pb.RangeResponse, revision int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(r.Kvs) > 0:
		l.bar = max(l.bar, r.Kvs[0].ModRevision)
	case l.bar != 0 && l.bar <= revision:
		s.closeLocked(l)
		return errBarred
	}
	return nil
}

// raiseBar refuses all attempts on the lease that have not arrived. Many may do so at
// once, and the replies come in any order: the bar is the one written last.
func (s *store) raiseBar(ctx context.Context, l *lease) error {
	res, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpPut(s.keys.bar(l.id), "", clientv3.WithLease(l.id))}, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errNoLease):
		s.dropLocked(l)
		return nil
	case err != nil:
		// The bar may be another now, or become so at any time: new claims take a new
		// lease.
		s.closeLocked(l)
		return err
	}
	l.bar = max(l.bar, res.Header.Revision)
	return nil
}

// errBarred: it is not known what the bar of a lease is, or will be.
var errBarred = errors.New("the lease takes no new claims")

// closeLocked has new claims take a new lease. s.mu is held.
func (s *store) closeLocked(l *lease) {
	if s.leases[l.seconds] == l {
		delete(s.leases, l.seconds)
	}
}

// open tells whether the lease takes new claims.
func (s *store) open(l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[l.seconds] == l
}

// abandon sees to it that no attempt of the claim is carried out any more.
func (s *store) abandon(ctx context.Context, id claimID) error {
	s.mu.Lock()
	a := s.tried[id]
	s.mu.Unlock()
	if a == nil {
		return nil
	}
	return s.raiseBar(ctx, a.lease)
}

// cleanUp ends attempts whose claims' time is over.
func (s *store) cleanUp(ctx context.Context, tried map[claimID]*attempt) error {
	var errs []error
	bars := make(map[*lease]error)
	for id, a := range tried {
		err, raised := bars[a.lease]
		if !raised {
			err = s.raiseBar(ctx, a.lease)
			if bars[a.lease] = err; err != nil {
				errs = append(errs, err)
			}
		}
		if err == nil {
			if err := s.cleanUpOne(ctx, id, a); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// cleanUpOne deletes what an attempt has put there that nobody knows of. No attempt
// on the lease is under way any more.
func (s *store) cleanUpOne(ctx context.Context, id claimID, a *attempt) error {
	q, err := s.look(ctx, id.name)
	if driver.IsPermanent(err) {
		// The name cannot be read, so nobody waits there for this one: its lease ends it.
		q, err = &snapshot{}, nil
	}
	if err != nil {
		return err
	}
	for i := range q.members {
		m := &q.members[i]
		s.mu.Lock()
		t := s.claims[id]
		if t != nil && t.key == m.key && t.create == m.create && m.lease == a.lease.id {
			t.lease = a.lease // the request that put it there had no reply
		}
		known := s.tried[id] != a || t != nil && t.key == m.key
		s.mu.Unlock()
		if known || m.id(id.name) != id || m.lease != a.lease.id {
			continue
		}
		if _, err := s.txn(ctx, []clientv3.Cmp{m.same()}, []clientv3.Op{clientv3.OpDelete(m.key)}, nil); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried[id] == a && a.running == 0 {
		delete(s.tried, id)
	}
	return nil
}
