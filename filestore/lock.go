package filestore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"sync"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

// lockName is the file in a folder that the locks on its other files are on.
// Nothing is written to it, and pawl never deletes it.
const lockName = "lock"

// locks excludes goroutines of this process by lists of them, and other
// processes by locks in the system, which belong to the open file and so know
// nothing of goroutines. Each file has a lock of its own (but for rare pairs),
// so that a process that is stopped while it changes one holds up no other.
//
// Both are in order of arrival. The first goroutine of each list is the one
// that waits in the system; it comes after the other processes that wait there,
// so that processes take turns, however many goroutines they have.
type locks struct {
	dir    *disk.Dir
	closed <-chan struct{}

	mu     sync.Mutex
	file   *disk.Turns // nil before the first lock
	lines  map[int64]*line
	taking int  // goroutines that are in the system
	ended  bool // the last of them closes the file
}

// line is one lock as this process sees it.
//
// Invariant: if somebody waits, the lock is held or taking.
type line struct {
	held    bool // by a caller
	taking  bool // a goroutine waits for it in the system
	waiting []chan error
}

func newLocks(d *disk.Dir, closed <-chan struct{}) locks {
	return locks{dir: d, closed: closed, lines: make(map[int64]*line)}
}

// bucketOf is the lock of a file.
func bucketOf(file string) int64 {
	h := fnv.New32a()
	h.Write([]byte(file))
	return int64(h.Sum32()) % disk.Buckets
}

// take waits for the lock. Such a wait can't be given up in the system, so when
// ctx ends it goes on without the caller, and what it gets is given back.
func (l *locks) take(ctx context.Context, bucket int64) error {
	got := make(chan error, 1)
	l.mu.Lock()
	err := l.open()
	if err == nil {
		n := l.lines[bucket]
		if n == nil {
			n = new(line)
			l.lines[bucket] = n
		}
		n.waiting = append(n.waiting, got)
		l.advance(bucket, n)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		err = fmt.Errorf("%w while another process had it locked", ctx.Err())
	case <-l.closed:
		err = driver.ErrClosed
	}
	if !l.withdraw(bucket, got) && <-got == nil {
		l.drop(bucket)
	}
	return err
}

// withdraw reports whether who waited by got was still in the line: else it has the
// lock, or was refused it.
func (l *locks) withdraw(bucket int64, got chan error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lines[bucket]
	if n == nil {
		return false
	}
	i := slices.Index(n.waiting, got)
	if i < 0 {
		return false
	}
	n.waiting = slices.Delete(slices.Clone(n.waiting), i, i+1)
	l.advance(bucket, n)
	return true
}

func (l *locks) open() (err error) {
	if l.file == nil {
		l.file, err = l.dir.Turns(lockName)
	}
	return gone(err)
}

// advance gives the lock to who is next. mu is locked.
func (l *locks) advance(bucket int64, n *line) {
	if n.held || n.taking {
		return
	}
	if len(n.waiting) == 0 {
		delete(l.lines, bucket)
		return
	}
	ok, err := l.file.Try(bucket)
	switch {
	case ok:
		l.give(n)
	case err != nil:
		l.refuse(bucket, n, err)
	default:
		n.taking = true
		l.taking++
		go l.wait(bucket, n)
	}
}

// wait is the goroutine that waits in the system for a lock.
func (l *locks) wait(bucket int64, n *line) {
	err := l.file.Take(bucket)
	l.mu.Lock()
	defer l.mu.Unlock()
	n.taking = false
	l.taking--
	switch {
	case err != nil:
		l.refuse(bucket, n, err)
	case len(n.waiting) == 0:
		_ = l.file.Drop(bucket)
		delete(l.lines, bucket)
	default:
		l.give(n)
	}
	if l.ended && l.taking == 0 {
		l.file.Close()
	}
}

func (l *locks) give(n *line) {
	n.held = true
	n.waiting[0] <- nil
	n.waiting = n.waiting[1:]
}

func (l *locks) refuse(bucket int64, n *line, err error) {
	for _, w := range n.waiting {
		w <- err
	}
	delete(l.lines, bucket)
}

func (l *locks) drop(bucket int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Drop(bucket) // fails for a bad descriptor only
	n := l.lines[bucket]
	n.held = false
	l.advance(bucket, n)
}

