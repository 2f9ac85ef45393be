// Package plain keeps mutexes in Redis or Valkey by the recipe that most libraries
// use: SET key id NX PX ttl, a release that compares and deletes, and polling.
//
// It is for the time in which not all who lock are users of pawl: on the same key it
// and redsync, redislock, node-redlock or redis-py's Lock exclude each other. When all
// have moved, package redisstore does more.
//
// # What it puts there
//
// For a name N, the key of the lock, which is the prefix and N: with none, the name as
// redsync (the mutex's name), redislock (the key), node-redlock (the resource) and
// redis-py (the lock's name) have it. Its value is a text that nobody else has:
//
//	ID:TOKEN:OWNER    who holds, as JSON; other libraries just compare it
//	~ID:TOKEN:OWNER   the owner has left, and the name stays taken (MinHold)
//
// With Options.Marks also {KEY}:mark, the last token, for a week.
//
// # What its tokens are worth
//
// A token is the server's time in microseconds, drawn in the step that takes the key.
// Those of one name rise while the server's clock does, and not when it is set back,
// or when a replica whose clock is behind takes over. With Options.Marks they rise then,
// too, as far as the mark is there: not after the loss of it, nor over more than a week.
// They are those of pawl's grants alone: what other libraries hold in between has none.
//
// # How
//
// By Lua scripts, a round trip each. Where the user may not run scripts, it takes and
// renews the key by WATCH, MULTI and EXEC on a connection of its own, and releases it by
// DELEX (Redis 8.4) or DELIFEQ (Valkey 9) if the server has one of them. It finds out with the
// first request. SET with IFEQ is not used to renew: one that comes late would shorten a
// lease that was extended since.
//
// A user of the server needs these rights, and what the client needs for itself (HELLO,
// PING, CLIENT):
//
//	~KEY +evalsha +eval +time +get +set +del +pttl +pexpire
//	                             or, without the first two, +watch +multi +exec +discard
//	                             +command|info; and +delex or +delifeq, if the server has it
//	+getdel                      to take a lock away (ForceRelease)
//	+scan                        to list locks
//	~{KEY}:mark                  for marks
//
// # What it cannot do
//
// There is no queue: who waits looks again after a pause, and who looks first gets it. A
// holder is not told that others wait, nor that its key was deleted before its next renewal.
// The key has one holder, and says nothing of a kind: there are mutexes only, and no
// hand-over to another process. All that is driver.ErrUnsupported, with the reason.
//
// A request that takes the key may reach the server when the client has long given
// it up, if the server did not read for that time. It takes the key only if it is free
// then, so it lets no two hold; but it holds for nobody. So the store waits for the reply
// to such a request for up to two seconds after its caller's context has ended, and if there
// was none, goes on deleting the key, when the claim has left, until its TTL has passed.
// What comes later still holds for a TTL. Package redisstore bars such requests; a key
// alone cannot.
package plain

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/internal/lacking"
	"github.com/pawl-go/pawl/redisstore"
)

// Options of a store. The zero value is the default.
type Options struct {
	// Prefix of all keys: up to 256 bytes of UTF-8 without control characters and braces.
	// rueidislock with KeyMajority 1 has the prefix "rueidislock:0:", unless it was given
	// another KeyPrefix; with a greater KeyMajority it has several keys, and no prefix fits.
	Prefix string

	// MaxPause is the longest pause between two looks at a key that is waited for; 100 ms if 0.
	// Allowed are 1 ms to 10 s.
	MaxPause time.Duration

	// Marks makes tokens rise also when the clock is set back, by a second key for each
	// name, which stays for a week. Let all clients have it, or none.
	Marks bool
}

const (
	maxPrefix    = 256
	defaultPause = 100 * time.Millisecond
	shortestMost = time.Millisecond
	longestMost  = 10 * time.Second
	// A clock that is set back by less than that makes no token fall: what has lost its
	// mark by then was drawn longer ago.
	markLife = 7 * 24 * time.Hour
)

func (o *Options) check() error {
	switch {
	case len(o.Prefix) > maxPrefix:
		return fmt.Errorf("%w prefix %.20q…: %d bytes; allowed are up to %d", driver.ErrInvalid, o.Prefix, len(o.Prefix), maxPrefix)
	case !utf8.ValidString(o.Prefix), strings.ContainsFunc(o.Prefix, unicode.IsControl):
		return fmt.Errorf("%w prefix %q: control characters, and what is not UTF-8, are not allowed", driver.ErrInvalid, o.Prefix)
	case strings.ContainsAny(o.Prefix, "{}"):
		return fmt.Errorf("%w prefix %q: braces are not allowed", driver.ErrInvalid, o.Prefix)
	case o.MaxPause != 0 && (o.MaxPause < shortestMost || o.MaxPause > longestMost):
		return fmt.Errorf("%w MaxPause %v: allowed are %v to %v", driver.ErrInvalid, o.MaxPause, shortestMost, longestMost)
	}
	return nil
}

// Store is a [driver.Store] of mutexes. They stay until they run out when it is closed.
type Store struct{ *checked.Store }

type store struct {
	*lacking.Reasons
	conn    Conn
	prefix  string
	most    time.Duration // between two looks
	marks   bool
	waiters waiters
	doubts  doubts

	scriptless atomic.Bool            // scripts are forbidden
	native     atomic.Pointer[string] // the command that compares and deletes; empty: there is none

	ctx    context.Context // ends when the store is closed
	cancel context.CancelCauseFunc
}

// New makes a store on conn, and owns it from now on. It does no I/O: a server that
// does not reply shows with the first call. o may be nil.
func New(conn Conn, o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &store{Reasons: &cannot, conn: conn, prefix: o.Prefix, most: o.MaxPause, marks: o.Marks}
	if s.most == 0 {
		s.most = defaultPause
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return &Store{checked.New("redis", s)}, nil
}

// Close implements [driver.Store].
func (s *store) Close() error {
	s.doubts.close(func() { s.cancel(driver.ErrClosed) })
	return s.conn.Close()
}

// Explain implements [checked.Explainer].
func (*store) Explain(err error) error { return redisstore.Explain(err) }

func (s *store) key(name string) string { return s.prefix + name }

// keys are the lock's and, if there is one, the mark's, which no name and prefix make,
// and which lies on the same server of a cluster.
func (s *store) keys(name string) []string {
	key := s.key(name)
	if s.marks {
		return []string{key, "{" + key + "}:mark"}
	}
	return []string{key}
}
