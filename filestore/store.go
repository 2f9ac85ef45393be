package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/internal/clock"
	"github.com/pawl-go/pawl/internal/queue"
	"github.com/pawl-go/pawl/internal/wake"
)

// openTimeout bounds Open, which takes no context.
const openTimeout = 10 * time.Second

// Store is a [driver.Store] in a folder. It is the client that the folder's
// other users see: when it is closed, or its process ends, its claims end.
type Store struct {
	*checked.AllStore
	in *store
}

type store struct {
	clock    timebase
	newWatch func() (*fsnotify.Watcher, error)
	pipes    bool
	probe    time.Duration // probeEvery

	root     *disk.Dir
	group    *int  // that shares the folder; nil: it is one user's
	folder   locks // on root: the clock is set, dead sessions are removed
	queues   table
	records  table
	sessions *disk.Dir

	id      string // of the session
	session session
	others  others

	claims wake.Hub // by claim id
	values wake.Hub // by the record's file
	mail   struct {
		mu    sync.Mutex
		begun bool // by a call that waits or listens
	}
	watch  watch
	papers papers

	mu     sync.Mutex
	next   int // key of the next listener
	listen map[int]func(driver.Notice)
	closed chan struct{}

	work sync.WaitGroup // goroutines of the store
}

// machine is what a Store knows of the machine; tests put another in.
type machine struct {
	boot     string
	uptime   func() time.Duration
	wall     func() time.Time
	network  func(*disk.Dir) (string, error)
	newWatch func() (*fsnotify.Watcher, error)
	pipes    bool // the file system may have them
	probe    time.Duration
}

