package filestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// EnterAll implements [driver.AllEnterer].
//
// A process that is killed between two of the files leaves some of the claims,
// which end with it like all that it holds.
func (s *Store) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	const what = "enter, with others,"
	if err := driver.CheckAll(cs); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(cs) == 0 {
		return nil, nil
	}
	end, err := s.begin(ctx, what, cs[0].Name)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := s.alive(); err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, cs[0].Name, err)
	}
	sent := time.Now()
	es := make([]*queue.Entering, len(cs))
	var refused error
	err = s.lockedAll(ctx, cs, func(parts map[int]*shard) error {
		now, err := s.time(ctx)
		if err != nil {
			return err
		}
		dead := s.prober()
		raws := make([][]byte, len(cs))
		for i, c := range cs {
			sh := parts[shardOf(c.Name)]
			raw, q, err := sh.load(fileName(c.Name), c.Name)
			if err != nil {
				return err
			}
			o := &queue.Op{Now: now, Session: s.id, Reachable: func(c *queue.Claim) bool { return !dead(c.Session) }}
			s.bury(&q, o, c.ID)
			raws[i], es[i] = raw, &queue.Entering{Op: o, Queue: &q, Claim: c}
		}
		refused = queue.EnterAll(es)
		for i, c := range cs {
			if err := parts[shardOf(c.Name)].save(fileName(c.Name), c.Name, raws[i], es[i].Queue, s.clock.now()); err != nil {
				// Those that are written already are put back: nobody has been told
				// of them.
				for k, c := range cs[:i] {
					parts[shardOf(c.Name)].restore(fileName(c.Name), raws[k])
				}
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", what, cs[0].Name, hopeless(err))
	}
	sts := make([]driver.Status, len(cs))
	for i, e := range es {
		s.tell(e.Signals)
		sts[i] = e.Status(sent)
	}
	if refused != nil {
		return nil, refused
	}
	return sts, nil
}

// lockedAll runs f with the shards of the claims' names locked. All who lock
// more than one do so in ascending order, and so never wait for each other in a
// circle.
func (s *Store) lockedAll(ctx context.Context, cs []driver.Claim, f func(map[int]*shard) error) error {
	parts := make(map[int]*shard)
	for _, c := range cs {
		i := shardOf(c.Name)
		sh, err := s.queues.shard(i)
		if err != nil {
			return err
		}
		parts[i] = sh
	}
	for _, i := range slices.Sorted(maps.Keys(parts)) {
		sh := parts[i]
		if err := sh.take(ctx); err != nil {
			return err
		}
		defer sh.drop()
		if err := sh.present(); err != nil {
			return err
		}
	}
	return f(parts)
}

// restore puts back what a file was, as far as that is possible.
func (sh *shard) restore(file string, raw []byte) {
	if raw == nil {
		_ = sh.dir.Remove(file)
	} else {
		_ = sh.put(file, raw, true, false)
	}
}
