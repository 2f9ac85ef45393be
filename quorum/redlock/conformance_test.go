package redlock

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/drivertest"
	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/checked"
	"github.com/pawl-go/pawl/memstore"
)

// missing is what the algorithm has not.
var missing = map[drivertest.Feature]string{
	drivertest.Queue:     "there is no queue: who waits tries again",
	drivertest.Kinds:     "a majority of keys has one holder",
	drivertest.Units:     "a majority of keys has one holder",
	drivertest.Adopt:     "a key does not tell who may take it over",
	drivertest.Resize:    "a majority of keys has one holder",
	drivertest.SetLimit:  "a majority of keys has one holder",
	drivertest.Ask:       "the holder cannot be reached",
	drivertest.Listen:    "nobody is told anything",
	drivertest.Recheck:   "who waits tries again by itself",
	drivertest.Gathered:  "of several who try at the same moment, none may get a majority",
	drivertest.Records:   "there are locks only",
	drivertest.RecordTTL: "there are locks only",
}

// shared is a node that several stores have, as servers are: closing one of these leaves
// it open.
type shared struct{ driver.Store }

func (shared) Close() error { return nil }

// open makes a store that knows the same claims as others with that registry: the suite uses a claim by
// several stores.
func open(nodes []driver.Store, o *Options, claims *registry) (*Store, error) {
	var own []driver.Store
	for _, n := range nodes {
		own = append(own, &shared{n})
	}
	s, err := newStore(own, o)
	if err != nil {
		return nil, err
	}
	s.claims = claims
	for _, n := range s.nodes {
		n.limit = await.Limit // no reply is late because the machine is busy
	}
	return &Store{checked.New("redlock", s), s}, nil
}

func memories(n int) (nodes []driver.Store) {
	for range n {
		nodes = append(nodes, memstore.New())
	}
	return nodes
}

func TestConformance(t *testing.T) {
	sizes := []int{5}
	if await.Soak() {
		sizes = []int{3, 5, 7}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{
				Missing: missing,
				New: func(t testing.TB) drivertest.Backing {
					nodes, claims := memories(n), new(registry)
					o := &Options{Patience: 10 * time.Second, MaxPause: 20 * time.Millisecond}
					return drivertest.Backing{Open: func() (driver.Store, error) { return open(nodes, o, claims) }}
				},
			})
		})
	}
}
