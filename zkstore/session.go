package zkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// dialTimeout bounds one attempt to connect to one server.
const dialTimeout = 2 * time.Second

// session is one ZooKeeper session after the other, on the same terms: when the
// server has ended one, the client starts the next.
type session struct {
	store  *store
	class  int
	mark   string // names this value in lists of claims
	conn   *zk.Conn
	events <-chan zk.Event // closed when the client has ended
	hosts  *hosts

	granted atomic.Int64  // timeout, as the server granted it
	changes atomic.Uint64 // of the state: connected, disconnected, expired
	authed  bool          // guarded by preparing
	// preparing is held by who prepares the session.
	preparing chan struct{}

	mu      sync.Mutex
	wire    *wire // the latest
	trouble error // of the last attempt to connect
	armed   map[watchKey]<-chan zk.Event
	tidy    int // number of armed watches at which to look for those that fired
	watched map[string]*watched
	ready   int64           // id of the session that was prepared last
	base    int64           // of tokens, as that session found it
	begun   <-chan zk.Event // tells that what the base is from is gone
	missing bool            // something that was made once is not there
	lost    time.Time       // when the connection was lost that had a session; zero while there is one
	pulse   *pulse          // of the session that was granted last
	pulseOf uint64          // its id
}

// connect starts a session; the store's mutex is held.
func (s *store) connect(class int) (*session, error) {
	n := &session{
		store: s, class: class, mark: fmt.Sprintf("%s.%d.%d", s.id, class, s.started), preparing: make(chan struct{}, 1),
		armed: make(map[watchKey]<-chan zk.Event), hosts: new(hosts), watched: make(map[string]*watched),
		pulse: new(pulse),
	}
	s.started++
	n.hosts.ended = s.ctx
	var err error
	n.conn, n.events, err = zk.Connect(s.servers, timeoutOf(span(class)),
		zk.WithLogger(silence{}), zk.WithLogInfo(false), zk.WithHostProvider(n.hosts),
		zk.WithDialer(n.dial), zk.WithEventCallback(n.event))
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", strings.Join(s.servers, ","), err)
	}
	return n, nil
}

type silence struct{}

func (silence) Printf(string, ...any) {}

func (n *session) close() {
	n.conn.Close()      // ends the session at once if the server replies
	n.current().Close() // else the client would go on until its timeout
	for range n.events {
	}
}

func (n *session) event(ev zk.Event) {
	if ev.Type != zk.EventSession {
		n.happened(ev.Path)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch ev.State {
	case zk.StateHasSession:
		n.changes.Add(1)
		n.lost = time.Time{}
	case zk.StateDisconnected:
		n.changes.Add(1)
		if n.lost.IsZero() && n.granted.Load() != 0 {
			n.lost = time.Now()
		}
	case zk.StateExpired:
		n.changes.Add(1)
		n.hosts.restart()
	}
}

// replace gives up a session that its server has refused to go on with for
// longer than it lasts. A server that has lost its data refuses all who have seen
// more than it has, and the client would never ask it for a new session.
//
// Invariant: claims are of one session value, by its mark; the next value
// takes over those that are still there before it renews them.
func (s *store) replace(n *session) {
	s.spawn(func() {
		s.mu.Lock()
		mine := s.sessions[n.class] == n
		if mine {
			delete(s.sessions, n.class)
		}
		s.mu.Unlock()
		if mine {
			n.close()
		}
	})
}

func (n *session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(n.store.ctx, dialTimeout)
	defer cancel()
	c, err := n.store.opts.Dial(ctx, network, addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && n.store.ctx.Err() != nil {
		c.Close()
		err = driver.ErrClosed
	}
	if err != nil {
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			err = refused(addr, err) // as fast as that
		}
		n.trouble = err
		return nil, err
	}
	w := &wire{Conn: c, session: n, closed: make(chan struct{})}
	n.wire = w
	return w, nil
}

// hosts tells the client where to connect next. It goes through all servers at
// once after a session was lost, and then once a second.
type hosts struct {
	ended context.Context

	mu    sync.Mutex
	addrs []string
	next  int
	tried int // since the last success
}

func (h *hosts) Init(addrs []string) error {
	h.addrs = addrs
	return nil
}

func (h *hosts) Len() int { return len(h.addrs) }

func (h *hosts) Next() (addr string, wait bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	addr = h.addrs[h.next]
	h.next = (h.next + 1) % len(h.addrs)
	wait = h.tried > 0 && h.tried%len(h.addrs) == 0 || h.ended.Err() != nil
	h.tried++
	return addr, wait
}

func (h *hosts) Connected() { h.restart() }

func (h *hosts) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tried = 0
}

// beat returns the pulse of the session that is in force. What is sent after that
// is sent in this session, or in one that came later.
func (n *session) beat() *pulse {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pulse
}

