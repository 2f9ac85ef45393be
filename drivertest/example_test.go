package drivertest_test

import (
	"testing"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/memstore"
)

// The test of a store, here the one in memory. It can move its time, so every
// test gets a backing of its own.
func ExampleRun() {
	TestConformance := func(t *testing.T) {
		drivertest.Run(t, drivertest.Harness{
			New: func(t testing.TB) drivertest.Backing {
				s := memstore.New()
				return drivertest.Backing{
					Open:    func() (driver.Store, error) { return shared{s}, nil },
					Advance: s.Advance,
				}
			},
		})
	}
	_ = TestConformance
}

// shared is a Store whose Close leaves it to the others. A real store's Close
// also ends its own calls.
type shared struct{ *memstore.Store }

func (shared) Close() error { return nil }
