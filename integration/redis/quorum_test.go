package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/integration/internal/crew"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/quorum"
	"github.com/pawl-go/pawl/redisstore"
	"github.com/pawl-go/pawl/redisstore/rueidis"
)

// notByMajority is what a quorum has not.
var notByMajority = map[drivertest.Feature]string{
	drivertest.Units:     "three claims for one of two permits each could all hold",
	drivertest.Adopt:     "nodes that were not told would not follow",
	drivertest.Resize:    "nodes that were not told would not follow",
	drivertest.SetLimit:  "there are no semaphores",
	drivertest.Drawn:     "nobody but its owner gathers votes for a claim",
	drivertest.Gathered:  "the primary's grant has a token when its owner has got the others'",
	drivertest.Records:   "they take consensus",
	drivertest.RecordTTL: "there are no records",
}

func runFive(t *testing.T) []*servers.Redis {
	five := make([]*servers.Redis, 5)
	for i := range five {
		five[i] = servers.RunRedis(t, servers.RedisOptions{AppendOnly: true})
	}
	return five
}

// openNodes opens a store for each address.
func openNodes(t testing.TB, o *redisstore.Options, addrs ...string) []driver.Store {
	t.Helper()
	var nodes []driver.Store
	for _, addr := range addrs {
		n, err := rueidis.Open("redis://"+addr, o)
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func addrs(rs []*servers.Redis) (addrs []string) {
	for _, r := range rs {
		addrs = append(addrs, r.Addr())
	}
	return addrs
}

// initQuorum makes new servers a quorum.
func initQuorum(t testing.TB, ro *redisstore.Options, o *quorum.Options, addrs ...string) {
	t.Helper()
	nodes := openNodes(t, ro, addrs...)
	if err := quorum.Init(t.Context(), nodes, o); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		n.Close()
	}
}

func TestQuorumConformance(t *testing.T) {
	five := runFive(t)
	o := &quorum.Options{MaxTTL: driver.MaxTTL, Patience: 2 * time.Second}
	initQuorum(t, nil, o, addrs(five)...)
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: 500 * time.Millisecond,
		Missing:  notByMajority,
		New: func(testing.TB) drivertest.Backing {
			return drivertest.Backing{Open: func() (driver.Store, error) { return quorum.New(openNodes(t, nil, addrs(five)...), o) }}
		},
	})
}

// Clients count while servers fail: two of five at a time.
func TestQuorumFailover(t *testing.T) {
	t.Parallel()
	const maxTTL = crew.SteadyTTL
	o := &quorum.Options{MaxTTL: maxTTL}
	for name, hurt := range map[string]func(*testing.T, []*servers.Redis, *crew.Crew){
		"two are killed, one by one": func(t *testing.T, five []*servers.Redis, cr *crew.Crew) {
			five[0].Kill()
			cr.GoOn(2)
			five[3].Kill()
			cr.GoOn(2)
			for _, i := range []int{0, 3} {
				if err := five[i].Restart(true); err != nil {
					t.Fatal(err)
				}
			}
		},
		"two are stopped": func(t *testing.T, five []*servers.Redis, cr *crew.Crew) {
			five[1].Pause()
			five[2].Pause()
			cr.GoOn(2)
			five[1].Resume()
			five[2].Resume()
		},
		"two are started again without data": func(t *testing.T, five []*servers.Redis, cr *crew.Crew) {
			for _, i := range []int{2, 4} {
				if err := five[i].Restart(false); err != nil {
					t.Fatal(err)
				}
				cr.GoOn(1)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			five := runFive(t)
			initQuorum(t, nil, o, addrs(five)...)
			cr := crew.New(t)
			for i := range 4 {
				cr.Hire(fmt.Sprint("client ", i), quorumOf(t, o, addrs(five)...), crew.TTL)
			}
			cr.GoOn(2)
			cr.Hold("steady", cr.Client(quorumOf(t, o, addrs(five)...), crew.SteadyTTL), func(lease *pawl.Lease) { cr.Extended(lease) })
			hurt(t, five, cr)
			cr.GoOn(2)
			cr.End()
		})
	}
}

