package pawl

import (
	"fmt"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/engine"
)

// DefaultTTL is the time to live of a claim unless Options say otherwise.
const DefaultTTL = 15 * time.Second

// Options are those of a client and its locks. The zero value of a field means its
// default.
type Options struct {
	// TTL is how long the engine keeps a claim that is not renewed: what a
	// crashed holder costs the others at the most. From 100 ms to 7 days;
	// default 15 s. Engines round it up: to a microsecond, but etcd to a second,
	// and 2 s at least, ZooKeeper to a session of 1.5 to 1.9 times the TTL, and
	// 2.7 s at least, 4 s with its default limits.
	//
	// It also bounds how long an outage of the engine a holder survives. Leases
	// are renewed every TTL/3, and last for 0.99 TTL - 2 ms. After a failure a
	// renewal is sent again after TTL/30, or 1 s if that is less; one that goes
	// without a reply is given up after TTL/4, or 10 s. So for certain a holder
	// survives
	//
	//	0.99 TTL - 2 ms - TTL/3 - TTL/30         if requests fail at once: 9.3 s of 15 s
	//	0.99 TTL - 2 ms - TTL/3 - TTL/30 - TTL/4 if they go unanswered: 5.5 s of 15 s
	//
	// less the time that the engine needs for a reply.
	TTL time.Duration

	// NoRenewal makes plain leases, which end TTL after their grant unless
	// [Lease.Extend] is called.
	NoRenewal bool

	// MaxHold ends a lease that long after its grant, so that a stuck holder
	// does not keep the lock for ever: the holder is told (ErrLost), and then
	// the claim leaves the engine, if its TTL has not ended it.
	MaxHold time.Duration

	// MinHold keeps the lock taken for that long after the grant, even if it
	// is released earlier, and also if the process ends after that: for
	// schedulers on machines whose clocks differ. Unlock does not wait for it.
	// A process that is killed before it unlocks costs the TTL, as ever.
	MinHold time.Duration

	// Reentrant lets Lock succeed again when called with a context of a lease
	// of the same lock (Lease.Context). All those leases share one token, and
	// the lock is released with the last of them. Otherwise such a call fails
	// with ErrDeadlock. See [RWMutex] for its readers and writers.
	//
	// The context decides, not the goroutine: all goroutines that are given it
	// hold the lock together, and do not exclude each other.
	Reentrant bool

	// Overtake allows this claim to be granted past others that wait, if it
	// fits where they do not: readers of an RWMutex pass writers then.
	Overtake bool

	// Backoff says how long to wait between attempts while the engine cannot
	// be reached. Default: exponential from 50 ms to 2 s, with jitter, for as
	// long as the context lives.
	Backoff Backoff

	// Label tells people what this client is, e.g. the program's name. Up to
	// 128 bytes.
	Label string

	// Observer is told what happens, for metrics and logs.
	Observer Observer
}

// setDefaults replaces the zero values that stand for another default.
func (o *Options) setDefaults() {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.Backoff == nil {
		o.Backoff = ExponentialBackoff(50*time.Millisecond, 2*time.Second)
	}
}

// terms returns the options that concern a single call.
func (o *Options) terms() *engine.Terms {
	t := &engine.Terms{MaxHold: o.MaxHold, MinHold: o.MinHold, Backoff: o.Backoff}
	if observer := o.Observer; observer != nil {
		t.Observe = func(e engine.Event) { observer(event(e)) }
	}
	return t
}

func (o *Options) check() error {
	if err := driver.CheckTTL(o.TTL); err != nil {
		return err
	}
	if o.MaxHold < 0 {
		return fmt.Errorf("%w MaxHold %v: allowed are 0 (none) or more", ErrInvalid, o.MaxHold)
	}
	if o.MinHold < 0 || o.MinHold > driver.MaxTTL {
		return fmt.Errorf("%w MinHold %v: allowed are 0 (none) to %v", ErrInvalid, o.MinHold, driver.MaxTTL)
	}
	if o.MaxHold > 0 && o.MinHold > o.MaxHold {
		return fmt.Errorf("%w MinHold %v: it is longer than MaxHold %v", ErrInvalid, o.MinHold, o.MaxHold)
	}
	return driver.CheckLabel(o.Label)
}
