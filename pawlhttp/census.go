package pawlhttp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/meter"
	"github.com/pawl-go/pawl/pawlmetrics"
)

// census counts who holds and waits in the whole store, through whatever process. It
// reads all names when somebody asks, not more often than every so often, nor for more
// than a tenth of the time. What it keeps is numbers.
type census struct {
	client  *pawl.Client
	metrics *pawlmetrics.Metrics // for its prefixes
	every   time.Duration
	open    context.Context

	reads, failures *meter.Vec

	mu      sync.Mutex
	reading chan struct{} // closed when the reading that is under way has ended; nil: none is
	due     time.Time     // of the next reading
	last    *standing     // nil: the last reading was not complete, or there was none
	under   sync.WaitGroup
}

const (
	// censusTimeout is how long all names may take.
	censusTimeout = time.Minute
	// censusPatience is how long a reply waits for a reading; then it tells the one
	// before that.
	censusPatience = 2 * time.Second
)

// standing is how the store stands.
type standing struct {
	at         time.Time
	took       time.Duration
	unreadable int
	groups     map[group]*numbers
}

// group is a combination of labels.
type group struct {
	prefix string
	kind   driver.Kind
}

type numbers struct {
	names, holding, waiting int
	oldestWait, longestHold time.Duration
}

// censusKinds are the kinds of queues.
var censusKinds = []driver.Kind{driver.KindMutex, driver.KindRW, driver.KindSemaphore, driver.KindElection, driver.KindParty}

// stands returns how the store stands; nil if that is not known.
func (c *census) stands(ctx context.Context) *standing {
	c.mu.Lock()
	if c.reading == nil && c.open.Err() == nil && !time.Now().Before(c.due) {
		c.reading = make(chan struct{})
		c.under.Go(c.read)
	}
	reading := c.reading
	c.mu.Unlock()
	if reading != nil {
		timer := time.NewTimer(censusPatience)
		defer timer.Stop()
		select {
		case <-reading:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// end calls shut, which ends the context, and waits until nothing is read any more.
func (c *census) end(shut func()) {
	c.mu.Lock() // so that nobody begins meanwhile
	shut()
	c.mu.Unlock()
	c.under.Wait()
}

// read reads all names.
func (c *census) read() {
	ctx, cancel := context.WithTimeout(c.open, censusTimeout)
	defer cancel()
	begun := time.Now()
	s, err := c.count(ctx)
	took := time.Since(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.Add(1)
	if err != nil {
		c.last = nil
		c.failures.Add(1)
	} else {
		s.at, s.took = begun, took
		c.last = s
	}
	c.due = begun.Add(max(c.every, 10*took))
	close(c.reading)
	c.reading = nil
}

// count counts what it reads.
func (c *census) count(ctx context.Context) (*standing, error) {
	s := &standing{groups: make(map[group]*numbers)}
	for _, prefix := range c.metrics.Prefixes() {
		for _, kind := range censusKinds {
			s.groups[group{prefix, kind}] = new(numbers)
		}
	}
	for q, err := range c.client.List(ctx, "") {
		if bad := new(pawl.NameError); errors.As(err, &bad) {
			s.unreadable++
			continue
		}
		if err != nil {
			return nil, err
		}
		if n := s.groups[group{c.metrics.Prefix(q.Name), q.Kind}]; n != nil {
			n.add(&q)
		}
	}
	return s, nil
}

func (n *numbers) add(q *pawl.Queue) {
	held := false
	for i := range q.Claims {
		if e := &q.Claims[i]; e.State == driver.Holding {
			held = true
			n.holding++
			n.longestHold = max(n.longestHold, e.Held)
		} else {
			n.waiting++
			n.oldestWait = max(n.oldestWait, e.Age)
		}
	}
	if held {
		n.names++
	}
}

// text appends what is known of the store. While it cannot be read there are no numbers:
// old ones would say that all is as it was.
func (c *census) text(text []byte, s *standing) []byte {
	up := meter.NewGauge("pawl_store_up", "1 if all names of the store could be read when that was tried last.").Set(0)
	if s == nil {
		return meter.Append(text, up, c.reads, c.failures)
	}
	const whole = " In the whole store, through whatever process, as of pawl_store_read_timestamp_seconds."
	names := meter.NewGauge("pawl_store_names_held", "Names that somebody holds."+whole, "prefix", "kind")
	holding := meter.NewGauge("pawl_store_claims_holding", "Claims that hold."+whole, "prefix", "kind")
	waiting := meter.NewGauge("pawl_store_claims_waiting", "Claims that wait."+whole, "prefix", "kind")
	oldest := meter.NewGauge("pawl_store_oldest_wait_seconds", "For how long the one who waits longest has waited; 0: nobody waits."+whole, "prefix", "kind")
	longest := meter.NewGauge("pawl_store_longest_hold_seconds", "For how long the one who holds longest has held; 0: nobody holds."+whole, "prefix", "kind")
	for r, n := range s.groups {
		kind := r.kind.String()
		names.Set(float64(n.names), r.prefix, kind)
		holding.Set(float64(n.holding), r.prefix, kind)
		waiting.Set(float64(n.waiting), r.prefix, kind)
		oldest.Set(n.oldestWait.Seconds(), r.prefix, kind)
		longest.Set(n.longestHold.Seconds(), r.prefix, kind)
	}
	at := meter.NewGauge("pawl_store_read_timestamp_seconds", "When the names of the store were read.").Set(float64(s.at.UnixMilli()) / 1000)
	took := meter.NewGauge("pawl_store_read_seconds", "How long that took.").Set(s.took.Seconds())
	unreadable := meter.NewGauge("pawl_store_names_unreadable", "Names that cannot be read, and are not in the other numbers."+whole).Set(float64(s.unreadable))
	return meter.Append(text, up.Set(1), names, holding, waiting, oldest, longest, at, took, unreadable, c.reads, c.failures)
}
