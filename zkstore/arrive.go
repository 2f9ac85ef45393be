package zkstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/queue"
)

// Who enters a mutex that is in use does not change the list, which all others who
// enter would change, too. It makes its child, whose name says all that a list
// would, and which ZooKeeper numbers. Those children that the list does not know
// are claims behind those that it knows, in the order of their numbers.
//
// Invariant: once a mutex has a list, claims come to it in this way alone. A list
// that is written takes in all that have arrived by then, so those that it lacks
// have come later; and it is deleted only when there is no child.
//
// The token that such a claim is promised is that of the transaction that made its
// child.

// arrival is a claim by its child's name.
type arrival struct {
	node  string
	id    string
	mark  string
	zk    int64
	ttl   int64 // in milliseconds
	came  int64
	owner driver.Owner
	seq   int64
}

const (
	arrivalMark = "+"
	arrivalSep  = "!"
	// unknown is a promise that its owner knows, and nobody here.
	unknown = -1
)

var (
	errArrive  = errors.New("the claim has to arrive by its child")
	errNoQueue = errors.New("there is no queue")
	errOther   = errors.New("the queue is not a mutex, or the claim is in it already")
	errNumbers = errors.New("the queue has numbered so many claims that it has to begin anew, which it does once nobody is in it")
)

// maxNumber leaves room for those who try to enter while the queue runs empty: the
// server counts the children that a node ever had in 31 bits, and after that in no
// order.
const maxNumber = 1<<31 - 1<<28

// numbered tells whether the numbers of the queue's children are used up.
func (t *turn) numbered() bool {
	for node := range t.v.children {
		if a, ok := parseArrival(node); ok && a.spent() {
			return true
		}
	}
	return false
}

func (a *arrival) spent() bool { return a.seq < 0 || a.seq > maxNumber }

func (a *arrival) prefix() (string, error) {
	owner, err := json.Marshal(a.owner)
	if err != nil {
		return "", err
	}
	return arrivalMark + strings.Join([]string{
		a.id, a.mark, strconv.FormatInt(a.zk, 36), strconv.FormatInt(a.ttl, 36), strconv.FormatInt(a.came, 36),
		base64.RawURLEncoding.EncodeToString(owner), "",
	}, arrivalSep), nil
}

// parseArrival answers the claim that a child stands for; false: none.
func parseArrival(node string) (a arrival, ok bool) {
	rest, ok := strings.CutPrefix(node, arrivalMark)
	parts := strings.Split(rest, arrivalSep)
	if !ok || len(parts) != 7 {
		return a, false
	}
	a = arrival{node: node, id: parts[0], mark: parts[1]}
	var errs [5]error
	a.zk, errs[0] = strconv.ParseInt(parts[2], 36, 64)
	a.ttl, errs[1] = strconv.ParseInt(parts[3], 36, 64)
	a.came, errs[2] = strconv.ParseInt(parts[4], 36, 64)
	a.seq, errs[3] = strconv.ParseInt(parts[6], 10, 64)
	owner, err := base64.RawURLEncoding.DecodeString(parts[5])
	if errs[4] = err; err == nil {
		errs[4] = json.Unmarshal(owner, &a.owner)
	}
	return a, errors.Join(errs[:]...) == nil && driver.CheckID(a.id) == nil
}

// compose appends the claims that have arrived to those of the list.
//
// Invariant: a promise is above all tokens of claims in front. Where the limit was
// another, some were or will be drawn without one. Who came in between is promised
// nothing, and the queue is no mutex to anybody until the list has taken in who that
// is; so all have to know of each whether it is promised something.
func (t *turn) compose() {
	if !t.v.found || t.v.dead() || t.v.listed {
		return
	}
	var as []arrival
	for node := range t.v.children {
		if a, ok := parseArrival(node); ok && !t.nodes[node] {
			as = append(as, a)
		}
	}
	slices.SortFunc(as, func(a, b arrival) int { return cmp.Compare(a.seq, b.seq) })
	for _, a := range as {
		if t.q.Find(a.id) != nil {
			t.nodes[a.node] = true // a twin, of a request that came twice: who writes the list removes it
			continue
		}
		m := &more{Node: a.node, ZK: a.zk, TTL: a.ttl, Came: a.came, Promise: unknown}
		if born := t.s.bornAt(a, t.v); born != 0 {
			m.Promise = at(born) - at(t.v.stat.Czxid) + 1
		}
		if t.draws || m.Promise != unknown && m.Promise <= t.l.Drawn {
			m.Promise, t.relics = 0, true
		}
		t.q.Claims = append(t.q.Claims, queue.Claim{ID: a.id, Session: a.mark, Owner: a.owner, Units: 1, Arrived: t.Now})
		t.l.More[a.id] = m
		t.nodes[a.node] = true
		t.was[a.id] = t.q.Claims[len(t.q.Claims)-1]
	}
}

// bornAt answers which transaction made the child, 0 if that is unknown.
func (s *Store) bornAt(a arrival, v *view) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.mine[a.id]; o != nil && o.node == a.node {
		return o.born
	}
	return v.born[a.node]
}

