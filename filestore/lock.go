package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

// lock excludes the goroutines of this process by a channel and other
// processes by an advisory lock, which belongs to the open file and so knows
// nothing of goroutines.
//
// The lock is on the folder whose files it guards, not on a file beside them:
// it cannot be deleted apart from them, and is never deleted by pawl.
type lock struct {
	held   chan struct{} // has room for one
	file   *disk.File
	closed <-chan struct{}
}

func newLock(d *disk.Dir, closed <-chan struct{}) (*lock, error) {
	f, err := d.Handle()
	if err != nil {
		return nil, err
	}
	return &lock{make(chan struct{}, 1), f, closed}, nil
}

// take waits for the lock. A lock that is taken is tried again and again, not
// waited for in the system: such a wait could not be given up when ctx ends,
// and sections under the lock last some microseconds.
func (l *lock) take(ctx context.Context) error {
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.closed:
		return driver.ErrClosed
	}
	for try := 0; ; try++ {
		ok, err := l.file.TryLock(false)
		if ok {
			return nil
		}
		if err == nil {
			err = l.pause(ctx, try)
		}
		if err != nil {
			<-l.held
			return err
		}
	}
}

func (l *lock) pause(ctx context.Context, try int) error {
	if try < 20 {
		disk.Nap(20 * time.Microsecond)
		return nil
	}
	t := time.NewTimer(time.Duration(min(try-19, 5)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w while another process had the folder locked", ctx.Err())
	case <-l.closed:
		return driver.ErrClosed
	}
}

func (l *lock) drop() {
	_ = l.file.Unlock() // fails for a bad descriptor only
	<-l.held
}

// table is a folder of documents, divided into shards, each with its own lock.
type table struct {
	dir    *disk.Dir
	closed <-chan struct{}

	mu     sync.Mutex
	shards [shards]*shard
}

// shard is a part of a table: a folder, and the lock on the files in it.
type shard struct {
	*lock
	dir *disk.Dir
	id  disk.ID
}

// shard opens the i-th part.
func (t *table) shard(i int) (*shard, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shards[i] != nil {
		return t.shards[i], nil
	}
	d, err := t.dir.Make(shardName(i))
	if err != nil {
		return nil, gone(err)
	}
	info, err := d.Stat()
	if err != nil {
		d.Close()
		return nil, err
	}
	l, err := newLock(d, t.closed)
	if err != nil {
		d.Close()
		return nil, err
	}
	t.shards[i] = &shard{l, d, info.ID}
	return t.shards[i], nil
}

// existing opens the i-th part if it is there.
func (t *table) existing(i int) (*shard, error) {
	_, err := disk.StatPath(filepath.Join(t.dir.Path(), shardName(i)))
	if disk.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return t.shard(i)
}

func shardName(i int) string { return fmt.Sprintf("%02x", i) }

func (t *table) close() {
	for _, s := range t.shards {
		if s != nil {
			s.file.Close()
			s.dir.Close()
		}
	}
	t.dir.Close()
}

var errGone = errors.New("the folder was removed, moved or replaced while in use: open the store again")

// present checks that the folder at the path is still the one that was opened:
// who opens it now must meet the same lock and the same files.
func (s *shard) present() error {
	info, err := disk.StatPath(s.dir.Path())
	if err == nil && info.ID != s.id || disk.IsGone(err) {
		return driver.Permanent(fmt.Errorf("%s: %w", s.dir.Path(), errGone))
	}
	return err
}

// gone translates the error of making a file in a folder that is no more.
func gone(err error) error {
	if disk.IsGone(err) {
		return driver.Permanent(fmt.Errorf("%w (%w)", errGone, err))
	}
	return err
}
