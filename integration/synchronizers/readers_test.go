//go:build unix

package synchronizers

import (
	"bytes"
	"context"
	"os"
	"time"
)

const (
	numReaders = 5
	numWriters = 2
	writes     = 15  // of each writer
	half       = 500 // bytes of the file
)

// read reads the file under a reader's lease until the writers are done.
func (w *worker) read() error {
	for !w.stop() {
		w.note("asks")
		err := w.client.RWMutex("file").RDo(w, func(context.Context) error {
			w.note("granted")
			text, err := os.ReadFile(w.path("file"))
			if err != nil {
				return err
			}
			if len(text) != 2*half || !bytes.Equal(text[:half], text[half:]) {
				w.note("torn")
			}
			time.Sleep(2 * time.Millisecond)
			w.note("done")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// write makes the file inconsistent for a moment, under a writer's lease.
func (w *worker) write() error {
	for n := range writes {
		w.note("asks")
		err := w.client.RWMutex("file").Do(w, func(context.Context) error {
			w.note("granted")
			f, err := os.OpenFile(w.path("file"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			text := bytes.Repeat([]byte{byte('a' + n)}, half)
			if _, err := f.WriteAt(text, 0); err != nil {
				return err
			}
			time.Sleep(5 * time.Millisecond)
			if _, err = f.WriteAt(text, half); err != nil {
				return err
			}
			w.note("done")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Readers and writers on a file: no reader sees it half written, and writers
// are not starved.
func testTornFile(c *crowd) {
	c.write("file", string(bytes.Repeat([]byte("-"), 2*half)))
	for range numReaders {
		c.start("read")
	}
	c.eventually(func() bool { return c.noted("done") == numReaders }, "not all read")
	for range numWriters {
		c.start("write")
	}
	c.eventually(func() bool { return c.noted("ends") == numWriters }, "the writers do not end")
	c.write("stop", "")
	c.end()
	if n := c.noted("torn"); n > 0 {
		c.Errorf("%d readers saw a file that was half written", n)
	}
	c.checkFair(c.logs())
	c.free("file")
}

// checkFair checks that nobody was granted twice while a writer waited, apart
// from what was on its way: whoever comes later stands behind it.
func (c *crowd) checkFair(logs [][]entry) {
	var held, longest time.Duration
	var holds, reads int
	var from time.Duration
	for _, log := range logs {
		for _, e := range log {
			switch e.what {
			case "granted":
				from = e.at
			case "done":
				held += e.at - from
				holds++
			}
		}
	}
	waits := 0
	for writer := numReaders; writer < len(logs); writer++ {
		var asked, stands time.Duration
		for _, e := range logs[writer] {
			switch e.what {
			case "asks":
				asked, stands = e.at, 0
			case "waits":
				if stands == 0 {
					stands = e.at
				}
			case "granted":
				longest = max(longest, e.at-asked)
				if stands == 0 {
					continue
				}
				waits++
				for other, log := range logs {
					grants := 0
					for _, o := range log {
						if o.what == "granted" && o.at > stands && o.at < e.at {
							grants++
						}
					}
					if other < numReaders {
						reads += grants
					}
					// One for the claim that stood in front of it, and one that was
					// granted before and noted after.
					if other != writer && grants > 2 {
						c.Errorf("while writer %d waited for %v, %d was granted %d times", writer, e.at-stands, other, grants)
					}
				}
			}
		}
	}
	if holds == 0 || waits == 0 {
		c.Fatalf("%d holds, and writers waited %d times: that shows nothing", holds, waits)
	}
	mean := held / time.Duration(holds)
	bound := 5 * mean * (numReaders + numWriters)
	c.Logf("%d holds of %v on average; writers waited %d times, %.1f reads passed meanwhile, the longest took %v (5 x mean hold x queue: %v)",
		holds, mean, waits, float64(reads)/float64(waits), longest, bound)
	if longest > bound+slack {
		c.Errorf("a writer waited %v, want %v at the most", longest, bound)
	}
}