// Open opens the folder, and makes it if need be. The errors say what is wrong
// with a folder that can't be used: it is on a network file system, belongs to
// somebody else, can be written by others, or is damaged. On systems other
// than Linux and macOS the error is driver.ErrUnsupported.
func Open(dir string) (*Store, error) {
	c, err := clock.Open()
	if errors.Is(err, clock.ErrUnsupported) {
		err = fmt.Errorf("%w: %w", driver.ErrUnsupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the folder %q: %w", dir, err)
	}
	return open(dir, machine{c.Boot, c.Now, time.Now, (*disk.Dir).Network, fsnotify.NewWatcher, true, probeEvery})
}

func open(dir string, m machine) (*Store, error) {
	s := &store{
		newWatch: m.newWatch,
		pipes:    m.pipes,
		probe:    m.probe,
		listen:   make(map[int]func(driver.Notice)),
		closed:   make(chan struct{}),
	}
	s.clock.boot, s.clock.uptime = m.boot, m.uptime
	s.queues = table{suffix: queueSuffix, closed: s.closed}
	s.records = table{suffix: recordSuffix, closed: s.closed}
	if err := s.open(dir, m); err != nil {
		s.release()
		return nil, fmt.Errorf("open the folder %q: %w", dir, s.Explain(err))
	}
	s.work.Go(s.sweep)
	return &Store{checked.NewAll("", s), s}, nil
}

func (s *store) open(dir string, m machine) error {
	if dir == "" {
		return fmt.Errorf("%w folder: its name is empty", driver.ErrInvalid)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := checkLink(path); err != nil {
		return err
	}
	if err := makeFolder(path); err != nil {
		return err
	}
	if s.root, err = disk.Open(path); err != nil {
		return err
	}
	if err := s.checkFolder(m); err != nil {
		return err
	}
	s.folder = newLocks(s.root, s.closed)
	s.id = strings.ToLower(driver.NewID())
	// What is needed to read is tried first: it works on a disk that is full, or
	// can only be read.
	known, err := s.takeClock()
	if err != nil {
		return err
	}
	if !known {
		if err := s.checkOwn(); err != nil {
			return err
		}
	}
	if s.queues.dir, err = s.root.Make("queues"); err != nil {
		return err
	}
	if s.records.dir, err = s.root.Make("records"); err != nil {
		return err
	}
	if s.sessions, err = s.root.Make("sessions"); err != nil {
		return err
	}
	if err := s.checkInside(); err != nil {
		return err
	}
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	if err := s.folder.take(ctx, folderLock); err != nil {
		return err
	}
	defer s.folder.drop(folderLock)
	return s.setClock(m.wall())
}

// folderLock is the one lock on root.
const folderLock = 0

// End implements [checked.Ender]: what Close closes must not be in use.
func (s *store) End() { close(s.closed) }

// Close ends the claims of this store.
func (s *store) Close() error {
	s.work.Wait()
	s.release()
	return nil
}

// release closes what open has opened.
func (s *store) release() {
	if s.root == nil {
		return
	}
	if s.sessions != nil {
		s.endSession()
		s.sessions.Close()
	}
	if s.records.dir != nil {
		s.records.close()
	}
	if s.queues.dir != nil {
		s.queues.close()
	}
	s.folder.close()
	s.root.Close()
	s.root = nil
}

// ended returns why what takes long is to end.
func (s *store) ended(ctx context.Context) error {
	select {
	case <-s.closed:
		return driver.ErrClosed
	default:
		return ctx.Err()
	}
}

// Explain implements [checked.Explainer]: it marks the errors that repeating does
// not mend, and says of others what does.
func (*store) Explain(err error) error {
	if cause := disk.Cause(err); cause != "" {
		err = fmt.Errorf("%s: %w", cause, err)
	}
	if disk.IsHopeless(err) {
		return driver.Permanent(err)
	}
	return err
}

// change runs f on the queue of name, saves what it made of it, and tells those
// whom that concerns.
func (s *store) change(ctx context.Context, name string, f func(*queue.Queue, *queue.Op)) error {
	o := &queue.Op{Session: s.id}
	err := s.locked(ctx, name, func(sh *shard, file string) error {
		now, err := s.time(ctx)
		if err != nil {
			return err
		}
		k, done := s.papers.of(name)
		defer done()
		k.mu.Lock()
		defer k.mu.Unlock()
		if err := k.load(sh, file, name, true); err != nil {
			return err
		}
		q := k.copy()
		o.Now = now
		o.Reachable = func(c *queue.Claim) bool { return !s.dead(c.Session) }
		limit, declared := q.Limit, q.Declared
		f(&q, o)
		if err := k.save(sh, file, name, &q, s.clock.now()); err != nil {
			return err
		}
		if (declared != 0 || q.Declared != 0) && (declared != q.Declared || limit != q.Limit) {
			return sh.dir.Sync() // see SetLimit
		}
		return nil
	})
	if err == nil {
		s.tell(o.Signals) // not under the lock, which those who wake up may need
	}
	return err
}

func (s *store) locked(ctx context.Context, name string, f func(sh *shard, file string) error) error {
	sh, err := s.queues.shard(shardOf(name))
	if err != nil {
		return err
	}
	file := queueFileName(name)
	bucket := bucketOf(file)
	if _, err := s.time(ctx); err != nil {
		return err
	}
	if err := sh.lock(ctx, bucket); err != nil {
		return err
	}
	defer sh.drop(bucket)
	return f(sh, file)
}

// peek reads the queue of name as it is now, without the lock: files are
// replaced whole, but for the numbers of renewals.
func (s *store) peek(k *known, name string) error {
	sh, err := s.queues.existing(shardOf(name))
	if err == nil && sh == nil {
		k.forget()
		return nil
	}
	if err == nil {
		err = sh.there()
	}
	if err != nil {
		return err
	}
	err = k.load(sh, queueFileName(name), name, false)
	if err != nil {
		// On some processors a reader can see that a file has become longer before it
		// sees with what.
		err = k.load(sh, queueFileName(name), name, false)
	}
	return err
}

// overdue reports whether time or death has something to change in the queue,
// as far as it matters to the claim id.
func (s *store) overdue(q *queue.Queue, now int64, id string) bool {
	next := q.NextExpiry()
	return next != 0 && next <= now || blockedByDead(q, id, s.dead)
}

// blockedByDead reports whether a dead client's claim stands in the way of the
// claim id, or of one that would come next. It asks about those who hold and
// about the one that waits just before: whoever that is, if alive, asks about
// the one before in turn.
func blockedByDead(q *queue.Queue, id string, dead func(string) bool) bool {
	before := ""
	passed := false
	for i := range q.Claims {
		c := &q.Claims[i]
		switch {
		case !passed && c.ID == id:
			passed = true
		case c.Lingering:
		case c.Holding():
			if dead(c.Session) {
				return true
			}
		case !passed:
			before = c.Session
		}
	}
	return dead(before)
}

// bury drops the claims of dead clients if any stands in the way of id.
func bury(q *queue.Queue, o *queue.Op, id string, dead func(string) bool) {
	if blockedByDead(q, id, dead) {
		o.Drop(q, func(c *queue.Claim) bool { return c.ID != id && dead(c.Session) })
	}
}