// vague tells whether the promise of a claim that is left is unknown.
func (t *turn) vague() bool {
	for _, m := range t.l.More {
		if m.Promise == unknown {
			return true
		}
	}
	return false
}

// learn answers the view with the promises of all who have arrived.
func (s *Store) learn(ctx context.Context, n *session, name string, old *view) (*view, error) {
	return s.learnOf(ctx, n, name, old, func(arrival) bool { return true })
}

// learnOwn is learn for this Store's claims: whose child was made, but not
// answered.
//
// Invariant: an owner is told no token but the one that all others know by the
// child.
func (s *Store) learnOwn(ctx context.Context, n *session, name string, v *view) (*view, error) {
	return s.learnOf(ctx, n, name, v, func(a arrival) bool { return strings.HasPrefix(a.mark, s.id+".") })
}

func (s *Store) learnOf(ctx context.Context, n *session, name string, old *view, which func(arrival) bool) (*view, error) {
	var unborn []string
	for node := range old.children {
		if a, ok := parseArrival(node); ok && which(a) && s.bornAt(a, old) == 0 {
			unborn = append(unborn, node)
		}
	}
	if unborn == nil {
		return old, nil
	}
	v := *old
	v.born, v.children = make(map[string]int64), maps.Clone(old.children)
	maps.Copy(v.born, old.born)
	var mu sync.Mutex
	var asking sync.WaitGroup
	var errs []error
	limit := make(chan struct{}, 64)
	for _, node := range unborn {
		limit <- struct{}{}
		asking.Go(func() {
			defer func() { <-limit }()
			stat, err := n.exists(ctx, s.queuePath(name)+"/"+node)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, err)
			case stat == nil:
				delete(v.children, node)
			default:
				v.born[node] = stat.Czxid
			}
		})
	}
	asking.Wait()
	return &v, errors.Join(errs...)
}

// essence is what of a queue is written at once; all else follows from the children.
func (t *turn) essence() string {
	var b strings.Builder
	fmt.Fprint(&b, t.q.Limit, t.q.Declared)
	for i := range t.q.Claims {
		c := &t.q.Claims[i]
		fmt.Fprint(&b, " ", c.ID, c.Session, c.Units, c.Lingering, c.Used)
	}
	return b.String()
}

// full reads a queue with all children.
func (s *Store) full(ctx context.Context, n *session, name string) (*turn, error) {
	if _, err := n.prepare(ctx); err != nil {
		return nil, err
	}
	v, _, err := s.load(ctx, n, name, false)
	if err != nil {
		return nil, err
	}
	return s.newTurn(ctx, n, name, v)
}

// standing tells whether the queue is likely to be there, as a mutex.
func (s *Store) standing(name string) bool {
	v := s.seen(name, driver.MaxTTL)
	return v != nil && v.found && v.mutex || v == nil && s.wasBusy(name)
}

// arrived tells whether a claim has arrived by its child.
func (s *Store) arrived(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.mine[id]
	return o != nil && o.node != ""
}

// arrive enters a claim by its child alone, and looks where it stands then.
// errNoQueue or errOther: it has to be entered otherwise.
func (s *Store) arrive(ctx context.Context, n *session, c driver.Claim, sent time.Time) (st driver.Status, err error) {
	t, err := s.arriveIn(ctx, n, c)
	if err == nil && t.forced && t.q.State(c.ID) == driver.Holding { // see told
		t, err = s.look(ctx, n, c.Name, func(*turn) error { return nil })
	}
	if err != nil {
		if errors.Is(err, errNoQueue) || errors.Is(err, errOther) {
			return st, err
		}
		return st, fmt.Errorf("zookeeper: enter %q: %w", c.Name, err)
	}
	state := t.q.State(c.ID)
	if held := t.q.Find(c.ID); state == driver.Holding && !t.bound(held.Session, t.l.More[c.ID]) {
		state = driver.Gone // the session has ended meanwhile
	}
	st = t.status(c.ID, state, sent, c.TTL)
	if c.Try && state == driver.Waiting {
		state, st = driver.Refused, driver.Status{State: driver.Refused, Blocker: st.Blocker}
	}
	if state == driver.Refused || state == driver.Gone {
		// The child may be of the next session, which was there before it was made.
		if _, err := s.leave(ctx, n, driver.Ref{Name: c.Name, ID: c.ID}); err != nil {
			return driver.Status{}, fmt.Errorf("zookeeper: enter %q: %w", c.Name, err)
		}
		s.disown(c.ID)
		return st, nil
	}
	s.setBusy(c.Name)
	s.own(c.ID, c.Name, n.class, sent, c.TTL) // again: a Leave that came between has let go of it
	v := *t.v
	v.fresh, v.mutex = false, true
	s.see(c.Name, &v)
	switch {
	case state == driver.Holding:
		s.accept(t, c.ID)
	case st.Ahead == 0:
		s.spawn(func() { s.want(t, c.ID) })
	}
	return st, nil
}