// call runs f, which knows no context, and returns when it or ctx has ended. What
// f does after that is done, and nobody is told.
func call[T any](ctx context.Context, n *session, f func(c *zk.Conn) (T, error)) (T, error) {
	return callEnding(ctx, n, f, func(error) {})
}

var errUnsent = errors.New("the request was not sent")

// callEnding is call that runs ended when f does nothing any more, with its error.
func callEnding[T any](ctx context.Context, n *session, f func(c *zk.Conn) (T, error), ended func(error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var none T
	s := n.store
	if err := s.alive(ctx); err != nil {
		ended(errUnsent)
		return none, err
	}
	ch := make(chan result, 1)
	if !s.spawn(func() {
		v, err := f(n.conn)
		ended(err)
		ch <- result{v, err}
	}) {
		ended(errUnsent)
		return none, driver.ErrClosed
	}
	select {
	case r := <-ch:
		return r.v, n.explain(r.err)
	case <-ctx.Done():
		w := n.current()
		s.spawn(func() {
			select {
			case <-ch:
			case <-s.ctx.Done():
			case <-time.After(n.stuck()):
				w.Close()
			}
		})
		return none, n.explain(ctx.Err())
	case <-s.ctx.Done():
		return none, driver.ErrClosed
	}
}

// stuck is how long a connection is given to reply to a request after its caller
// has let go of it; then it is given up, for what is behind it may wait for ever.
func (n *session) stuck() time.Duration {
	return min(max(time.Duration(n.granted.Load())/3, time.Second), 5*time.Second)
}

// current is the connection that requests go over, if there is one.
func (n *session) current() io.Closer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wire == nil {
		return io.NopCloser(nil)
	}
	return n.wire
}

// exists returns nil if there is no such node.
func (n *session) exists(ctx context.Context, path string) (*zk.Stat, error) {
	return call(ctx, n, func(c *zk.Conn) (*zk.Stat, error) {
		found, stat, err := c.Exists(path)
		if err != nil || !found {
			return nil, err
		}
		return stat, nil
	})
}

// multi runs the operations, all or none, and notes the server's time. It calls
// ended when this client does nothing about them any more, also if its caller was
// not waiting for that.
func (n *session) multi(ctx context.Context, ops []any, ended func(error)) ([]zk.MultiResponse, error) {
	return callEnding(ctx, n, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		rs, err := c.Multi(ops...)
		for _, r := range rs {
			if err == nil && r.Stat != nil {
				n.store.clock.set(r.Stat.Mtime)
			}
		}
		return rs, err
	}, ended)
}

type watchKey struct {
	path     string
	children bool
}

// watch returns a channel that gets a value, or is closed, when the node or its
// list of children changes after now, or the session ends. Nil: there is no such
// node. One watch serves all who wait for the same: the client keeps each until
// it fires.
func (n *session) watch(ctx context.Context, key watchKey) (<-chan zk.Event, error) {
	n.mu.Lock()
	ch := n.armed[key]
	n.mu.Unlock()
	if ch != nil && !fired(ch) {
		return ch, nil
	}
	ch, err := call(ctx, n, func(c *zk.Conn) (<-chan zk.Event, error) {
		var ch <-chan zk.Event
		var err error
		n.watching(key.path)
		if key.children {
			_, _, ch, err = c.ChildrenW(key.path)
		} else {
			_, _, ch, err = c.GetW(key.path)
		}
		n.keep(key, ch, err)
		return ch, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return ch, err
}

// watchAbsent is watch for a node that is not there; nil: it is.
func (n *session) watchAbsent(ctx context.Context, path string) (<-chan zk.Event, error) {
	key := watchKey{path: path}
	n.mu.Lock()
	ch := n.armed[key]
	n.mu.Unlock()
	if ch != nil && !fired(ch) {
		return ch, nil
	}
	return call(ctx, n, func(c *zk.Conn) (<-chan zk.Event, error) {
		n.watching(path)
		_, _, ch, err := c.ExistsW(path)
		n.keep(key, ch, err)
		return ch, err
	})
}

// watching notes that a request with a watch goes out; keep must follow.
func (n *session) watching(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watched[path]
	if w == nil {
		w = new(watched)
		n.watched[path] = w
	}
	w.asked++
}

// keep notes what became of that request.
func (n *session) keep(key watchKey, ch <-chan zk.Event, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watched[key.path]
	w.asked--
	w.set = w.set || err == nil && !fired(ch)
	if w.asked == 0 && !w.set {
		delete(n.watched, key.path)
	}
	if err != nil {
		return
	}
	if len(n.armed) >= n.tidy {
		for k, c := range n.armed {
			if fired(c) {
				delete(n.armed, k)
			}
		}
		n.tidy = 2*len(n.armed) + 100
	}
	n.armed[key] = ch
}

// fired tells whether the watch has seen something. The client sends one event
// and closes the channel: so it tells the same to all who ask.
func fired[T any](ch <-chan T) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
