package etcdstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pawl-go/pawl/driver"
)

// A token is a revision of the cluster on top of the epoch's base, in blocks
// of 1<<blockBits: a claim that holds alone may use the whole block.
//
// The base is wall clock in units of epochUnit when the cluster was first
// used. Revisions advance more slowly than that clock (62,500 a second on
// average would be as fast), so if all data is lost the next base is above all
// that was drawn.
const (
	blockBits = 15
	epochUnit = 16 * time.Microsecond
)

func token(base, revision int64) int64 { return (base + revision) << blockBits }

// spare is how many tokens are left in the block of a token.
func spare(token int64) int64 { return 1<<blockBits - 1 - token&(1<<blockBits-1) }

// epoch returns the base that new tokens count from.
func (s *store) epoch(ctx context.Context) (int64, error) {
	s.mu.Lock()
	base := s.base
	s.mu.Unlock()
	if base != 0 {
		return base, nil
	}
	key := s.keys.epoch()
	fresh := strconv.FormatInt(int64(time.Duration(time.Now().UnixNano())/epochUnit), 10)
	get := clientv3.OpGet(key)
	res, err := s.txn(ctx, nil, []clientv3.Op{get}, nil)
	if err != nil {
		return 0, err
	}
	if len(res.Responses[0].GetResponseRange().Kvs) == 0 {
		res, err = s.txn(ctx, []clientv3.Cmp{absent(key)}, []clientv3.Op{clientv3.OpPut(key, fresh), get}, []clientv3.Op{get})
		if err != nil {
			return 0, err
		}
	}
	kvs := res.Responses[len(res.Responses)-1].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return 0, fmt.Errorf("key %q was deleted again", key)
	}
	return s.learn(string(kvs[0].Value))
}

// learn takes over the epoch's value as it was read.
func (s *store) learn(value string) (int64, error) {
	base, err := strconv.ParseInt(value, 10, 64)
	if err != nil || base <= 0 || base >= 1<<(63-blockBits)-1<<40 {
		return 0, driver.Permanent(fmt.Errorf("key %q holds %.40q, which pawl has not written", s.keys.epoch(), value))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base != 0 && s.base != base {
		s.startOver()
	}
	s.base = base
	return base, nil
}

// outdated has the epoch read again.
func (s *store) outdated(value string, found bool) error {
	if !found {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.base != 0 {
			s.startOver()
			s.base = 0
		}
		return nil
	}
	_, err := s.learn(value)
	return err
}

// startOver forgets all: the cluster has lost its data (or somebody deleted the
// key), and its revisions, and what was remembered by them, mean nothing now.
// s.mu is held.
func (s *store) startOver() {
	close(s.reset)
	s.reset, s.heard = make(chan struct{}), 0
	clear(s.leases)
	clear(s.claims)
	clear(s.tried)
}

// since holds as long as tokens count from base. It is the value that is
// compared: a revision could come again after data was lost.
func (k keys) since(base int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(k.epoch()), "=", strconv.FormatInt(base, 10))
}

// lost returns a channel that is closed when the cluster turns out to have lost
// its data.
func (s *store) lost() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reset
}
