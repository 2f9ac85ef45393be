package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/zkstore"
)

// What cannot be reached is named, with the reason, and is not taken for a lock
// that is held.
func TestZooKeeperUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	talks, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer talks.Close()
	go func() {
		for {
			c, err := talks.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 100))
			c.Write([]byte("220 mail.example ESMTP\r\n"))
			c.Close()
		}
	}()
	for addr, why := range map[string]string{
		free:                    "refused",
		"nosuchhost.invalid:21": "nosuchhost.invalid",
		talks.Addr().String():   "no ZooKeeper server",
	} {
		s := openZooKeeper(t, "zk://"+addr, nil)
		_, err := s.Enter(await.Brief(t, 10*time.Second), storetest.Mutex("x", time.Minute))
		if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), why) {
			t.Errorf("enter at %s: %v, want it to say %q", addr, err, why)
		}
		if driver.IsPermanent(err) {
			t.Errorf("%v is called permanent: the server may come yet", err)
		}
	}
}

// Nodes that were made with a user and password are that user's alone.
func TestZooKeeperUser(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	const secret = "geheim/%23:@"
	auth := "zk://ann:geheim%2F%2523%3A%40@" + z.Addr() + "/ann"
	ann, again := openZooKeeper(t, auth, nil), openZooKeeper(t, auth, nil)
	h := storetest.Mutex("x", time.Minute)
	storetest.Enter(t, ann, h, driver.Holding)
	storetest.Enter(t, again, storetest.Mutex("x", time.Minute), driver.Waiting)
	for what, url := range map[string]string{
		"nobody":         "zk://" + z.Addr() + "/ann",
		"somebody else":  "zk://bob:secretly@" + z.Addr() + "/ann",
		"wrong password": "zk://ann:secretly@" + z.Addr() + "/ann",
	} {
		s := openZooKeeper(t, url, nil)
		for call, f := range map[string]func() error{
			"enter":   func() error { _, err := s.Enter(await.Context(t), storetest.Mutex("x", time.Minute)); return err },
			"leave":   func() error { _, err := s.Leave(await.Context(t), storetest.Ref(h)); return err },
			"inspect": func() error { _, err := s.Inspect(await.Context(t), "x"); return err },
			"write": func() error {
				_, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: "x", Value: []byte("x")})
				return err
			},
		} {
			err := f()
			if !errors.Is(err, zk.ErrNoAuth) || !driver.IsPermanent(err) || !strings.Contains(err.Error(), "permission") {
				t.Errorf("%s by %s: %v", call, what, err)
			}
			if err != nil && (strings.Contains(err.Error(), "secretly") || strings.Contains(err.Error(), secret)) {
				t.Errorf("%s: the error shows the password: %v", what, err)
			}
		}
	}
	// A session that is made anew logs in again.
	if err := z.Restart(true); err != nil {
		t.Fatal(err)
	}
	if st := storetest.Renewed(t, ann, h); st.State != driver.Holding {
		t.Errorf("after a restart: %v", st.State)
	}
}

func TestZooKeeperACL(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	acl := append(zk.DigestACL(zk.PermAll, "ann", "p"), zk.WorldACL(zk.PermRead)...)
	ann := openZooKeeper(t, "zk://ann:p@"+z.Addr(), &zkstore.Options{ACL: acl})
	anybody := openZooKeeper(t, z.URL(), nil)
	h := storetest.Mutex("x", time.Minute)
	st := storetest.Enter(t, ann, h, driver.Holding)
	q, err := anybody.Inspect(await.Context(t), "x")
	if err != nil || len(q.Claims) != 1 || q.Claims[0].Token != st.Token {
		t.Errorf("who may read sees %+v, %v", q, err)
	}
	if _, err := anybody.Break(await.Context(t), "x"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("who may only read broke it: %v", err)
	}
	storetest.Leave(t, ann, h)
}

