//go:build unix

package synchronizers

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
)

const permits = 3

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
			time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond)
			for !w.has("begin") && !w.stop() {
				time.Sleep(5 * time.Millisecond)
			}
			slot.Close()
		}
		if err := lease.Unlock(w); err != nil {
			w.note("lost", err)
		}
	}
	return nil
}

// slot returns a file that is locked for this process, nil if there are as many
// living holders as permits.
func (w *worker) slot() (*os.File, error) {
	for end := time.Now().Add(await.Limit); ; time.Sleep(time.Millisecond) {
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

// Processes share a few permits, and are killed at random.
func testPermitsOfTheKilled(c *crowd) {
	const all, kills = 9, 6
	if c.engine.prompt {
		c.ttl = pawl.DefaultTTL // the claims of the killed need not run out there
	}
	c.write("killed", "")
	for range all {
		c.start("permit")
	}
	c.eventually(func() bool { return c.claims("permits") == all }, "not all of them queue up")
	c.eventually(func() bool { return c.noted("holds") == permits }, "they get no permits")
	time.Sleep(2 * moment) // and nobody gets one more
	c.write("begin", "")
	c.eventually(func() bool { return c.noted("holds") == all }, "not all get a permit")
	killed := ""
	for range kills {
		numbers := slices.Collect(maps.Keys(c.living))
		victim := numbers[rand.IntN(len(numbers))]
		// Rather one that holds.
		if n, ok := c.holder("permits"); ok && rand.IntN(3) > 0 {
			victim = n
		}
		killed += strconv.Itoa(c.living[victim].Process.Pid) + "\n"
		c.write("killed.new", killed)
		if err := os.Rename(c.dir+"/killed.new", c.dir+"/killed"); err != nil {
			c.Fatal(err)
		}
		c.kill(victim)
		time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	}
	c.write("stop", "")
	c.end()
	var holds int
	var excess []entry
	for _, log := range c.logs() {
		for _, e := range log {
			switch e.what {
			case "holds":
				holds++
			case "excess":
				excess = append(excess, e)
			}
		}
	}
	c.Logf("%d holds", holds)
	switch lost := c.lost(); {
	case lost > 0:
		c.Logf("leases were lost %d times, which allows for more holders: %d times", lost, len(excess))
	case len(excess) > 0:
		c.Errorf("%d times more than %d held, first %+v", len(excess), permits, excess[0])
	}

	ctx := await.Context(c)
	back, err := c.client.Semaphore("permits", permits).Acquire(ctx, permits)
	if err != nil {
		c.Fatalf("not all permits came back: %v", err)
	}
	if err := back.Unlock(ctx); err != nil {
		c.Error(err)
	}
	c.free("permits")
}

// holder returns a worker that lives and holds the name.
func (c *crowd) holder(name string) (number int, ok bool) {
	c.Helper()
	q, err := c.client.Inspect(c.Context(), name)
	if err != nil {
		c.Log(err) // it is slow
	}
	for _, e := range q.Claims {
		for n, p := range c.living {
			if e.State == driver.Holding && e.Owner.PID == p.Process.Pid {
				return n, true
			}
		}
	}
	return 0, false
}
