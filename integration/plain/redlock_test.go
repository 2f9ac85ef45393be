package plain

import (
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/quorum/redlock"
	"github.com/pawl-go/pawl/redisstore/plain"
)

// five runs five servers that do not know of each other.
func five(t testing.TB) (rs []*servers.Redis, addrs []string) {
	for range 5 {
		r := servers.RunRedis(t, servers.RedisOptions{})
		rs, addrs = append(rs, r), append(addrs, r.Addr())
	}
	return rs, addrs
}

// openRedlock makes a client of pawl on all the servers; with another prefix it uses other keys.
func openRedlock(t testing.TB, prefix string, addrs []string) pawlPeer {
	t.Helper()
	var nodes []driver.Store
	for _, addr := range addrs {
		nodes = append(nodes, open(t, dial(t, addr, ""), &plain.Options{Prefix: prefix}))
	}
	s, err := redlock.New(nodes, &redlock.Options{MaxPause: peerDelay, Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return pawlPeer{pawl.New(s, &pawl.Options{TTL: peerTTL})}
}

// While redsync holds on five servers pawl is refused, and the other way round; also when one of
// them, and two, are killed.
func TestRedlockExcludes(t *testing.T) {
	t.Parallel()
	rs, addrs := five(t)
	ours, theirs := openRedlock(t, "", addrs), newRedsync(addrs...)
	ctx := await.Context(t)
	for _, kill := range []int{-1, 0, 3} {
		if kill >= 0 {
			rs[kill].Kill()
		}
		for what, pair := range map[string][2]locker{"pawl holds": {ours, theirs}, "redsync holds": {theirs, ours}} {
			release, err := pair[0].lock(ctx, key, true)
			if err != nil {
				t.Fatalf("%s, after the kill of %d: %v", what, kill, err)
			}
			if _, err := pair[1].lock(ctx, key, true); !errors.Is(err, errHeld) {
				t.Fatalf("%s, after the kill of %d: the other is told %v", what, kill, err)
			}
			if err := release(); err != nil {
				t.Fatalf("%s, after the kill of %d: release: %v", what, kill, err)
			}
		}
	}
	rs[1].Kill()
	if _, err := ours.Mutex(key).TryLock(ctx); err == nil || errors.Is(err, pawl.ErrHeld) {
		t.Errorf("with two servers of five: %v", err)
	}
}

// Both count in a file, and one server is killed meanwhile: no addition is lost.
func TestRedlockCount(t *testing.T) {
	t.Parallel()
	rs, addrs := five(t)
	lockers := []locker{openRedlock(t, "", addrs), openRedlock(t, "", addrs), newRedsync(addrs...), newRedsync(addrs...)}
	const rounds = 8
	total := rounds * len(lockers)
	file := countFile(t)
	wait := countAll(t, lockers, file, rounds)
	await.That(t, "they count", func() bool { return counted(t, file) >= total/4 })
	rs[2].Kill()
	wait()
	if got := counted(t, file); got != total {
		t.Errorf("they counted to %d, want %d", got, total)
	}
}

// The same with pawl on other keys: additions are lost, so the test above can fail.
func TestRedlockCountWithOtherKeys(t *testing.T) {
	t.Parallel()
	_, addrs := five(t)
	lockers := []locker{openRedlock(t, "another/", addrs), newRedsync(addrs...)}
	const rounds = 8
	await.That(t, "additions are lost", func() bool {
		file := countFile(t)
		countAll(t, lockers, file, rounds)()
		return counted(t, file) < rounds*len(lockers)
	})
}

func countFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "count")
	if err := writeCount(file, 0); err != nil {
		t.Fatal(err)
	}
	return file
}

func counted(t testing.TB, file string) int {
	t.Helper()
	n, err := readCount(file)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// countAll lets all count. What it returns waits for them.
func countAll(t testing.TB, lockers []locker, file string, rounds int) (wait func()) {
	ctx := await.Context(t)
	var wg sync.WaitGroup
	for _, l := range lockers {
		wg.Go(func() {
			if err := count(ctx, l, key, file, strconv.Itoa(rounds)); err != nil {
				t.Errorf("%T: %v", l, err)
			}
		})
	}
	return wg.Wait
}
