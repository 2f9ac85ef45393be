//go:build unix

package synchronizers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/integration/servers"
)

const counted = 100 // parties of the latch

// count counts parties down, those with a name twice.
func (w *worker) count() error {
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	to, err := strconv.Atoi(os.Getenv("TO"))
	if err != nil {
		return err
	}
	for n := from; n < to; n++ {
		party, times := "", 1
		if n%2 == 0 || os.Getenv("NAMED") != "" {
			party, times = fmt.Sprint("party ", n), 2
		}
		for range times {
			left, err := w.client.Latch("latch", counted).CountDown(w, party)
			if err != nil {
				return err
			}
			w.note("left", left)
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	}
	return nil
}

// lose lets a proxy lose replies again and again, until the function that it
// returns is called. In between it waits until progress returns more: on a machine
// with more to do, too, some replies must come through.
func lose(proxy *servers.Proxy, progress func() int) (stop func() (times int)) {
	done, lost := make(chan struct{}), 0
	pause := func(over func() bool) bool {
		for !over() {
			select {
			case <-done:
				return false
			case <-time.After(10 * time.Millisecond):
			}
		}
		return true
	}
	var losing sync.WaitGroup
	losing.Go(func() {
		for seen := 0; pause(func() bool { return progress() > seen }); seen = progress() {
			before := proxy.Swallowed()
			proxy.Swallow(false, true)
			if pause(func() bool { return proxy.Swallowed() > before }) {
				lost++
			}
			proxy.Drop()
		}
	})
	return sync.OnceValue(func() int {
		close(done)
		losing.Wait()
		return lost
	})
}

// noteSize returns how much all workers have noted.
func (c *crowd) noteSize() (n int) {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "log.*"))
	for _, log := range logs {
		if info, err := os.Stat(log); err == nil {
			n += int(info.Size())
		}
	}
	return n
}

// A latch of 100 is counted down over a network that loses replies, and by
// processes that are killed and started anew. It opens at 0 exactly.
func testCounting(c *crowd) {
	lossy := c.url
	if u, err := url.Parse(c.url); err != nil {
		c.Fatal(err)
	} else if u.Host != "" {
		proxy := servers.RunProxy(c, u.Host)
		u.Host = proxy.Addr()
		lossy = u.String()
		stop := lose(proxy, c.noteSize)
		defer func() { c.Logf("%d times replies were lost", stop()) }()
	}
	latch := c.client.Latch("latch", counted)
	opened := make(chan error, 1)
	go func() { opened <- latch.Wait(c.Context()) }()

	const each, anew = 11, 3
	for from := 0; from < counted-1; from += each {
		vars := []string{fmt.Sprintf("FROM=%d", from), fmt.Sprintf("TO=%d", from+each)}
		if from < anew*each { // who is started anew must be known by name
			vars = append(vars, "NAMED=true")
			victim := len(c.noticed)
			c.start("count", vars...)
			c.eventually(func() bool { return len(c.logs()[victim]) > 3 }, "nobody is counted")
			c.kill(victim)
			c.start("count", vars...)
		} else {
			c.start("count", append(vars, "URL="+lossy, "TTL=3s")...)
		}
	}
	c.end()
	if left, err := latch.Count(c.Context()); left != 1 || err != nil {
		c.Fatalf("after all parties but one %d are missing: %v", left, err)
	}
	select {
	case err := <-opened:
		c.Fatalf("open with one missing: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	c.start("count", fmt.Sprintf("FROM=%d", counted-1), fmt.Sprintf("TO=%d", counted))
	c.end()
	if err := <-opened; err != nil {
		c.Error(err)
	}
	if left, err := latch.CountDown(c.Context(), "one too many"); left != 0 || err != nil {
		c.Errorf("%d are missing from an open latch: %v", left, err)
	}
	if _, err := c.client.Latch("latch", counted-1).Count(c.Context()); !errors.Is(err, pawl.ErrMismatch) {
		c.Error(err)
	}
}
