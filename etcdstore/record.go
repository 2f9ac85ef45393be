package etcdstore

import (
	"bytes"
	"context"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// The version of a record is the revision in which it was written, counted from
// the epoch's base: so it does not come again after data was lost.

func (s *store) Load(ctx context.Context, name string) (r driver.Record, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	r, _, err = s.load(ctx, name)
	return r, err
}

func (s *store) load(ctx context.Context, name string) (r driver.Record, revision int64, err error) {
	for {
		if _, err := s.epoch(ctx); err != nil {
			return r, 0, err
		}
		res, err := s.txn(ctx, nil, s.stored(name), nil)
		if err != nil {
			return r, 0, err
		}
		r, ok, err := s.record(ctx, name, res.Responses)
		if ok || err != nil {
			return r, res.Header.Revision, err
		}
	}
}

// stored reads a record, and the epoch it counts from.
func (s *store) stored(name string) []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(s.keys.record(name)), clientv3.OpGet(s.keys.epoch())}
}

// record reads what stored has found; not ok: the epoch has ended.
func (s *store) record(ctx context.Context, name string, found []*pb.ResponseOp) (r driver.Record, ok bool, err error) {
	r.Name = name
	epoch := found[1].GetResponseRange().Kvs
	if err := s.see(found[1].GetResponseRange()); err != nil || len(epoch) == 0 {
		return r, false, err
	}
	base, err := strconv.ParseInt(string(epoch[0].Value), 10, 64)
	if err != nil {
		return r, false, err // not reached: see has read it
	}
	kvs := found[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return r, true, nil
	}
	r.Value, r.Version = append([]byte{}, kvs[0].Value...), base+kvs[0].ModRevision
	if id := clientv3.LeaseID(kvs[0].Lease); id != 0 {
		left, err := s.timeToLive(ctx, id)
		if err != nil {
			return r, false, err
		}
		r.TTL = max(time.Millisecond, left) // 0 would mean for ever
	}
	return r, true, nil
}

// CompareAndSwap rounds a TTL up to whole seconds, 2 at least.
func (s *store) CompareAndSwap(ctx context.Context, r driver.Record) (_ driver.Record, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	key := s.keys.record(r.Name)
	for {
		base, err := s.epoch(ctx)
		if err != nil {
			return driver.Record{}, err
		}
		as := absent(key)
		switch revision := r.Version - base; {
		case r.Version == 0:
		case revision > 0:
			as = clientv3.Compare(clientv3.ModRevision(key), "=", revision)
		default: // no record of this epoch has that version
			have, _, err := s.load(ctx, r.Name)
			if err == nil {
				err = driver.ErrConflict
			}
			return have, err
		}
		if r.Value == nil && r.Version == 0 {
			have, _, err := s.load(ctx, r.Name)
			if err == nil && have.Version != 0 {
				err = driver.ErrConflict
			}
			return have, err
		}
		var opts []clientv3.OpOption
		var lease clientv3.LeaseID
		if r.TTL > 0 && r.Value != nil {
			if lease, err = s.newLease(ctx, seconds(r.TTL)); err != nil {
				return driver.Record{}, err
			}
			opts = append(opts, clientv3.WithLease(lease))
		}
		write := clientv3.OpPut(key, string(r.Value), opts...)
		if r.Value == nil {
			write = clientv3.OpDelete(key)
		}
		res, err := s.txn(ctx, []clientv3.Cmp{as, s.keys.since(base)}, []clientv3.Op{clientv3.OpGet(key, clientv3.WithKeysOnly()), write}, s.stored(r.Name))
		if err != nil {
			return driver.Record{}, err // the lease ends by itself
		}
		if res.Succeeded {
			if old := res.Responses[0].GetResponseRange().Kvs; len(old) > 0 {
				s.revoke(ctx, clientv3.LeaseID(old[0].Lease))
			}
			if r.Value == nil {
				return driver.Record{Name: r.Name}, nil
			}
			r.Value, r.Version = bytes.Clone(r.Value), base+res.Header.Revision
			return r, nil
		}
		s.revoke(ctx, lease)
		have, ok, err := s.record(ctx, r.Name, res.Responses)
		if err != nil {
			return have, err
		}
		if now, err := s.epoch(ctx); ok && err == nil && now == base {
			return have, driver.ErrConflict
		}
	}
}

// revoke ends a lease that nothing is on any more: that of a record, or of a claim
// that lingered. If that does not succeed the lease ends by itself.
func (s *store) revoke(ctx context.Context, id clientv3.LeaseID) {
	if id == 0 {
		return
	}
	_, _ = s.client.Revoke(ctx, id)
}

func (s *store) WaitChange(ctx context.Context, name string, version int64) (r driver.Record, err error) {
	ctx, end := s.begin(ctx)
	defer end(&err)
	for {
		if r, err = s.changed(ctx, name, version); err != nil || r.Version != version {
			return r, err
		}
	}
}

// changed waits until the record may be another.
func (s *store) changed(ctx context.Context, name string, version int64) (driver.Record, error) {
	r, revision, err := s.load(ctx, name)
	if err != nil || r.Version != version {
		return r, err
	}
	err = s.watch(ctx, s.keys.record(name), false, func(w *watched) (bool, error) {
		if w.created && w.revision == revision {
			return false, nil
		}
		var err error
		r, revision, err = s.load(ctx, name)
		return r.Version != version, err
	})
	return r, err
}
