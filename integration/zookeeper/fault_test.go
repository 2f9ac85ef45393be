package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/zkstore"
)

func openZooKeeper(t testing.TB, url string, o *zkstore.Options) *zkstore.Store {
	t.Helper()
	s, err := zkstore.Open(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// dialZooKeeper makes a client of the test's own.
func dialZooKeeper(t testing.TB, z *servers.ZooKeeper) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{z.Addr()}, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// children returns what is under a path, nil if it is not there.
func children(t testing.TB, c *zk.Conn, path string) []string {
	t.Helper()
	got, _, err := c.Children(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return got
}

// The server stands still: calls end with their context and say which server it
// is, deadlines run on, and nobody else holds before they have passed.
func TestZooKeeperPausedServer(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("pause", 5*time.Second), storetest.Mutex("pause", time.Minute)
	st := storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	z.Pause()
	t.Cleanup(z.Resume)
	await.That(t, "the server stands still", func() bool { _, err := z.Ask("ruok"); return err != nil })
	for what, f := range map[string]func(context.Context) error{
		"renew": func(ctx context.Context) error { _, err := storetest.Renew(ctx, a, h); return err },
		"enter": func(ctx context.Context) error {
			_, err := a.Enter(ctx, storetest.Mutex("other", time.Minute))
			return err
		},
		"leave": func(ctx context.Context) error {
			_, err := b.Leave(ctx, storetest.Ref(storetest.Mutex("pause", time.Minute)))
			return err
		},
		"inspect": func(ctx context.Context) error { _, err := b.Inspect(ctx, "pause"); return err },
	} {
		ctx := await.Brief(t, 200*time.Millisecond)
		start := time.Now()
		err := f(ctx)
		// The connection may be given up before the context ends.
		if err == nil || driver.IsPermanent(err) || !strings.Contains(err.Error(), z.Addr()) {
			t.Errorf("%s on a server that stands still: %v, want an error that names it", what, err)
		}
		if d := time.Since(start); d > await.Limit {
			t.Errorf("%s took %v", what, d)
		}
	}
	time.Sleep(time.Until(st.Deadline))
	z.Resume()
	got, err := storetest.Get(await.Context(t), b, w)
	if err != nil || got.State != driver.Holding || got.Token <= st.Token {
		t.Fatalf("after the pause: %+v, %v", got, err)
	}
	if time.Now().Before(st.Deadline) {
		t.Error("another holds before the deadline")
	}
	if st := storetest.Renewed(t, a, h); st.State != driver.Gone {
		t.Errorf("not renewed for its TTL, but %v", st.State)
	}
}

// endSessions ends all sessions that have nodes in a queue, as the server would
// end them: by their number, whatever their clients think.
func endSessions(t testing.TB, z *servers.ZooKeeper, path string) {
	t.Helper()
	c := dialZooKeeper(t, z)
	for _, node := range children(t, c, path) {
		_, stat, err := c.Get(path + "/" + node)
		if err != nil || stat.EphemeralOwner == 0 {
			t.Fatalf("%s: owner %x, %v", node, stat.EphemeralOwner, err)
		}
		if err := c.Delete(path+"/"+node, -1); err != nil {
			t.Fatal(err)
		}
	}
}

// What held and waited is gone with its session: nobody believes to hold, and
// who enters anew does, with a greater token.
func TestZooKeeperClaimsDie(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("die", time.Minute), storetest.Mutex("die", time.Minute)
	st := storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	waited := make(chan driver.Status, 1)
	go func() {
		st, err := b.Wait(await.Context(t), storetest.Ref(w))
		for err == nil && st.State == driver.Waiting {
			st, err = b.Wait(await.Context(t), storetest.Ref(w))
		}
		waited <- st
	}()
	time.Sleep(50 * time.Millisecond)
	endSessions(t, z, "/pawl/q/die")
	// The waiting one may have been granted, if the holder's node was the first
	// to go; but not for good.
	<-waited
	for s, c := range map[*zkstore.Store]driver.Claim{a: h, b: w} {
		await.That(t, "the claim is gone", func() bool { return storetest.Renewed(t, s, c).State == driver.Gone })
	}
	next := storetest.Mutex("die", time.Minute)
	if got := storetest.Enter(t, b, next, driver.Holding); got.Token <= st.Token {
		t.Errorf("token %d after %d", got.Token, st.Token)
	}
}

// A client is cut off for longer than its session lasts, and comes back: its
// claims, one that holds and one that waits, are gone, and stay gone.
func TestZooKeeperExpiredSession(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	p := servers.RunProxy(t, z.Addr())
	far, near := openZooKeeper(t, "zk://"+p.Addr(), nil), openZooKeeper(t, z.URL(), nil)
	const ttl = 10 * time.Second
	held1, w1 := storetest.Mutex("one", ttl), storetest.Mutex("two", ttl)
	h2, w2 := storetest.Mutex("two", time.Minute), storetest.Mutex("one", time.Minute)
	first := storetest.Enter(t, far, held1, driver.Holding)
	storetest.Enter(t, near, h2, driver.Holding)
	storetest.Enter(t, far, w1, driver.Waiting)
	storetest.Enter(t, near, w2, driver.Waiting)
	p.Swallow(true, true)
	got, err := storetest.Get(await.Context(t), near, w2)
	if err != nil || got.Token <= first.Token {
		t.Fatalf("after the session: %+v, %v", got, err)
	}
	if time.Now().Before(first.Deadline) {
		t.Errorf("another holds %v before the deadline", time.Until(first.Deadline))
	}
	storetest.Leave(t, near, h2) // the one that waits for it must not be granted it
	p.Swallow(false, false)
	for _, c := range []driver.Claim{held1, w1} {
		if st := storetest.Renewed(t, far, c); st.State != driver.Gone {
			t.Errorf("a claim of the session that has ended is %v", st.State)
		}
		if st, err := far.Wait(await.Context(t), storetest.Ref(c)); err != nil || st.State != driver.Gone {
			t.Errorf("wait: %v, %v", st.State, err)
		}
	}
	storetest.Enter(t, far, storetest.Mutex("two", ttl), driver.Holding)
}

// The reply to an Enter is lost: repeating it finds the claim, wherever the
// repetition comes from.
func TestZooKeeperLostReply(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	p := servers.RunProxy(t, z.Addr())
	s := openZooKeeper(t, "zk://"+p.Addr(), nil)
	admin := dialZooKeeper(t, z)
	storetest.Enter(t, s, storetest.Mutex("warm", 10*time.Second), driver.Holding)
	p.Swallow(false, true)
	c := storetest.Mutex("reply", 10*time.Second)
	if st, err := s.Enter(await.Brief(t, 300*time.Millisecond), c); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("enter: %v, %v; want its reply to be lost", st.State, err)
	}
	await.That(t, "the request was carried out", func() bool { return len(children(t, admin, "/pawl/q/reply")) == 1 })
	p.Swallow(false, false)
	st, err := storetest.Get(await.Context(t), s, c)
	if err != nil || st.State != driver.Holding {
		t.Fatalf("repeated: %+v, %v", st, err)
	}
	if n := children(t, admin, "/pawl/q/reply"); len(n) != 1 {
		t.Errorf("one claim has nodes %v", n)
	}
	storetest.Leave(t, s, c)
	if n := children(t, admin, "/pawl/q/reply"); n != nil {
		t.Errorf("after leaving there is %v", n)
	}
}

// Nothing is left behind by claims that were left, wherever they stood, and by
// records that were deleted. Tokens of a name rise although its node is made
// anew each time.
func TestZooKeeperLeavesNothing(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	s := openZooKeeper(t, z.URL()+"/teams/one", nil)
	var last int64
	for i := range 10 {
		name := fmt.Sprintf("n/%d", i%2)
		h, w := storetest.Mutex(name, time.Minute), storetest.Mutex(name, time.Minute)
		st := storetest.Enter(t, s, h, driver.Holding)
		if st.Token <= last {
			t.Errorf("token %d after %d", st.Token, last)
		}
		last = st.Token + st.Spare
		storetest.Enter(t, s, w, driver.Waiting)
		storetest.Leave(t, s, h)
		if i%2 == 0 {
			if st := storetest.Renewed(t, s, w); st.Token <= last {
				t.Errorf("token %d after %d", st.Token, last)
			} else {
				last = st.Token + st.Spare
			}
		}
		storetest.Leave(t, s, w)
	}
	r, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: "r", Value: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	r.Value = nil
	if _, err := s.CompareAndSwap(await.Context(t), r); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"q", "r"} {
		if got := children(t, admin, "/teams/one/"+part); len(got) != 0 {
			t.Errorf("left under %s: %v", part, got)
		}
	}
}

// A process that dies leaves a node without children, until the name is used
// again; who lists the names does not see it, and changes nothing.
func TestZooKeeperDeadQueue(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	s := openZooKeeper(t, z.URL(), nil)
	var tokens []int64
	for _, name := range []string{"again", "listed"} {
		dying := openZooKeeper(t, z.URL(), nil)
		tokens = append(tokens, storetest.Enter(t, dying, storetest.Mutex(name, time.Minute), driver.Holding).Token)
		dying.Close()
	}
	if got := children(t, admin, "/pawl/q"); len(got) != 2 {
		t.Fatalf("there are %v", got)
	}
	if st := storetest.Enter(t, s, storetest.Mutex("again", time.Minute), driver.Holding); st.Token <= tokens[0] {
		t.Errorf("token %d after %d", st.Token, tokens[0])
	}
	for q, err := range s.List(await.Context(t), "") {
		if err != nil || q.Name != "again" {
			t.Errorf("listed: %+v, %v", q, err)
		}
	}
	if got := children(t, admin, "/pawl/q"); len(got) != 2 {
		t.Errorf("there are %v", got)
	}
	h := storetest.Mutex("listed", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	storetest.Leave(t, s, h)
	if got := children(t, admin, "/pawl/q"); len(got) != 1 || got[0] != "again" {
		t.Errorf("there are %v", got)
	}
}

// The server allows shorter sessions than the TTL: deadlines follow it.
func TestZooKeeperClampedSession(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxSessionTimeout=4000"}})
	p := servers.RunProxy(t, z.Addr())
	far, near := openZooKeeper(t, "zk://"+p.Addr(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("clamp", time.Minute), storetest.Mutex("clamp", time.Minute)
	sent := time.Now()
	st := storetest.Enter(t, far, h, driver.Holding)
	if most := time.Since(sent) + 4*time.Second; st.Deadline.Sub(sent) > most {
		t.Errorf("sessions last 4 s, the deadline is after %v", st.Deadline.Sub(sent))
	}
	storetest.Enter(t, near, w, driver.Waiting)
	p.Cut()
	if _, err := storetest.Get(await.Context(t), near, w); err != nil {
		t.Fatal(err)
	}
	if time.Now().Before(st.Deadline) {
		t.Error("another holds before the deadline")
	}
}

// Held claims cost no goroutine, and renewing them all is next to no request
// once their queues have been read.
func TestZooKeeperManyHeld(t *testing.T) {
	const claims = 300
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	p := newCounter(t, z.Addr())
	s := openZooKeeper(t, "zk://"+p.addr(), nil)
	storetest.Enter(t, s, storetest.Mutex("first", time.Minute), driver.Holding)
	before := runtime.NumGoroutine()
	var rs []driver.Ref
	for i := range claims {
		c := storetest.Mutex(fmt.Sprintf("many/%d", i), time.Minute)
		storetest.Enter(t, s, c, driver.Holding)
		rs = append(rs, storetest.Ref(c))
	}
	round := func(want driver.State) {
		t.Helper()
		var mu sync.Mutex
		n := 0
		s.Renew(await.Context(t), rs, func(_ int, st driver.Status, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil && st.State == want && !st.Deadline.IsZero() {
				n++
			}
		})
		if n != claims {
			t.Fatalf("%d of %d were renewed", n, claims)
		}
	}
	round(driver.Holding)
	await.That(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before+20 })
	sent := p.bytes.Load()
	for range 5 {
		round(driver.Holding)
	}
	if d := p.bytes.Load() - sent; d > 5*claims {
		t.Errorf("5 rounds over %d claims sent %d bytes", claims, d)
	}
	// One that was broken meanwhile is seen by the next round.
	if _, err := openZooKeeper(t, z.URL(), nil).Break(await.Context(t), rs[7].Name); err != nil {
		t.Fatal(err)
	}
	gone := 0
	s.Renew(await.Context(t), rs, func(i int, st driver.Status, err error) {
		if i == 7 && err == nil && st.State == driver.Gone {
			gone++
		}
	})
	if gone != 1 {
		t.Error("a claim that was broken was renewed")
	}
}

// counter passes on what a client sends, and counts it.
type counter struct {
	l     net.Listener
	bytes atomic.Int64
}

func newCounter(t testing.TB, target string) *counter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{l: l}
	var work sync.WaitGroup
	t.Cleanup(func() { l.Close(); work.Wait() })
	work.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			work.Go(func() {
				defer server.Close()
				io.Copy(io.MultiWriter(server, c), client)
			})
			work.Go(func() {
				defer client.Close()
				io.Copy(client, server)
			})
		}
	})
	return c
}

func (c *counter) Write(p []byte) (int, error) {
	c.bytes.Add(int64(len(p)))
	return len(p), nil
}

func (c *counter) addr() string { return c.l.Addr().String() }

// Closing a Store ends its calls and its goroutines, also while the server
// stands still.
func TestZooKeeperCloseWhilePaused(t *testing.T) {
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	before := runtime.NumGoroutine()
	h := storetest.Mutex("close", time.Hour)
	s2 := openZooKeeper(t, z.URL(), nil)
	storetest.Enter(t, s2, h, driver.Holding)
	if err := syscall.Kill(z.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Resume)
	result := make(chan error, 1)
	go func() {
		_, err := storetest.Renew(t.Context(), s2, h)
		result <- err
	}()
	time.Sleep(50 * time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- s2.Close() }()
	for _, ch := range []chan error{result, closed} {
		select {
		case err := <-ch:
			if ch == result && !errors.Is(err, driver.ErrClosed) {
				t.Errorf("the call under way ended with %v", err)
			}
		case <-time.After(await.Limit):
			t.Fatal("it does not end")
		}
	}
	await.That(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}
