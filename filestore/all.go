package filestore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// EnterAll: a process that is killed between two of the files leaves some of the claims,
// which end with it like all that it holds.
func (s *store) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	if _, err := s.begun(ctx); err != nil {
		return nil, err
	}
	sent := time.Now()
	sts := make([]driver.Status, len(cs))
	var signals []queue.Signal
	var refused error
	err := s.lockedAll(ctx, cs, func(parts map[int]*shard) error {
		now, err := s.time(ctx)
		if err != nil {
			return err
		}
		dead := s.asker()
		ks, es := make([]*known, len(cs)), make([]*queue.Entering, len(cs))
		was := make([][]byte, len(cs))
		for i, c := range cs {
			k, done := s.papers.of(c.Name)
			defer done()
			// Nobody has one of these locked who waits for another, or for a file.
			k.mu.Lock()
			defer k.mu.Unlock()
			if err := k.load(parts[shardOf(c.Name)], queueFileName(c.Name), c.Name, true); err != nil {
				return err
			}
			o := &queue.Op{Now: now, Session: s.id, Reachable: func(c *queue.Claim) bool { return !dead(c.Session) }}
			q := k.copy()
			bury(&q, o, c.ID, dead)
			ks[i], es[i], was[i] = k, &queue.Entering{Op: o, Queue: &q, Claim: c}, bytes.Clone(k.raw)
		}
		refused = queue.EnterAll(es)
		for i, c := range cs {
			if err := ks[i].save(parts[shardOf(c.Name)], queueFileName(c.Name), c.Name, es[i].Queue, s.clock.now()); err != nil {
				// Those that are written already are put back: nobody has been told
				// of them.
				for n, c := range cs[:i] {
					ks[n].forget()
					parts[shardOf(c.Name)].restore(queueFileName(c.Name), was[n])
				}
				return err
			}
		}
		for i, e := range es {
			signals = append(signals, e.Signals...)
			sts[i] = e.Status(sent)
		}
		return nil
	})
	if err == nil {
		s.tell(signals)
	}
	return sts, cmp.Or(err, refused)
}

// briefly is how long lockedAll waits for one lock while it has others.
const briefly = 200 * time.Millisecond

// lockedAll runs f with the files of the claims' names locked. All who lock more
// than one do so in ascending order, and so never wait for each other in a
// circle.
//
// Invariant: nobody waits long for a name's lock who has another one's. A process
// that is stopped with a name's file locked would hold up the other names, too.
func (s *store) lockedAll(ctx context.Context, cs []driver.Claim, f func(map[int]*shard) error) error {
	type part struct {
		shard  int
		bucket int64
	}
	parts := make(map[int]*shard)
	all := make([]part, len(cs))
	for i, c := range cs {
		k := shardOf(c.Name)
		sh, err := s.queues.shard(k)
		if err != nil {
			return err
		}
		parts[k] = sh
		all[i] = part{k, bucketOf(queueFileName(c.Name))}
	}
	slices.SortFunc(all, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(a.bucket, b.bucket))
	})
	if _, err := s.time(ctx); err != nil {
		return err
	}
	all = slices.Compact(all)
	taken := 0
	drop := func() {
		for _, p := range all[:taken] {
			parts[p.shard].drop(p.bucket)
		}
		taken = 0
	}
	defer drop()
	for taken < len(all) {
		p, wait := all[taken], ctx
		if taken > 0 {
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeout(ctx, briefly)
			defer cancel()
		}
		err := parts[p.shard].lock(wait, p.bucket)
		if err == nil {
			taken++
			continue
		}
		if ctx.Err() != nil || wait.Err() == nil {
			return err
		}
		drop()
		if err := parts[p.shard].lock(ctx, p.bucket); err != nil {
			return err
		}
		parts[p.shard].drop(p.bucket) // and begin again
	}
	return f(parts)
}

// restore puts back what a file was, as far as that is possible.
func (sh *shard) restore(file string, was []byte) {
	if was == nil {
		_ = sh.dir.Remove(file)
	} else {
		newSerial(was) // what was appended to it may be known to some
		_ = sh.put(file, was, true, false)
	}
}
