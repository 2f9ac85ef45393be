package quorum_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/bubble"
	"github.com/pawl-go/pawl/internal/faultstore"
	"github.com/pawl-go/pawl/quorum"
)

// A claim held until it left also where a node does not reply whose vote counts, and
// others do that never granted it.
func TestLeaveWithoutReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(5)
		initialize(t, nodes, nil)
		var nets []*faultstore.Node
		var stores []driver.Store
		for _, n := range nodes {
			nets = append(nets, faultstore.NewNode(&shared{n}))
			stores = append(stores, nets[len(nets)-1])
		}
		s, err := quorum.New(stores, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		down := func(yes bool, nodes ...int) {
			for _, i := range nodes {
				nets[i].Set(func() { nets[i].Down = yes })
			}
		}
		for off := range nodes { // one of these is the primary
			at := func(i int) int { return (off + i) % len(nodes) }
			c := driver.Claim{Name: "a", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
			down(true, at(0), at(1))
			st, err := s.Enter(t.Context(), c)
			if err != nil || st.State != driver.Holding {
				t.Fatalf("%v, %v", st.State, err)
			}
			time.Sleep(5 * time.Second) // the votes under way are given up
			down(false, at(0), at(1))
			down(true, at(2))
			if was, err := s.Leave(t.Context(), driver.Ref{Name: "a", ID: c.ID}); err != nil || was != driver.Holding {
				t.Errorf("without node %d: %v, %v", at(2)+1, was, err)
			}
			down(false, at(2))
			time.Sleep(5 * time.Second)
		}
	})
}

// Nobody could adopt a lease that was handed over: it stays where it is.
func TestHandOver(t *testing.T) {
	nodes := memories(3)
	initialize(t, nodes, nil)
	s, err := open(nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := pawl.New(s, nil)
	defer client.Close(t.Context())
	lease, err := client.Mutex("a").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h, err := lease.HandOver(t.Context()); !errors.Is(err, pawl.ErrUnsupported) {
		t.Errorf("handed over as %q: %v", h, err)
	}
	if err := lease.Extend(t.Context(), 0); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("unlock: %v", err)
	}
}

// A claim that leaves while votes for it are under way is nowhere soon after; one that is entered
// again has its new TTL.
func TestLeaveAmidVotes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(5)
		initialize(t, nodes, nil)
		var stores []driver.Store
		for i, n := range nodes {
			f := faultstore.NewNode(&shared{n})
			f.Rand, f.Delay = rand.New(rand.NewPCG(uint64(i), 1)), time.Millisecond
			if i%2 == 1 {
				f.Delay = 40 * time.Millisecond
			}
			stores = append(stores, f)
		}
		s, err := quorum.New(stores, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 20 {
			c := driver.Claim{Name: "a", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute / 2}
			if st, err := s.Enter(t.Context(), c); err != nil || st.State != driver.Holding {
				t.Fatalf("%v, %v", st.State, err)
			}
			longer := c
			longer.TTL *= 2
			if st, err := s.Enter(t.Context(), longer); err != nil || st.State != driver.Holding || time.Until(st.Deadline) < 3*c.TTL/2 {
				t.Errorf("entered again with a TTL of %v: %v for %v, %v", longer.TTL, st.State, time.Until(st.Deadline), err)
			}
			if was, err := s.Leave(t.Context(), ref(c)); err != nil || was != driver.Holding {
				t.Errorf("%v, %v", was, err)
			}
			// A node that has it still, or again, is no reason to gather votes for it.
			s.Renew(t.Context(), []driver.Ref{ref(c)}, func(_ int, st driver.Status, err error) {
				if err != nil || st.State != driver.Gone {
					t.Errorf("renewed after it has left: %v, %v", st.State, err)
				}
			})
			if st, err := s.Wait(t.Context(), ref(c)); err != nil || st.State != driver.Gone {
				t.Errorf("waited for after it has left: %v, %v", st.State, err)
			}
			time.Sleep(time.Second)
			for i, n := range nodes {
				if q, _ := n.Inspect(t.Context(), "a"); len(q.Claims) > 0 {
					t.Errorf("node %d still has %+v", i+1, q.Claims)
				}
			}
		}
	})
}

// votesLate is a node whose votes take longer than those of others. It counts Leaves.
type votesLate struct {
	shared
	leaves atomic.Int64
}

func (n *votesLate) Vote(ctx context.Context, v driver.Vote) (driver.Status, error) {
	time.Sleep(10 * time.Millisecond)
	return n.Node.Vote(ctx, v)
}

func (n *votesLate) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	n.leaves.Add(1)
	return n.Node.Leave(ctx, r)
}

// A Leave does not overtake a vote that is under way, after which it would have to be repeated.
func TestLeaveAfterVotes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		nodes := memories(5)
		initialize(t, nodes, nil)
		late := []*votesLate{{shared: shared{nodes[3]}}, {shared: shared{nodes[4]}}}
		s, err := quorum.New([]driver.Store{&shared{nodes[0]}, &shared{nodes[1]}, &shared{nodes[2]}, late[0], late[1]}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // most have another primary
		for _, name := range names {
			c := claim(name)
			holds(t, s, c)
			leave(t, s, c)
			time.Sleep(time.Second)
		}
		for i, n := range late {
			if got := n.leaves.Load(); got != int64(len(names)) {
				t.Errorf("node %d was told %d times that a claim leaves, want %d", i+4, got, len(names))
			}
		}
	})
}