// Data that is not a queue's is an error, and left alone.
func TestZooKeeperForeignData(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	s := openZooKeeper(t, z.URL(), nil)
	if _, err := s.Inspect(await.Context(t), "x"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/pawl/q/x", "/pawl/q/x/child", "/pawl/r/x"} {
		if _, err := admin.Create(path, []byte("hello"), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Enter(await.Context(t), storetest.Mutex("x", time.Minute)); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "/pawl/q/x") {
		t.Errorf("enter: %v", err)
	}
	if _, err := s.Load(await.Context(t), "x"); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "/pawl/r/x") {
		t.Errorf("load: %v", err)
	}
	if data, _, err := admin.Get("/pawl/q/x"); err != nil || string(data) != "hello" {
		t.Errorf("it is %q now, %v", data, err)
	}
	// A child that somebody has put into a queue does not stop it.
	h := storetest.Mutex("y", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	if _, err := admin.Create("/pawl/q/y/note", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	storetest.Leave(t, s, h)
	h.ID = driver.NewID()
	storetest.Enter(t, s, h, driver.Holding)
	storetest.Leave(t, s, h)
}

func TestZooKeeperLargeValue(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	s := openZooKeeper(t, z.URL(), nil)
	r, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: "x", Value: make([]byte, 900_000)})
	if err != nil {
		t.Fatal(err)
	}
	r.Value = make([]byte, 900_001)
	if _, err := s.CompareAndSwap(await.Context(t), r); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("more than a node takes: %v", err)
	}
	if got, err := s.Load(await.Context(t), "x"); err != nil || len(got.Value) != 900_000 {
		t.Errorf("%d bytes, %v", len(got.Value), err)
	}
}

// The server ends sessions sooner than the TTL asks for: a client renews as often
// as it takes, and keeps its lease.
func TestZooKeeperClampedLease(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxSessionTimeout=4000"}})
	c := pawl.New(openZooKeeper(t, z.URL(), nil), &pawl.Options{TTL: time.Minute})
	defer c.Close(await.Context(t))
	lease, err := c.Mutex("x").Lock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(8 * time.Second)
	if err := lease.Unlock(await.Context(t)); err != nil {
		t.Errorf("after twice the time that the server gives: %v", err)
	}
}

// A server that has as many connections of an address as it allows closes the next
// one without a word: the likely cause is named to who waits and to the observer.
func TestZooKeeperTooManyConnections(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"maxClientCnxns=2"}})
	for i := range 2 {
		storetest.Enter(t, openZooKeeper(t, z.URL(), nil), storetest.Mutex(fmt.Sprint("x", i), time.Minute), driver.Holding)
	}
	const cause = "maxClientCnxns"
	told := make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	c := pawl.New(openZooKeeper(t, z.URL(), nil), &pawl.Options{Observer: func(e pawl.Event) {
		if e.Err == nil {
			return
		}
		select {
		case told <- e.Err:
		default:
		}
		cancel()
	}})
	defer c.Close(await.Context(t))
	_, err := c.Mutex("y").Lock(ctx)
	var w *pawl.WaitError
	if !errors.As(err, &w) || w.Engine == nil || !strings.Contains(w.Engine.Error(), cause) || driver.IsPermanent(err) {
		t.Errorf("lock: %v", err)
	}
	if err := await.Value(t, "what the observer is told", told); !strings.Contains(err.Error(), cause) {
		t.Errorf("the observer is told %v", err)
	}
}

// A server that wants another way of logging in is not asked again and again.
func TestZooKeeperDemandsLogin(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"enforce.auth.enabled=true", "enforce.auth.schemes=digest"}})
	_, err := openZooKeeper(t, z.URL(), nil).Enter(await.Context(t), storetest.Mutex("x", time.Minute))
	if !driver.IsPermanent(err) || !strings.Contains(err.Error(), "enforce.auth.schemes") {
		t.Errorf("enter without a user: %v", err)
	}
	ann := openZooKeeper(t, "zk://ann:p@"+z.Addr(), nil)
	h := storetest.Mutex("x", 2*time.Second)
	storetest.Enter(t, ann, h, driver.Holding)
	if err := z.Restart(true); err != nil { // it logs in again, before it says anything else
		t.Fatal(err)
	}
	storetest.Renewed(t, ann, h)
}
