package filestore

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
)

// missing is what a folder has not.
var missing = map[drivertest.Feature]string{
	drivertest.Drawn: "to look writes nothing: the token of a grant that time brought about is drawn by the next who asks",
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		ShortTTL: time.Second, // a busy machine makes a call take long
		Tied:     true,
		Missing:  missing,
		New: func(t testing.TB) drivertest.Backing {
			dir := t.TempDir() + "/locks"
			return drivertest.Backing{
				Open: func() (driver.Store, error) { return Open(dir) },
			}
		},
	})
}

// TestConformanceWithoutWatches is the suite on a machine whose limit on
// watches is reached, a file system without pipes, and a clock that the test
// moves.
func TestConformanceWithoutWatches(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Tied:    true,
		Missing: missing,
		New: func(t testing.TB) drivertest.Backing {
			dir := t.TempDir() + "/locks"
			var ahead atomic.Int64
			m := thisMachine(t)
			uptime := m.uptime
			m.uptime = func() time.Duration { return uptime() + time.Duration(ahead.Load()) }
			m.newWatch, m.pipes = noWatch, false
			m.probe = 10 * time.Millisecond
			return drivertest.Backing{
				Open:    func() (driver.Store, error) { return open(dir, m) },
				Advance: func(d time.Duration) { ahead.Add(int64(d)) },
			}
		},
	})
}
