package zkstore

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

// Mutexes, that is queues with limit 1, are handed over without touching the
// list, so that nobody who changes it is in the way, and the next one need not
// read it:
//
//   - Each claim that comes is promised a token, see arrive.go.
//   - The holder leaves by writing to its child and deleting it in one step. If the
//     list knows it, it stays there until somebody changes that, as the dead do.
//   - The claim behind watches its data. A write to it says: it held, and has left
//     for good. So who was next holds, with the token that it was promised.
//
// Invariant: with limit 1 claims hold in order of arrival, one at a time, so the
// first one in the list that lives holds. A child is written to only by its owner
// as it leaves, while it is that first one: the Store has seen that, and nothing
// can come to be in front; and the limit is still 1, for whoever
// sets a limit changes the version of <root>/q, which the leaving checks (see
// handover.rules). All other ends of a claim delete the child alone, or leave it
// lingering: then the next one reads the list with the children.
//
// A promise is kept by whoever writes the grant into the list, see turn.settle.

// handover is how a claim of this Store that holds can leave.
type handover struct {
	session *session
	path    string // of its child
	rules   int32  // version of <root>/q, read before it was read that the limit is 1
}

// mutex tells whether one claim holds at a time, in order of arrival, each with
// the token that it was promised.
func (t *turn) mutex() bool { return t.q.Limit == 1 && t.q.Declared == 0 && !t.relics }

// promised tells whether a claim in the list was promised a token: then the one in
// front of it may be watched by its data.
func (t *turn) promised() bool {
	for _, m := range t.l.More {
		if m.Promise != 0 {
			return true
		}
	}
	return false
}

