package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/etcdstore"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// enableAuth sets up a root and a user of pawl's prefix, both with the password
// "s3cret", and turns authentication on.
func enableAuth(t testing.TB, e *servers.Etcd, user string) {
	t.Helper()
	c := dialEtcd(t, e.Addr())
	ctx := await.Context(t)
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(c.RoleAdd(ctx, "root"))
	do(c.UserAdd(ctx, "root", "s3cret"))
	do(c.UserGrantRole(ctx, "root", "root"))
	do(c.RoleAdd(ctx, user))
	do(c.RoleGrantPermission(ctx, user, "pawl/", clientv3.GetPrefixRangeEnd("pawl/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	do(c.UserAdd(ctx, user, "s3cret"))
	do(c.UserGrantRole(ctx, user, user))
	do(c.AuthEnable(ctx))
}

// openAs makes a store with the user that enableAuth has set up, and listens
// with it: so its stream of watches is there from the beginning.
func openAs(t testing.TB, user string, e *servers.Etcd) (s *etcdstore.Store, notices <-chan driver.Notice) {
	t.Helper()
	s, err := etcdstore.Open("etcd://"+user+":s3cret@"+e.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan driver.Notice, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(n driver.Notice) { heard <- n }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("listen: %v", err)
		}
		s.Close()
	})
	hears(t, heard, driver.Check, "")
	return s, heard
}

// hears waits for a notice.
func hears(t testing.TB, notices <-chan driver.Notice, kind driver.NoticeKind, id string) {
	t.Helper()
	for timeout := time.After(await.Limit); ; {
		select {
		case n := <-notices:
			if n.Kind == kind && n.ID == id {
				return
			}
		case <-timeout:
			t.Fatalf("no notice of kind %v about %q", kind, id)
		}
	}
}

// handsOver checks that a claim that waits is granted when the one that holds
// leaves, which was told that it is wanted.
func handsOver(t testing.TB, s driver.Store, h driver.Claim, notices <-chan driver.Notice) {
	t.Helper()
	w := storetest.Mutex(h.Name, h.TTL)
	storetest.Enter(t, s, w, driver.Waiting)
	hears(t, notices, driver.Wanted, h.ID)
	got := make(chan error, 1)
	go func() {
		st, err := s.Wait(await.Context(t), storetest.Ref(w))
		for err == nil && st.State == driver.Waiting {
			st, err = s.Wait(await.Context(t), storetest.Ref(w))
		}
		if err == nil && st.State != driver.Holding {
			err = errors.New(st.State.String())
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("wait: %v", err)
	case <-time.After(500 * time.Millisecond): // its watch is there, mostly
	}
	storetest.Leave(t, s, h)
	if err := <-got; err != nil {
		t.Fatalf("wait: %v", err)
	}
	storetest.Leave(t, s, w)
}

// A token lasts for minutes and a stream of watches, which was opened with it, for
// days.
func TestEtcdTokenExpires(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{Args: []string{"--auth-token-ttl", "1"}})
	enableAuth(t, e, "locks")
	s, notices := openAs(t, "locks", e)
	h := storetest.Mutex("token", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	for range 2 {
		time.Sleep(3 * time.Second) // it is forgotten when nobody has used it for 1 s, or 2
		if _, err := storetest.Renew(await.Context(t), s, h); err != nil {
			t.Fatal(err)
		}
	}
	handsOver(t, s, h, notices)
}

// A server that is started again knows no tokens; holders keep their locks.
func TestEtcdRestartForgetsTokens(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	enableAuth(t, e, "locks")
	s, notices := openAs(t, "locks", e)
	h := storetest.Mutex("token", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	for range 2 {
		e.Kill()
		if err := e.Restart(true); err != nil {
			t.Fatal(err)
		}
		for ctx := await.Context(t); ; { // the connection is tried again after a moment
			st, err := storetest.Renew(ctx, s, h)
			if err == nil {
				if st.State != driver.Holding {
					t.Fatalf("after the restart it is %v", st.State)
				}
				break
			}
			if ctx.Err() != nil || driver.IsPermanent(err) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	hears(t, notices, driver.Check, "")
	handsOver(t, s, h, notices)
}

// Authentication may be turned on and off while a store is in use.
func TestEtcdAuthTurnedOn(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	s, notices := openAs(t, "locks", e)
	h := storetest.Mutex("token", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	enableAuth(t, e, "locks")
	if _, err := storetest.Renew(await.Context(t), s, h); err != nil {
		t.Fatal(err)
	}
	handsOver(t, s, h, notices)
}

// The password is changed: who has the old one is told so, and not kept waiting.
func TestEtcdPasswordChanges(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	enableAuth(t, e, "locks")
	s, err := etcdstore.Open("etcd://locks:s3cret@"+e.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := storetest.Mutex("token", time.Minute)
	storetest.Enter(t, s, h, driver.Holding)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Addr()}, Username: "root", Password: "s3cret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := root.UserChangePassword(await.Context(t), "locks", "0ther"); err != nil {
		t.Fatal(err)
	}
	if _, err := storetest.Renew(await.Context(t), s, h); !driver.IsPermanent(err) || !strings.Contains(err.Error(), "check user and password") {
		t.Errorf("renew: %v", err)
	}
}
