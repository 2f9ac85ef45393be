package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/quorum"
)

const name = "orders"

var errDown = errors.New("connection refused")

// faulty is a node that can be down, and whose requests can be held up on their way.
type faulty struct {
	driver.Store
	mu    sync.Mutex
	down  bool
	enter chan struct{} // nil: at once; else Enter waits until it is closed
	leave chan struct{}
	tries []string // the ids that it was asked for
	done  int      // of which so many were entered, or refused
	left  int      // requests to leave that were carried out
}

// set lets f change what goes wrong.
func (n *faulty) set(f func(*faulty)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

func (n *faulty) pass(up func(*faulty) chan struct{}) error {
	n.mu.Lock()
	down, wait := n.down, up(n)
	n.mu.Unlock()
	if wait != nil {
		<-wait
	}
	if down {
		return errDown
	}
	return nil
}

func (n *faulty) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	n.set(func(n *faulty) { n.tries = append(n.tries, c.ID) })
	if err := n.pass(func(n *faulty) chan struct{} { return n.enter }); err != nil {
		return driver.Status{}, err
	}
	defer n.set(func(n *faulty) { n.done++ })
	return n.Store.Enter(context.WithoutCancel(ctx), c)
}

// Leave leaves no trace if the claim is not there yet, as with plain locks.
func (n *faulty) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	defer n.set(func(n *faulty) { n.left++ })
	q, err := n.Store.Inspect(ctx, r.Name)
	if err == nil && !slices.ContainsFunc(q.Claims, func(e driver.Entry) bool { return e.ID == r.ID }) {
		return driver.Gone, nil
	}
	if err := n.pass(func(n *faulty) chan struct{} { return n.leave }); err != nil {
		return driver.Gone, err
	}
	return n.Store.Leave(context.WithoutCancel(ctx), r)
}

func (n *faulty) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if err := n.pass(func(*faulty) chan struct{} { return nil }); err != nil {
		for i := range rs {
			report(i, driver.Status{}, err)
		}
		return
	}
	n.Store.Renew(ctx, rs, report)
}

