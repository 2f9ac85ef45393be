// Package zkstore keeps locks in ZooKeeper.
//
// # Nodes
//
// A queue is one node under <root>/q whose data lists its claims; each claim
// has an ephemeral child there, which is its sign of life. Both change together,
// in one multi-operation that is conditional on the version of the list: so
// entering, granting, handing over and leaving are each one write, and a request
// whose reply was lost is found again by the claim's id. The last claim to
// leave takes the node along.
//
// A waiting claim watches its own child, which is touched when it is granted,
// and the child of the claim in front; where several can hold, the first in
// line watches the list of children instead. So each change wakes one claim.
//
// # Sessions
//
// Claims end with the session that entered them. A Store has one session for
// each class of TTL in use (a TTL is rounded up by a quarter at the most, and to
// 1.8 s at the least), whose timeout is asked for as 3/2 of that; a process that
// dies is noticed when it has run out. The extra half is for ensembles, whose leader
// hears late of what a session says at a follower, or never, if the follower dies:
// so Status.Deadline also depends on the last ping that the leader has certainly heard
// of. ZooKeeper allows timeouts from 2 to 20 ticks only (4 s to 40 s by default;
// minSessionTimeout, maxSessionTimeout): below, a crash is noticed later; above,
// Status.Deadline is 2/3 of what the server granted, and claims must be renewed more
// often than their TTL says. The pings keep a session alive whether or not its claims are
// renewed; so the Store removes, at its time, each claim of its own that was not.
//
// Closing the Store ends its sessions, and the claims with them, at once.
//
// # Tokens
//
// A token is the time at which <root>/epoch was created, in nanoseconds since
// 2020 by the server's clock, plus 2^13 for each transaction until the grant
// (2^45 for each election). So it rises with the transactions, whatever is
// deleted and created; and after the loss of all data with the clock, if there
// were fewer than 122,000 transactions a second and 2.4 elections a day on
// average.
package zkstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/checked"
)

// Options of a store. The zero value is right for servers without passwords.
type Options struct {
	// Root is the path under which all nodes are; "" is "/pawl". It is created if
	// it is missing.
	Root string
	// User and Password are for ZooKeeper's digest scheme, if not empty.
	User, Password string
	// ACL of all nodes that are made. Nil: everything for User, or for
	// everybody if there is no User.
	ACL []zk.ACL
	// Dial makes a connection; nil: a TCP connection. (&tls.Dialer{…}).DialContext
	// is one over TLS.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Store is a [driver.Store] in ZooKeeper. Make one with [Open] or [New]. Closing it
// ends its sessions, and the claims with them.
type Store struct{ *checked.Store }

type store struct {
	servers []string
	opts    Options
	id      string // of this value, in the sessions' marks and the mailbox's name

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	clock  clock

	mu       sync.Mutex
	shut     bool           // Close was called
	work     sync.WaitGroup // goroutines; none is added once shut
	sessions map[int]*session
	started  int                // sessions so far
	latest   int                // class of the session that was asked for last
	slots    map[string]*slot   // by name, while calls change its queue
	views    map[string]*view   // of queues as this Store wrote them, where it has claims
	busy     map[string]traffic // by name
	mine     map[ownKey]*owned
	reaper   chan struct{} // kicks the reaper; nil until it runs
	alarm    time.Time     // when the reaper looks next

	mail mailbox
}

// New makes a store on servers given as host:port. It does no I/O. o may be nil.
//
// It makes its own connections, for it has to know the session timeout that the
// server granted, and every change of the session's state; Options.Dial is the
// place for TLS and tunnels.
func New(servers []string, o *Options) (*Store, error) {
	s, err := newStore(servers, o)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return &Store{checked.New("zookeeper", s)}, nil
}

func newStore(servers []string, o *Options) (*store, error) {
	s := &store{
		servers:  slices.Clone(servers),
		id:       driver.NewID()[:16], // 80 bits
		sessions: make(map[int]*session),
		slots:    make(map[string]*slot),
		views:    make(map[string]*view),
		mine:     make(map[ownKey]*owned),
		busy:     make(map[string]traffic),
		latest:   class(15 * time.Second),
	}
	if o != nil {
		s.opts = *o
	}
	if s.opts.Root == "" {
		s.opts.Root = "/pawl"
	}
	if err := checkRoot(s.opts.Root); err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("%w servers: there is none", driver.ErrInvalid)
	}
	for _, addr := range servers {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("%w server %q: it is not host:port", driver.ErrInvalid, addr)
		}
	}
	if strings.Contains(s.opts.User, ":") {
		return nil, fmt.Errorf("%w user: it has a colon", driver.ErrInvalid)
	}
	switch {
	case s.opts.ACL != nil:
	case s.opts.User != "":
		s.opts.ACL = zk.AuthACL(zk.PermAll)
	default:
		s.opts.ACL = zk.WorldACL(zk.PermAll)
	}
	if s.opts.Dial == nil {
		s.opts.Dial = new(net.Dialer).DialContext
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.mail.init(s)
	return s, nil
}

