package zookeeper

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// removeAll removes a node with all that is under it, at once: one after the other,
// the end of a holder's node would be the end of its claim, and the next in line
// would hold until its own is gone.
func removeAll(t testing.TB, c *zk.Conn, path string) {
	t.Helper()
	await.That(t, "somebody makes nodes under "+path+" all the time", func() bool {
		_, err := c.Multi(removal(t, c, path)...)
		if err != nil && !errors.Is(err, zk.ErrNotEmpty) && !errors.Is(err, zk.ErrNoNode) {
			t.Fatalf("remove %s: %v", path, err)
		}
		return err == nil
	})
}

// removal returns the operations that remove a node.
func removal(t testing.TB, c *zk.Conn, path string) (ops []any) {
	t.Helper()
	for _, child := range children(t, c, path) {
		ops = append(ops, removal(t, c, path+"/"+child)...)
	}
	return append(ops, &zk.DeleteRequest{Path: path, Version: -1})
}

// Somebody removes the root under running clients, and another client makes it
// anew: what held and waited is gone, and tokens rise also for those who knew the
// old one.
func TestZooKeeperRootRemoved(t *testing.T) {
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	a, b, c := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	first := storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	r, err := a.CompareAndSwap(await.Context(t), driver.Record{Name: "x", Value: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan driver.Status, 1)
	go func() {
		st, err := b.Wait(await.Context(t), storetest.Ref(w))
		for err == nil && st.State == driver.Waiting {
			st, err = b.Wait(await.Context(t), storetest.Ref(w))
		}
		waited <- st
	}()
	time.Sleep(50 * time.Millisecond) // so that it waits
	removeAll(t, admin, "/pawl")
	if st := <-waited; st.State != driver.Gone {
		t.Errorf("who waited is %v", st.State)
	}
	last := first.Token + first.Spare
	for i, s := range []driver.Store{c, a, b, c} {
		next := storetest.Mutex("x", time.Minute)
		st := storetest.Enter(t, s, next, driver.Holding)
		if st.Token <= last {
			t.Errorf("%d: token %d after %d", i, st.Token, last)
		}
		last = st.Token + st.Spare
		for _, old := range []driver.Claim{h, w} {
			if st := storetest.Renewed(t, s, old); st.State != driver.Gone {
				t.Errorf("%d: a claim from before is %v", i, st.State)
			}
		}
		storetest.Leave(t, s, next)
		again, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: fmt.Sprint("x", i), Value: []byte("y")})
		if err != nil || again.Version <= r.Version {
			t.Errorf("%d: version %d after %d: %v", i, again.Version, r.Version, err)
		}
		r.Version = max(r.Version, again.Version)
	}
	for _, part := range []string{"q", "r", "m"} {
		removeAll(t, admin, "/pawl/"+part)
		st := storetest.Enter(t, a, storetest.Mutex("y"+part, time.Minute), driver.Holding)
		if st.Token <= last {
			t.Errorf("without %s: token %d after %d", part, st.Token, last)
		}
		r, err := a.CompareAndSwap(await.Context(t), driver.Record{Name: "y" + part, Value: []byte("x")})
		if err != nil || r.Version == 0 {
			t.Errorf("without %s: a record: %v", part, err)
		}
	}
}

// A change is made to the queue that it was computed from, and not to one of the
// same name that was made since and has come to the same version.
func TestZooKeeperQueueMadeAnew(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	storetest.Enter(t, a, storetest.Mutex("x", time.Minute), driver.Holding) // a knows this
	if got, err := b.Break(await.Context(t), "x"); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	g := storetest.Mutex("x", time.Minute)
	st := storetest.Enter(t, b, g, driver.Holding)
	w := storetest.Mutex("x", time.Minute)
	storetest.Enter(t, a, w, driver.Waiting)
	if now := storetest.Renewed(t, b, g); now.State != driver.Holding || now.Token != st.Token {
		t.Errorf("the holder is %v with token %d now, it had %d", now.State, now.Token, st.Token)
	}
	storetest.Leave(t, b, g)
	if now := storetest.Renewed(t, a, w); now.State != driver.Holding || now.Token <= st.Token {
		t.Errorf("the next is %v with token %d after %d", now.State, now.Token, st.Token)
	}
}

