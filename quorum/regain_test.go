package quorum_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/quorum"
)

// has reports at how many nodes the name is held.
func has(t testing.TB, nodes []*memstore.Store, name string) (n int) {
	t.Helper()
	for _, node := range nodes {
		if q, err := node.Inspect(t.Context(), name); err != nil {
			t.Fatal(err)
		} else if len(q.Claims) > 0 && q.Claims[0].State == driver.Holding {
			n++
		}
	}
	return n
}

// A lease that is held for long outlasts all nodes, which lose their memory one after the other.
func TestNodesOneAfterTheOther(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(5)
		initialize(t, nodes, opts)
		s, other := openAt(t, nodes, opts), openAt(t, nodes, opts)
		client := pawl.New(s, &pawl.Options{TTL: 6 * time.Second})
		lease, err := client.Mutex("a").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		token := lease.Token()
		for round := range 2 * len(nodes) {
			nodes[round%len(nodes)].Lose()
			time.Sleep(2 * maxTTL)
			if err := lease.Err(); err != nil {
				t.Fatalf("after %d losses: %v", round+1, err)
			}
			if n := has(t, nodes, "a"); n != len(nodes) {
				t.Errorf("after %d losses %d nodes have it", round+1, n)
			}
		}
		if lease.Token() != token {
			t.Errorf("its token was %d, and is %d", token, lease.Token())
		}
		c := claim("a")
		c.Try = true
		if st, err := other.Enter(t.Context(), c); err != nil || st.State != driver.Refused {
			t.Errorf("another: %v, %v", st.State, err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if st := holds(t, other, claim("a")); st.Token <= token {
			t.Errorf("the next token is %d, after %d", st.Token, token)
		}
		if err := client.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// cutOff is a node that gets one vote late, however long that takes, and renewals not at all
// until then.
type cutOff struct {
	shared
	late chan struct{} // closed when it gets the vote
	cut  atomic.Bool   // the next vote comes late
	sent atomic.Bool   // it is under way
}

func (n *cutOff) Vote(ctx context.Context, v driver.Vote) (driver.Status, error) {
	if m, err := n.Memory(ctx); err == nil && m.Epoch == v.Epoch && n.cut.CompareAndSwap(true, false) {
		n.sent.Store(true)
		<-n.late
		n.sent.Store(false)
		ctx = context.WithoutCancel(ctx)
	}
	return n.Node.Vote(ctx, v)
}

func (n *cutOff) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if n.sent.Load() {
		for i := range rs {
			report(i, driver.Status{}, errors.New("cut off"))
		}
		return
	}
	n.Node.Renew(ctx, rs, report)
}

// A vote that is regained so late that another has held the lock meanwhile does not count.
func TestRegainedLate(t *testing.T) {
	others := 0
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} { // of other primaries
		bubble.Test(t, func(t *testing.T) {
			nodes := memories(3)
			initialize(t, nodes, opts)
			third := &cutOff{shared: shared{nodes[2]}}
			s, err := quorum.New([]driver.Store{&shared{nodes[0]}, &shared{nodes[1]}, third}, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			other := openAt(t, nodes, opts)
			c := claim(name)
			renew := func() (st driver.Status, err error) {
				s.Renew(t.Context(), []driver.Ref{ref(c)}, func(_ int, got driver.Status, e error) { st, err = got, e })
				synctest.Wait()
				return st, err
			}
			held := holds(t, s, c)
			synctest.Wait()
			nodes[2].Lose()
			late := make(chan struct{})
			third.late = late
			for third.cut.Store(true); !third.sent.Load(); { // it stays out until then
				time.Sleep(time.Second)
				if st, err := renew(); err != nil || st.State != driver.Holding {
					t.Fatalf("renewed: %v, %v", st.State, err)
				}
			}

			// One that grants it is left, and another gets the others.
			nodes[1].Lose()
			x := claim(name)
			x.Try = true
			for range 40 {
				time.Sleep(time.Second)
				if st, err := renew(); err == nil {
					t.Fatalf("renewed at one node: %v", st.State)
				}
				st, err := other.Enter(t.Context(), x)
				synctest.Wait()
				if err == nil && st.State == driver.Holding {
					if others++; st.Token <= held.Token {
						t.Errorf("token %d after %d", st.Token, held.Token)
					}
					leave(t, other, x)
					synctest.Wait()
					break
				}
			}
			close(late)
			synctest.Wait()
			if n := has(t, nodes[2:], name); n != 0 {
				t.Error("node 3 has it still")
			}
			for range 3 {
				if st, err := renew(); err == nil && st.State != driver.Gone {
					t.Errorf("renewed after another had it: %v with token %d", st.State, st.Token)
				}
			}
		})
	}
	if others == 0 {
		t.Error("no other claim ever held the lock")
	}
}

// What is released by force at one node is not asked for there again.
func TestRegainsNothingBroken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(3)
		initialize(t, nodes, opts)
		s := openAt(t, nodes, opts)
		c := claim("a")
		holds(t, s, c)
		synctest.Wait()
		renew := func() {
			s.Renew(t.Context(), []driver.Ref{ref(c)}, func(_ int, st driver.Status, err error) {
				if err != nil || st.State != driver.Holding {
					t.Errorf("renewed: %v, %v", st.State, err)
				}
			})
			synctest.Wait()
		}
		if broken, err := nodes[1].Break(t.Context(), "a"); err != nil || len(broken) != 1 {
			t.Fatal(broken, err)
		}
		for range 3 {
			renew()
		}
		if n := has(t, nodes[1:2], "a"); n != 0 {
			t.Error("node 2 has it again")
		}
		nodes[1].Lose()
		for range 20 {
			time.Sleep(time.Second)
			renew()
		}
		if n := has(t, nodes, "a"); n != 3 {
			t.Errorf("after the loss of its memory, %d nodes have it", n)
		}
	})
}
