package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
)

// The limit of a mutex was raised, so that several hold, and set back: whoever of
// them leaves first, the next one waits for the others.
func TestZooKeeperLimitThereAndBack(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	first, second, w := mutex("x", time.Minute), mutex("x", time.Minute), mutex("x", time.Minute)
	enter(t, a, first, driver.Holding)
	enter(t, a, second, driver.Waiting)
	enter(t, b, w, driver.Waiting)
	waited := make(chan driver.Status, 1)
	ctx, cancel := context.WithCancel(within(t, patience))
	go func() {
		st, _ := b.Wait(ctx, ref(w))
		waited <- st
	}()
	time.Sleep(50 * time.Millisecond) // so that it waits
	for _, limit := range []int64{2, 1} {
		if err := a.SetLimit(within(t, patience), "x", 1, limit); err != nil {
			t.Fatal(err)
		}
	}
	if st := held(t, a, second); st.State != driver.Holding {
		t.Fatal(st.State)
	}
	leave(t, a, second)
	for range 2 {
		if st := held(t, b, w); st.State != driver.Waiting {
			t.Errorf("while the first one holds, the third is %v", st.State)
		}
		if st := held(t, a, first); st.State != driver.Holding {
			t.Errorf("the first one is %v", st.State)
		}
	}
	cancel()
	if st := <-waited; st.State == driver.Holding {
		t.Error("while the first one holds, the third is told that it does")
	}
	leave(t, a, first)
	if _, err := get(within(t, patience), b, w); err != nil {
		t.Error(err)
	}
}

// A request that came twice has left a second child: neither Break nor a lapse
// leaves that behind.
func TestZooKeeperTwins(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w, next := mutex("x", time.Minute), mutex("x", time.Minute), mutex("x", time.Minute)
	enter(t, a, h, driver.Holding)
	enter(t, a, w, driver.Waiting)
	for _, node := range children(t, admin, "/pawl/q/x") {
		if prefix, ok := strings.CutPrefix(node, "+"+w.ID); ok {
			path := "/pawl/q/x/+" + w.ID + prefix[:strings.LastIndexByte(prefix, '!')+1]
			if _, err := admin.Create(path, nil, zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave(t, a, h)
	enter(t, b, next, driver.Waiting)
	if broken, err := b.Break(within(t, patience), "x"); err != nil || len(broken) != 1 || broken[0].ID != w.ID {
		t.Fatalf("%+v, %v", broken, err)
	}
	if st := held(t, b, next); st.State != driver.Holding {
		t.Errorf("the next one is %v", st.State)
	}
	if st := held(t, a, w); st.State != driver.Gone {
		t.Errorf("what was broken is %v", st.State)
	}
}

// A claim whose session has ended stands in the list still: its id can be entered
// again.
func TestZooKeeperSameIDAgain(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := mutex("x", time.Minute), mutex("x", time.Minute)
	st := enter(t, a, h, driver.Holding)
	enter(t, b, w, driver.Waiting)
	used := ref(h)
	used.Used = st.Token + 1
	a.Renew(within(t, patience), []driver.Ref{used}, func(_ int, _ driver.Status, err error) { // writes the list
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, node := range children(t, admin, "/pawl/q/x") {
		if strings.HasPrefix(node, "+"+w.ID) {
			if err := admin.Delete("/pawl/q/x/"+node, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	enter(t, b, w, driver.Waiting)
	leave(t, a, h)
	if got, err := get(within(t, patience), b, w); err != nil || got.Token <= st.Token+st.Spare {
		t.Errorf("%+v, %v", got, err)
	}
}

// What stays taken without an owner is broken: who waits for it is told at once.
func TestZooKeeperBreakLingering(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := mutex("x", time.Minute), mutex("x", time.Minute)
	enter(t, a, h, driver.Holding)
	enter(t, b, w, driver.Waiting)
	lingers := ref(h)
	lingers.Linger = time.Hour
	if _, err := a.Leave(within(t, patience), lingers); err != nil {
		t.Fatal(err)
	}
	waited := make(chan driver.Status, 1)
	go func() {
		st, err := b.Wait(within(t, patience), ref(w))
		for err == nil && st.State == driver.Waiting {
			st, err = b.Wait(within(t, patience), ref(w))
		}
		waited <- st
	}()
	time.Sleep(50 * time.Millisecond) // so that it waits
	if got, err := a.Break(within(t, patience), "x"); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if st := <-waited; st.State != driver.Holding {
		t.Errorf("who waits is %v", st.State)
	}
}

// A name that was a mutex, and stayed taken, is used with another limit: the node is
// made anew, so that nobody who has come meanwhile takes it for a mutex.
func TestZooKeeperMutexNoMore(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	s := openZooKeeper(t, z.URL(), nil)
	h := mutex("x", time.Minute)
	before := enter(t, s, h, driver.Holding)
	lingers := ref(h)
	lingers.Linger = time.Millisecond
	if _, err := s.Leave(within(t, patience), lingers); err != nil {
		t.Fatal(err)
	}
	created := func() int64 {
		_, stat, err := admin.Get("/pawl/q/x")
		if err != nil {
			t.Fatal(err)
		}
		return stat.Czxid
	}
	was := created()
	time.Sleep(10 * time.Millisecond)
	c := driver.Claim{Name: "x", ID: driver.NewID(), Units: 2, Limit: 5, TTL: time.Minute}
	if st := enter(t, s, c, driver.Holding); st.Token <= before.Token+before.Spare {
		t.Errorf("token %d after %d", st.Token, before.Token)
	}
	if created() == was {
		t.Error("it is the same node")
	}
}

// Another Store removes a claim that waits: it is gone, also if the list says the
// same without it.
func TestZooKeeperLeaveForAnother(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := mutex("x", time.Minute), mutex("x", time.Minute)
	enter(t, a, h, driver.Holding)
	enter(t, a, w, driver.Waiting)
	if was, err := b.Leave(within(t, patience), ref(w)); err != nil || was != driver.Waiting {
		t.Fatal(was, err)
	}
	if st := held(t, a, w); st.State != driver.Gone {
		t.Errorf("what has left is %v", st.State)
	}
}
