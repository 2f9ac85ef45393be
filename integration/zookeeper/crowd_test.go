package zookeeper

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// A name takes no more claims than its server has room for: the next one is told so
// at once, and those that are there go on.
func TestZooKeeperFull(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{Config: []string{"commitLogCount=50"}}) // it has little memory
	s := openZooKeeper(t, z.URL(), nil)
	claim := func() driver.Claim {
		c := storetest.Mutex("x", time.Hour)
		c.Owner.Label = strings.Repeat("<", driver.MaxLabel) // the longest in JSON
		return c
	}
	var in []driver.Claim
	var full error
	for full == nil {
		c := claim()
		var st driver.Status
		if st, full = s.Enter(await.Context(t), c); full == nil {
			in = append(in, c)
		} else if st.State != driver.Gone {
			t.Errorf("it is full, and the claim is %v", st.State)
		}
	}
	if !errors.Is(full, driver.ErrFull) || !driver.IsPermanent(full) || !strings.Contains(full.Error(), "/pawl/q/x") || len(in) < 100 {
		t.Fatalf("with %d claims: %v", len(in), full)
	}
	for _, c := range in[:2] {
		if st := storetest.Renewed(t, s, c); st.State == driver.Gone {
			t.Error("one that was there is gone")
		}
	}
	storetest.Leave(t, s, in[0])
	if st, err := storetest.Get(await.Context(t), s, in[1]); err != nil {
		t.Errorf("the next in line: %v, %v", st.State, err)
	}
	storetest.Enter(t, s, claim(), driver.Waiting)
	if _, err := s.Enter(await.Context(t), claim()); !errors.Is(err, driver.ErrFull) {
		t.Errorf("one more than there was room for: %v", err)
	}
}

// Many are granted by one change: all are told by it, and not with their heartbeat.
func TestZooKeeperManyReaders(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	const readers = 150
	claim := func(units int64) driver.Claim {
		return driver.Claim{Name: "x", ID: driver.NewID(), Kind: driver.KindRW, Units: units, Limit: driver.MaxLimit, TTL: time.Hour}
	}
	w := claim(driver.MaxLimit)
	storetest.Enter(t, a, w, driver.Holding)
	var waiting sync.WaitGroup
	for range readers {
		c := claim(1)
		storetest.Enter(t, b, c, driver.Waiting)
		waiting.Go(func() {
			st, err := b.Wait(await.Context(t), storetest.Ref(c))
			for err == nil && st.State == driver.Waiting {
				st, err = b.Wait(await.Context(t), storetest.Ref(c))
			}
			if err != nil || st.State != driver.Holding {
				t.Errorf("a reader: %v, %v", st.State, err)
			}
		})
	}
	storetest.Leave(t, a, w)
	waiting.Wait()
}

// A list passes over the names that cannot be read, and changes nothing.
func TestZooKeeperListMany(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	s := openZooKeeper(t, z.URL(), nil)
	const names = 1000
	var entering sync.WaitGroup
	limit := make(chan struct{}, 64)
	for i := range names {
		limit <- struct{}{}
		entering.Go(func() {
			defer func() { <-limit }()
			if _, err := s.Enter(await.Context(t), storetest.Mutex(fmt.Sprint("list/", i), time.Hour)); err != nil {
				t.Error(err)
			}
		})
	}
	entering.Wait()
	admin := dialZooKeeper(t, z)
	for path, data := range map[string]string{"/pawl/q/list%2Fspoiled": "hello", "/pawl/q/list%2Fdead": ""} {
		if _, err := admin.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.Create("/pawl/q/list%2Fspoiled/child", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Create("/pawl/q/list%2Fmine", nil, 0, zk.DigestACL(zk.PermAll, "ann", "p")); err != nil {
		t.Fatal(err)
	}
	_, before, err := admin.Get("/pawl/q")
	if err != nil {
		t.Fatal(err)
	}
	other := openZooKeeper(t, z.URL(), nil)
	seen, bad := make(map[string]bool), make(map[string]error)
	for q, err := range other.List(await.Context(t), "list/") {
		var here *driver.NameError
		switch {
		case err == nil:
			seen[q.Name] = len(q.Claims) == 1
		case errors.As(err, &here):
			bad[here.Name] = err
		default:
			t.Fatal(err)
		}
	}
	if len(seen) != names || !seen["list/0"] {
		t.Errorf("%d of %d names are listed", len(seen), names)
	}
	if len(bad) != 2 || bad["list/spoiled"] == nil || !errors.Is(bad["list/mine"], zk.ErrNoAuth) {
		t.Errorf("told to be bad are %v", bad)
	}
	_, after, err := admin.Get("/pawl/q")
	if err != nil || after.Pzxid != before.Pzxid {
		t.Errorf("listing has made or removed nodes: %v", err)
	}
	for range other.List(await.Context(t), "list/") {
		break // nothing goes on
	}
}
