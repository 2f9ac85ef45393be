//go:build unix

package synchronizers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/proctest"
)

const permits = 5

// permit takes a permit again and again. Each holder locks one of as many files
// as there are permits: the kernel frees it when the process is killed.
func (w *worker) permit() error {
	for !w.stop() {
		lease, err := w.client.Semaphore("permits", permits).Acquire(w, 1)
		if err != nil {
			return err
		}
		slot, err := w.slot()
		if err != nil {
			return err
		}
		if slot == nil {
			w.note("excess", lease.Token())
		} else {
			w.note("holds")
			time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
			slot.Close()
		}
		if err := lease.Unlock(w); err != nil {
			w.note("lost", err)
		}
	}
	return nil
}

// slot answers a file that is locked for this process, nil if there are as many
// living holders as permits.
func (w *worker) slot() (*os.File, error) {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		killed, err := os.ReadFile(w.path("killed"))
		if err != nil {
			return nil, err
		}
		// A process that is being killed gives back one thing after the other.
		dying := false
		for i := range permits {
			f, err := os.OpenFile(w.path(fmt.Sprintf("slot.%d", i)), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return nil, err
			}
			switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
			case err == nil:
				_, err = f.WriteAt(fmt.Appendf(nil, "%10d", os.Getpid()), 0)
				return f, err
			case !errors.Is(err, syscall.EWOULDBLOCK):
				return nil, err
			}
			pid, err := os.ReadFile(f.Name())
			if err != nil {
				return nil, err
			}
			dying = dying || slices.Contains(strings.Fields(string(killed)), strings.TrimSpace(string(pid)))
			f.Close()
		}
		if !dying || time.Now().After(end) {
			return nil, nil
		}
	}
}

// 50 processes share 5 permits, and are killed at random.
func TestPermitsOfTheKilled(t *testing.T) {
	onStores(t, 4*time.Second, func(c *crowd) {
		const all, kills = 50, 20
		if strings.HasPrefix(c.url, "file:") {
			c.ttl = pawl.DefaultTTL // the claims of the killed need not run out there
		}
		c.write("killed", "")
		living := make(map[int]*proctest.Process)
		for len(living) < all {
			for range 10 { // more at once take too long to connect
				p := c.start("permit")
				living[p.Process.Pid] = p
			}
			proctest.Eventually(c, func() bool { return c.noted("holds") >= len(living)/2 }, "they get no permits")
		}
		proctest.Eventually(c, func() bool { return c.noted("holds") == all }, "not all get a permit")
		killed := ""
		for range kills {
			pids := make([]int, 0, len(living))
			for pid := range living {
				pids = append(pids, pid)
			}
			// Rather one that holds.
			if q, err := c.client.Inspect(c.Context(), "permits"); err == nil && rand.IntN(3) > 0 {
				for _, e := range q.Claims {
					if e.State == driver.Holding && living[e.Owner.PID] != nil {
						pids = []int{e.Owner.PID}
					}
				}
			}
			pid := pids[rand.IntN(len(pids))]
			killed += strconv.Itoa(pid) + "\n"
			c.write("killed.new", killed)
			if err := os.Rename(c.dir+"/killed.new", c.dir+"/killed"); err != nil {
				c.Fatal(err)
			}
			living[pid].Process.Kill()
			living[pid].Status()
			delete(living, pid)
			time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
		}
		c.write("stop", "")
		for _, p := range living {
			p.Want(0)
		}
		var holds int
		var lost, excess []entry
		for _, log := range c.logs() {
			for _, e := range log {
				switch e.what {
				case "holds":
					holds++
				case "lost":
					lost = append(lost, e)
				case "excess":
					excess = append(excess, e)
				}
			}
		}
		c.Logf("%d holds", holds)
		switch {
		case len(lost) > 0: // by a machine that stood still for a TTL; they were told
			c.Logf("leases were lost %d times, which allows for more holders: %d times; at first: %s", len(lost), len(excess), lost[0].line)
		case len(excess) > 0:
			c.Errorf("%d times more than %d held, first %+v", len(excess), permits, excess[0])
		}

		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		defer cancel()
		back, err := c.client.Semaphore("permits", permits).Acquire(ctx, permits)
		if err != nil {
			c.Fatalf("not all permits came back: %v", err)
		}
		if err := back.Unlock(ctx); err != nil {
			c.Error(err)
		}
		if q, err := c.client.Inspect(ctx, "permits"); err != nil || len(q.Claims) > 0 {
			c.Errorf("left behind: %+v, %v", q, err)
		}
	})
}
