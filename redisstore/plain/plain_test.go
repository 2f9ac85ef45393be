package plain

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
)

// missing is what a plain lock has not.
var missing = map[drivertest.Feature]string{
	drivertest.Queue:     "a key has no queue: who waits looks again",
	drivertest.Kinds:     "a key has one holder",
	drivertest.Units:     "a key has one holder",
	drivertest.Adopt:     cannot.Adopting,
	drivertest.Resize:    cannot.Resizing,
	drivertest.SetLimit:  cannot.Limiting,
	drivertest.Ask:       cannot.Asking,
	drivertest.Listen:    cannot.Telling,
	drivertest.Recheck:   "who waits looks again by itself",
	drivertest.Records:   cannot.Recording,
	drivertest.RecordTTL: cannot.Recording,
}

// The contract, where scripts are forbidden: by transactions, and with the servers' own
// commands to compare and delete.
func TestConformance(t *testing.T) {
	for _, native := range []string{"", "DELEX", "DELIFEQ"} {
		t.Run("native="+native, func(t *testing.T) {
			t.Parallel()
			s := newServer(native)
			drivertest.Run(t, drivertest.Harness{
				Missing: missing,
				New: func(testing.TB) drivertest.Backing {
					return drivertest.Backing{Open: func() (driver.Store, error) {
						return New(&fakeConn{server: s}, &Options{Prefix: "p/", Marks: native == "", MaxPause: 10 * time.Millisecond})
					}}
				},
			})
		})
	}
}
