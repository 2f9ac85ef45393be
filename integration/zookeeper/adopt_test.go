package zookeeper

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/internal/storetest"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
)

func adoption(c driver.Claim, token int64, ttl time.Duration) driver.Adoption {
	return driver.Adoption{Name: c.Name, ID: c.ID, Kind: c.Kind, Units: c.Units, Token: token, Mark: driver.NewID(), TTL: ttl}
}

// Both owners use one Store: what the earlier one does late, and that its time is
// over, is nothing to the one that has adopted the claim.
func TestZooKeeperAdoptedInOneStore(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	s, other := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, z.URL(), nil)
	ttl := 100 * time.Millisecond
	var h driver.Claim
	var a driver.Adoption
	var got driver.Status
	for got.State != driver.Holding { // before its time is over
		ttl *= 2
		h = storetest.Mutex("x", ttl)
		st := storetest.Enter(t, s, h, driver.Holding)
		a = adoption(h, st.Token, time.Hour)
		var err error
		got, err = s.Adopt(await.Context(t), a)
		if err != nil || got.State == driver.Holding && got.Token <= st.Token {
			t.Fatalf("adopt: %+v, %v", got, err)
		}
	}
	owned := storetest.Ref(h)
	owned.Mark, owned.TTL = a.Mark, time.Hour
	late := map[string]func(){
		"renew": func() {
			if st, err := storetest.Renew(await.Context(t), s, h); err != nil || st.State != driver.Gone {
				t.Errorf("a late renewal: %v, %v", st.State, err)
			}
		},
		"enter": func() { storetest.Enter(t, s, h, driver.Gone) },
		"leave": func() {
			if was := storetest.Leave(t, s, h); was != driver.Gone {
				t.Errorf("a late leave: %v", was)
			}
		},
		"leave beside an enter": func() {
			left := make(chan struct{})
			go func() {
				defer close(left)
				if was := storetest.Leave(t, s, h); was != driver.Gone {
					t.Errorf("a late leave: %v", was)
				}
			}()
			w := storetest.Mutex("x", time.Hour)
			storetest.Enter(t, s, w, driver.Waiting)
			<-left
			storetest.Leave(t, s, w)
		},
		"its time is over": func() { time.Sleep(2 * ttl) },
	}
	for what, f := range late {
		f()
		// What has died is dropped by the next change of the queue.
		w := storetest.Mutex("x", time.Hour)
		storetest.Enter(t, s, w, driver.Waiting)
		storetest.Leave(t, s, w)
		q, err := other.Inspect(await.Context(t), "x")
		if err != nil || len(q.Claims) != 1 || q.Claims[0].ID != h.ID || q.Claims[0].Token != got.Token || q.Claims[0].TTL != time.Hour {
			t.Fatalf("%s, late, makes this of it: %+v, %v", what, q.Claims, err)
		}
		s.Renew(await.Context(t), []driver.Ref{owned}, func(_ int, st driver.Status, err error) {
			if err != nil || st.State != driver.Holding || st.Token != got.Token {
				t.Errorf("after %s, late, the adopter is told %+v, %v", what, st, err)
			}
		})
	}
	if was, err := s.Leave(await.Context(t), owned); err != nil || was != driver.Holding {
		t.Errorf("the adopter leaves: %v, %v", was, err)
	}
}

// The reply to Adopt is lost, and so is the process that handed the claim over: the
// adopter asks again and has it, and it ends with the adopter's session alone.
func TestZooKeeperAdoptBehindLostReplies(t *testing.T) {
	t.Parallel()
	z := servers.RunZooKeeper(t, servers.ZooKeeperOptions{})
	p := servers.RunProxy(t, z.Addr())
	old, far, near := openZooKeeper(t, z.URL(), nil), openZooKeeper(t, "zk://"+p.Addr(), nil), openZooKeeper(t, z.URL(), nil)
	h := storetest.Mutex("x", time.Hour)
	st := storetest.Enter(t, old, h, driver.Holding)
	if _, err := far.Inspect(await.Context(t), "x"); err != nil { // it is connected
		t.Fatal(err)
	}
	a := adoption(h, st.Token, time.Hour)
	p.Swallow(false, true)
	if st, err := far.Adopt(await.Brief(t, 300*time.Millisecond), a); err == nil {
		t.Fatalf("adopt without a reply: %+v", st)
	}
	p.Drop()
	got, err := far.Adopt(await.Context(t), a)
	for err != nil && !driver.IsPermanent(err) {
		got, err = far.Adopt(await.Context(t), a)
	}
	if err != nil || got.State != driver.Holding || got.Token <= st.Token {
		t.Fatalf("adopt again: %+v, %v", got, err)
	}
	if st, err := near.Adopt(await.Context(t), adoption(h, st.Token, time.Hour)); err != nil || st.State != driver.Refused || st.Blocker == nil || st.Blocker.Token != got.Token {
		t.Errorf("another adopter, later: %+v, %v", st, err)
	}
	old.Close()
	w := storetest.Mutex("x", time.Hour)
	storetest.Enter(t, near, w, driver.Waiting)
	far.Close()
	if st, err := storetest.Get(await.Context(t), near, w); err != nil || st.Token <= got.Token {
		t.Errorf("after the adopter's end: %+v, %v", st, err)
	}
}
