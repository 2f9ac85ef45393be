//go:build unix

package fence

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/zkfence"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// node is a node in ZooKeeper. A multi has no middle.
type node struct {
	*zkfence.Fence
	conn *zk.Conn
	path string
}

func openZooKeeper(addr, name string) (*node, error) {
	c, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	f, err := zkfence.New(c, nil)
	return &node{f, c, "/state of " + name[len("orders/"):]}, err
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (n *node) close() { n.conn.Close() }

func (n *node) check(ctx context.Context, tokens []fence.Token) error { return n.Check(ctx, tokens) }

func (n *node) write(ctx context.Context, tokens []fence.Token, value string, middle func()) error {
	middle()
	return n.Set(ctx, tokens, n.path, []byte(value))
}

func (n *node) read(context.Context) (string, error) {
	data, _, err := n.conn.Get(n.path)
	return string(data), err
}

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	n, err := openZooKeeper(z.Addr(), "orders/n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	create := func(path string) {
		t.Helper()
		if _, err := n.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	create(n.path)
	t.Run("check", func(t *testing.T) { testChecks(t, n) })
	t.Run("crowd", func(t *testing.T) { testWriters(t, n) })
	t.Run("multi", func(t *testing.T) { testZooKeeperMulti(t, n) })
	testPaused(t, "zookeeper", z.Addr(), noMiddle, func(name string) {
		r, err := openZooKeeper(z.Addr(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		create(r.path)
		if err := r.write(await.Context(t), tokens(name, 1), "initial", func() {}); err != nil {
			t.Fatal(err)
		}
	})
}

// What fails is told with the operation that it is of, and then nothing was done.
func testZooKeeperMulti(t *testing.T, n *node) {
	ctx := await.Context(t)
	res, err := n.Multi(ctx, tokens("multi", 5),
		&zk.CreateRequest{Path: "/made", Acl: zk.WorldACL(zk.PermAll)}, &zk.SetDataRequest{Path: "/missing", Version: -1})
	if !errors.Is(err, zk.ErrNoNode) || len(res) != 2 || res[0].Error != nil || !errors.Is(res[1].Error, zk.ErrNoNode) {
		t.Errorf("%v, %v", res, err)
	}
	res, err = n.Multi(ctx, tokens("multi", 4), &zk.CreateRequest{Path: "/made", Acl: zk.WorldACL(zk.PermAll)})
	if err != nil || len(res) != 1 || res[0].String != "/made" {
		t.Errorf("a token was kept of what has failed: %v, %v", res, err)
	}
	if _, err := n.Multi(ctx, tokens("multi", 4), &zk.SetDataRequest{Path: "/made", Version: 7}); !errors.Is(err, zk.ErrBadVersion) {
		t.Errorf("another version: %v", err)
	}
	if _, err := n.conn.Set("/pawl-fence/multi", []byte("x"), -1); err != nil {
		t.Fatal(err)
	}
	if err := n.Check(ctx, tokens("multi", 9)); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a node that holds no token: %v", err)
	}
}
