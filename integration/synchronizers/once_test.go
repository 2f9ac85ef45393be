//go:build unix

package synchronizers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pawl-go/pawl"
)

func onceKey(round int) string { return fmt.Sprintf("once/%d", round) }

// once does something once in each round, from when there is a file for it. If
// that says so, the first run goes on until its process is killed.
func (w *worker) once() error {
	for round := 0; ; round++ {
		var file []byte
		for file == nil {
			var err error
			if file, err = os.ReadFile(w.path(fmt.Sprintf("round.%d", round))); err != nil {
				if w.stop() {
					return nil
				}
				time.Sleep(2 * time.Millisecond)
			}
		}
		err := w.client.Once(onceKey(round), time.Hour).Do(w, func(ctx context.Context) error {
			if string(file) == "deadly" {
				f, err := os.OpenFile(w.path(fmt.Sprintf("victim.%d", round)), os.O_CREATE|os.O_EXCL, 0o600)
				if err == nil {
					f.Close()
					w.note("victim", round)
					w.reign(round, pawl.LeaseFrom(ctx), func() bool { return false })
					return context.Cause(ctx)
				}
			}
			runs := within(10 * time.Millisecond)
			w.reign(round, pawl.LeaseFrom(ctx), func() bool { return !runs() })
			w.note("effect", round)
			return nil
		})
		switch {
		case err == nil:
			w.note("success", round)
		case errors.Is(err, pawl.ErrDone):
			w.note("done", round)
		case errors.Is(err, pawl.ErrLost):
			w.note("lost", err)
			w.note("undone", round)
		default:
			return err
		}
	}
}

// Processes do the same thing, and in some rounds who does it is killed: it is
// done once.
func testRunnersAreKilled(c *crowd) {
	const runners, rounds = 5, 5
	deadly := func(round int) bool { return round%3 == 1 }
	for range runners {
		c.start("once")
	}
	count := func(what string, round int) (n int) {
		for _, log := range c.logs() {
			for _, e := range log {
				if e.what == what && e.values[0] == int64(round) {
					n++
				}
			}
		}
		return n
	}
	for round := range rounds {
		file := fmt.Sprintf("round.%d", round)
		kind := "round"
		if deadly(round) {
			kind = "deadly"
		}
		c.write("next", kind)
		if err := os.Rename(c.dir+"/next", c.dir+"/"+file); err != nil {
			c.Fatal(err)
		}
		if deadly(round) {
			c.eventually(func() bool { return count("victim", round) > 0 }, "round %d: nobody runs it", round)
			for n, log := range c.logs() {
				if slices.ContainsFunc(log, func(e entry) bool { return e.what == "victim" && e.values[0] == int64(round) }) {
					c.kill(n)
					c.start("once")
				}
			}
		}
		c.eventually(func() bool {
			return count("success", round)+count("done", round)+count("undone", round) >= runners
		}, "round %d: it is not done", round)
	}
	c.write("stop", "")
	c.end()
	c.lost()
	for round := range rounds {
		success, effects, undone := count("success", round), count("effect", round), count("undone", round)
		// A run that was told that its lease is lost does not count.
		if success != 1 || effects < 1 || effects > 1+undone {
			c.Errorf("round %d: %d runs succeeded, it was done %d times, and %d leases were lost", round, success, effects, undone)
		}
		c.checkTerms(c.terms(round))
		err := c.client.Once(onceKey(round), time.Hour).Do(c.Context(), func(context.Context) error { return errors.New("once more") })
		if !errors.Is(err, pawl.ErrDone) {
			c.Errorf("round %d: %v", round, err)
		}
		c.free(onceKey(round))
	}
}
