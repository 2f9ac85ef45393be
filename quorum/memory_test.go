package quorum_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/quorum"
)

const maxTTL = 10 * time.Second

var opts = &quorum.Options{MaxTTL: maxTTL}

func claim(name string) driver.Claim {
	return driver.Claim{Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: maxTTL}
}

func ref(c driver.Claim) driver.Ref { return driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL} }

func openAt(t testing.TB, nodes []*memstore.Store, o *quorum.Options) *quorum.Store {
	t.Helper()
	s, err := open(nodes, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// holds enters a claim, and fails the test unless it holds.
func holds(t testing.TB, s driver.Store, c driver.Claim) driver.Status {
	t.Helper()
	st, err := s.Enter(t.Context(), c)
	if err != nil || st.State != driver.Holding {
		t.Fatalf("enter: %v, %v", st.State, err)
	}
	return st
}

func leave(t testing.TB, s driver.Store, c driver.Claim) {
	t.Helper()
	if was, err := s.Leave(t.Context(), ref(c)); err != nil || was != driver.Holding {
		t.Fatalf("leave: %v, %v", was, err)
	}
}

// votes waits until that many nodes vote.
func votes(t testing.TB, s *quorum.Store, want int) {
	t.Helper()
	await.That(t, "nodes vote", func() bool {
		n := 0
		for _, st := range s.Nodes(t.Context()) {
			if st.Votes {
				n++
			}
		}
		return n == want
	})
}

// Nodes that are all new become a quorum by themselves, after MaxTTL and not before.
func TestNewNodes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(3)
		s := openAt(t, nodes, opts)
		begun := time.Now()
		_, err := s.Enter(t.Context(), claim("a"))
		memory, ok := errors.AsType[*quorum.MemoryError](err)
		if !ok || driver.IsPermanent(err) {
			t.Fatalf("an Enter at once: %v", err)
		}
		t.Log(err, memory)
		for {
			if _, err := s.Enter(t.Context(), claim("a")); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begun); took < maxTTL || took > maxTTL+2*time.Second {
			t.Errorf("they vote after %v, MaxTTL is %v", took, maxTTL)
		}
	})
}

// A node that has lost its memory stays out for MaxTTL, while the others go on, and then has
// the greatest mark.
func TestNodeWithoutMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(3)
		initialize(t, nodes, opts)
		s := openAt(t, nodes, opts)
		a := claim("a")
		first := holds(t, s, a)
		synctest.Wait() // for the vote of the third
		nodes[0].Lose()
		leave(t, s, a)
		lost := time.Now()
		b := claim("a")
		second := holds(t, s, b)
		if second.Token <= first.Token {
			t.Errorf("token %d after %d", second.Token, first.Token)
		}
		votes(t, s, 2)
		for {
			m, err := nodes[0].Memory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if m.Epoch != "" {
				if m.Mark < second.Token {
					t.Errorf("it votes with mark %d, and token %d was given", m.Mark, second.Token)
				}
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if out := time.Since(lost); out < maxTTL {
			t.Errorf("it votes again after %v, and what it had granted may hold for %v", out, maxTTL)
		}
	})
}

// If a majority has lost its memory, and others have not, an operator must say what holds.
func TestMajorityWithoutMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(3)
		initialize(t, nodes, opts)
		s := openAt(t, nodes, opts)
		first := holds(t, s, claim("a"))
		nodes[0].Lose()
		nodes[1].Lose()
		for range 30 {
			if st, err := s.Enter(t.Context(), claim("a")); err == nil && st.State == driver.Holding {
				t.Fatalf("one node alone: %+v", st)
			}
			time.Sleep(time.Second)
		}
		c := claim("b")
		c.Try = true
		_, err := s.Enter(t.Context(), c)
		if memory, ok := errors.AsType[*quorum.MemoryError](err); !ok || !memory.Lost || !strings.Contains(err.Error(), "an operator must say") {
			t.Errorf("the error is %v", err)
		}
		initialize(t, nodes, opts)
		time.Sleep(time.Second)
		if st := holds(t, s, claim("a")); st.Token <= first.Token {
			t.Errorf("token %d after %d", st.Token, first.Token)
		}
	})
}

