//go:build unix

// Package synchronizers tests each synchronizer on every store: in clients of one
// process that are cut off, and in the classic problems with processes of their
// own that are killed.
package synchronizers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/memstore"
)

// opener opens a store as another process would.
type opener func() (driver.Store, error)

// engine is a kind of store.
type engine struct {
	name string
	// start starts what it needs, and returns its URL. Nil: it is in the memory of
	// one process.
	start func(*testing.T) string
	// late is how much longer than its TTL a claim of the dead may live.
	late time.Duration
	// prompt: the claims of a process that dies end with it.
	prompt bool
}

var engines = []engine{
	{name: "memory"},
	{name: "folder", prompt: true, start: func(t *testing.T) string { return "file://" + filepath.Join(t.TempDir(), "store") }},
	{name: "redis", start: func(t *testing.T) string { return servers.RunRedis(t, servers.RedisOptions{}).URL() }},
	{name: "etcd", late: 2 * time.Second, start: func(t *testing.T) string { return servers.RunEtcd(t, servers.EtcdOptions{}).URL() }},
	{name: "zookeeper", late: 3 * time.Second, start: func(t *testing.T) string {
		return servers.RunZooKeeper(t, servers.ZooKeeperOptions{}).URL()
	}},
	{name: "postgres", start: func(t *testing.T) string {
		return servers.RunPostgres(t, servers.PostgresOptions{}).URL() + "&create=true"
	}},
	{name: "mysql", start: func(t *testing.T) string {
		return servers.RunMariaDB(t, servers.MariaDBOptions{}).URL() + "?create=true"
	}},
}

// inClients are the tests whose clients are in this process.
var inClients = []struct {
	name string
	test func(*group)
}{
	{"Barrier broken", testBrokenBarrier}, {"Election", testElection}, {"Once crash", testOnceCrash}, {"Semaphore crash", testSemaphoreCrash},
	{"RWMutex", testRWMutex}, {"RWMutex shared locally", testSharedLocally}, {"RWMutex of two processes", testReadersAndWriters},
	{"Semaphore", testSemaphore}, {"Semaphore limit", testSetLimit}, {"Latch", testLatch}, {"Barrier", testBarrier},
	{"LockAll", testLockAll}, {"Once", testOnce}, {"Yield", testYield}, {"ForceRelease", testForceRelease},
}

// inProcesses are those whose clients are processes; with the TTL of their locks.
var inProcesses = []struct {
	name string
	ttl  time.Duration
	test func(*crowd)
}{
	{"Semaphore", brief, testPermitsOfTheKilled},
	{"Election", brief, testLeadersAreKilled},
	{"Once", brief, testRunnersAreKilled},
	{"Barrier", time.Minute, testGenerations},
	{"LockAll", brief, testSetsOfTheKilled},
	{"Yield", brief, testGivingWay},
	{"Latch", time.Minute, testCounting},
	{"RWMutex", time.Minute, testTornFile},
	{"Barrier broken", short, testStranded},
}

// crowds lets a few of them have their processes at a time.
var crowds = make(chan struct{}, 2)

func TestSynchronizers(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			var url string
			memory := memstore.New()
			open := func() (driver.Store, error) { return unclosed{memory}, nil }
			if e.start != nil {
				url = e.start(t)
				open = func() (driver.Store, error) { return openURL(url) }
				for _, in := range inProcesses {
					t.Run("processes/"+in.name, func(t *testing.T) {
						t.Parallel()
						crowds <- struct{}{}
						defer func() { <-crowds }()
						in.test(newCrowd(t, e, url, in.ttl))
					})
				}
			}
			for _, in := range inClients {
				t.Run("clients/"+in.name, func(t *testing.T) {
					t.Parallel()
					in.test(&group{T: t, ctx: await.Context(t), open: open, name: in.name})
				})
			}
		})
	}
}

// unclosed is a store that several clients share.
type unclosed struct{ driver.Store }

func (unclosed) Close() error { return nil }

const (
	// short is the TTL of clients that crash. They must not lose a lease before
	// that because the machine is slow. Others have the default.
	short = 8 * time.Second
	// brief is the TTL of processes that are killed often, where it shows nothing
	// wrong if they lose a lease before that.
	brief = 2 * time.Second
	// moment is long enough for most mistakes to show.
	moment = 150 * time.Millisecond
)

// group is the clients of one test.
type group struct {
	*testing.T
	ctx  context.Context // of all that is to end soon
	open opener
	name string
}

// client makes one with a store of its own, as in another process.
func (g *group) client(o pawl.Options) *pawl.Client {
	g.Helper()
	c, _ := g.mortal(o)
	return c
}

// mortal makes a client that crash cuts off from its engine, as a process that
// is gone: nothing is released.
func (g *group) mortal(o pawl.Options) (c *pawl.Client, crash func()) {
	g.Helper()
	s, err := g.open()
	if err != nil {
		g.Fatal(err)
	}
	m := &mortal{Store: s}
	c = pawl.New(m.whole(), &o)
	g.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
		if m.dead.Load() { // it cannot say goodbye
			cancel()
		}
		defer cancel()
		if err := c.Close(ctx); err != nil && !m.dead.Load() {
			g.Errorf("close client: %v", err)
		}
		if err := s.Close(); err != nil {
			g.Errorf("close store: %v", err)
		}
	})
	return c, func() { m.dead.Store(true) }
}

