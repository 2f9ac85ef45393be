package etcdstore

import (
	"context"
	"errors"
	"hash/maphash"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

func (s *store) Enter(ctx context.Context, c driver.Claim) (st driver.Status, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	leave, err := s.entering.enter(ctx, c.Name)
	if err != nil {
		return st, err
	}
	defer leave()
	for {
		if st, err = s.enter(ctx, c); !again(err) || ctx.Err() != nil {
			return st, err
		}
	}
}

// again reports whether to try again, from the beginning.
func again(err error) bool {
	return errors.Is(err, errNoLease) || errors.Is(err, errBarred) || errors.Is(err, errEnding)
}

// enter is one attempt on one lease. errNoLease: it has ended; errBarred: it takes
// no new claims.
func (s *store) enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := s.expire(ctx, claimID{c.Name, c.ID, ""}); err != nil {
		return driver.Status{}, err
	}
	l, from, err := s.leaseFor(ctx, c.TTL)
	if err != nil {
		return driver.Status{}, err
	}
	id := claimID{c.Name, c.ID, ""}
	var e entering
	_, e.repeated = s.known(id)
	e.repeated = e.repeated || s.unanswered(id)
	done, err := s.attempting(ctx, id, l, from.Add(c.TTL))
	if err != nil {
		return driver.Status{}, err
	}
	e.s, e.c, e.lease, e.from, e.slot = s, c, l, from, strconv.Itoa(slotOf(c.ID))
	st, err := e.first(ctx)
	var limit *driver.MismatchError
	if errors.Is(err, errNoLease) {
		s.drop(l)
	}
	done(err == nil || errors.Is(err, errNoLease) || errors.As(err, &limit))
	return st, err
}

var hintSeed = maphash.MakeSeed()

// entering is an Enter under way.
type entering struct {
	s     *store
	c     driver.Claim
	lease *lease
	from  time.Time // the TTL counts from here
	base  int64
	slot  string
	// repeated: it may be there already; so it is looked first.
	repeated bool
}

// put writes the new claim; granted says that it holds if it is written.
func (e *entering) put(of sort, slot string, granted bool, tokens *writing) (clientv3.Op, member) {
	m := member{
		claim: e.s.ours(e.c, e.lease, e.base), sort: of, lease: e.lease.id,
		key: e.s.keys.claim(e.c.Name, of, slot),
	}
	if granted {
		m.Granted = m.Entered
	}
	if tokens != nil {
		tokens.draw(&m.claim)
		m.Grown, m.Alone = true, m.Units == tokens.q.limit
	}
	return clientv3.OpPut(m.key, m.encode(), clientv3.WithLease(e.lease.id)), m
}

// first enters the claim: if the name is free it holds, else if the claims that
// are there ask for the same limit, and it is not there itself, it is put behind
// them, unless it is only to try. What does not fit is never written, so nobody
// sees it. That is one transaction for a name that was in use when it was last
// entered; for one that was free it is a smaller one at first.
func (e *entering) first(ctx context.Context) (st driver.Status, err error) {
	s, c := e.s, e.c
	read, epoch := s.keys.ofQueue(c.Name), clientv3.OpGet(s.keys.epoch())
	hint, busy := maphash.String(hintSeed, c.Name)%uint64(len(s.busy)), false
	for {
		if !s.open(e.lease) {
			return st, errBarred
		}
		if e.base, err = s.epoch(ctx); err != nil {
			return st, err
		}
		alone, m := e.put(sort{c.Kind, c.Limit}, firstSlot, true, nil)
		var mb member // the claim, put behind others
		otherwise := []clientv3.Op{read, epoch, s.readBar(e.lease)}
		oneStep := !c.Try && !e.repeated && (busy || s.busy[hint].Load())
		if oneStep {
			var behind clientv3.Op
			behind, mb = e.put(sort{c.Kind, c.Limit}, e.slot, false, nil)
			cmps := append(s.keys.alike(c.Name, sort{c.Kind, c.Limit}), absent(mb.key), s.keys.since(e.base), s.barred(e.lease))
			otherwise = []clientv3.Op{clientv3.OpTxn(cmps, []clientv3.Op{read, behind}, otherwise)}
		}
		res, err := s.txn(ctx, []clientv3.Cmp{s.keys.free(c.Name), s.keys.since(e.base), s.barred(e.lease)}, []clientv3.Op{alone}, otherwise)
		if err != nil {
			return st, err
		}
		if s.busy[hint].Load() == res.Succeeded {
			s.busy[hint].Store(!res.Succeeded)
		}
		busy = true
		if res.Succeeded {
			m.create, m.change = res.Header.Revision, res.Header.Revision
			q := &snapshot{name: c.Name, revision: m.create}
			q.add(m)
			return e.entered(q), nil
		}
		ops, put := res.Responses, false
		if oneStep {
			in := (*clientv3.TxnResponse)(ops[0].GetResponseTxn())
			ops, put = in.Responses, in.Succeeded
		}
		q, err := s.snapshot(c.Name, ops[0].GetResponseRange().Kvs, res.Header.Revision)
		if err != nil {
			return st, err
		}
		if put {
			return e.behind(ctx, q, mb)
		}
		if err := s.see(ops[1].GetResponseRange()); err != nil {
			return st, err
		}
		if err := s.sawBar(e.lease, ops[2].GetResponseRange(), res.Header.Revision); err != nil {
			return st, err
		}
		e.repeated = false
		if !c.Try && !oneStep && len(q.members) > 0 && q.set == 0 && q.find(c.ID) == nil {
			continue
		}
		st, done, err := e.again(ctx, q)
		if done || err != nil {
			return st, err
		}
	}
}

