package zkstore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// slot serializes the changes of a queue by this Store: they would only outrun
// each other.
type slot struct {
	name    string
	turn    chan struct{}
	refs    int
	leaving []*leaving    // guarded by the store's mutex
	came    chan struct{} // gets a value when there is one more
}

// leaving is a Leave that waits for its turn. A change in front of it that is not
// written yet takes it along: a process that enters its next claim and leaves the
// last at once makes one change of both.
type leaving struct {
	ref driver.Ref

	done chan struct{} // closed once it was taken along, and it is known what became of that
	was  driver.State
	err  error
}

// lock waits for the caller's turn; with taken, another change has done what l,
// which may be nil, is about.
func (s *store) lock(ctx context.Context, n *session, name string, l *leaving) (sl *slot, taken bool, err error) {
	s.mu.Lock()
	sl = s.slots[name]
	if sl == nil {
		sl = &slot{name: name, turn: make(chan struct{}, 1), came: make(chan struct{}, 1)}
		s.slots[name] = sl
	}
	sl.refs++
	var done chan struct{}
	if l != nil {
		sl.leaving = append(sl.leaving, l)
		select {
		case sl.came <- struct{}{}:
		default:
		}
		done = l.done
	}
	s.mu.Unlock()
	locked := false
	select {
	case sl.turn <- struct{}{}:
		locked = true
	case <-done:
	case <-ctx.Done():
		err = n.explain(ctx.Err())
	case <-s.ctx.Done():
		err = driver.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l != nil {
		sl.leaving = slices.DeleteFunc(sl.leaving, func(o *leaving) bool { return o == l })
		taken = fired(l.done)
	}
	if err != nil || taken {
		if locked {
			<-sl.turn
		}
		s.release(sl)
		return nil, taken, err
	}
	return sl, false, nil
}

func (s *store) unlock(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	<-sl.turn
	s.release(sl)
}

// release lets go of the slot; the store's mutex is held.
func (s *store) release(sl *slot) {
	if sl.refs--; sl.refs == 0 {
		delete(s.slots, sl.name)
	}
}

// expect gives a Leave a moment to come along. Who enters the next claim while
// the last one holds leaves that soon, if it holds for as short as that; and then
// the next in line, who waits for the Leave, does not wait for the Enter too.
func (sl *slot) expect(ctx context.Context) {
	t := time.NewTimer(expectFor)
	defer t.Stop()
	select {
	case <-sl.came:
	case <-t.C:
	case <-ctx.Done():
	}
}

// expectFor is less than a write takes.
const expectFor = 500 * time.Microsecond

// takeAlong runs the Leaves that wait for their turn, and tells their callers. Those
// whose claims are not there have to find that out for themselves.
//
// It stops once a claim was granted all units, for the bound of a change's tokens:
// see token.go.
func (t *turn) takeAlong(sl *slot) (aboard []*leaving) {
	t.s.mu.Lock()
	waiting := slices.Clone(sl.leaving)
	t.s.mu.Unlock()
	for _, l := range waiting {
		c := t.q.Find(l.ref.ID)
		if c == nil || c.Mark != l.ref.Mark || c.Lingering || t.q.Last >= t.Now+spare {
			continue
		}
		l.was = t.Leave(t.q, driver.Ref{ID: l.ref.ID, Mark: l.ref.Mark, Used: t.used(l.ref)})
		maps.Copy(t.alone, account(t.q))
		aboard = append(aboard, l)
	}
	return aboard
}

// arrived tells those who were taken along what became of the change. If others
// were faster, they go on waiting.
func (s *store) arrived(sl *slot, aboard []*leaving, err error) {
	if raced(err) || errors.Is(err, errUnsent) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range aboard {
		l.err = err
		close(l.done)
	}
	sl.leaving = slices.DeleteFunc(sl.leaving, func(l *leaving) bool { return slices.Contains(aboard, l) })
}

// young is how old a view may be that has others' claims, to be tried before the
// queue is read again.
const young = 20 * time.Millisecond

// seen returns what the queue looked like to this Store lately, if that is likely
// to be so still: nil if not. What has others' claims may be so old.
func (s *store) seen(name string, oldest time.Duration) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.views[name]
	if v == nil || time.Since(v.at) >= oldest && (v.listed || len(v.children) > 1) {
		return nil
	}
	return v
}

func (s *store) see(name string, v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v == nil {
		delete(s.views, name)
	} else {
		s.views[name] = v
	}
}

const (
	// busyFor is how long a queue is taken for in use that was seen so: then
	// entering it begins with a read.
	busyFor = 5 * time.Second
	// missedFor is how long no old view of a queue is tried after one was wrong.
	missedFor = time.Second
	maxBusy   = 1000
)

// traffic is what this Store has noticed of others in a queue.
type traffic struct {
	seen   time.Time // when somebody else was there
	missed time.Time // when they made an old view wrong
}

func (s *store) notice(name string, f func(*traffic)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.busy) >= maxBusy {
		clear(s.busy)
	}
	tr := s.busy[name]
	f(&tr)
	s.busy[name] = tr
}

func (s *store) setBusy(name string) { s.notice(name, func(tr *traffic) { tr.seen = time.Now() }) }

func (s *store) miss(name string) { s.notice(name, func(tr *traffic) { tr.missed = time.Now() }) }

func (s *store) wasBusy(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.busy[name].seen) < busyFor
}

func (s *store) missedLately(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.busy[name].missed) < missedFor
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
