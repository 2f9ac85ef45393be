package pawl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// LeaseSet is several locks that are held together, as one lease: if one of them
// is lost, all are. Any goroutine may use it.
//
// A process that dies costs the others one TTL for each of the names, at the same
// time. [Options].MinHold and MaxHold count from when all were granted.
type LeaseSet struct {
	core    *core
	members []*Lease // in the order of names; fixed once complete

	mu        sync.Mutex // taken after a cohort's
	gathering context.CancelCauseFunc
	err       error // why it is over; nil while it holds
	unlocked  bool
	letting   chan struct{} // closed when what a loss has ended is released; nil: nothing is
	lost      chan struct{}
	wanted    chan struct{}
	pressed   bool
	contexts  endings
	ending    atomic.Pointer[error] // err, for those who do not hold the mutex
}

func newLeaseSet(c *core, gathering context.CancelCauseFunc) *LeaseSet {
	return &LeaseSet{core: c, gathering: gathering, lost: make(chan struct{}), wanted: make(chan struct{})}
}

// add takes a lease into a set that is not complete.
func (s *LeaseSet) add(l *Lease) {
	s.members = append(s.members, l)
	t := l.t
	t.cl.co.mu.Lock()
	defer t.cl.co.mu.Unlock()
	t.set = s
	if t.err != nil {
		s.ended(t, t.err)
	}
	if t.pressed {
		s.press()
	}
}

// complete makes a lease of the set: from now on its members are held as the
// options say. Until then they are renewed, and end when they are released, or
// they might not last until the last one is granted, and would stay taken when
// that is given up. It is an error if one was lost already.
func (s *LeaseSet) complete(opts *Options, waited bool) error {
	now := time.Now()
	for _, l := range s.members {
		l.t.complete(opts, now, waited)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gathering = nil
	return s.err
}

func (t *tenure) complete(opts *Options, now time.Time, waited bool) {
	cl := t.cl
	cl.co.mu.Lock()
	defer cl.co.mu.Unlock()
	if t.err != nil {
		return
	}
	t.begin(opts, now)
	if cl.plain.Store(opts.NoRenewal); opts.NoRenewal && waited {
		cl.fresh = true // its time has run while the others were waited for
		cl.hurry()
	}
	cl.co.core.keeper.watch(cl)
}

// abandon gives up what was gathered, because of err or since a part was lost,
// and returns why.
func (s *LeaseSet) abandon(ctx context.Context, err error) error {
	s.mu.Lock()
	lost := s.err
	s.gathering, s.err = nil, cmp.Or(lost, err)
	s.mu.Unlock()
	done := make(chan struct{})
	if s.core.spawn(func() { defer close(done); letGo(s.members) }) {
		awaitLeft(done)
	}
	switch {
	case lost == nil || driver.IsPermanent(err):
		return err
	case errors.Is(lost, ErrClosed):
		return lost
	case ctx.Err() != nil:
		return &WaitError{Name: s.members[0].Name(), Cause: context.Cause(ctx), Engine: lost, ctx: ctx.Err()}
	}
	return fmt.Errorf("%w: %w", errPartLost, lost)
}

// letGo releases leases that nobody has been told of, or is to use any longer.
func letGo(ls []*Lease) {
	_ = each(ls, func(l *Lease) error { return l.Unlock(context.Background()) })
}

// each runs f for all leases, many at a time, and returns the first error in the
// order of names.
func each(ls []*Lease, f func(*Lease) error) error {
	if len(ls) == 1 {
		return f(ls[0])
	}
	const parallel = 64
	slot := make(chan struct{}, parallel)
	errs := make([]error, len(ls))
	var work sync.WaitGroup
	for i, l := range ls {
		slot <- struct{}{}
		work.Go(func() {
			defer func() { <-slot }()
			errs[i] = f(l)
		})
	}
	work.Wait()
	return cmp.Or(errs...)
}

// ended is told that the tenure of a member is over. The mutex of its cohort is
// held, so the others are released by another goroutine.
func (s *LeaseSet) ended(t *tenure, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
	case s.gathering != nil:
		s.err = err
		stop := s.gathering
		s.core.spawn(func() { stop(errPartLost) }) // no mutex may be held
	default:
		s.end(err)
		t.cl.tellLost(func() { s.contexts.end(err) })
		done := make(chan struct{})
		if s.core.spawn(func() { defer close(done); t.cl.telling.Wait(); letGo(s.members) }) {
			s.letting = done
		}
	}
}