// must ends the test on an error.
func (g *group) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// want checks an error.
func (g *group) want(err, target error) {
	g.Helper()
	if !errors.Is(err, target) {
		g.Fatalf("got %v, want %v", err, target)
	}
}

// lease ends the test if there is none.
func (g *group) lease(l *pawl.Lease, err error) *pawl.Lease {
	g.Helper()
	g.must(err)
	return l
}

// rwLease is lease of a reader or a writer.
func (g *group) rwLease(l *pawl.RWLease, err error) *pawl.RWLease {
	g.Helper()
	g.must(err)
	return l
}

// unlocker is a lease, of whatever kind.
type unlocker interface {
	Unlock(ctx context.Context) error
}

// unlock releases leases that are held.
func (g *group) unlock(leases ...unlocker) {
	g.Helper()
	for _, l := range leases {
		g.must(l.Unlock(g.ctx))
	}
}

// later is what a call returns that waits.
type later[L unlocker] struct {
	lease L
	err   error
	at    time.Time
}

// wait starts a call that waits, and returns when that many claims wait for
// name.
func wait[L unlocker](g *group, c *pawl.Client, name string, waiting int, call func(context.Context) (L, error)) <-chan later[L] {
	g.Helper()
	ch := make(chan later[L], 1)
	go func() {
		lease, err := call(g.ctx)
		ch <- later[L]{lease, err, time.Now()}
	}()
	g.eventually(func() bool { _, w := g.count(c, name); return w == waiting }, "%d do not wait for %q", waiting, name)
	return ch
}

// granted is what the call got.
func granted[L unlocker](g *group, ch <-chan later[L]) L {
	g.Helper()
	l := <-ch
	g.must(l.err)
	return l.lease
}

// count returns how many claims hold a name and wait for it.
func (g *group) count(c *pawl.Client, name string) (holding, waiting int) {
	g.Helper()
	q, err := c.Inspect(g.ctx, name)
	g.must(err)
	for _, e := range q.Claims {
		if e.State == driver.Holding {
			holding++
		} else {
			waiting++
		}
	}
	return holding, waiting
}

// free checks that nothing is left of a name.
func (g *group) free(c *pawl.Client, name string) {
	g.Helper()
	if h, w := g.count(c, name); h+w > 0 {
		g.Errorf("%d hold and %d wait for %q at the end", h, w, name)
	}
}

func (g *group) eventually(ok func() bool, format string, args ...any) {
	g.Helper()
	for !ok() {
		select {
		case <-g.ctx.Done():
			g.Fatalf(format, args...)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// closes waits until ch is closed.
func (g *group) closes(ch <-chan struct{}, what string) {
	g.Helper()
	select {
	case <-ch:
	case <-g.ctx.Done():
		g.Fatalf("%s: nothing happens", what)
	}
}

// mortal is a store that nobody reaches once it is dead.
type mortal struct {
	driver.Store
	dead atomic.Bool
}

var errDead = errors.New("cut off")

func (m *mortal) gone() error {
	if m.dead.Load() {
		return errDead
	}
	return nil
}

// whole returns the store with the optional part of the one beneath.
func (m *mortal) whole() driver.Store {
	if all, ok := m.Store.(driver.AllEnterer); ok {
		return struct {
			*mortal
			driver.AllEnterer
		}{m, all}
	}
	return m
}

func (m *mortal) Enter(ctx context.Context, c driver.Claim) (driver.Status, error) {
	if err := m.gone(); err != nil {
		return driver.Status{}, err
	}
	return m.Store.Enter(ctx, c)
}

func (m *mortal) Renew(ctx context.Context, rs []driver.Ref, report func(int, driver.Status, error)) {
	if err := m.gone(); err != nil {
		for i := range rs {
			report(i, driver.Status{}, err)
		}
		return
	}
	m.Store.Renew(ctx, rs, report)
}

func (m *mortal) Leave(ctx context.Context, r driver.Ref) (driver.State, error) {
	if err := m.gone(); err != nil {
		return driver.Gone, err
	}
	return m.Store.Leave(ctx, r)
}

func (m *mortal) Load(ctx context.Context, name string) (driver.Record, error) {
	if err := m.gone(); err != nil {
		return driver.Record{}, err
	}
	return m.Store.Load(ctx, name)
}

func (m *mortal) CompareAndSwap(ctx context.Context, r driver.Record) (driver.Record, error) {
	if err := m.gone(); err != nil {
		return driver.Record{}, err
	}
	return m.Store.CompareAndSwap(ctx, r)
}

func (m *mortal) WaitChange(ctx context.Context, name string, version int64) (driver.Record, error) {
	r, err := m.Store.WaitChange(ctx, name, version)
	return r, errors.Join(err, m.gone())
}

func (m *mortal) Wait(ctx context.Context, r driver.Ref) (driver.Status, error) {
	s, err := m.Store.Wait(ctx, r)
	return s, errors.Join(err, m.gone())
}

// names returns n names of the test's own.
func (g *group) names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%s/%c", g.name, 'a'+i))
	}
	return all
}