// holders is how many claims hold the name at the node.
func (n *faulty) holders(t testing.TB) int {
	q, err := n.Store.Inspect(await.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(q.Claims)
}

func setup(t testing.TB) (*Store, []*faulty) {
	t.Helper()
	o := &Options{Patience: longest, MaxPause: time.Millisecond}
	var nodes []*faulty
	var stores []driver.Store
	for range 5 {
		n := &faulty{Store: memstore.New()}
		nodes, stores = append(nodes, n), append(stores, n)
	}
	in, err := newStore(stores, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range in.nodes {
		n.limit = await.Limit // no reply is late because the machine is busy
	}
	s := &Store{checked.New("redlock", in), in}
	t.Cleanup(func() { s.Close() })
	return s, nodes
}

func newClaim(try bool) driver.Claim {
	return driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute, Try: try}
}

func enter(t testing.TB, s driver.Store, c driver.Claim, want driver.State) driver.Status {
	t.Helper()
	st, err := s.Enter(await.Context(t), c)
	if err != nil || st.State != want {
		t.Fatalf("Enter: %v, %v, want %v", st.State, err, want)
	}
	return st
}

func renew(t testing.TB, s driver.Store, c driver.Claim) (st driver.Status, err error) {
	t.Helper()
	var mu sync.Mutex
	s.Renew(await.Context(t), []driver.Ref{{Name: c.Name, ID: c.ID, TTL: c.TTL}}, func(_ int, got driver.Status, e error) {
		mu.Lock()
		defer mu.Unlock()
		st, err = got, e
	})
	return st, err
}

func leave(t testing.TB, s driver.Store, c driver.Claim, want driver.State) {
	t.Helper()
	if was, err := s.Leave(await.Context(t), driver.Ref{Name: c.Name, ID: c.ID}); err != nil || was != want {
		t.Fatalf("Leave: %v, %v, want %v", was, err, want)
	}
}

func empty(t testing.TB, nodes []*faulty) {
	t.Helper()
	await.That(t, "nothing is left at any node", func() bool {
		for _, n := range nodes {
			if n.holders(t) > 0 {
				return false
			}
		}
		return true
	})
}

// Two of five are down: locks go on. Three are: the error says of each what is wrong.
func TestDown(t *testing.T) {
	s, nodes := setup(t)
	for _, i := range []int{0, 3} {
		nodes[i].set(func(n *faulty) { n.down = true })
	}
	c := newClaim(true)
	enter(t, s, c, driver.Holding)
	enter(t, s, newClaim(true), driver.Refused)
	if st, err := renew(t, s, c); err != nil || st.State != driver.Holding {
		t.Errorf("Renew: %v, %v", st.State, err)
	}
	leave(t, s, c, driver.Holding)

	nodes[4].set(func(n *faulty) { n.down = true })
	_, err := s.Enter(await.Context(t), newClaim(true))
	var e *quorum.Error
	if !errors.As(err, &e) || len(e.Nodes) != 3 || !errors.Is(err, errDown) || !strings.Contains(err.Error(), "node 5: connection refused") {
		t.Errorf("Enter: %v", err)
	}
	empty(t, nodes)
}

// A node goes down that was one of just a majority: who held was protected to the end.
func TestDownMeanwhile(t *testing.T) {
	s, nodes := setup(t)
	for _, n := range nodes[3:] {
		enter(t, n.Store, newClaim(true), driver.Holding)
	}
	c := newClaim(true)
	enter(t, s, c, driver.Holding)
	nodes[0].set(func(n *faulty) { n.down = true })
	if _, err := renew(t, s, c); !errors.Is(err, errDown) {
		t.Errorf("Renew: %v", err)
	}
	leave(t, s, c, driver.Holding)

	nodes[0].set(func(n *faulty) { n.down = false })
	empty(t, nodes[:3])
	enter(t, s, c, driver.Holding)
	if _, err := nodes[0].Store.Break(await.Context(t), name); err != nil {
		t.Fatal(err)
	}
	leave(t, s, c, driver.Gone)
}

// Others have two nodes each: nobody gets the fifth for long, and nobody the lock.
func TestSplit(t *testing.T) {
	s, nodes := setup(t)
	first, second := newClaim(true), newClaim(true)
	for i, c := range map[int]driver.Claim{0: first, 1: first, 2: second, 3: second} {
		enter(t, nodes[i].Store, c, driver.Holding)
	}
	c := newClaim(true)
	if st := enter(t, s, c, driver.Refused); st.Blocker == nil {
		t.Error("nobody is said to stand in the way")
	}
	empty(t, nodes[4:])
	c.ID, c.Try = driver.NewID(), false
	enter(t, s, c, driver.Waiting)
	leave(t, nodes[1].Store, first, driver.Holding)
	leave(t, nodes[0].Store, first, driver.Holding)
	if st, err := s.Wait(await.Context(t), driver.Ref{Name: name, ID: c.ID}); err != nil || st.State != driver.Holding {
		t.Errorf("Wait: %v, %v", st.State, err)
	}
	leave(t, s, c, driver.Holding)
}

// A node gives its lock when the claim has got its majority and left: it is given back.
func TestLateGrant(t *testing.T) {
	s, nodes := setup(t)
	late := make(chan struct{})
	nodes[2].set(func(n *faulty) { n.enter = late })
	c := newClaim(false)
	enter(t, s, c, driver.Holding)
	leave(t, s, c, driver.Holding)
	count := func(what string, of func(*faulty) int) {
		await.That(t, what, func() (there bool) {
			nodes[2].set(func(n *faulty) { there = of(n) == 1 })
			return there
		})
	}
	count("the node was told to forget it", func(n *faulty) int { return n.left })
	close(late)
	count("the late request is there", func(n *faulty) int { return n.done })
	empty(t, nodes)
	nodes[2].set(func(n *faulty) { n.enter = nil })
	enter(t, s, newClaim(true), driver.Holding)
}

func (n *faulty) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tries
}

// last is the id of the last try that it was asked for.
func (n *faulty) last() string {
	ids := n.asked()
	return ids[len(ids)-1]
}