// A process enters its next claim and leaves the last at once: one write makes
// both, what others wait for is handed on, and nobody is lost.
func TestZooKeeperNextAndLast(t *testing.T) {
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	holder, waiter := a, b
	h, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	last := storetest.Enter(t, holder, h, driver.Holding)
	storetest.Enter(t, waiter, w, driver.Waiting)
	version := func() int32 {
		_, stat, err := admin.Get("/pawl/q/x")
		if err != nil {
			t.Fatal(err)
		}
		return stat.Version
	}
	// An Enter waits half a millisecond for a Leave: on a busy machine they may
	// miss each other for many rounds.
	before, rounds := version(), int32(0)
	together := func() bool { return version()-before < 2*rounds }
	for end := time.Now().Add(await.Limit); rounds < 20 || !together() && time.Now().Before(end); {
		rounds++
		next := storetest.Mutex("x", time.Minute)
		var work sync.WaitGroup
		work.Go(func() {
			if _, err := holder.Enter(await.Context(t), next); err != nil {
				t.Errorf("enter: %v", err)
			}
		})
		if was, err := holder.Leave(await.Context(t), storetest.Ref(h)); err != nil || was != driver.Holding {
			t.Errorf("leave: %v, %v", was, err)
		}
		work.Wait()
		st, err := storetest.Get(await.Context(t), waiter, w)
		if err != nil || st.State != driver.Holding || st.Token <= last.Token+last.Spare {
			t.Fatalf("%+v, %v, after token %d", st, err, last.Token)
		}
		last = st
		holder, waiter, h, w = waiter, holder, w, next
	}
	if !together() {
		t.Errorf("in %d rounds no Leave was taken along by an Enter", rounds)
	}
	q, err := a.Inspect(await.Context(t), "x")
	if err != nil || len(q.Claims) != 2 || q.Claims[0].ID != h.ID || q.Claims[1].ID != w.ID {
		t.Errorf("at the end: %+v, %v", q.Claims, err)
	}
}

// A Leave that was taken along by an Enter whose caller goes away gets its reply all
// the same.
func TestZooKeeperTakenAlongByOneWhoGoes(t *testing.T) {
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	s := openZooKeeper(t, z.URL(), nil)
	h, next := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	z.Pause()
	t.Cleanup(z.Resume)
	entered := make(chan error, 1)
	go func() {
		_, err := s.Enter(await.Brief(t, 100*time.Millisecond), next)
		entered <- err
	}()
	type result struct {
		was driver.State
		err error
	}
	left := make(chan result, 1)
	go func() {
		was, err := s.Leave(await.Context(t), storetest.Ref(h))
		left <- result{was, err}
	}()
	if err := <-entered; err == nil {
		t.Fatal("a server that stands still has replied")
	}
	z.Resume()
	if got := <-left; got.err != nil || got.was != driver.Holding {
		t.Errorf("leave: %v, %v", got.was, got.err)
	}
	if st := storetest.Renewed(t, s, h); st.State != driver.Gone {
		t.Errorf("what has left is %v", st.State)
	}
	storetest.Enter(t, s, next, driver.Holding)
}