// see takes over the epoch that a transaction has found.
func (s *store) see(r *pb.RangeResponse) error {
	if len(r.Kvs) == 0 {
		return s.outdated("", false)
	}
	return s.outdated(string(r.Kvs[0].Value), true)
}

// entered notes the claim, and returns its status.
func (e *entering) entered(q *snapshot) driver.Status {
	m := q.find(e.c.ID)
	st := e.s.track(q, m, e.lease, e.from, e.c.TTL)
	st.Deadline = driver.Deadline(e.from, e.c.TTL)
	return st
}

// behind goes on after the claim was put behind those in q.
func (e *entering) behind(ctx context.Context, q *snapshot, m member) (st driver.Status, err error) {
	m.create, m.change = q.revision, q.revision
	before, _ := q.waiting()
	other := q.find(m.ID)
	if other == nil {
		q.add(m)
	}
	for other != nil {
		// It is there already, by another store's hand, or was adopted since. This one
		// goes again, unless the other one has gone meanwhile.
		read := e.s.keys.ofQueue(q.name)
		res, err := e.s.txn(ctx, []clientv3.Cmp{other.present(), m.present()}, []clientv3.Op{clientv3.OpDelete(m.key), read}, []clientv3.Op{read})
		if err != nil {
			return st, err
		}
		found := res.Responses[len(res.Responses)-1].GetResponseRange()
		if q, err = e.s.snapshot(q.name, found.Kvs, res.Header.Revision); err != nil {
			return st, err
		}
		if q.at(&m) == nil {
			if q, err = e.s.settle(ctx, q); err != nil {
				return st, err
			}
			return e.s.refresh(ctx, q, m.id(q.name), e.c.TTL, 0)
		}
		other = q.twin(&m)
	}
	if q, err = e.s.settle(ctx, q); err != nil {
		return st, err
	}
	if q.at(&m) == nil { // somebody has deleted it already
		return driver.Status{}, nil
	}
	st = e.entered(q)
	if st.State == driver.Waiting && before == 0 {
		// It stays in the queue whatever becomes of the news: who holds finds it
		// with its next renewal.
		e.s.want(ctx, q)
	}
	return st, nil
}

// again goes on where the queue is not as it must be for one transaction.
func (e *entering) again(ctx context.Context, q *snapshot) (st driver.Status, done bool, err error) {
	s, c := e.s, e.c
	if q, err = s.settle(ctx, q); err != nil {
		return st, false, err
	}
	if m := q.find(c.ID); m != nil {
		st, err := s.refresh(ctx, q, claimID{c.Name, c.ID, ""}, c.TTL, 0)
		return st, true, err
	}
	if len(q.members) == 0 && q.set == 0 {
		return st, false, nil // it has become free
	}
	e.slot = q.slot(c.ID)
	if err := q.accepts(&c); err != nil {
		return st, false, err
	}
	if c.Try {
		return e.try(ctx, q)
	}
	if q.set == 0 {
		return st, false, nil
	}
	// Under a limit that was set, claims are kept with the one they declare.
	put, m := e.put(sort{c.Kind, q.declared}, e.slot, false, nil)
	read := s.keys.ofQueue(c.Name)
	res, err := s.txn(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.limit(c.Name)), "=", q.set), absent(m.key), s.keys.since(e.base), s.barred(e.lease),
	}, []clientv3.Op{read, put}, []clientv3.Op{s.readBar(e.lease)})
	if err != nil {
		return st, false, err
	}
	if !res.Succeeded {
		return st, false, s.sawBar(e.lease, res.Responses[0].GetResponseRange(), res.Header.Revision)
	}
	if q, err = s.snapshot(c.Name, res.Responses[0].GetResponseRange().Kvs, res.Header.Revision); err != nil {
		return st, false, err
	}
	st, err = e.behind(ctx, q, m)
	return st, true, err
}

// try enters the claim if it holds at once, beside those in q.
func (e *entering) try(ctx context.Context, q *snapshot) (st driver.Status, done bool, err error) {
	s, c := e.s, e.c
	if !q.fits(&c) {
		return q.status(c.ID, driver.Refused, time.Now()), true, nil
	}
	declared := q.declared
	if len(q.members) == 0 && q.set == 0 {
		declared = c.Limit
	}
	w := s.write(q, e.base)
	var put clientv3.Op
	var m member
	if all, _ := q.waiting(); all == 0 {
		put, m = e.put(sort{c.Kind, declared}, e.slot, true, nil)
	} else {
		// It gets in before those.
		if w, err = s.overtakeAll(ctx, q); err != nil {
			return st, false, err
		}
		if q = w.q; q.find(c.ID) != nil || !q.fits(&c) || q.accepts(&c) != nil {
			return st, false, nil
		}
		e.base = w.base
		put, m = e.put(sort{c.Kind, declared}, e.slot, true, w)
	}
	w.attempt(e.lease)
	w.cmps, w.puts = append(w.cmps, absent(m.key)), append(w.puts, put)
	q, wrote, err := w.try(ctx)
	if err != nil || !wrote {
		return st, false, err
	}
	if q.find(c.ID) == nil {
		return st, false, nil
	}
	return e.entered(q), true, nil
}
