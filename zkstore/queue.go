package zkstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// list is the data of a queue's node. Tokens in it are relative, see token.go.
type list struct {
	Queue queue.Queue      `json:"queue"`
	More  map[string]*more `json:"more"` // by claim id
	// Keep is a child that stays while there is something to keep beside claims
	// whose owners live: a node without children is a dead queue.
	Keep string `json:"keep,omitempty"`
}

// more is what package queue does not know of a claim. Times are the server's,
// in milliseconds.
type more struct {
	// Node is the claim's child: a name that is used once. Empty: it lingers.
	Node string `json:"node,omitempty"`
	// ZK is the session of the server that the child is bound to, as far as was
	// known when it was made.
	ZK    int64 `json:"zk,omitempty"`
	Alone bool  `json:"alone,omitempty"` // may use spare tokens
	TTL   int64 `json:"ttl"`
	Came  int64 `json:"came"`
	Held  int64 `json:"held,omitempty"`
	// A claim lingers for Linger from the change that began it; that change's
	// time is known after it, so Until is filled in by the next one.
	Linger int64 `json:"linger,omitempty"`
	Until  int64 `json:"until,omitempty"`
}

// view is a queue's node at one moment.
type view struct {
	found    bool
	stat     zk.Stat
	data     []byte
	children map[string]bool
	fresh    bool // was read; else it is what this Store wrote last
	listed   bool // the children were not read, but taken from the list
	held     bool // by a claim of this Store, as it knew when it wrote or read this
	at       time.Time
}

// dead tells that everybody died who had claims in the queue.
func (v *view) dead() bool { return v.found && len(v.children) == 0 && !v.listed }

// load reads a queue: its list and the children that belong to exactly that
// version of it.
//
// Invariant: a claim whose child is not in the view is dead. A list that is newer
// than the children would make the living look so.
func (s *store) load(ctx context.Context, n *session, name string, watch bool) (*view, <-chan zk.Event, error) {
	path := s.queuePath(name)
	key := watchKey{path: path}
	type result struct {
		data      []byte
		stat      *zk.Stat
		ch        <-chan zk.Event
		kids      []string
		kidsStat  *zk.Stat
		err, err2 error
	}
	var r result
	for getKids, getList := true, true; ; {
		var seen <-chan zk.Event
		if watch {
			n.mu.Lock()
			if ch := n.armed[key]; ch != nil && !fired(ch) {
				seen = ch
			}
			n.mu.Unlock()
		}
		arm := watch && seen == nil
		last := r
		var err error
		r, err = call(ctx, n, func(c *zk.Conn) (result, error) {
			r := last
			done := make(chan struct{})
			go func() {
				if getKids {
					r.kids, r.kidsStat, r.err2 = c.Children(path)
				}
				close(done)
			}()
			switch {
			case !getList:
			case arm:
				n.watching(path)
				r.data, r.stat, r.ch, r.err = c.GetW(path)
				n.keep(key, r.ch, r.err)
			default:
				r.data, r.stat, r.err = c.Get(path)
			}
			<-done
			for _, e := range []error{r.err, r.err2} {
				if e != nil && !errors.Is(e, zk.ErrNoNode) {
					return r, e
				}
			}
			return r, nil
		})
		if err != nil {
			return nil, nil, err
		}
		if r.ch != nil {
			seen = r.ch
		}
		switch {
		case r.err != nil && r.err2 != nil:
			return &view{fresh: true}, nil, nil
		case r.err != nil || r.err2 != nil:
			getKids, getList = true, true
			continue
		case r.stat.Mzxid != r.kidsStat.Mzxid: // it changed between the two
			getList = r.stat.Mzxid < r.kidsStat.Mzxid
			getKids = !getList
			continue
		}
		v := &view{found: true, stat: *r.stat, data: r.data, children: make(map[string]bool, len(r.kids)), fresh: true}
		for _, kid := range r.kids {
			v.children[kid] = true
		}
		return v, seen, checkZxid(v.stat.Mzxid)
	}
}

// list reads a queue's list alone, and takes all claims in it to live.
func (s *store) list(ctx context.Context, n *session, name string) (*turn, error) {
	if _, err := n.prepare(ctx); err != nil {
		return nil, err
	}
	v, err := s.loadList(ctx, n, name)
	if err != nil {
		return nil, err
	}
	return s.newTurn(ctx, n, name, v)
}

func (s *store) loadList(ctx context.Context, n *session, name string) (*view, error) {
	v, err := call(ctx, n, func(c *zk.Conn) (*view, error) {
		data, stat, err := c.Get(s.queuePath(name))
		if errors.Is(err, zk.ErrNoNode) {
			return &view{}, nil
		}
		if err != nil {
			return nil, err
		}
		return &view{found: true, stat: *stat, data: data, listed: true, at: time.Now()}, nil
	})
	if err != nil {
		return nil, err
	}
	return v, checkZxid(v.stat.Mzxid)
}

// look runs f on the queue as it is. It writes nothing unless f, or what has
// died since the last change, changes something.
func (s *store) look(ctx context.Context, n *session, name string, f func(*turn) error) (*turn, error) {
	if _, err := n.prepare(ctx); err != nil {
		return nil, err
	}
	v, _, err := s.load(ctx, n, name, false)
	if err != nil {
		return nil, err
	}
	return s.lookAt(ctx, n, name, v, f)
}