func quorumOf(t testing.TB, o *quorum.Options, addrs ...string) *quorum.Store {
	t.Helper()
	s, err := quorum.New(openNodes(t, nil, addrs...), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Clients that reach other servers than each other, but a majority each, exclude each other.
func TestQuorumPartlyCutOff(t *testing.T) {
	t.Parallel()
	five := runFive(t)
	o := &quorum.Options{MaxTTL: crew.SteadyTTL}
	initQuorum(t, nil, o, addrs(five)...)
	cr := crew.New(t)
	for i := range 5 {
		// Client i does not reach servers i and i+1.
		mine := addrs(five)
		for _, k := range []int{i, (i + 1) % 5} {
			p := servers.RunProxy(t, mine[k])
			p.Swallow(true, true)
			mine[k] = p.Addr()
		}
		cr.Hire(fmt.Sprint("without ", i), quorumOf(t, o, mine...), crew.TTL)
	}
	cr.GoOn(3)
	cr.End()
}

// A server that was started again has its data, and does not vote before MaxTTL has
// passed: its data may be older than what it has promised.
func TestQuorumMemoryOfAServer(t *testing.T) {
	t.Parallel()
	r := servers.RunRedis(t, servers.RedisOptions{AppendOnly: true})
	n := openNodes(t, nil, r.Addr())[0].(driver.Node)
	defer n.Close()
	ctx := await.Context(t)
	m, err := n.Quarantine(ctx, 0)
	if err != nil || m.Epoch != "" || m.Quarantine == "" {
		t.Fatalf("a new server: %+v, %v", m, err)
	}
	if m, err = n.Remember(ctx, driver.Admission{Quarantine: m.Quarantine, Epoch: "epoch-1", Mark: 7}); err != nil || m.Epoch != "epoch-1" {
		t.Fatalf("%+v, %v", m, err)
	}
	c := driver.Claim{Name: "a", ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: time.Minute}
	held, err := n.Vote(ctx, driver.Vote{Claim: c, Epoch: "epoch-1"})
	if err != nil || held.State != driver.Holding {
		t.Fatalf("%+v, %v", held, err)
	}
	if err := r.Restart(true); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the server is back, and the client has left its old connections", func() bool {
		for i := 0; i < 64 && err == nil; i++ { // it takes any of several
			m, err = n.Memory(ctx)
		}
		again := err == nil
		err = nil
		return again
	})
	if m.Epoch != "" || m.Mark < held.Token {
		t.Errorf("it was started again with its data, and remembers %+v; token %d was drawn", m, held.Token)
	}
	other := c
	other.ID, other.Name = driver.NewID(), "b"
	await.That(t, "it refuses to vote", func() bool { // once the client has left its old connections
		_, err := n.Vote(ctx, driver.Vote{Claim: other, Epoch: "epoch-1"})
		if err == nil {
			t.Fatal("it votes")
		}
		return strings.Contains(err.Error(), "lost its memory")
	})
	n.Renew(ctx, []driver.Ref{{Name: c.Name, ID: c.ID, TTL: c.TTL}}, func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			t.Errorf("a claim in its data is renewed: %v, %v", st.State, err)
		}
	})
	// Who wants to end a quarantine names it, and waits until it is over.
	began, err := n.Quarantine(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []driver.Admission{
		{Quarantine: m.Quarantine + "x", Epoch: "epoch-2", AtOnce: true}, {Quarantine: began.Quarantine, Epoch: "epoch-2"},
	} {
		if m, err := n.Remember(ctx, a); err != nil || m.Epoch != "" {
			t.Errorf("%+v was admitted: %+v, %v", a, m, err)
		}
	}
	const mark = 1 << 51
	if m, err = n.Remember(ctx, driver.Admission{Quarantine: began.Quarantine, Epoch: "epoch-2", Mark: mark, AtOnce: true}); err != nil || m.Mark != mark {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, v := range []driver.Claim{c, other} { // also what it knows of old
		if st, err := n.Vote(ctx, driver.Vote{Claim: v, Epoch: "epoch-2"}); err != nil || st.State != driver.Holding || st.Token <= mark {
			t.Errorf("a vote after an admission with mark %d: %+v, %v", int64(mark), st, err)
		}
	}
}

// Servers that are all new, or were all started again, become a quorum by themselves.
func TestQuorumOfNewServers(t *testing.T) {
	t.Parallel()
	five := runFive(t)
	s := quorumOf(t, &quorum.Options{MaxTTL: 2 * time.Second}, addrs(five)...)
	client := pawl.New(s, &pawl.Options{TTL: time.Second})
	defer client.Close(t.Context())
	began := time.Now()
	lease, err := client.Mutex("a").Lock(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("they voted after %v, MaxTTL is 2s", took)
	}
	if !slices.ContainsFunc(s.Nodes(t.Context()), func(n quorum.NodeState) bool { return n.Votes }) {
		t.Errorf("no node says that it votes")
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
