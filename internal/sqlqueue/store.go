package sqlqueue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
)

const (
	// SchemaVersion is that of the tables.
	SchemaVersion = 1

	// grace is how long a statement may go on beyond its caller's context.
	grace = 250 * time.Millisecond
	// afterMost bounds what is done after a call.
	afterMost = 5 * time.Second
	// attempts at what the database undid in favour of others.
	attempts = 50
)

// Config is what a store is made of.
type Config struct {
	DB      *sql.DB
	Dialect Dialect
	Create  bool   // the tables, if they are not there
	Missing string // what to do where they are not
	Server  string // for errors: where it is; may be ""
	// Listen calls message for what comes on the channels, as soon as it can has
	// called up, until ctx ends or it fails. With driver.ErrUnsupported, or if
	// nil: nothing can be pushed.
	Listen  func(ctx context.Context, channels []string, up func(), message func(channel, text string)) error
	Channel string       // of this store
	Records string       // channel on which all are told of records
	Close   func() error // what the store opened; may be nil
}

// Store is a driver.Store on a database. Claims stay until they run out when it is
// closed.
type Store struct {
	*checked.Store
	in *store
}

type store struct {
	Config
	own   registry
	known familiar
	post  post
	sweep sweeper
	gate  gate

	ctx   context.Context // ends when the store is closed
	stop  context.CancelCauseFunc
	work  tracker
	ready atomic.Int64 // when the tables were there, and of the right version, in nanoseconds since made; 0: never
	made  time.Time
}

// New makes a store. It does no I/O.
func New(c Config) *Store {
	s := newStore(c)
	return &Store{checked.New(c.Dialect.Engine(), s), s}
}

func newStore(c Config) *store {
	s := &store{Config: c, made: time.Now()}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.post.init(s)
	s.gate.init(c.DB)
	return s
}

func (s *store) Close() error {
	s.stop(driver.ErrClosed)
	s.work.stop()
	if s.Config.Close != nil {
		return s.Config.Close()
	}
	return nil
}

// CloseDB returns what closes a database that the store's adapter has opened. An idle
// connection whose server is gone cannot be told that it ends, which is nobody's fault.
func CloseDB(db *sql.DB) func() error {
	return func() error {
		db.Close()
		return nil
	}
}

// tracker waits for goroutines, and starts no more once it is stopped.
type tracker struct {
	mu      sync.Mutex
	stopped bool
	group   sync.WaitGroup
}

func (t *tracker) start(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return false
	}
	t.group.Go(f)
	return true
}

func (t *tracker) stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.group.Wait()
}

// alive returns why nothing is to be done any more.
func (s *store) alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return driver.ErrClosed
	}
	return nil
}

// work is one operation: its caller's context, and that of its statements, which
// outlives the other by the grace.
type work struct {
	s      *store
	caller context.Context
	ctx    context.Context
	bare   bool // do without the tables
	route  route
	tries  int                   // at most, of what the database undid; 0: attempts
	after  func(context.Context) // to be done when the caller has its reply
}

// call runs f. No further statement is sent once the caller's
// context has ended, but one that is under way has a moment for its reply: most
// drivers break it off by closing the connection, and then nobody knows whether
// it was carried out, or still will be.
func call[T any](ctx context.Context, s *store, p route, f func(*work) (T, error)) (v T, err error) {
	return callOn(ctx, s, p, false, f)
}

func callOn[T any](ctx context.Context, s *store, p route, bare bool, f func(*work) (T, error)) (v T, err error) {
	if err := s.alive(ctx); err != nil {
		return v, err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
	w := &work{s: s, caller: ctx, ctx: inner, route: p, bare: bare}
	err = w.run(func() (err error) {
		v, err = f(w)
		return err
	})
	if err != nil {
		if ended := s.alive(ctx); ended != nil {
			err = ended // else a driver's word for that
		}
		var none T
		return none, err
	}
	if w.after != nil {
		s.work.start(func() {
			ctx, cancel := context.WithTimeout(s.ctx, afterMost)
			defer cancel()
			w.after(ctx)
		})
	}
	return v, nil
}

// run runs f, again where the database undid it in favour of others.
func (w *work) run(f func() error) error {
	for n := 1; ; n++ {
		leave, err := w.admit(w.route)
		if err != nil {
			return err
		}
		began := time.Now()
		if err = w.s.prepare(w); err == nil {
			err = f()
		}
		w.s.gate.took(w.route.lane, time.Since(began))
		leave()
		if err == nil || w.alive() != nil {
			return err
		}
		if fault, _ := w.s.Dialect.Fault(err); fault != Again || n >= cmp.Or(w.tries, attempts) {
			return w.s.explain(err)
		}
		pause(w.caller, time.Duration(min(n, 20))*time.Millisecond)
	}
}

// alive returns why no further statement is to be sent.
func (w *work) alive() error { return w.s.alive(w.caller) }

// prepare sees to the tables, again each minute: they may have been made newer by
// then, or the server may be another one, with other settings.
func (s *store) prepare(w *work) error {
	const good = time.Minute
	now := time.Since(s.made)
	if at := s.ready.Load(); w.bare || at != 0 && now-time.Duration(at) < good {
		return nil
	}
	version, err := s.Dialect.Version(w.ctx, s.DB)
	if err != nil {
		fault, _ := s.Dialect.Fault(err)
		if fault != NoTable && !errors.Is(err, ErrUnfinished) || !s.Create {
			return err
		}
		if err := s.Dialect.Create(w.ctx, s.DB); err != nil {
			return fmt.Errorf("create the tables: %w", err)
		}
		version, err = s.Dialect.Version(w.ctx, s.DB)
		if err != nil {
			return err
		}
	}
	switch {
	case version > SchemaVersion:
		return driver.Permanent(fmt.Errorf("the tables are of version %d, and this program knows %d: use a newer one", version, SchemaVersion))
	case version < SchemaVersion:
		return driver.Permanent(fmt.Errorf("the tables are of version %d, and this program needs %d: %s", version, SchemaVersion, s.Missing))
	}
	s.ready.Store(int64(now))
	return nil
}

// CreateSchema creates the tables that are not there.
func (s *Store) CreateSchema(ctx context.Context) error {
	_, err := checked.Do(ctx, s.Store, "create the tables", "", nil, func() (struct{}, error) { return s.in.create(ctx) })
	return err
}

func (s *store) create(ctx context.Context) (none struct{}, err error) {
	return callOn(ctx, s, s.reading(), true, func(w *work) (struct{}, error) { return none, s.Dialect.Create(w.ctx, s.DB) })
}

// explain marks what lasts, and says what to do.
func (s *store) explain(err error) error {
	fault, hint := s.Dialect.Fault(err)
	if fault == NoTable {
		s.ready.Store(0)
	}
	if fault == NoTable || errors.Is(err, ErrUnfinished) {
		hint = s.Missing
	}
	if hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	if fault == Lasting || fault == NoTable {
		return driver.Permanent(err)
	}
	return err
}

// Explain implements [checked.Explainer]: it says where, unless the error does, as
// those of package net do, or has nothing to do with it.
func (s *store) Explain(err error) error {
	if s.Server == "" || errors.Is(err, driver.ErrInvalid) || strings.Contains(err.Error(), s.Server) {
		return err
	}
	return fmt.Errorf("%s: %w", s.Server, err)
}

// pause waits for about d.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// newStamp returns a number that no row has had: 62 random bits.
func newStamp() int64 { return rand.Int64()>>1 + 1 }