// close is the last call. A goroutine that waits for a process that is stopped
// may stay; it closes the file.
func (l *locks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.taking == 0 && l.file != nil {
		l.file.Close()
	}
}

// present checks that the file of the locks is the one that others lock, too.
func (l *locks) present() error {
	removed, err := l.file.Removed()
	if err == nil && removed {
		err = driver.Permanent(fmt.Errorf("%s: %w", filepath.Join(l.dir.Path(), lockName), errGone))
	}
	return err
}

// table is a folder of documents, divided into shards: file systems, and people,
// are slow with very large folders.
type table struct {
	dir    *disk.Dir
	suffix string // of its files
	closed <-chan struct{}

	mu     sync.Mutex
	shards [shards]*shard
}

// shard is a part of a table: a folder, and the locks on the files in it.
type shard struct {
	locks
	id disk.ID
}

// shard opens the i-th part, and makes it if need be.
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
	return t.keep(i, d)
}

// free reports whether the lock of a queue could be had at once; a hint.
func (t *table) free(name string) bool {
	sh, err := t.shard(shardOf(name))
	if err != nil {
		return true // whoever tries is told why
	}
	return sh.free(bucketOf(queueFileName(name)))
}

// free reports whether the lock could be had at once; a hint.
func (l *locks) free(bucket int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open() != nil {
		return true // whoever tries is told why
	}
	if l.lines[bucket] != nil {
		return false
	}
	ok, err := l.file.Try(bucket)
	if ok {
		_ = l.file.Drop(bucket)
	}
	return ok || err != nil
}

// existing opens the i-th part if it is there.
func (t *table) existing(i int) (*shard, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shards[i] != nil {
		return t.shards[i], nil
	}
	d, err := t.dir.Open(shardName(i))
	if disk.IsGone(err) {
		return nil, t.present()
	}
	if err != nil {
		return nil, err
	}
	return t.keep(i, d)
}

// present checks that the folder at the path is still the one that was opened.
func (t *table) present() error {
	opened, err := t.dir.Stat()
	if err != nil {
		return err
	}
	now, err := disk.StatPath(t.dir.Path())
	if err == nil && now.ID != opened.ID {
		err = driver.Permanent(fmt.Errorf("%s: %w", t.dir.Path(), errGone))
	}
	return gone(err)
}

func (t *table) keep(i int, d *disk.Dir) (*shard, error) {
	info, err := d.Stat()
	if err != nil {
		d.Close()
		return nil, err
	}
	t.shards[i] = &shard{locks: newLocks(d, t.closed), id: info.ID}
	return t.shards[i], nil
}

func shardName(i int) string { return fmt.Sprintf("%02x", i) }

func (t *table) close() {
	for _, s := range t.shards {
		if s != nil {
			s.locks.close()
			s.dir.Close()
		}
	}
	t.dir.Close()
}

var errGone = errors.New("the folder was removed, moved or replaced while in use: open the store again")

// there checks that the folder at the path is still the one that was opened:
// who opens it now must meet the same lock and the same files.
func (s *shard) there() error {
	info, err := disk.StatPath(s.dir.Path())
	if err == nil && info.ID != s.id || disk.IsGone(err) {
		return driver.Permanent(fmt.Errorf("%s: %w", s.dir.Path(), errGone))
	}
	return err
}

// lock takes the lock of a file, and checks that it means something.
func (s *shard) lock(ctx context.Context, bucket int64) error {
	err := s.take(ctx, bucket)
	if err != nil {
		return err
	}
	if err = s.there(); err == nil {
		err = s.present()
	}
	if err != nil {
		s.drop(bucket)
	}
	return err
}

// asideSuffix is added to the name of the file that is written before it takes
// the place of another.
const asideSuffix = ".new"

// gone translates the error of making a file in a folder that is no more.
func gone(err error) error {
	if disk.IsGone(err) {
		return driver.Permanent(fmt.Errorf("%w (%w)", errGone, err))
	}
	return err
}

// put writes a file aside and moves it to its place. The file is locked, so one
// name does for what is aside: if it is there already, it was left by a process
// that was killed, and is replaced.
func (sh *shard) put(file string, raw []byte, replace, sync bool) error {
	if err := sh.dir.Create(file+asideSuffix, raw, sync); err != nil {
		return gone(err)
	}
	if replace {
		return sh.dir.Replace(file+asideSuffix, file)
	}
	return sh.dir.Move(file+asideSuffix, file)
}
