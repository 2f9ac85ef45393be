//go:build unix

package synchronizers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/integration/servers"
	"github.com/pawl-go/pawl/internal/proctest"
)

const parties = 4

// barrier goes through the generations, and looks each time where the others are.
func (w *worker) barrier() error {
	generations, err := strconv.Atoi(os.Getenv("GENERATIONS"))
	if err != nil {
		return err
	}
	at, err := os.OpenFile(w.path("at"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer at.Close()
	b := w.client.Barrier("barrier", parties)
	for n := 1; n <= generations; n++ {
		mine := binary.BigEndian.AppendUint64(nil, uint64(n))
		if _, err := at.WriteAt(mine, int64(8*w.number)); err != nil {
			return err
		}
		index, err := b.Wait(w)
		if err != nil {
			return fmt.Errorf("generation %d: %w", n, err)
		}
		var all [8 * parties]byte
		if _, err := at.ReadAt(all[:], 0); err != nil {
			return err
		}
		for p := range parties {
			// The others have come too, and can't be further than the next one.
			if is := int(binary.BigEndian.Uint64(all[8*p:])); is < n || is > n+1 {
				return fmt.Errorf("after generation %d the other one, %d, is in %d", n, p, is)
			}
		}
		w.note("passed", n, index)
	}
	return nil
}

// A barrier of 4 processes: none runs ahead.
func TestGenerations(t *testing.T) {
	onStores(t, 15*time.Second, func(c *crowd) {
		const generations = 1000
		began := time.Now()
		var all []*proctest.Process
		for range parties {
			all = append(all, c.start("barrier", fmt.Sprintf("GENERATIONS=%d", generations)))
		}
		// A folder takes its time: they must get on, however slowly.
		for n := generations / 10; n < generations; n += generations / 10 {
			proctest.Eventually(c, func() bool {
				for _, p := range all {
					if failed := p.Printed(); failed != "" {
						c.Fatal(failed)
					}
				}
				return c.generation() >= n
			}, "they do not come to generation %d", n)
		}
		for _, p := range all {
			p.Want(0)
		}
		c.Logf("%d generations in %v", generations, time.Since(began).Round(time.Millisecond))
		indexes := make([][]int64, generations)
		for _, log := range c.logs() {
			for _, e := range log {
				if e.what == "passed" {
					indexes[e.values[0]-1] = append(indexes[e.values[0]-1], e.values[1])
				}
			}
		}
		for n, got := range indexes {
			if slices.Sort(got); !slices.Equal(got, []int64{0, 1, 2, 3}) {
				c.Fatalf("generation %d: indexes %v", n+1, got)
			}
		}
	})
}

// generation answers where the first party of the barrier is.
func (c *crowd) generation() int {
	text, err := os.ReadFile(filepath.Join(c.dir, "at"))
	if err != nil || len(text) < 8 {
		return 0
	}
	return int(binary.BigEndian.Uint64(text))
}

// count counts parties down, some of them twice.
func (w *worker) count() error {
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	to, err := strconv.Atoi(os.Getenv("TO"))
	if err != nil {
		return err
	}
	for n := from; n < to; n++ {
		party, times := "", 1
		if n%2 == 0 {
			party, times = fmt.Sprint("party ", n), 2
		}
		for range times {
			left, err := w.client.Latch("latch", 100).CountDown(w, party)
			if err != nil {
				return err
			}
			w.note("left", left)
		}
	}
	return nil
}

// A latch of 100, counted down over a network that loses replies, opens at 0
// exactly.
func TestLatchWithLostReplies(t *testing.T) {
	r := servers.RunRedis(t, servers.RedisOptions{})
	direct := newCrowd(t, r.URL(), 10*time.Second)
	proxy := servers.RunProxy(t, r.Addr())
	lossy := newCrowd(t, "redis://"+proxy.Addr(), 2*time.Second)

	stop, lost := make(chan struct{}), 0
	var losing sync.WaitGroup
	losing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(60 * time.Millisecond):
			}
			proxy.Swallow(false, true)
			time.Sleep(30 * time.Millisecond)
			proxy.Drop()
			lost++
		}
	})
	defer func() { close(stop); losing.Wait(); t.Logf("%d times replies were lost", lost) }()

	latch := direct.client.Latch("latch", 100)
	opened := make(chan error, 1)
	go func() { opened <- latch.Wait(t.Context()) }()
	count := func(from, to int) *proctest.Process {
		return lossy.start("count", fmt.Sprintf("FROM=%d", from), fmt.Sprintf("TO=%d", to))
	}
	var all []*proctest.Process
	for i := range 9 {
		all = append(all, count(11*i, 11*(i+1)))
	}
	for _, p := range all {
		p.Want(0)
	}
	if left, err := latch.Count(t.Context()); left != 1 || err != nil {
		t.Fatalf("after 99 parties %d are missing: %v", left, err)
	}
	select {
	case err := <-opened:
		t.Fatalf("open with one missing: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	count(99, 100).Want(0)
	if err := <-opened; err != nil {
		t.Error(err)
	}
	if left, err := latch.CountDown(t.Context(), "one too many"); left != 0 || err != nil {
		t.Errorf("%d are missing from an open latch: %v", left, err)
	}
	if _, err := direct.client.Latch("latch", 99).Count(t.Context()); !errors.Is(err, pawl.ErrMismatch) {
		t.Error(err)
	}
}
