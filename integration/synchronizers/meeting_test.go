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
	"time"

	"github.com/pawl-go/pawl"
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
func testGenerations(c *crowd) {
	const generations = 100
	began := time.Now()
	for range parties {
		c.start("barrier", fmt.Sprintf("GENERATIONS=%d", generations))
	}
	// A folder takes its time: they must get on, however slowly.
	for n := generations / 10; n < generations; n += generations / 10 {
		c.eventually(func() bool { return c.generation() >= n }, "they do not come to generation %d", n)
	}
	c.end()
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
	c.free("barrier")
}

// generation returns where the first party of the barrier is.
func (c *crowd) generation() int {
	text, err := os.ReadFile(filepath.Join(c.dir, "at"))
	if err != nil || len(text) < 8 {
		return 0
	}
	return int(binary.BigEndian.Uint64(text))
}

// meet waits for the others once.
func (w *worker) meet() error {
	switch _, err := w.client.Barrier("stranded", parties).Wait(w); {
	case err == nil:
		w.note("passed")
	case errors.Is(err, pawl.ErrBroken):
		w.note("broken")
	default:
		return err
	}
	return nil
}

// One that waits for the others is killed: they are told, and do not go on
// without it. After a reset those who come then do.
func testStranded(c *crowd) {
	b := c.client.Barrier("stranded", parties)
	for range parties - 1 {
		c.start("meet")
	}
	waiting := func() int {
		n, err := b.Waiting(c.Context())
		if err != nil {
			c.Fatal(err)
		}
		return n
	}
	c.eventually(func() bool { return waiting() == parties-1 }, "they do not wait")
	c.kill(0)
	c.end()
	for _, log := range c.logs()[1:] {
		if len(log) == 0 || log[0].what != "broken" {
			c.Fatalf("one was killed, and another noted %+v", log)
		}
		took, most := log[0].at-c.killed[0].at, c.ttl+c.engine.late+time.Second
		c.Logf("told %v after the kill (at the most: %v)", took.Round(time.Millisecond), most)
		if took > most+slack {
			c.Errorf("told %v after the kill", took)
		}
	}
	if err := b.Reset(c.Context()); err != nil {
		c.Fatal(err)
	}
	c.ttl = pawl.DefaultTTL // nobody is to be taken for dead now
	for range parties - 1 {
		c.start("meet")
	}
	c.eventually(func() bool { return waiting() == parties-1 }, "after a reset they do not wait")
	if n := c.noted("passed"); n > 0 {
		c.Errorf("with one missing %d went on", n)
	}
	c.start("meet")
	c.end()
	if n := c.noted("passed"); n != parties {
		c.Errorf("%d of %d went on", n, parties)
	}
	c.free("stranded")
}
