package zookeeper

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

// The limit of a mutex was raised, so that several hold, and set back: whoever of
// them leaves first, the next one waits for the others.
func TestZooKeeperLimitThereAndBack(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	first, second, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, a, first, driver.Holding)
	storetest.Enter(t, a, second, driver.Waiting)
	storetest.Enter(t, b, w, driver.Waiting)
	waited := make(chan driver.Status, 1)
	ctx, cancel := context.WithCancel(await.Context(t))
	go func() {
		st, _ := b.Wait(ctx, storetest.Ref(w))
		waited <- st
	}()
	time.Sleep(50 * time.Millisecond) // so that it waits
	for _, limit := range []int64{2, 1} {
		if err := a.SetLimit(await.Context(t), "x", driver.KindMutex, 1, limit); err != nil {
			t.Fatal(err)
		}
	}
	if st := storetest.Renewed(t, a, second); st.State != driver.Holding {
		t.Fatal(st.State)
	}
	storetest.Leave(t, a, second)
	for range 2 {
		if st := storetest.Renewed(t, b, w); st.State != driver.Waiting {
			t.Errorf("while the first one holds, the third is %v", st.State)
		}
		if st := storetest.Renewed(t, a, first); st.State != driver.Holding {
			t.Errorf("the first one is %v", st.State)
		}
	}
	cancel()
	if st := <-waited; st.State == driver.Holding {
		t.Error("while the first one holds, the third is told that it does")
	}
	storetest.Leave(t, a, first)
	if _, err := storetest.Get(await.Context(t), b, w); err != nil {
		t.Error(err)
	}
}

// A claim whose session has ended stands in the list still: its id can be entered
// again.
func TestZooKeeperSameIDAgain(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	st := storetest.Enter(t, a, h, driver.Holding)
	mine := children(t, admin, "/pawl/q/x")
	storetest.Enter(t, b, w, driver.Waiting)
	for _, node := range children(t, admin, "/pawl/q/x") {
		if !slices.Contains(mine, node) {
			if err := admin.Delete("/pawl/q/x/"+node, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	storetest.Enter(t, b, w, driver.Waiting)
	storetest.Leave(t, a, h)
	if got, err := storetest.Get(await.Context(t), b, w); err != nil || got.Token <= st.Token+st.Spare {
		t.Errorf("%+v, %v", got, err)
	}
}

// What stays taken without an owner is broken: who waits for it is told at once.
func TestZooKeeperBreakLingering(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	lingers := storetest.Ref(h)
	lingers.Linger = time.Hour
	if _, err := a.Leave(await.Context(t), lingers); err != nil {
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
	if got, err := a.Break(await.Context(t), "x"); err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if st := <-waited; st.State != driver.Holding {
		t.Errorf("who waits is %v", st.State)
	}
}

// Another Store removes a claim that waits: it is gone, also if the list says the
// same without it.
func TestZooKeeperLeaveForAnother(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, a, w, driver.Waiting)
	if was, err := b.Leave(await.Context(t), storetest.Ref(w)); err != nil || was != driver.Waiting {
		t.Fatal(was, err)
	}
	if st := storetest.Renewed(t, a, w); st.State != driver.Gone {
		t.Errorf("what has left is %v", st.State)
	}
}

// What Wait says holds is said by the list too, for all others: who only finds that
// nothing is in the way any more does not hold yet.
func TestZooKeeperWaitTellsWhatIsWritten(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	admin := dialZooKeeper(t, z)
	a, b := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	h, w := storetest.Mutex("x", time.Minute), storetest.Mutex("x", time.Minute)
	storetest.Enter(t, a, h, driver.Holding)
	storetest.Enter(t, b, w, driver.Waiting)
	lingers := storetest.Ref(h)
	lingers.Linger = 50 * time.Millisecond
	if _, err := a.Leave(await.Context(t), lingers); err != nil {
		t.Fatal(err)
	}
	await.That(t, "what lingers is there for ever", func() bool {
		q, err := b.Inspect(await.Context(t), "x")
		if err != nil {
			t.Fatal(err)
		}
		return len(q.Claims) == 1
	})
	st, err := b.Wait(await.Context(t), storetest.Ref(w))
	for err == nil && st.State == driver.Waiting {
		st, err = b.Wait(await.Context(t), storetest.Ref(w))
	}
	if err != nil || st.State != driver.Holding {
		t.Fatal(st.State, err)
	}
	data, _, err := admin.Get("/pawl/q/x")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Queue struct {
			Claims []struct {
				ID      string
				Granted int64
			}
		}
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	if cs := list.Queue.Claims; len(cs) != 1 || cs[0].ID != w.ID || cs[0].Granted == 0 {
		t.Errorf("who waited was told that it holds; the list says %s", data)
	}
}