// want tells the holder that the claim waits for it, if it does not leave soon.
func (s *Store) want(t *turn, id string) {
	if !sleep(s.ctx, soon) {
		return
	}
	s.mu.Lock()
	o := s.mine[id]
	waits := o != nil && o.handover == nil
	s.mu.Unlock()
	for i := range t.q.Claims {
		if c := &t.q.Claims[i]; waits && c.Holding() && !c.Lingering {
			s.mail.post(c.Session, driver.Notice{Kind: driver.Wanted, ID: c.ID})
		}
	}
}

func (s *Store) arriveIn(ctx context.Context, n *session, c driver.Claim) (*turn, error) {
	// What else this Store does about the claim comes after its child, if that is
	// made at all.
	sl, _, err := s.lock(ctx, n, c.Name, nil)
	if err != nil {
		return nil, err
	}
	if _, err := n.prepare(ctx); err != nil {
		s.unlock(sl)
		return nil, err
	}
	if v := s.seen(c.Name, driver.MaxTTL); v != nil && v.held {
		sl.expect(ctx) // the server would write this child first
	}
	now, _ := s.clock.now()
	a := arrival{id: c.ID, mark: n.mark, zk: n.conn.SessionID(), ttl: c.TTL.Milliseconds(), came: now, owner: c.Owner}
	prefix, err := a.prefix()
	if err != nil {
		s.unlock(sl)
		return nil, err
	}
	s.try(c.ID, 1)
	path, err := callEnding(ctx, n, func(conn *zk.Conn) (string, error) {
		return conn.Create(s.queuePath(c.Name)+"/"+prefix, nil, zk.FlagEphemeralSequential, s.opts.ACL)
	}, func(error) { s.unlock(sl) })
	if errors.Is(err, zk.ErrNoNode) {
		s.try(c.ID, -1)
		return nil, errNoQueue
	}
	if err != nil {
		return nil, err
	}
	node := path[strings.LastIndexByte(path, '/')+1:]

	// Its own watch tells when it was made.
	var born int64
	var failed error
	var asking sync.WaitGroup
	asking.Go(func() {
		key := watchKey{path: path}
		_, failed = call(ctx, n, func(conn *zk.Conn) (<-chan zk.Event, error) {
			n.watching(path)
			_, stat, ch, err := conn.GetW(path)
			n.keep(key, ch, err)
			if err == nil {
				born = stat.Czxid
				s.clock.set(stat.Ctime)
			}
			return ch, err
		})
	})
	v, _, err := s.load(ctx, n, c.Name, false)
	asking.Wait()
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if o := s.mine[c.ID]; o != nil {
		o.node, o.born = node, born
	}
	s.mu.Unlock()
	v.born = map[string]int64{node: born}
	t, err := s.newTurn(ctx, n, c.Name, v)
	own, _ := parseArrival(node)
	switch {
	case err != nil:
	case own.spent():
		err = errNumbers
		s.calm(c.Name) // who comes next looks first
	case t.serves(c.ID, node):
		return t, nil
	}
	// It is in the way of what the queue has become; or the claim was there, of
	// another Store.
	_, gone := call(ctx, n, func(conn *zk.Conn) (bool, error) { return true, conn.Delete(path, -1) })
	if gone != nil && !raced(gone) {
		return nil, cmp.Or(err, gone)
	}
	s.try(c.ID, -1)
	if own.spent() {
		s.tidy(c.Name)
	}
	return nil, cmp.Or(err, errOther)
}

// try counts the children that a claim may have: those that were asked for, less
// those of which it is known that they are not there.
func (s *Store) try(id string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.mine[id]; o != nil {
		o.tries += n
	}
}

// serves tells whether a claim that has just arrived can stay with that child.
func (t *turn) serves(id, node string) bool {
	m := t.l.More[id]
	return t.mutex() && (m == nil || m.Node == node)
}

// parting plans that a claim leaves a mutex, in which others are, without a change
// of the list; false: that cannot be done. A twin of its child, of a request that
// came twice, goes too.
func (t *turn) parting() bool {
	if t.goes == nil || t.gone || !t.mutex() || t.forced || t.limits || t.aboard > 0 || !t.v.found || t.v.dead() {
		return false
	}
	path := t.s.queuePath(t.name) + "/"
	node := t.olds[t.goes.ID].Node
	t.ops = []any{&zk.CheckVersionRequest{Path: t.s.path("q"), Version: t.v.rules}}
	if t.goes.Holding() {
		t.ops = append(t.ops, &zk.SetDataRequest{Path: path + node, Version: -1})
	}
	t.ops = append(t.ops, &zk.DeleteRequest{Path: path + node, Version: -1})
	for twin := range t.v.children {
		if a, ok := parseArrival(twin); ok && a.id == t.goes.ID && twin != node {
			t.ops = append(t.ops, &zk.DeleteRequest{Path: path + twin, Version: -1})
		}
	}
	return true
}