// A waiting claim is granted while its client is cut off, and its session ends
// before anybody looks: the list still says that it holds, its client does not.
func TestZooKeeperGrantedThenExpired(t *testing.T) {
	t.Parallel()
	// Sessions end sooner than the TTL: the client does not drop the claim itself.
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxSessionTimeout=4000"}})
	admin := dialZooKeeper(t, z)
	p := servers.RunProxy(t, z.Addr())
	far, near := openZooKeeper(t, "zk://"+p.Addr(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, near, h, driver.Holding)
	storetest.Enter(t, far, w, driver.Waiting)
	p.Swallow(true, true)
	storetest.Leave(t, near, h)
	await.That(t, "the session has ended", func() bool { return len(children(t, admin, "/pawl/q/x")) == 0 })
	p.Swallow(false, false)
	var st driver.Status
	await.That(t, "the claim can be waited for", func() bool {
		var err error
		st, err = far.Wait(await.Context(t), storetest.Ref(w))
		return err == nil
	})
	if st.State != driver.Gone {
		t.Errorf("the claim of a session that has ended is %v", st.State)
	}
}

// Who waits is woken by the end of the claim in front, whose client says nothing
// any more: by one Wait, without asking again.
func TestZooKeeperDiesInFront(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	p := servers.RunProxy(t, z.Addr())
	far, near := openZooKeeper(t, "zk://"+p.Addr(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("x", 4*time.Second), storetest.Mutex("x", time.Minute)
	first := storetest.Enter(t, far, h, driver.Holding)
	storetest.Enter(t, near, w, driver.Waiting)
	p.Swallow(true, true)
	if st, err := storetest.Get(await.Context(t), near, w); err != nil || st.Token <= first.Token {
		t.Errorf("%+v, %v", st, err)
	}
}

// A claim whose queue has not changed is renewed without reading it, but not
// without the server.
func TestZooKeeperRenewalNeedsTheServer(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	p := servers.RunProxy(t, z.Addr())
	s := openZooKeeper(t, "zk://"+p.Addr(), nil)
	h := storetest.Mutex("x", 10*time.Second)
	storetest.Enter(t, s, h, driver.Holding)
	for range 3 {
		if st := storetest.Renewed(t, s, h); st.State != driver.Holding {
			t.Fatal(st.State)
		}
	}
	p.Swallow(true, true)
	if st, err := storetest.Renew(await.Brief(t, 300*time.Millisecond), s, h); err == nil {
		t.Errorf("renewed without a server: %v until %v", st.State, st.Deadline)
	}
}

// stoppedWaiter is where the process of TestZooKeeperStoppedProcess finds its
// server.
const stoppedWaiter = "PAWL_TEST_STOPPED_WAITER"

// A process that is first in line is stopped for longer than its session, and
// meanwhile it would have been its turn. When it goes on, no reply says that it
// holds with time left.
func TestZooKeeperStoppedProcess(t *testing.T) {
	if url := os.Getenv(stoppedWaiter); url != "" {
		waitStopped(t, url)
		return
	}
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	s := openZooKeeper(t, z.URL(), nil)
	h := storetest.Mutex("stopped", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	cmd := exec.CommandContext(await.Context(t), os.Args[0], "-test.run=^TestZooKeeperStoppedProcess$", "-test.v")
	cmd.Env = append(os.Environ(), stoppedWaiter+"="+z.URL())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	defer cmd.Wait()
	defer cmd.Process.Kill()
	say := func() string {
		for line := range lines {
			if text, ok := strings.CutPrefix(line, "waiter: "); ok {
				return text
			}
		}
		return "nothing"
	}
	if got := say(); got != "waits" {
		t.Fatalf("the process says %q", got)
	}
	time.Sleep(100 * time.Millisecond) // so that it does
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	storetest.Leave(t, s, h) // the stopped one is granted it
	next := storetest.Mutex("stopped", time.Minute)
	storetest.Enter(t, s, next, driver.Waiting)
	st, err := storetest.Get(await.Context(t), s, next) // until its session ends
	if err != nil || st.State != driver.Holding {
		t.Fatalf("%+v, %v", st, err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got := say(); got != "gone" {
		t.Errorf("after that the process says %q", got)
	}
	if st := storetest.Renewed(t, s, next); st.State != driver.Holding {
		t.Errorf("the other one is %v", st.State)
	}
}

// waitStopped is the process: it waits and renews, and says whether it ever holds
// before its deadline.
func waitStopped(t *testing.T, url string) {
	s := openZooKeeper(t, url, nil)
	c := storetest.Mutex("stopped", 4*time.Second)
	st := storetest.Enter(t, s, c, driver.Waiting)
	deadline := st.Deadline
	fmt.Println("waiter: waits")
	for end := time.Now().Add(await.Limit); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		st, err := s.Wait(ctx, storetest.Ref(c))
		cancel()
		if err == nil && st.State == driver.Holding && time.Now().Before(deadline) {
			fmt.Println("waiter: holds")
			return
		}
		if st, err = storetest.Renew(await.Context(t), s, c); err != nil {
			continue
		}
		if st.State == driver.Gone {
			fmt.Println("waiter: gone")
			return
		}
		if deadline = st.Deadline; st.State == driver.Holding && time.Now().Before(deadline) {
			fmt.Println("waiter: holds")
			return
		}
	}
	fmt.Println("waiter: still waits")
}
