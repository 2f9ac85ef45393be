package zkfence_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/fence"
	"github.com/pawl-go/pawl/fence/zkfence"
)

// conn is a server that lags: it reads what was written before the last sync.
type conn struct {
	data, old string
	version   int32
	oldStat   int32
	syncs     int
	multis    int
	paths     []string
}

func (c *conn) Get(path string) ([]byte, *zk.Stat, error) {
	c.paths = append(c.paths, path)
	return []byte(c.old), &zk.Stat{Version: c.oldStat}, nil
}

func (c *conn) Sync(path string) (string, error) {
	c.syncs++
	c.old, c.oldStat = c.data, c.version
	return path, nil
}

func (c *conn) Create(path string, _ []byte, _ int32, _ []zk.ACL) (string, error) { return path, nil }

func (c *conn) Multi(ops ...any) ([]zk.MultiResponse, error) {
	c.multis++
	if r := ops[0].(*zk.SetDataRequest); r.Version != c.version {
		return []zk.MultiResponse{{Error: zk.ErrBadVersion}}, zk.ErrBadVersion
	}
	return make([]zk.MultiResponse, len(ops)), nil
}

func one(value int64) []fence.Token { return []fence.Token{{Name: "n", Value: value}} }

// A server that lags lets no old token in, and keeps no good one out.
func TestLags(t *testing.T) {
	for _, token := range []int64{5, 7} {
		c := &conn{old: "4", oldStat: 1, data: "6", version: 3}
		f, err := zkfence.New(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = f.Check(t.Context(), one(token))
		if stale := errors.Is(err, fence.ErrStale); stale != (token == 5) || !stale && err != nil {
			t.Errorf("%d: %v", token, err)
		}
		if c.syncs != 1 {
			t.Errorf("%d: synced %d times", token, c.syncs)
		}
	}
}

func TestInvalid(t *testing.T) {
	for _, root := range []string{"x", "/", "/x/"} {
		if _, err := zkfence.New(&conn{}, &zkfence.Options{Root: root}); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("root %q: %v", root, err)
		}
	}
	c := &conn{}
	f, err := zkfence.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Check(t.Context(), one(0)); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("0: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Check(ctx, one(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	if len(c.paths)+c.multis != 0 {
		t.Errorf("%d requests", len(c.paths)+c.multis)
	}
	for _, text := range []string{"", "0", "-1", "x", "5 "} {
		c.old = text
		if err := f.Check(t.Context(), one(9)); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "/pawl-fence/n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestPaths(t *testing.T) {
	c := &conn{old: "1"}
	f, err := zkfence.New(c, &zkfence.Options{Root: "/app/fence"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a-b_c:1@", "orders/42", "..", "ä%"} {
		if err := f.Check(t.Context(), []fence.Token{{Name: name, Value: 1}}); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"/app/fence/a-b_c:1@", "/app/fence/orders%2F42", "/app/fence/%2E%2E", "/app/fence/%C3%A4%25"}; !slices.Equal(c.paths, want) {
		t.Errorf("%q", c.paths)
	}
}
