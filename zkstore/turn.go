package zkstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

const (
	// forever is when claims run out as far as package queue is concerned: it is
	// their sessions that end.
	forever = int64(1) << 61
	// maxRequest leaves room for the rest of a request: ZooKeeper takes none above
	// 1 MB.
	maxRequest = 900_000
	// maxGrown is how large a queue's list may become by one more claim. The server
	// keeps its last 500 transactions in memory, so a name may cost it 500 times this.
	// What grows for other reasons (a claim is adopted) may use the rest.
	maxGrown = 256 << 10
)

var errNotAQueue = errors.New("its data is not a queue")

// turn is one operation on one view of a queue.
type turn struct {
	queue.Op
	s    *store
	n    *session
	name string
	v    *view
	q    *queue.Queue
	l    *list
	now  int64 // by the server's clock
	// pulse of the session, from before the write that confirms it.
	pulse *pulse

	// As it was.
	orig  []byte
	was   map[string]queue.Claim
	nodes map[string]bool // the children that the list speaks of
	olds  map[string]*more

	offset int64                    // of relative tokens
	ttls   map[string]time.Duration // asked for by the operation
	linger time.Duration
	alone  map[string]bool

	// confirm: the reply is worth something only if a majority has confirmed
	// that the session lives, by a change or by a touch before the queue was read.
	confirm bool

	out  notices
	ops  []any
	data []byte
	gone bool // the node is to be deleted
}

func (s *store) newTurn(ctx context.Context, n *session, name string, v *view) (*turn, error) {
	base, err := n.prepare(ctx) // after v was read
	if err != nil {
		return nil, err
	}

	t := &turn{s: s, n: n, name: name, v: v, pulse: n.beat(), l: new(list), ttls: make(map[string]time.Duration), alone: make(map[string]bool)}
	t.now, _ = s.clock.now()
	t.Now = 1
	if v.found && !v.dead() {
		if err := json.Unmarshal(v.data, t.l); err != nil {
			return nil, driver.Permanent(fmt.Errorf("node %s: %w: %w", s.queuePath(name), errNotAQueue, err))
		}
		t.Now = at(v.stat.Mzxid+1) - at(v.stat.Czxid) + 1
		t.offset = base + at(v.stat.Czxid) - 1
	}
	l := t.l
	t.q = &l.Queue
	if l.More == nil {
		l.More = make(map[string]*more)
	}
	t.was, t.nodes, t.olds = make(map[string]queue.Claim), make(map[string]bool), make(map[string]*more)
	if l.Keep != "" {
		t.nodes[l.Keep] = true
	}
	filled := false // with what the last change did not know
	for i := range t.q.Claims {
		c := &t.q.Claims[i]
		m := l.More[c.ID]
		if m == nil {
			m = new(more)
			l.More[c.ID] = m
		}
		if m.Node != "" {
			t.nodes[m.Node] = true
		}
		if c.Lingering && m.Until == 0 {
			m.Until = v.stat.Mtime + m.Linger + 1 // that time is rounded down
			filled = true
		}
	}
	if v.listed {
		listed := *v
		listed.children = t.nodes
		v, t.v = &listed, &listed
	}
	if t.orig = v.data; filled {
		if t.orig, err = json.Marshal(l); err != nil {
			return nil, err
		}
	}
	for i := range t.q.Claims {
		c := &t.q.Claims[i]
		t.was[c.ID] = *c
		copied := *l.More[c.ID]
		t.olds[c.ID] = &copied
		c.Expires = forever
		if c.Lingering && t.now >= copied.Until {
			c.Expires = t.Now
		}
	}
	t.Drop(t.q, func(c *queue.Claim) bool {
		m := l.More[c.ID]
		if m == nil || !v.children[m.Node] {
			return true
		}
		_, own := s.classOf(c.Session)
		return own && s.lapsed(ownKey{c.ID, c.Mark})
	})
	maps.Copy(t.alone, account(t.q))
	return t, nil
}

// lingers tells whether a claim lingers, so that the server's time matters.
func (v *view) lingers() bool { return bytes.Contains(v.data, []byte(`"lingering":true`)) }

// used turns the token that an owner says it has used into one of the list's; 0 if
// it says nothing of its claim. What cannot exist counts as the last that can.
func (t *turn) used(r driver.Ref) int64 {
	c := t.q.Find(r.ID)
	if c == nil || r.Used == 0 {
		return 0
	}
	return min(max(1, r.Used-t.offset), t.spent(c))
}

// spent is the highest token that the owner of a claim may have used, or may use
// from now on: one that has all units has spare ones.
func (t *turn) spent(c *queue.Claim) int64 {
	if !c.Holding() {
		return 1
	}
	return max(c.Used, min(c.Token+spare, t.q.Last))
}

