package zkstore

import (
	"context"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
)

func (s *store) Wait(ctx context.Context, r driver.Ref) (st driver.Status, err error) {
	n, _, err := s.sessionFor(keyOf(r), 0)
	if err != nil {
		return st, err
	}
	return s.wait(ctx, n, r)
}

// wait reads the list, watches what the claim depends on, and blocks once the
// list that it has read after that says nothing new.
//
// Invariant: who reads that it holds has a child that lives: its session, which
// has just replied, is the one that the child is bound to. All else is decided
// on the children, too; and what has died by the clock, or left meanwhile, makes
// nobody hold before that is written: another change may come first, and grant
// what is free to somebody else.
func (s *store) wait(ctx context.Context, n *session, r driver.Ref) (st driver.Status, err error) {
	var watches []<-chan zk.Event
	var keys []watchKey
	for first := true; ; first = false {
		var t *turn
		if first {
			t, err = s.remembered(ctx, n, r)
		}
		if t == nil && err == nil {
			t, err = s.list(ctx, n, r.Name)
		}
		if err != nil {
			return st, err
		}
		st = t.status(r.ID, t.q.State(r), time.Time{}, 0)
		c := t.q.Find(r.ID)
		was := t.was[r.ID] // as it was read
		if st.State == driver.Holding && was.Holding() && c.Session == n.mark && t.l.More[r.ID].ZK == n.conn.SessionID() {
			t.v.held = true
			s.see(r.Name, t.v)
			return st, nil
		}
		if st.State != driver.Waiting {
			return s.lookAgain(ctx, n, r)
		}
		want, ends := t.obstacles(r.ID)
		if !slices.Equal(keys, want) || anyFired(watches) {
			keys, watches = want, nil
			for _, key := range keys {
				ch, err := n.watch(ctx, key)
				if err != nil {
					return st, err
				}
				if ch == nil { // it is gone, or was when the list was read
					return s.lookAgain(ctx, n, r)
				}
				watches = append(watches, ch)
			}
			continue
		}
		if keys[len(keys)-1].path == s.queuePath(r.Name) {
			// The list of children may have changed before the watch was there.
			v, _, err := s.load(ctx, n, r.Name, false)
			if err != nil {
				return st, err
			}
			if v.stat.Mzxid != t.v.stat.Mzxid || len(v.children) != len(t.v.children) {
				if st, err = s.lookAgain(ctx, n, r); err != nil || st.State != driver.Waiting {
					return st, err
				}
				continue
			}
		}
		over, err := s.await(ctx, watches, ends)
		if err != nil {
			return st, err
		}
		if over {
			return s.lookAgain(ctx, n, r)
		}
	}
}

// remembered returns a turn on what the queue looked like lately, if the claim
// waited then: who has just entered it knows what to watch. Nil: it has to be read.
func (s *store) remembered(ctx context.Context, n *session, r driver.Ref) (*turn, error) {
	v := s.seen(r.Name, young)
	if v == nil {
		return nil, nil
	}
	t, err := s.newTurn(ctx, n, r.Name, v)
	if err != nil || t.q.State(r) != driver.Waiting {
		return nil, err
	}
	return t, nil
}

// lookAgain looks at the claim with all that has died, and changes the queue if
// that is due.
func (s *store) lookAgain(ctx context.Context, n *session, r driver.Ref) (st driver.Status, err error) {
	t, err := s.look(ctx, n, r.Name, func(*turn) error { return nil })
	if err != nil {
		return st, err
	}
	return t.status(r.ID, t.q.State(r), time.Time{}, 0), nil
}

// await blocks until a watch fires, or, which it reports, a lingering claim ends;
// ends is zero if none matters.
func (s *store) await(ctx context.Context, watches []<-chan zk.Event, ends time.Duration) (over bool, err error) {
	var passed <-chan time.Time
	if ends != 0 {
		timer := time.NewTimer(ends)
		defer timer.Stop()
		passed = timer.C
	}
	var second <-chan zk.Event
	if len(watches) > 1 {
		second = watches[1]
	}
	select {
	case <-watches[0]:
	case <-second:
	case <-passed:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	case <-s.ctx.Done():
		return false, driver.ErrClosed
	}
	return false, nil
}

// obstacles returns what a waiting claim has to watch: its own child, which is
// touched when it is granted, and the child of the claim in front; or, for the
// first in line where several can hold, the list of children. ends is when the
// first of those in front ends that linger.
func (t *turn) obstacles(id string) (keys []watchKey, ends time.Duration) {
	path := t.s.queuePath(t.name)
	front, until := "", int64(0)
	inLine := true // nobody waits in front
	overtake := false
	for i := range t.q.Claims {
		c := &t.q.Claims[i]
		m := t.l.More[c.ID]
		if c.ID == id {
			keys = append(keys, watchKey{path: path + "/" + m.Node})
			overtake = c.Overtake
			break
		}
		inLine = inLine && (c.Holding() || c.Units > t.q.Limit)
		switch {
		case !c.Lingering:
			front = m.Node
		case until == 0 || m.Until < until:
			until = m.Until
		}
	}
	switch {
	case (t.q.Limit > 1 || t.q.Declared != 0) && (inLine || overtake):
		keys = append(keys, watchKey{path: path, children: true})
	case front != "":
		// It has no children: so this fires when it goes, and not when it is granted.
		keys = append(keys, watchKey{path: path + "/" + front, children: true})
	}
	if until != 0 {
		ends = time.Duration(max(0, until-t.now)+1) * time.Millisecond
	}
	return keys, ends
}

func anyFired(watches []<-chan zk.Event) bool {
	for _, ch := range watches {
		if fired(ch) {
			return true
		}
	}
	return false
}