// holds notes how the claim can leave, if the turn says that it holds a mutex,
// and is bound to the session in force.
func (s *Store) holds(t *turn, id string) {
	c, m := t.q.Find(id), t.l.More[id]
	var h *handover
	if t.mutex() && c != nil && c.Holding() && !c.Lingering && m != nil && t.bound(c.Session, m) {
		h = &handover{t.n, t.s.queuePath(t.name) + "/" + m.Node, t.v.rules}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.mine[id]; o != nil {
		o.handover = h
	}
}

// bound tells whether a claim's child is bound to the session in force, as far as
// that is known.
func (t *turn) bound(mark string, m *more) bool {
	return mark == t.n.mark && m.ZK == t.n.conn.SessionID()
}

// handOn has the claim leave without a look at the list; false: that cannot be
// done. It is for names that others want: else who leaves removes the queue, too.
func (s *Store) handOn(ctx context.Context, n *session, r driver.Ref) (done bool, err error) {
	s.mu.Lock()
	var h *handover
	if o := s.mine[r.ID]; o != nil && o.name == r.Name && o.tries <= 1 { // else there may be a twin, see parting
		h = o.handover
	}
	v := s.views[r.Name]
	s.mu.Unlock()
	if h == nil || h.session != n || r.Linger != 0 || !s.wasBusy(r.Name) {
		return false, nil
	}
	if _, err := n.prepare(ctx); err != nil {
		return false, err
	}
	s.overtake(r.Name)
	_, err = n.multi(ctx, []any{
		&zk.CheckVersionRequest{Path: s.path("q"), Version: h.rules},
		&zk.SetDataRequest{Path: h.path, Version: -1},
		&zk.DeleteRequest{Path: h.path, Version: -1},
	}, func(error) {})
	switch {
	case raced(err):
		n.reread()
		s.see(r.Name, nil)
		return false, nil
	case err != nil:
		return false, err
	}
	s.see(r.Name, nil)
	if v == nil || len(v.children) <= 1 { // nobody may be there to remove the queue
		s.tidy(r.Name)
	}
	return true, nil
}

// succeed answers a turn in which those in front of a waiting claim have left, and
// it holds.
func (t *turn) succeed(ctx context.Context, id string) (*turn, error) {
	v := *t.v
	v.children, v.listed, v.held = maps.Clone(v.children), false, true
	for i := range t.q.Claims {
		c := &t.q.Claims[i]
		if c.ID == id {
			break
		}
		delete(v.children, t.l.More[c.ID].Node)
	}
	return t.s.newTurn(ctx, t.n, t.name, &v)
}

// next waits behind the claim in front, which keys say after the claim's own child.
// It answers that the claim holds, or a turn on what there is to look at now.
func (s *Store) next(ctx context.Context, t *turn, r driver.Ref, keys []watchKey) (st driver.Status, look *turn, err error) {
	n := t.n
	granted, err := t.succeed(ctx, r.ID)
	if err != nil {
		return st, nil, err
	}
	var ch <-chan zk.Event
	var failed error
	var arming sync.WaitGroup
	arming.Go(func() { ch, failed = n.watch(ctx, keys[1]) })
	own, err := n.watch(ctx, keys[0])
	arming.Wait()
	if err = cmp.Or(err, failed); err != nil {
		return st, nil, err
	}
	if own != nil && ch != nil {
		select {
		case <-own:
		case ev := <-ch:
			// What has befallen the claim before that was told before.
			if ev.Type == zk.EventNodeDataChanged && !fired(own) && granted.told(r.ID) {
				return s.accept(granted, r.ID), nil, nil
			}
		case <-ctx.Done():
			return st, nil, ctx.Err()
		case <-s.ctx.Done():
			return st, nil, driver.ErrClosed
		}
	}
	look, err = s.full(ctx, n, r.Name)
	return st, look, err
}

// accept notes that the claim holds, of which the turn need not be written.
func (s *Store) accept(t *turn, id string) driver.Status {
	v := *t.v
	v.fresh, v.held, v.mutex = false, true, t.mutex()
	t.v = &v
	s.see(t.name, t.v)
	s.holds(t, id)
	st := t.status(id, driver.Holding, time.Time{}, 0)
	if st.Behind == 0 && t.mutex() {
		s.spawn(func() { s.lookBehind(t.n, t.name, id) })
	}
	return st
}

// soon is how long a claim holds or waits at the least until others are asked, or
// told: many do neither for longer.
const soon = 500 * time.Microsecond

// lookBehind tells the owner of a claim that was handed the lock whether others
// have come behind it meanwhile. Those that come later see that it holds, and tell
// it by mail.
func (s *Store) lookBehind(n *session, name, id string) {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	if !sleep(ctx, soon) || !s.has(id) {
		return
	}
	s.mu.Lock()
	var own arrival
	if o := s.mine[id]; o != nil {
		own, _ = parseArrival(o.node)
	}
	s.mu.Unlock()
	kids, err := call(ctx, n, func(c *zk.Conn) ([]string, error) {
		kids, _, err := c.Children(s.queuePath(name))
		return kids, err
	})
	if err != nil || !s.has(id) {
		return
	}
	for _, kid := range kids {
		if a, ok := parseArrival(kid); ok && a.seq > own.seq {
			s.mail.tell(driver.Notice{Kind: driver.Wanted, ID: id})
			return
		}
	}
}

// has tells whether the claim has not left yet.
func (s *Store) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mine[id] != nil
}

// tidyAfter is how long the node of a queue stays that was left to others, if none
// came: often they are on their way.
const tidyAfter = 100 * time.Millisecond

// tidy removes a queue's node a moment later if nobody is there then.
func (s *Store) tidy(name string) {
	s.mu.Lock()
	known := s.untidy[name] || s.shut
	if !known {
		s.untidy[name] = true
	}
	s.mu.Unlock()
	if known {
		return
	}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		defer cancel()
		if sleep(ctx, tidyAfter) {
			s.mu.Lock()
			delete(s.untidy, name)
			s.mu.Unlock()
			s.removeDead(ctx, name) // else the next sweep will
		}
	})
}

// tidyUp does that for all, as the Store closes.
func (s *Store) tidyUp() {
	s.mu.Lock()
	names := maps.Clone(s.untidy)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, 500*time.Millisecond)
	defer cancel()
	for name := range names {
		if s.removeDead(ctx, name) != nil {
			return
		}
	}
}

// removeDead removes the node of a queue in which nobody lives.
func (s *Store) removeDead(ctx context.Context, name string) error {
	n, err := s.anySession()
	if err != nil {
		return err
	}
	path := s.queuePath(name)
	_, err = call(ctx, n, func(c *zk.Conn) (bool, error) {
		found, stat, err := c.Exists(path)
		if err == nil && found && stat.NumChildren == 0 {
			err = c.Delete(path, stat.Version) // which fails if somebody came
		}
		if raced(err) {
			err = nil
		}
		return true, err
	})
	return err
}