// finish works out what is to be written, and reports whether there is anything.
func (t *turn) finish() (bool, error) {
	maps.Copy(t.alone, account(t.q))
	keep, grown := t.q.Declared != 0, false
	nodes := make(map[string]bool)
	mores := make(map[string]*more)
	for i := range t.q.Claims {
		c := &t.q.Claims[i]
		old, known := t.was[c.ID]
		m := t.l.More[c.ID]
		if m == nil || known && old.Arrived != c.Arrived {
			m, known, grown = &more{Came: t.now}, false, true
		}
		switch {
		case c.Lingering && !old.Lingering:
			m.Node, m.Linger, m.Until = "", int64((t.linger+time.Millisecond-1)/time.Millisecond), 0
		case !known || old.Session != c.Session:
			m.Node, m.ZK = driver.NewID(), t.n.conn.SessionID()
		}
		switch {
		case known && old.Token == c.Token && old.Units == c.Units:
		default:
			m.Alone = t.alone[c.ID]
		}
		if c.Holding() && m.Held == 0 {
			m.Held = max(t.now, m.Came)
		}
		if known && old.Mark != c.Mark {
			m.TTL = 0 // what its former owner gave it does not count
		}
		m.TTL = max(m.TTL, int64(t.ttls[c.ID]/time.Millisecond))
		if m.Node != "" {
			nodes[m.Node] = true
		}
		keep = keep || c.Lingering
		c.Expires = 0
		mores[c.ID] = m
	}
	t.l.More = mores
	if !keep {
		t.l.Keep = ""
	} else if t.l.Keep == "" {
		t.l.Keep = "keep-" + driver.NewID()
	}
	var err error
	if t.data, err = json.Marshal(t.l); err != nil {
		return false, err
	}
	t.gone = !t.q.InUse() && !t.strangers()
	if t.gone && !t.v.found || !t.v.dead() && bytes.Equal(t.data, t.orig) {
		return false, nil
	}
	if grown && len(t.data) > maxGrown || len(t.data) > maxRequest {
		return false, fmt.Errorf("%w: with %d claims the node %s would have %d bytes, allowed are %d",
			driver.ErrFull, len(t.q.Claims), t.s.queuePath(t.name), len(t.data), maxGrown)
	}
	t.plan(nodes)
	return true, nil
}

// strangers tells whether the node has children that the list does not know:
// somebody's hand made them, and with them it cannot be deleted.
func (t *turn) strangers() bool {
	for node := range t.v.children {
		if !t.nodes[node] {
			return true
		}
	}
	return false
}

// plan makes the operations of one multi-operation.
//
// Invariant: a change is made to exactly the view that it was computed from. The
// version says that, but for a node that was deleted and made anew, whose
// versions begin anew. So the change also deletes, touches or checks a child of
// the view, or finds none where there was none: children's names are used once.
func (t *turn) plan(nodes map[string]bool) {
	path := t.s.queuePath(t.name)
	acl := t.s.opts.ACL
	bound := false // to a child of the view
	for node := range t.v.children {
		if t.nodes[node] && !nodes[node] && node != t.l.Keep {
			t.ops = append(t.ops, &zk.DeleteRequest{Path: path + "/" + node, Version: -1})
			bound = true
		}
	}
	if t.gone {
		t.ops = append(t.ops, &zk.DeleteRequest{Path: path, Version: t.v.stat.Version})
		return
	}
	version := t.v.stat.Version
	if t.v.dead() {
		t.ops = append(t.ops, &zk.DeleteRequest{Path: path, Version: version})
	}
	if !t.v.found || t.v.dead() {
		t.ops = append(t.ops, &zk.CreateRequest{Path: path, Acl: acl})
		version, bound = 0, true
	}
	for node := range nodes {
		if !t.nodes[node] {
			t.ops = append(t.ops, &zk.CreateRequest{Path: path + "/" + node, Acl: acl, Flags: zk.FlagEphemeral})
		}
	}
	if t.l.Keep != "" && !t.nodes[t.l.Keep] {
		t.ops = append(t.ops, &zk.CreateRequest{Path: path + "/" + t.l.Keep, Acl: acl})
	}
	// Who is granted is told by the very change, as far as there is room in it; the
	// others find out with their next heartbeat.
	const each = 128 // bytes of an operation, beside its path, at the most
	room := maxRequest - len(t.data) - len(t.ops)*(each+len(path)+len(t.l.Keep))
	for _, sig := range t.Signals {
		m := t.l.More[sig.Claim.ID]
		if sig.Kind != queue.Granted || m == nil || !t.v.children[m.Node] {
			continue
		}
		op := &zk.SetDataRequest{Path: path + "/" + m.Node, Version: -1}
		if room -= each + len(op.Path); room < 0 {
			break
		}
		t.ops = append(t.ops, op)
		bound = true
	}
	if !bound {
		for node := range t.v.children {
			if !t.nodes[node] || nodes[node] || node == t.l.Keep {
				t.ops = append(t.ops, &zk.CheckVersionRequest{Path: path + "/" + node, Version: -1})
				break
			}
		}
	}
	t.ops = append(t.ops, &zk.SetDataRequest{Path: path, Data: t.data, Version: version})
}

// written returns the view that the change has made.
func (t *turn) written(rs []zk.MultiResponse) (*view, error) {
	if t.gone {
		return &view{}, nil
	}
	if len(rs) == 0 || rs[len(rs)-1].Stat == nil {
		return nil, errors.New("the server's reply to a change lacks its outcome")
	}
	v := &view{found: true, stat: *rs[len(rs)-1].Stat, data: t.data, children: make(map[string]bool), at: time.Now()}
	for _, m := range t.l.More {
		if m.Node != "" {
			v.children[m.Node] = true
		}
	}
	if t.l.Keep != "" {
		v.children[t.l.Keep] = true
	}
	return v, checkZxid(v.stat.Mzxid)
}