func (s *store) Close() error {
	s.mu.Lock()
	s.shut = true
	sessions := s.sessions
	s.sessions = nil
	s.mu.Unlock()
	s.cancel(driver.ErrClosed)
	var closing sync.WaitGroup
	for _, n := range sessions {
		closing.Go(n.close)
	}
	closing.Wait()
	s.work.Wait()
	return nil
}

// spawn runs f in a goroutine that Close waits for; false if it was called.
func (s *store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return false
	}
	s.work.Go(f)
	return true
}

// alive returns why nothing is to be done any more; ctx first, then the store.
func (s *store) alive(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return driver.ErrClosed
	}
	return nil
}

func (s *store) path(parts ...string) string {
	return s.opts.Root + "/" + strings.Join(parts, "/")
}

func (s *store) queuePath(name string) string { return s.path("q", escape(name)) }

// shortest is the shortest TTL that gets a session of its own: the client takes a
// connection for dead that says nothing for 2/3 of a session, and a shorter
// silence than that is nothing special.
const shortest = 1600 * time.Millisecond

// class numbers the TTLs that share a session: quarters of powers of two
// milliseconds.
func class(ttl time.Duration) int {
	for c := 0; ; c++ {
		if span(c) >= max(ttl, shortest) {
			return c
		}
	}
}

// span is the longest TTL of a class.
func span(class int) time.Duration {
	return time.Duration(4+class%4) << (class / 4) * time.Millisecond
}

// sessionOf returns the session of a class, which it may have to start.
func (s *store) sessionOf(class int) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut {
		return nil, driver.ErrClosed
	}
	s.latest = class
	if n := s.sessions[class]; n != nil {
		return n, nil
	}
	n, err := s.connect(class)
	if err == nil {
		s.sessions[class] = n
	}
	return n, err
}

// anySession returns one that is there, for calls that enter nothing.
func (s *store) anySession() (*session, error) {
	s.mu.Lock()
	class := s.latest
	s.mu.Unlock()
	return s.sessionOf(class)
}

// classOf returns the class of a claim's session if it is one of this Store's
// that is in use.
func (s *store) classOf(mark string) (class int, ok bool) {
	rest, own := strings.CutPrefix(mark, s.id+".")
	number, _, _ := strings.Cut(rest, ".")
	class, err := strconv.Atoi(number)
	if !own || err != nil {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[class]
	return class, n != nil && n.mark == mark
}

// clock knows the server's time by the writes that it has confirmed.
type clock struct {
	mu    sync.Mutex
	ms    int64     // of the last write
	local time.Time // when its reply was there
}

func (c *clock) set(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ms, c.local = ms, time.Now()
}

// fresh is how long the server's time is known after a write, for two clocks run
// apart.
const fresh = time.Minute

// now returns the server's time in milliseconds, or a little less; false if no
// write has told it lately.
func (c *clock) now() (ms int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local.IsZero() {
		return time.Now().UnixMilli(), false
	}
	since := time.Since(c.local)
	return c.ms + since.Milliseconds(), since < fresh
}
