package doctor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// Bounds of the probes for the round trip.
const (
	probes     = 50
	probesTime = 2 * time.Second
)

// roundTrip repeats a request that changes nothing.
func (e *exam) roundTrip(ctx context.Context, probe func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	if err := probe(ctx); err != nil { // the first one also connects
		e.fail("round trip", "", "%v", err)
		return false
	}
	var took []time.Duration
	for begin := time.Now(); len(took) < probes && time.Since(begin) < probesTime; {
		sent := time.Now()
		if err := probe(ctx); err != nil {
			e.fail("round trip", "", "after %d probes: %v", len(took), err)
			return false
		}
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[(len(took)*99-1)/100]
	e.RoundTrip = &RoundTrip{p50.Microseconds(), p99.Microseconds(), len(took)}
	// A renewal is due every third of the TTL, and must not be late.
	if p99 > e.ttl/10 {
		e.warn("round trip", "use a longer --ttl, or a store that is nearer", "p50 %v, p99 %v: slow for a TTL of %v", short(p50), short(p99), e.ttl)
		return true
	}
	e.ok("round trip", "p50 %v, p99 %v (%d probes)", short(p50), short(p99), len(took))
	return true
}

// clockFar is an offset that NTP would not leave.
const clockFar = time.Second

// clock compares the engine's clock with this machine's. Locks do not depend on
// the difference, but a clock that is wrong gets set some day.
func (e *exam) clock(ctx context.Context, now func(context.Context) (time.Time, error)) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	var ahead time.Duration
	best := time.Duration(1<<63 - 1)
	for range 5 {
		sent := time.Now()
		t, err := now(ctx)
		took := time.Since(sent)
		if err != nil {
			e.note("clock", "it can't be read: %v", err)
			return
		}
		if took < best {
			best, ahead = took, t.Sub(sent.Add(took/2).Round(0))
		}
	}
	e.Clock = &ClockOffset{ahead.Microseconds(), best.Microseconds() / 2}
	way := "ahead of"
	if ahead < 0 {
		way = "behind"
	}
	switch {
	case ahead.Abs() > clockFar:
		e.warn("clock", "let NTP keep both clocks, by slewing: a clock that is set forward while locks are held ends them early",
			"%v %s this machine's (± %v): one of the two is wrong", short(ahead.Abs()), way, short(best/2))
	case ahead.Abs() <= best/2:
		e.ok("clock", "the same as this machine's (± %v)", short(best/2))
	default:
		e.ok("clock", "%v %s this machine's (± %v)", short(ahead.Abs()), way, short(best/2))
	}
}

// tryLock takes and releases a lock on a name of its own, with the rights of
// the URL.
func (e *exam) tryLock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*step)
	defer cancel()
	var took time.Duration
	for range 2 { // the first one also connects
		began := time.Now()
		if err := e.lockOnce(ctx); err != nil {
			e.fail("lock", e.remedy(err), "%v", err)
			return
		}
		took = time.Since(began)
	}
	e.ok("lock", "taken and released in %v", short(took))
}

func (e *exam) lockOnce(ctx context.Context) error {
	c := driver.Claim{
		Name: "pawl-doctor/" + driver.NewID(), ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: e.ttl, Try: true,
		Owner: driver.Owner{Label: "pawl doctor"},
	}
	st, err := e.store.Enter(ctx, c)
	if err != nil {
		return err
	}
	was, err := e.store.Leave(ctx, driver.Ref{Name: c.Name, ID: c.ID})
	switch {
	case err != nil:
		return err
	case st.State != driver.Holding:
		return errors.New("a lock that nobody else knows was not granted: " + st.State.String())
	case was != driver.Holding:
		return errors.New("a lock that was just granted was not there any more: " + was.String())
	}
	return nil
}

// short is d in three digits or so.
func short(d time.Duration) time.Duration {
	for unit := time.Microsecond; ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}
