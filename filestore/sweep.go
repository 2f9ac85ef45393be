package filestore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/queue"
)

// A queue's file goes when its last claim leaves. What stays is what nobody
// asks for any more: claims of clients that were killed, that ran out, or that
// lingered; and records that ran out. Whoever has the folder open looks for
// them, one process a minute.
const (
	sweptName  = "swept"
	sweepEvery = time.Minute
	// sweepBudget bounds the work of one round; the next one starts elsewhere.
	sweepBudget = time.Second
)

// sweep cleans up until the store is closed.
func (s *store) sweep() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-t.C:
		}
		if s.sweepDue() {
			s.sweepFolder(sweepBudget)
		}
		t.Reset(sweepEvery)
	}
}

// sweepDue reports whether nobody has swept for a minute, and says that
// somebody does now. If two do, nothing is lost.
func (s *store) sweepDue() bool {
	at, err := s.root.Modified(sweptName)
	if err == nil {
		if age := time.Since(at); age >= 0 && age < sweepEvery-time.Second {
			return false
		}
	} else if !disk.IsGone(err) {
		return false
	}
	return s.root.Create(sweptName, nil, false) == nil
}

// sweepFolder is one round. Errors are left to those who use the file: a round
// has nobody to tell.
func (s *store) sweepFolder(budget time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	s.sweepSessions()
	dead := s.asker()
	for f, err := range s.queues.files() {
		if err != nil || s.ended(ctx) != nil {
			return
		}
		if s.sweepAside(ctx, f) {
			continue
		}
		name, q, err := s.loadFile(f)
		if err == nil && s.litter(&q, dead) && f.free() {
			_ = s.change(ctx, name, func(q *queue.Queue, o *queue.Op) {
				o.Look(q)
				bury(q, o, "", dead)
			})
		}
	}
	for f, err := range s.records.files() {
		if err != nil || s.ended(ctx) != nil {
			return
		}
		if !s.sweepAside(ctx, f) {
			s.sweepRecord(ctx, f)
		}
	}
}

// litter reports whether a queue has something to clean up.
func (s *store) litter(q *queue.Queue, dead func(string) bool) bool {
	now := s.clock.now()
	if !q.InUse() {
		return q.Last < now
	}
	next := q.NextExpiry()
	return next != 0 && next <= now || blockedByDead(q, "", dead)
}

// sweepAside removes what a process left that was killed while it wrote, and
// reports whether that is what the file is.
func (s *store) sweepAside(ctx context.Context, f entry) bool {
	file, is := strings.CutSuffix(f.name, asideSuffix)
	if is && f.free() {
		bucket := bucketOf(file)
		if f.shard.lock(ctx, bucket) == nil {
			_ = f.shard.dir.Remove(f.name) // not in use: the file is locked
			f.shard.drop(bucket)
		}
	}
	return is
}

// entry is a file of a table.
type entry struct {
	shard *shard
	name  string
}

// free reports whether the file's lock could be had at once. A round passes over
// what is locked: by somebody who may be stopped.
func (f entry) free() bool {
	return f.shard.free(bucketOf(strings.TrimSuffix(f.name, asideSuffix)))
}

// files yields the files of a table, beginning with any shard, and with them
// what lies aside. After a shard that cannot be read it goes on with the next.
func (t *table) files() iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		start := rand.IntN(shards)
		for i := range shards {
			sh, err := t.existing((start + i) % shards)
			if err == nil && sh == nil {
				continue
			}
			if err == nil {
				err = sh.there()
			}
			if err != nil {
				if !yield(entry{}, err) {
					return
				}
				continue
			}
			for name, err := range sh.dir.Names() {
				if err == nil && !strings.HasSuffix(strings.TrimSuffix(name, asideSuffix), t.suffix) {
					continue
				}
				if !yield(entry{sh, name}, err) {
					return
				}
			}
		}
	}
}

// loadFile reads a queue's file without knowing the name; the queue of a file
// that went in the meantime is empty.
func (s *store) loadFile(f entry) (string, queue.Queue, error) {
	raw, err := f.shard.dir.Read(f.name, nil)
	if disk.IsGone(err) {
		return "", queue.Queue{}, nil
	}
	if err != nil {
		return "", queue.Queue{}, err
	}
	p, err := decode(raw)
	if err == nil && queueFileName(p.name) != f.name {
		err = fmt.Errorf("it says it is the queue of %q", p.name)
	}
	if err != nil {
		return "", queue.Queue{}, damagedQueue(f.shard, f.name, err)
	}
	return p.name, p.queue, nil
}

// afterBoot removes the queues that a boot has ended, before anybody uses the
// folder in this boot: all but those whose limit was changed, with claims that
// linger, or with a token that the clock, which starts at mark or later, has not
// passed. The others'
// clients are dead. Among them are files that a power cut left without their
// content, but not what another version wrote, nor what is no file to be read.
func (s *store) afterBoot(mark int64) error {
	for f, err := range s.queues.files() {
		var raw []byte
		if err == nil {
			raw, err = f.shard.dir.Read(f.name, nil)
		}
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			return err // not the file's fault
		}
		if err != nil {
			continue // it costs its own names only
		}
		p, err := decode(raw)
		if errors.Is(err, errVersion) {
			continue
		}
		keep := p.queue.Last >= mark || p.queue.Declared != 0
		for _, c := range p.queue.Claims {
			keep = keep || c.Lingering || c.Used >= mark
		}
		if err == nil && keep {
			continue
		}
		// If it stays, that too costs its own name only: its clients are dead.
		_ = f.shard.dir.Remove(f.name)
	}
	return nil
}
