package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is one of the store's leases: it is on all its claims of one TTL.
//
// Keeping it alive does not wait for those of its claims whose own TTL is over to be
// deleted: what it takes to delete them, the others must not pay. See reaper.
type lease struct {
	seconds int64
	turn    chan struct{} // held, by a value in it, by who asks the cluster about it

	// Guarded by turn, and by the store's mutex when written.
	id   clientv3.LeaseID // 0: not granted yet
	sent time.Time        // when the request was sent whose reply came last

	// Guarded by the store's mutex alone.
	gone bool
	bar  int64 // revision of its bar, as far as is known; 0: there is none. See attempt.
}

// least is the shortest TTL that a cluster grants with its default settings.
const least = 2

func seconds(d time.Duration) int64 { return max(least, int64((d+time.Second-1)/time.Second)) }

func (l *lease) ttl() time.Duration { return time.Duration(l.seconds) * time.Second }

func (l *lease) lock(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *lease) unlock() { <-l.turn }

// slack is how much older than now a keepalive may be that still does.
func slack(ttl time.Duration) time.Duration { return ttl / 6 }

// leaseFor returns a lease that lasts for ttl from now, less slack at most, and
// from when on ttl counts.
func (s *store) leaseFor(ctx context.Context, ttl time.Duration) (*lease, time.Time, error) {
	for {
		s.mu.Lock()
		l := s.leases[seconds(ttl)]
		if l == nil {
			l = &lease{seconds: seconds(ttl), turn: make(chan struct{}, 1)}
			s.leases[l.seconds] = l
		}
		s.mu.Unlock()
		from, err := s.keep(ctx, l, ttl)
		if !errors.Is(err, errNoLease) {
			return l, from, err
		}
	}
}

// keep sees to it that the lease lasts for ttl from now, less slack at most, and
// returns from when on ttl counts. errNoLease: it has ended.
func (s *store) keep(ctx context.Context, l *lease, ttl time.Duration) (time.Time, error) {
	if err := l.lock(ctx); err != nil {
		return time.Time{}, err
	}
	defer l.unlock()
	s.mu.Lock()
	gone := l.gone
	s.mu.Unlock()
	now := time.Now()
	switch {
	case gone:
		return time.Time{}, errNoLease
	case l.id == 0:
		if err := s.grant(ctx, l); err != nil {
			return time.Time{}, err
		}
	case l.sent.Add(l.ttl()).Before(now.Add(ttl - slack(ttl))):
		err := s.keepAlive(ctx, l)
		for errors.Is(err, errOldLeader) {
			err = s.keepAlive(ctx, l) // an election has come between
		}
		if err != nil {
			return time.Time{}, err
		}
	}
	if from := l.sent.Add(l.ttl() - ttl); from.Before(now) {
		return from, nil
	}
	return now, nil
}

func (s *store) grant(ctx context.Context, l *lease) error {
	sent := time.Now()
	id, err := s.newLease(ctx, l.seconds)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.id, l.sent = id, sent
	return nil
}

func (s *store) newLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	res, err := s.client.Grant(ctx, seconds)
	if err != nil {
		return 0, err
	}
	return res.ID, nil
}

// keepAlive sends one keepalive. The client's own KeepAliveOnce would go on
// without a pause while nobody is there.
func (s *store) keepAlive(ctx context.Context, l *lease) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := time.Now()
	stream, err := pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(inner)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		// What was the matter is told by Recv.
		_, err = stream.Recv()
		return err
	}
	res, err := stream.Recv()
	if err != nil {
		return err
	}
	if res.TTL <= 0 {
		s.drop(l)
		return errNoLease
	}
	if led, err := s.stillLed(ctx, res.GetHeader().GetRaftTerm()); err != nil || !led {
		return cmp.Or(err, errOldLeader)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.sent = sent
	return nil
}

// errOldLeader: a keepalive's reply came from a leader that was one no longer, or may
// have been.
var errOldLeader = errors.New("there is another leader since")

// stillLed tells whether the cluster is led in that term still, by the word of a
// majority.
//
// Invariant: a keepalive counts only if the leader that replied to it led after
// that. One that was stopped replies, when it goes on, before it learns that there
// is another, who ends the lease at its own time. A member names the term of what
// it has applied, and a read that a majority has confirmed comes after the first
// entry of the term in force.
func (s *store) stillLed(ctx context.Context, term uint64) (bool, error) {
	res, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(s.keys.epoch(), clientv3.WithCountOnly())}, nil)
	if err != nil {
		return false, err
	}
	// A gRPC proxy names no term.
	return term == 0 || res.Header.RaftTerm == term, nil
}

// drop notes that a lease has ended.
func (s *store) drop(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(l)
}

func (s *store) dropLocked(l *lease) {
	l.gone = true
	s.closeLocked(l)
}

// timesToLive adds to left how long the leases of queues have left, as far as that is
// not known; 0 for those that have ended.
func (s *store) timesToLive(ctx context.Context, left map[clientv3.LeaseID]time.Duration, queues ...*snapshot) error {
	var ask []clientv3.LeaseID
	for _, q := range queues {
		for i := range q.members {
			id := q.members[i].lease
			if _, known := left[id]; !known {
				left[id] = 0
				ask = append(ask, id)
			}
		}
	}
	const most = 64 // at a time
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	room := make(chan struct{}, most)
	for _, id := range ask {
		room <- struct{}{}
		wg.Go(func() {
			d, err := s.timeToLive(ctx, id)
			mu.Lock()
			left[id], failed = d, cmp.Or(failed, err)
			mu.Unlock()
			<-room
		})
	}
	wg.Wait()
	return failed
}

// timeToLive asks how long a lease has left; 0: it has ended.
func (s *store) timeToLive(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	res, err := s.client.TimeToLive(ctx, id)
	if err != nil {
		return 0, err
	}
	return max(0, time.Duration(res.TTL)*time.Second), nil
}
