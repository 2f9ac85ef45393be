package filestore

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// TestLimitOverBoots: a limit that was changed outlives its claims, sweeping
// and the machine, until it is set back; then nothing is left of it.
func TestLimitOverBoots(t *testing.T) {
	dir := t.TempDir()
	start := time.Now()
	s := mustOpenOn(t, dir, booted(t, "one", time.Hour, start))
	part := func(units, limit int64) driver.Claim {
		c := claim("pool")
		c.Kind, c.Units, c.Limit = driver.KindSemaphore, units, limit
		return c
	}
	held := part(2, 2)
	enter(t, s, held, driver.Holding)
	if err := s.SetLimit(t.Context(), "pool", driver.KindSemaphore, 2, 3); err != nil {
		t.Fatal(err)
	}
	enter(t, s, part(1, 2), driver.Holding)
	s.Close()

	s = mustOpenOn(t, dir, booted(t, "two", time.Minute, start.Add(24*time.Hour)))
	s.in.sweepFolder(longest)
	s.in.sweepFolder(longest)
	if n := countFiles(t, s.in.queues.dir.Path()); n != 1 {
		t.Fatalf("%d files are left, want that of the limit", n)
	}
	var limit *driver.MismatchError
	if _, err := s.Enter(t.Context(), part(1, 4)); !errors.As(err, &limit) || limit.Have != 3 {
		t.Errorf("entered with limit 4: %v", err)
	}
	all := part(3, 3)
	enter(t, s, all, driver.Holding)
	leave(t, s, all)
	if q, err := s.Inspect(t.Context(), "pool"); err != nil || q.Limit != 3 || q.Declared != 2 || len(q.Claims) != 0 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	if err := s.SetLimit(t.Context(), "pool", driver.KindSemaphore, 2, 2); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // the clock passes the last token
	s.in.sweepFolder(longest)
	if n := countFiles(t, s.in.queues.dir.Path()); n != 0 {
		t.Errorf("%d files are left of a limit that was set back", n)
	}
}
