//go:build unix

package synchronizers

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-go/pawl"
)

const numSets = 5 // names

func setName(n int) string { return fmt.Sprintf("set/%d", n) }

// sets takes some of the names at a time, in any order, and increments a counter
// for each, which loses increments of those who do it at the same time.
func (w *worker) sets() error {
	for !w.stop() {
		picked := rand.Perm(numSets)[:2+rand.IntN(2)]
		var names []string
		for _, n := range picked {
			names = append(names, setName(n))
		}
		set, err := w.client.LockAll(w, names...)
		if err != nil {
			return err
		}
		values := make([]int, numSets)
		for _, n := range picked {
			if values[n], err = w.counter(n); err != nil {
				return err
			}
		}
		time.Sleep(time.Duration(1+rand.IntN(4)) * time.Millisecond)
		for _, n := range picked {
			if err := w.setCounter(n, values[n]+1); err != nil {
				return err
			}
			w.note("counts", n, values[n]+1, set.TokenOf(setName(n)))
		}
		if err := set.Unlock(w); errors.Is(err, pawl.ErrLost) {
			w.note("lost", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) counter(n int) (int, error) {
	text, err := os.ReadFile(w.path(fmt.Sprintf("counter.%d", n)))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// setCounter writes in one piece, for it may be killed.
func (w *worker) setCounter(n, value int) error {
	f, err := os.OpenFile(w.path(fmt.Sprintf("counter.%d", n)), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%10d", value)
	return err
}

// Processes take overlapping sets of names in any order, and some are killed: the
// others get on, no increment is lost, and tokens rise.
func testSetsOfTheKilled(c *crowd) {
	const members, kills, times = 5, 2, 40
	for n := range numSets {
		c.write(fmt.Sprintf("counter.%d", n), "0")
	}
	for range members {
		c.start("sets")
	}
	for range kills {
		c.eventually(func() bool { return c.noted("counts") == len(c.noticed) }, "not all get a set")
		victim, ok := 0, false
		// One that holds a part or all of a set.
		c.eventually(func() bool {
			victim, ok = c.holder(setName(rand.IntN(numSets)))
			return ok
		}, "nobody holds")
		c.kill(victim)
		c.start("sets")
	}
	increments := func() (n int) {
		for _, log := range c.logs() {
			for _, e := range log {
				if e.what == "counts" {
					n++
				}
			}
		}
		return n
	}
	most := increments() + times
	c.eventually(func() bool { return increments() >= most }, "they do not go on")
	c.write("stop", "")
	c.end()

	type count struct{ value, token int64 }
	counts := make([][]count, numSets)
	for _, log := range c.logs() {
		for _, e := range log {
			if e.what == "counts" {
				counts[e.values[0]] = append(counts[e.values[0]], count{e.values[1], e.values[2]})
			}
		}
	}
	lost, total := c.lost(), 0
	report := c.Errorf
	if lost > 0 {
		c.Logf("leases were lost %d times, which allows for what follows", lost)
		report = c.Logf
	}
	for n, all := range counts {
		slices.SortFunc(all, func(a, b count) int { return cmp.Compare(a.value, b.value) })
		total += len(all)
		for i := 1; i < len(all); i++ {
			was, now := all[i-1], all[i]
			if now.value == was.value || now.token <= was.token {
				report("%s: %d with token %d after %d with token %d", setName(n), now.value, now.token, was.value, was.token)
			}
		}
		w := worker{dir: c.dir}
		// Of each that was killed, one may have been written and not noted.
		if at, err := w.counter(n); err != nil || at < len(all) || at > len(all)+kills {
			report("%s: the counter is at %d after %d increments and %d kills: %v", setName(n), at, len(all), kills, err)
		}
		c.free(setName(n))
	}
	c.Logf("%d increments", total)
}
