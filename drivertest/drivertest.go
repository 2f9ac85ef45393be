// Package drivertest is the conformance suite for stores: a store is accepted
// when [Run] passes on it. It tests the contract of package driver sentence by
// sentence and nothing else, so a store that passes needs tests of its own
// only for its engine's faults.
//
// A store's test is a function that says how to open it:
//
//	func TestConformance(t *testing.T) {
//		server := startServer(t)
//		drivertest.Run(t, drivertest.Harness{
//			New: func(t testing.TB) drivertest.Backing {
//				return drivertest.Backing{
//					Open: func() (driver.Store, error) { return mystore.Open(server.Addr()) },
//				}
//			},
//			ShortTTL: 2 * time.Second, // the engine counts in seconds
//			Missing: map[drivertest.Feature]string{
//				drivertest.Listen: "the engine has no way to call its clients",
//			},
//		})
//	}
//
// Every test uses names of its own, so one server serves them all, side by
// side. Run it with -race.
package drivertest

import (
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Harness tells the suite how to use a store.
type Harness struct {
	// New returns what one test works on. It may be the same server each time,
	// unless Backing.Advance is set.
	New func(t testing.TB) Backing

	// ShortTTL is given to claims and records that are to run out while a
	// test waits; 0: 400 ms. Engines that count in seconds need more. A test
	// that a slow machine keeps for longer than that is run again with twice
	// as much. It is not used where time can be advanced.
	ShortTTL time.Duration

	// Late is how much later than its TTL the engine may end a claim or a
	// record.
	Late time.Duration

	// Tied: the engine ends the claims of a Store value when it is closed.
	// Otherwise they must stay until they run out.
	Tied bool

	// Missing names what the engine cannot do, with the reason. The suite
	// shows it as a skipped test, and checks that the store returns
	// driver.ErrUnsupported.
	Missing map[Feature]string
}

// Backing is the thing that several processes would share: a server, a folder.
type Backing struct {
	// Open returns a further Store value on the backing, as another process
	// would open it. The suite closes it.
	Open func() (driver.Store, error)

	// Advance moves the backing's clock forward. The backing must then be
	// that test's own. If nil, the suite waits in real time.
	Advance func(time.Duration)
}

// Feature is something that an engine may be unable to do.
type Feature string

const (
	// Queue: claims that wait stand in the queue, in order of arrival, each in its place, for
	// all to see; and one is granted in the step that lets it in. Without it a claim that
	// waits is known to the Store value that it was entered through alone, which takes
	// the name in Wait or a repeated Enter, when nobody has it; Ahead and Behind are 0.
	Queue     Feature = "queue"
	Kinds     Feature = "kinds"      // other kinds than mutexes
	Units     Feature = "units"      // limits above 1
	Overtake  Feature = "overtake"   // claims that pass waiting ones
	Linger    Feature = "linger"     // Leave with Linger
	Adopt     Feature = "adopt"      // Adopt
	Resize    Feature = "resize"     // Resize
	Break     Feature = "break"      // Break
	List      Feature = "list"       // List
	Listen    Feature = "listen"     // Listen
	SetLimit  Feature = "set limit"  // SetLimit
	Ask       Feature = "ask"        // Ask
	Recheck   Feature = "recheck"    // Status.Recheck
	Drawn     Feature = "drawn"      // Entry.Token in Inspect before any call that may write
	Gathered  Feature = "gathered"   // Entry.Token of a grant before its owner has called
	Records   Feature = "records"    // Load, CompareAndSwap, WaitChange
	RecordTTL Feature = "record TTL" // CompareAndSwap with a TTL
)

type test struct {
	name  string
	run   func(*env)
	needs []Feature
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	if h.New == nil {
		t.Fatal("drivertest: Harness.New is nil")
	}
	if h.ShortTTL == 0 {
		h.ShortTTL = 400 * time.Millisecond
	}
	for feature := range h.Missing {
		if missing[feature] == nil {
			t.Fatalf("drivertest: Harness.Missing has %q, which is no feature", feature)
		}
	}
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Enter", enterTests},
		{"EnterAll", enterAllTests},
		{"Order", orderTests},
		{"Wait", waitTests},
		{"Renew", renewTests},
		{"Leave", leaveTests},
		{"Linger", lingerTests},
		{"Expiry", expiryTests},
		{"Kind", kindTests},
		{"Adopt", adoptTests},
		{"Token", tokenTests},
		{"Resize", resizeTests},
		{"SetLimit", setLimitTests},
		{"Inspect", inspectTests},
		{"List", listTests},
		{"Break", breakTests},
		{"Listen", listenTests},
		{"Names", nameTests},
		{"Lifecycle", lifecycleTests},
		{"Load", loadTests},
		{"Random", randomTests},
		{"Record", recordTests},
		{"WaitChange", changeTests},
		{"Missing", missingTests()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					for _, feature := range test.needs {
						if why := h.Missing[feature]; why != "" {
							t.Skipf("%s: %s", feature, why)
						}
					}
					for ttl := h.ShortTTL; !newEnv(t, h, ttl).attempt(test.run); ttl *= 2 {
					}
				})
			}
		})
	}
}