func (s *store) lookAt(ctx context.Context, n *session, name string, v *view, f func(*turn) error) (*turn, error) {
	if _, known := s.clock.now(); known || !v.lingers() {
		t, err := s.newTurn(ctx, n, name, v)
		if err != nil {
			return nil, err
		}
		if err := f(t); err != nil {
			return t, err
		}
		if changed, err := t.finish(); err != nil || !changed {
			return t, err
		}
	}
	return s.change(ctx, n, name, nil, f)
}

// change runs f on the queue and writes what it makes of it, as often as others
// are faster. guess, if not nil, returns what the queue may look like, to spare
// reading all of it.
func (s *store) change(ctx context.Context, n *session, name string, guess func(*slot) (*view, error), f func(*turn) error) (*turn, error) {
	sl, _, err := s.lock(ctx, n, name, nil)
	if err != nil {
		return nil, err
	}
	return s.changeLocked(ctx, n, sl, guess, f)
}

// changeLocked is change for who has the slot, which it lets go of.
func (s *store) changeLocked(ctx context.Context, n *session, sl *slot, guess func(*slot) (*view, error), f func(*turn) error) (*turn, error) {
	name := sl.name
	pending := make(chan struct{}) // closed when the change under way has ended
	close(pending)
	defer func() {
		// Who was left waiting has let go of the change, but it may still be made:
		// those that come later must come later.
		select {
		case <-pending:
			s.unlock(sl)
		default:
			if !s.spawn(func() { <-pending; s.unlock(sl) }) {
				s.unlock(sl)
			}
		}
	}()
	var confirmed *pulse // not nil: a write has confirmed that this session lives
	for attempt := 0; ; attempt++ {
		if _, err := n.prepare(ctx); err != nil {
			return nil, err
		}
		var v *view
		var err error
		if guess != nil {
			v, err = guess(sl)
			guess = nil
		} else {
			v, _, err = s.load(ctx, n, name, false)
		}
		if err != nil {
			return nil, err
		}
		if _, known := s.clock.now(); !known && v.lingers() {
			if err := n.touch(ctx); err != nil {
				return nil, err
			}
		}
		t, err := s.newTurn(ctx, n, name, v)
		if err != nil {
			return nil, err
		}
		if confirmed != nil {
			t.pulse = confirmed
		}
		aboard := t.takeAlong(sl)
		err = f(t)
		changed := false
		if err == nil {
			changed, err = t.finish()
		}
		switch {
		case !changed && !v.fresh:
			continue // it may look otherwise
		case !changed && t.confirm && confirmed == nil:
			if err := n.touch(ctx); err != nil {
				return nil, err
			}
			confirmed = t.pulse
			continue
		case !changed:
			s.see(name, nil)
			return t, err
		}
		ended := make(chan struct{})
		rs, err := n.multi(ctx, t.ops, func(err error) {
			s.arrived(sl, aboard, n.explain(err))
			close(ended)
		})
		pending = ended
		if err == nil {
			return t, s.wrote(ctx, t, rs)
		}
		s.see(name, nil)
		if !raced(err) {
			return nil, err
		}
		s.setBusy(name)
		if !v.fresh && !v.at.IsZero() && time.Since(v.at) > young {
			s.miss(name)
		}
		if !v.found && errors.Is(err, zk.ErrNoNode) {
			n.forget() // where queues are is missing
		}
		if attempt > 1 && !sleep(ctx, rand.N(time.Duration(min(attempt, 20))*time.Millisecond)) {
			return nil, n.explain(ctx.Err())
		}
	}
}

// wrote takes note of a change that was made.
func (s *store) wrote(ctx context.Context, t *turn, rs []zk.MultiResponse) error {
	v, err := t.written(rs)
	if err != nil {
		return err
	}
	base, err := t.n.prepare(ctx) // it may be another session by now
	if err != nil {
		return err
	}
	own := false
	for _, c := range t.q.Claims {
		if _, ok := s.classOf(c.Session); ok && !c.Lingering {
			own = true
			v.held = v.held || c.Holding()
		}
	}
	if own {
		s.see(t.name, v)
	} else {
		s.see(t.name, nil)
	}
	t.v = v
	if v.found {
		t.offset = base + at(v.stat.Czxid) - 1
	}
	for _, sig := range t.Signals {
		switch sig.Kind {
		case queue.Wanted:
			s.mail.post(&t.out, sig.Claim.Session, driver.Notice{Kind: driver.Wanted, ID: sig.Claim.ID})
		case queue.Broken, queue.Adopted:
			s.mail.post(&t.out, sig.Claim.Session, driver.Notice{Kind: driver.Check, ID: sig.Claim.ID})
		}
	}
	return nil
}

// touch writes something: to learn the server's time, or to have a majority confirm
// that the session is alive. What is read after it is no older than that.
//
// Invariant: a deadline is returned only after a write. ZooKeeper's own sync asks
// the leader alone; one that was stopped, or is cut off, replies when there is
// another already, by whose word the session ends earlier.
func (n *session) touch(ctx context.Context) error {
	_, err := n.multi(ctx, []any{&zk.SetDataRequest{Path: n.store.path("m"), Version: -1}}, func(error) {})
	if errors.Is(err, zk.ErrNoNode) {
		n.forget()
	}
	return err
}
