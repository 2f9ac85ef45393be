package etcd

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// What a server replies passes or is permanent as docs/ERRORS.md says, for each call.
// The codes that cannot be provoked here are put in the server's place.
func TestEtcdCodes(t *testing.T) {
	t.Parallel()
	e := servers.RunEtcd(t, servers.EtcdOptions{})
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, tt := range []struct {
		err       error
		permanent bool
		says      string
	}{
		{rpctypes.ErrGRPCNoLeader, false, "too few members"},
		{rpctypes.ErrGRPCLeaderChanged, false, "leader changed"},
		{rpctypes.ErrGRPCStopped, false, "server stopped"},
		{rpctypes.ErrGRPCTimeout, false, "timed out"},
		{rpctypes.ErrGRPCTimeoutDueToLeaderFail, false, "leader failure"},
		{rpctypes.ErrGRPCTimeoutDueToConnectionLost, false, "connection lost"},
		{rpctypes.ErrGRPCTimeoutWaitAppliedIndex, false, "applied index"},
		{rpctypes.ErrGRPCUnhealthy, false, "unhealthy"},
		{status.Error(codes.Unavailable, "transport is closing"), false, "closing"},
		{rpctypes.ErrGRPCRequestTooManyRequests, false, "far behind"},
		{rpctypes.ErrGRPCNoSpace, false, "alarm disarm"},
		{rpctypes.ErrGRPCCorrupt, false, "replace that member"},
		{rpctypes.ErrGRPCInvalidAuthToken, false, "auth token"},
		{rpctypes.ErrGRPCAuthOldRevision, false, "auth store"},
		{rpctypes.ErrGRPCNotSupportedForLearner, false, "learner"},
		{rpctypes.ErrGRPCNotLeader, false, "not leader"},
		{rpctypes.ErrGRPCNotCapable, false, "not capable"},
		{rpctypes.ErrGRPCDeadlineExceeded, false, "deadline"},
		{rpctypes.ErrGRPCAuthFailed, true, "check user and password"},
		{rpctypes.ErrGRPCUserEmpty, true, "wants a user"},
		{rpctypes.ErrGRPCUserNotFound, true, "check the user"},
		{rpctypes.ErrGRPCPermissionDenied, true, "permission to read and write"},
		{rpctypes.ErrGRPCTooManyOps, true, "--max-txn-ops"},
		{rpctypes.ErrGRPCRequestTooLarge, true, "--max-request-bytes"},
		{status.Error(codes.Unimplemented, "unknown service"), true, "3.4 or later"},
	} {
		wg.Go(func() { replied(t, e, tt.err, tt.permanent, tt.says) }) // the client repeats some of them for seconds
	}
}

// replied makes all calls on a server that replies err.
func replied(t *testing.T, e *servers.Etcd, err error, permanent bool, says string) {
	var m meddler
	s := m.store(t, e)
	c := storetest.Mutex("codes/"+driver.NewID(), time.Minute)
	other := storetest.Mutex(c.Name, time.Minute)
	ctx := await.Context(t)
	if st, err := s.Enter(ctx, c); err != nil || st.State != driver.Holding {
		t.Errorf("enter: %v, %v", st.State, err)
	}
	m.set(func(any, func() error) error { return err })
	var wg sync.WaitGroup
	for what, call := range map[string]func() error{
		"enter":   func() error { _, err := s.Enter(ctx, other); return err },
		"renew":   func() error { _, err := storetest.Renew(ctx, s, c); return err },
		"leave":   func() error { _, err := s.Leave(ctx, storetest.Ref(other)); return err },
		"adopt":   func() error { _, err := s.Adopt(ctx, adoption(c, 1)); return err },
		"inspect": func() error { _, err := s.Inspect(ctx, c.Name); return err },
		"list":    func() error { return storetest.List(ctx, s, "") },
		"load":    func() error { _, err := s.Load(ctx, c.Name); return err },
	} {
		wg.Go(func() {
			if got := call(); got == nil || driver.IsPermanent(got) != permanent || !strings.Contains(got.Error(), says) {
				t.Errorf("%s, where the server replies %v: %v; permanent is %v, want %v and %q", what, err, got, driver.IsPermanent(got), permanent, says)
			}
		})
	}
	wg.Wait()
	m.set(nil)
	if st, err := storetest.Renew(ctx, s, c); err != nil || st.State != driver.Holding {
		t.Errorf("after all that: %v, %v", st.State, err)
	}
}

// A server whose settings do not do, and one that is no etcd, are told at once.
func TestEtcdSettings(t *testing.T) {
	e := servers.RunEtcd(t, servers.EtcdOptions{Args: []string{"--max-txn-ops", "2", "--max-request-bytes", "10000"}})
	etcdFails(t, e.URL(), true, "--max-txn-ops")
	s := openEtcd(t, e)
	_, err := s.CompareAndSwap(await.Context(t), driver.Record{Name: "r", Value: []byte(strings.Repeat("x", 50_000))})
	if !driver.IsPermanent(err) || !strings.Contains(err.Error(), "--max-") {
		t.Errorf("a record that is too large: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	go g.Serve(l)
	t.Cleanup(g.Stop)
	etcdFails(t, "etcd://"+l.Addr().String(), true, "3.4 or later")
}