// What gives back an earlier try comes late: it takes nothing from a later one of the same
// claim.
func TestLateLeave(t *testing.T) {
	s, nodes := setup(t)
	s.in.patience = 100 * time.Millisecond // with what is held up
	other := newClaim(true)
	for _, n := range nodes[:3] {
		enter(t, n.Store, other, driver.Holding)
	}
	slow, late := make(chan struct{}), make(chan struct{})
	nodes[0].set(func(n *faulty) { n.enter = slow })
	nodes[4].set(func(n *faulty) { n.leave = late })
	c := newClaim(false)
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		if st, err := s.Enter(await.Context(t), c); err != nil || st.State != driver.Waiting {
			t.Errorf("Enter: %v, %v", st.State, err)
		}
	}()
	await.That(t, "it has the fourth and the fifth", func() bool { return nodes[3].holders(t)+nodes[4].holders(t) == 2 })
	close(slow)
	<-entered // the fifth is to forget that
	for _, n := range nodes[:3] {
		leave(t, n.Store, other, driver.Holding)
	}
	if st, err := s.Wait(await.Context(t), driver.Ref{Name: name, ID: c.ID}); err != nil || st.State != driver.Holding {
		t.Fatalf("Wait: %v, %v", st.State, err)
	}
	await.That(t, "the fifth has refused the try that the others have granted", func() (refused bool) {
		nodes[4].set(func(n *faulty) { refused = n.done == len(n.tries) })
		last := nodes[4].last()
		return refused && !slices.ContainsFunc(nodes, func(n *faulty) bool { return n.last() != last })
	})
	close(late)
	empty(t, nodes[4:])
	if q, err := s.Inspect(await.Context(t), name); err != nil || len(q.Claims) != 1 || q.Claims[0].ID != c.ID {
		t.Errorf("Inspect: %+v, %v", q.Claims, err)
	}
	if ids := nodes[0].asked(); ids[0] == nodes[0].last() || owner(ids[0]) != c.ID {
		t.Errorf("tries of %s: %q", c.ID, ids)
	}
	leave(t, s, c, driver.Holding)
}

// A claim goes on while a majority has it, and is given back when one has not.
func TestMajorityLost(t *testing.T) {
	s, nodes := setup(t)
	c := newClaim(true)
	enter(t, s, c, driver.Holding)
	await.That(t, "all nodes have it", func() bool {
		for _, n := range nodes {
			if n.holders(t) == 0 {
				return false
			}
		}
		return true
	})
	for i, want := range []driver.State{driver.Holding, driver.Holding, driver.Gone} {
		if _, err := nodes[i].Store.Break(await.Context(t), name); err != nil {
			t.Fatal(err)
		}
		if st, err := renew(t, s, c); err != nil || st.State != want {
			t.Fatalf("Renew: %v, %v, want %v", st.State, err, want)
		}
	}
	empty(t, nodes)
	leave(t, s, c, driver.Gone)
}

func TestInvalid(t *testing.T) {
	three := []driver.Store{memstore.New(), memstore.New(), memstore.New()}
	for want, f := range map[string]func() error{
		"number of nodes 2":        func() error { _, err := New(three[:2], nil); return err },
		"node 3 is there twice":    func() error { _, err := New([]driver.Store{three[0], three[1], three[0]}, nil); return err },
		"names: 1 for 3":           func() error { _, err := New(three, &Options{Names: []string{"a"}}); return err },
		"MaxPause 1µs":             func() error { _, err := New(three, &Options{MaxPause: time.Microsecond}); return err },
		"Patience 1m0s":            func() error { _, err := New(three, &Options{Patience: time.Minute}); return err },
		"claim id \"" + long + `"`: func() error { return enterError(t, driver.Claim{ID: long, Kind: driver.KindMutex, Limit: 1}) },
	} {
		if err := f(); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

var long = strings.Repeat("x", maxID+1)

func enterError(t testing.TB, c driver.Claim) error {
	s, _ := setup(t)
	c.Name, c.Units, c.TTL = name, 1, time.Minute
	_, err := s.Enter(await.Context(t), c)
	return err
}