// Who names the nodes in another order, or has another MaxTTL, is told so.
func TestOtherConfiguration(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(3)
		initialize(t, nodes, opts)
		holds(t, openAt(t, nodes, opts), claim("a"))
		for what, s := range map[string]*quorum.Store{
			"order":  openAt(t, []*memstore.Store{nodes[1], nodes[2], nodes[0]}, opts),
			"MaxTTL": openAt(t, nodes, &quorum.Options{MaxTTL: time.Minute}),
			"number": openAt(t, append(memories(2), nodes...), opts),
		} {
			_, err := s.Enter(t.Context(), claim("b"))
			if err == nil || !strings.Contains(err.Error(), "same nodes in the same order") || what != "number" && !driver.IsPermanent(err) {
				t.Errorf("another %s: %v", what, err)
			}
		}
		// Nothing was changed, also not by a node without memory that waits for others.
		nodes[0].Lose()
		other := openAt(t, nodes, &quorum.Options{MaxTTL: time.Second})
		other.Enter(t.Context(), claim("b"))
		time.Sleep(5 * time.Second)
		if m, err := nodes[0].Memory(t.Context()); err != nil || m.Quarantine != "" {
			t.Errorf("a quarantine was begun by who has another MaxTTL: %+v, %v", m, err)
		}
	})
}

func TestBadNodes(t *testing.T) {
	n := memstore.New()
	three := []driver.Store{n, memstore.New(), memstore.New()}
	for what, bad := range map[string]struct {
		nodes []driver.Store
		opts  *quorum.Options
		want  error
	}{
		"none":      {nil, nil, driver.ErrInvalid},
		"one":       {three[:1], nil, driver.ErrInvalid},
		"even":      {append([]driver.Store{memstore.New()}, three...), nil, driver.ErrInvalid},
		"nine":      {make([]driver.Store, 9), nil, driver.ErrInvalid},
		"twice":     {[]driver.Store{n, n, memstore.New()}, nil, driver.ErrInvalid},
		"no node":   {[]driver.Store{n, struct{ driver.Store }{n}, memstore.New()}, nil, driver.ErrUnsupported},
		"names":     {three, &quorum.Options{Names: []string{"a"}}, driver.ErrInvalid},
		"short TTL": {three, &quorum.Options{MaxTTL: time.Millisecond}, driver.ErrInvalid},
		"long TTL":  {three, &quorum.Options{MaxTTL: 1000 * time.Hour}, driver.ErrInvalid},
	} {
		if _, err := quorum.New(bad.nodes, bad.opts); !errors.Is(err, bad.want) {
			t.Errorf("%s: %v, want %v", what, err, bad.want)
		}
	}
}

// What exceeds MaxTTL would outlive the time that a node without memory stays out.
func TestMaxTTL(t *testing.T) {
	nodes := memories(3)
	initialize(t, nodes, opts)
	s := openAt(t, nodes, opts)
	long := claim("a")
	long.TTL = maxTTL + 1
	if _, err := s.Enter(t.Context(), long); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Enter: %v", err)
	}
	c := claim("a")
	holds(t, s, c)
	r := ref(c)
	r.TTL = maxTTL + 1
	s.Renew(t.Context(), []driver.Ref{r}, func(_ int, _ driver.Status, err error) {
		if !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Renew: %v", err)
		}
	})
	r.Linger = maxTTL + 1
	if _, err := s.Leave(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Leave: %v", err)
	}
	leave(t, s, c)
}

// Why a quorum has no semaphores: each node does its part right, and of three claims for
// two permits all have a majority.
func TestSemaphoreByMajorityWouldOvergrant(t *testing.T) {
	nodes := memories(3)
	initialize(t, nodes, opts)
	held := make(map[string]int)
	for i := range 3 {
		c := claim("a")
		c.Kind, c.Limit = driver.KindSemaphore, 2
		for k, n := range nodes {
			m, err := n.Memory(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if k != i {
				st, err := n.Vote(t.Context(), driver.Vote{Claim: c, Epoch: m.Epoch})
				if err != nil || st.State != driver.Holding {
					t.Fatalf("%v, %v", st.State, err)
				}
				held[c.ID]++
			}
		}
	}
	for _, n := range held {
		if n < 2 {
			t.Errorf("a claim has %d of 3 nodes", n)
		}
	}
	if len(held) != 3 {
		t.Errorf("%d claims have a majority, want 3 for 2 permits", len(held))
	}
	c := claim("b")
	c.Kind, c.Limit = driver.KindSemaphore, 2
	if _, err := openAt(t, nodes, opts).Enter(context.Background(), c); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a semaphore: %v", err)
	}
}