// end ends the lease with err. The mutex is held; the contexts end after that.
func (s *LeaseSet) end(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	s.ending.Store(&s.err)
	if err != ErrReleased {
		close(s.lost)
	}
}

// press notes that others want one of the names.
func (s *LeaseSet) press() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pressed && s.err == nil {
		s.pressed = true
		close(s.wanted)
	}
}

// Names of the locks, in order.
func (s *LeaseSet) Names() []string {
	names := make([]string, len(s.members))
	for i, l := range s.members {
		names[i] = l.Name()
	}
	return names
}

func (s *LeaseSet) member(name string) *Lease {
	i, ok := slices.BinarySearchFunc(s.members, name, func(l *Lease, name string) int { return strings.Compare(l.Name(), name) })
	if !ok {
		return nil
	}
	return s.members[i]
}

// Token of the grant of that name; see [Lease.Token]. It is 0 if the set does
// not have the name, which no resource that checks tokens takes.
func (s *LeaseSet) Token(name string) int64 {
	l := s.member(name)
	if l == nil {
		return 0
	}
	return l.Token()
}

// Deadline is the earliest of the locks' deadlines; see [Lease.Deadline].
func (s *LeaseSet) Deadline() time.Time {
	first := s.members[0].Deadline()
	for _, l := range s.members[1:] {
		if d := l.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

// Err returns nil while all locks are held; after that what ended the lease, as
// [Lease.Err] does.
func (s *LeaseSet) Err() error {
	if s.over(time.Now()) == nil {
		return nil
	}
	s.expire()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == ErrReleased {
		return s.releasedErr()
	}
	return s.err
}

// expire ends the set if the time of one of the locks has passed.
func (s *LeaseSet) expire() {
	for _, l := range s.members {
		l.Err()
	}
}

func (s *LeaseSet) releasedErr() error {
	return fmt.Errorf("lock all of %q: %w", s.Names(), ErrReleased)
}

// Lost returns a channel that is closed when one of the locks ends before the set
// is unlocked.
func (s *LeaseSet) Lost() <-chan struct{} {
	s.Err()
	return s.lost
}

// Wanted returns a channel that is closed when somebody waits for one of the
// names, or has asked for it; see [Lease.Wanted].
func (s *LeaseSet) Wanted() <-chan struct{} { return s.wanted }

// Context returns a context that ends with parent, when one of the locks is lost
// (context.Cause is ErrLost, names it and says why), or when the set is unlocked
// (ErrReleased). It belongs to each of the locks, as that of [Lease.Context] does
// to one.
func (s *LeaseSet) Context(parent context.Context) context.Context {
	return s.contexts.context(parent, s)
}

// over is of hold.
func (s *LeaseSet) over(now time.Time) error {
	if err := s.ending.Load(); err != nil {
		return *err
	}
	slept := s.core.keeper.sleptBy(now)
	for _, l := range s.members {
		if err := l.t.over(now, slept); err != nil {
			return err
		}
	}
	return nil
}

func (s *LeaseSet) last() time.Time { return s.members[0].t.maxHoldEnds } // all have the same

func (s *LeaseSet) part(core *core, name string) *tenure {
	if l := s.member(name); s.core == core && l != nil {
		return l.t
	}
	return nil
}

// Extend renews all locks now, to last for ttl after the request at the least; see
// [Lease.Extend].
func (s *LeaseSet) Extend(ctx context.Context, ttl time.Duration) error {
	if err := s.Err(); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	err := each(s.members, func(l *Lease) error { return l.Extend(ctx, ttl) })
	if ended := s.Err(); err != nil && ended != nil {
		return fmt.Errorf("extend: %w", ended) // the others were released for that
	}
	return err
}

// Unlock releases all locks and reports whether all of them were held to this
// moment, as [Lease.Unlock] does: nil, ErrLost, ErrReleased or ErrClosed.
func (s *LeaseSet) Unlock(ctx context.Context) error {
	s.expire()
	s.mu.Lock()
	if s.unlocked {
		s.mu.Unlock()
		return s.releasedErr()
	}
	err := s.err
	s.unlocked = true
	s.end(ErrReleased)
	letting := s.letting
	s.mu.Unlock()
	s.contexts.end(ErrReleased)
	if letting != nil {
		<-letting // the process may end after this; each takes no longer than an Unlock
	}
	unlocked := each(s.members, func(l *Lease) error { return l.Unlock(ctx) })
	return cmp.Or(err, unlocked)
}
