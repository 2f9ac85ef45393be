package quorum_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/quorum"
)

// missing is what a quorum has not.
var missing = map[drivertest.Feature]string{
	drivertest.Units:    "three claims for one of two permits each could all hold",
	drivertest.Adopt:    "nodes that were not told would not follow",
	drivertest.Resize:   "nodes that were not told would not follow",
	drivertest.SetLimit: "there are no semaphores",
	drivertest.Drawn:    "nobody but its owner gathers votes for a claim",
	drivertest.Gathered: "the primary's grant has a token when its owner has got the others'",
	drivertest.Records:  "they take consensus",

	drivertest.RecordTTL: "there are no records",
}

// shared is a node that several stores have, as servers are: closing one of these leaves
// it open.
type shared struct{ driver.Node }

func (shared) Close() error { return nil }

func memories(n int) []*memstore.Store {
	nodes := make([]*memstore.Store, n)
	for i := range nodes {
		nodes[i] = memstore.New()
	}
	return nodes
}

func open(nodes []*memstore.Store, o *quorum.Options) (*quorum.Store, error) {
	var stores []driver.Store
	for _, n := range nodes {
		stores = append(stores, &shared{n})
	}
	return quorum.New(stores, o)
}

func initialize(t testing.TB, nodes []*memstore.Store, o *quorum.Options) {
	t.Helper()
	var stores []driver.Store
	for _, n := range nodes {
		stores = append(stores, n)
	}
	if err := quorum.Init(t.Context(), stores, o); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{
				Missing: missing,
				New: func(t testing.TB) drivertest.Backing {
					nodes, o := memories(n), &quorum.Options{MaxTTL: driver.MaxTTL, Patience: 2 * time.Second}
					initialize(t, nodes, o)
					// Time is not moved by hand: a claim that was gathered ends by the clock of its owner.
					return drivertest.Backing{Open: func() (driver.Store, error) { return open(nodes, o) }}
				},
			})
		})
	}
}
