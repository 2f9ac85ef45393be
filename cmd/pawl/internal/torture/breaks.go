package torture

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// AllBreaks are the ways in which pawl can be broken on purpose, by a store that does
// not do what it says, to see that the judge finds it.
var AllBreaks = slices.Sorted(maps.Keys(breaks))

// BreakText says what is wrong with pawl in that way, and what a user would have to
// do to get it.
func BreakText(how string) string { return breaks[how].text }

var breaks = map[string]struct {
	text  string
	wraps func(driver.Store, time.Duration) driver.Store
}{
	"margin": {
		"deadlines are half a TTL too late: as if a holder went by the time of the reply to a renewal that was sent long before, or by a clock that runs too slowly",
		func(s driver.Store, _ time.Duration) driver.Store { return &lateStore{wrapped{s}} },
	},
	"renewals": {
		"renewals are reported done and never sent: as by a wrapper of one's own that answers Renew from a cache",
		func(s driver.Store, _ time.Duration) driver.Store {
			return &deafStore{wrapped: wrapped{s}, holding: make(map[string]driver.Status)}
		},
	},
	"tokens": {
		"tokens come from a counter in the process, which is lost with it: as if each process numbered its own writes",
		func(s driver.Store, _ time.Duration) driver.Store {
			return &countStore{wrapped: wrapped{s}, names: make(map[string]string), base: make(map[string]int64)}
		},
	},
	"marks": {
		"owner marks are the same for all: a store of one's own that knows claims by their ids only, so that whoever knows the id owns the claim",
		func(s driver.Store, _ time.Duration) driver.Store { return &markStore{wrapped{s}} },
	},
	"adopt": {
		"whoever adopts a claim gets it, also the second: a store of one's own that looks whether the claim is there, and not whose it is by now",
		func(s driver.Store, _ time.Duration) driver.Store { return &adoptStore{wrapped{s}} },
	},
	"kinds": {
		"claims are taken as whatever kind and size the queue has: a store of one's own that keeps no kinds, and programs that use a mutex and a semaphore by one name",
		func(s driver.Store, _ time.Duration) driver.Store { return &kindStore{wrapped{s}} },
	},
	"release": {
		"Leave is reported done, and frees the name much later: as if the release were queued, in a process that works off its queue when it has time",
		func(s driver.Store, ttl time.Duration) driver.Store { return &tardyStore{wrapped{s}, ttl} },
	},
	"wake": {
		"who waits takes over when half a TTL has passed without a renewal: waiters that count the TTL of holders by themselves, and have a shorter one",
		func(s driver.Store, ttl time.Duration) driver.Store { return &hastyStore{wrapped{s}, ttl} },
	},
	"owner": {
		"Leave of a claim that is gone frees the name of whoever holds it by then: as by a script of one's own that deletes a key without comparing",
		func(s driver.Store, _ time.Duration) driver.Store { return &blindStore{wrapped{s}} },
	},
	"upgrade": {
		"a reader becomes a writer beside other readers: a store of one's own that changes units without counting the others'",
		func(s driver.Store, _ time.Duration) driver.Store { return &growStore{wrapped{s}} },
	},
}

// broken wraps a store so that pawl as a whole is wrong.
func broken(store driver.Store, how string, ttl time.Duration) (driver.Store, error) {
	b, ok := breaks[how]
	if !ok {
		return nil, fmt.Errorf("%w break %q: known are %q", driver.ErrInvalid, how, AllBreaks)
	}
	return b.wraps(store, ttl), nil
}

// wrapped is a store that can do what the one in it can.
type wrapped struct{ driver.Store }

func (w wrapped) EnterAll(ctx context.Context, cs []driver.Claim) ([]driver.Status, error) {
	all, ok := w.Store.(driver.AllEnterer)
	if !ok {
		return nil, driver.ErrUnsupported
	}
	return all.EnterAll(ctx, cs)
}
