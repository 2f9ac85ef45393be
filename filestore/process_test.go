package filestore

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// soonEnough is far below the TTL of the claims, so that what passes within it
// has not passed because a claim ran out; the aim is 200 ms.
const soonEnough = 30 * time.Second

// TestKilledHolder: kill -9 passes the lock on.
func TestKilledHolder(t *testing.T) {
	dir := t.TempDir()
	for _, role := range []string{"hold", "holdWithChild"} {
		holder := start(t, role, dir, "a")
		if role == "holdWithChild" {
			// A child that outlives the holder does not keep the lock.
			pid := int(holder.expect("child"))
			t.Cleanup(func() {
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill()
				}
			})
		}
		holder.expect("holding")
		waiter := start(t, "hold", dir, "a")
		waiter.expect("waiting")
		time.Sleep(time.Duration(50+rand.IntN(100)) * time.Millisecond)
		at := holder.kill()
		passed := time.Unix(0, waiter.expect("holding")).Sub(at)
		t.Logf("%s: passed on %v after the kill", role, passed)
		if passed > soonEnough {
			t.Errorf("%s: passed on %v after the kill", role, passed)
		}
		waiter.end()
	}
}

// TestKilledWaiters: those who were killed while they waited delay nobody, be
// they granted the lock afterwards or not.
func TestKilledWaiters(t *testing.T) {
	dir := t.TempDir()
	holder := start(t, "hold", dir, "a")
	holder.expect("holding")
	var waiters [4]*child
	for i := range waiters {
		waiters[i] = start(t, "hold", dir, "a")
		waiters[i].expect("waiting")
	}
	time.Sleep(50 * time.Millisecond)
	waiters[0].kill()
	waiters[1].kill()
	<-waiters[1].ended
	waiters[1].ended <- nil
	holder.stdin.Close()
	left := time.Unix(0, holder.expect("left"))
	passed := time.Unix(0, waiters[2].expect("holding")).Sub(left)
	t.Logf("past two dead waiters in %v", passed)
	if passed > soonEnough {
		t.Errorf("past two dead waiters in %v", passed)
	}
	waiters[2].kill()
	waiters[3].expect("holding")
	waiters[3].end()
}

// TestDeadWaiterInFront: a dead waiter that asked for more than is free does not
// keep those behind it from what is.
func TestDeadWaiterInFront(t *testing.T) {
	dir := t.TempDir()
	a, b, c := mustOpen(t, dir), mustOpen(t, dir), mustOpen(t, dir)
	part := func(units int64) driver.Claim {
		p := claim("a")
		p.Units, p.Limit = units, 2
		return p
	}
	enter(t, a, part(1), driver.Holding)
	enter(t, b, part(2), driver.Waiting)
	behind := part(1)
	enter(t, c, behind, driver.Waiting)
	b.Close()
	hold(t, c, behind)
}

// TestDeadWaiterPassedOver: a hand-over goes past a dead waiter at once, not
// only when those behind it look.
func TestDeadWaiterPassedOver(t *testing.T) {
	dir := t.TempDir()
	m := thisMachine(t)
	m.probe = time.Hour
	a, b, c := mustOpen(t, dir), mustOpen(t, dir), mustOpenOn(t, dir, m)
	first, behind := claim("a"), claim("a")
	enter(t, a, first, driver.Holding)
	enter(t, b, claim("a"), driver.Waiting)
	enter(t, c, behind, driver.Waiting)
	held := make(chan driver.State, 1)
	go func() {
		st, err := c.Wait(soon(t), ref(behind))
		for err == nil && st.State == driver.Waiting {
			st, err = c.Wait(soon(t), ref(behind))
		}
		held <- st.State
	}()
	time.Sleep(20 * time.Millisecond) // so that it waits: its first look would see the dead
	b.Close()
	leave(t, a, first)
	if got := <-held; got != driver.Holding {
		t.Errorf("the waiter behind a dead one is %v", got)
	}
}

// TestDeadAreNotWaitedFor: who only tries, or asks for another kind of lock, is
// not refused because of the dead.
func TestDeadAreNotWaitedFor(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	holder := start(t, "hold", s.in.root.Path(), "a")
	holder.expect("holding")
	try := claim("a")
	try.Try = true
	enter(t, s, try, driver.Refused)
	holder.kill()
	<-holder.ended
	holder.ended <- nil
	if q, err := s.Inspect(t.Context(), "a"); err != nil || len(q.Claims) != 0 {
		t.Errorf("the dead are shown: %+v, %v", q, err)
	}
	holder = start(t, "hold", s.in.root.Path(), "a")
	holder.expect("holding")
	holder.kill()
	<-holder.ended
	holder.ended <- nil
	try.Limit = 5
	enter(t, s, try, driver.Holding)
}

// TestLingeringOutlivesItsProcess: a claim that lingers stays although its
// process is gone.
func TestLingeringOutlivesItsProcess(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	c := claim("a")
	enter(t, s, c, driver.Holding)
	r := ref(c)
	r.Linger = long
	if _, err := s.Leave(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = mustOpen(t, dir)
	try := claim("a")
	try.Try = true
	enter(t, s, try, driver.Refused)
}

// TestTakenOver: a claim that another process has taken over by its id lives
// with that process, not with the one that entered it.
func TestTakenOver(t *testing.T) {
	dir := t.TempDir()
	first, second, third := mustOpen(t, dir), mustOpen(t, dir), mustOpen(t, dir)
	entered, renewed := claim("entered"), claim("renewed")
	enter(t, first, entered, driver.Holding)
	enter(t, first, renewed, driver.Holding)
	enter(t, second, entered, driver.Holding)
	second.Renew(t.Context(), []driver.Ref{ref(renewed)}, func(_ int, st driver.Status, err error) {
		if st.State != driver.Holding || err != nil {
			t.Errorf("Renew returned %v, %v", st.State, err)
		}
	})
	first.Close()
	tries := []driver.Claim{claim("entered"), claim("renewed")}
	for i := range tries {
		tries[i].Try = true
		enter(t, third, tries[i], driver.Refused)
	}
	second.Close()
	for _, c := range tries {
		enter(t, third, c, driver.Holding)
	}
}

// TestWakeUp: a hand-over between processes does not wait for anybody to look.
func TestWakeUp(t *testing.T) {
	dir := t.TempDir()
	m := thisMachine(t)
	m.probe = time.Hour // nobody looks
	s := mustOpenOn(t, dir, m)
	var spans []time.Duration
	for range 10 {
		holder := start(t, "hold", dir, "a")
		holder.expect("holding")
		c := claim("a")
		enter(t, s, c, driver.Waiting)
		held := make(chan time.Time, 1)
		go func() {
			st, err := s.Wait(t.Context(), ref(c))
			for err == nil && st.State == driver.Waiting {
				st, err = s.Wait(t.Context(), ref(c))
			}
			held <- time.Now()
		}()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		holder.stdin.Close()
		left := time.Unix(0, holder.expect("left"))
		select {
		case at := <-held:
			spans = append(spans, at.Sub(left))
		case <-time.After(longest):
			t.Fatal("the waiter was not woken")
		}
		leave(t, s, c)
	}
	slices.Sort(spans)
	t.Logf("from the call of Leave to the next holder in another process: median %v, longest %v", spans[len(spans)/2], spans[len(spans)-1])
}

// TestRecordWakeUp: nor does a call that waits for a record.
func TestRecordWakeUp(t *testing.T) {
	dir := t.TempDir()
	a, b := mustOpen(t, dir), mustOpen(t, dir)
	ctx := soon(t)
	version := int64(0)
	var spans []time.Duration
	for range 10 {
		changed := make(chan error, 1)
		go func() {
			r, err := a.WaitChange(ctx, "r", version)
			version = r.Version
			changed <- err
		}()
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		at := time.Now()
		if _, err := b.CompareAndSwap(ctx, driver.Record{Name: "r", Version: version, Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
		spans = append(spans, time.Since(at))
	}
	slices.Sort(spans)
	t.Logf("from the call of CompareAndSwap to the end of WaitChange: median %v", spans[len(spans)/2])
	if spans[0] >= recheckEvery/2 {
		t.Errorf("the fastest of %d took %v: nobody was woken", len(spans), spans[0])
	}
}

// TestKilledAtAnyInstant: processes that count under a lock are killed at
// random instants. No file is ever torn, no increment is lost, and tokens rise.
func TestKilledAtAnyInstant(t *testing.T) {
	dir := t.TempDir() + "/locks"
	file := t.TempDir() + "/counter"
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	tokens := make(map[int]int64)
	hear := func(c *child) {
		for line := range c.said {
			n, err := strconv.Atoi(line[1])
			if err != nil {
				t.Fatal(err)
			}
			if tokens[n] != 0 {
				t.Errorf("two processes counted to %d: an increment is lost", n)
			}
			if tokens[n], err = strconv.ParseInt(line[2], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	counters := make([]*child, 3)
	for i := range counters {
		counters[i] = start(t, "count", dir, "a", file)
	}
	for range rounds {
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		i := rand.IntN(len(counters))
		counters[i].kill()
		everyFileParses(t, dir)
		hear(counters[i])
		counters[i] = start(t, "count", dir, "a", file)
	}
	for _, c := range counters {
		c.end()
		hear(c)
	}
	n, err := readNumber(file)
	if err != nil {
		t.Fatal(err)
	}
	// Who was killed may have counted and not said so.
	if silent := n - len(tokens); silent < 0 || silent > rounds {
		t.Errorf("the file says %d, the processes %d, and %d were killed", n, len(tokens), rounds)
	}
	t.Logf("%d increments, %d kills", n, rounds)
	if n < rounds {
		t.Errorf("only %d increments between %d kills", n, rounds)
	}
	last := int64(0)
	for i := 1; i <= n; i++ {
		if tok, ok := tokens[i]; ok {
			if tok <= last {
				t.Errorf("increment %d was made under token %d, an earlier one under %d", i, tok, last)
			}
			last = tok
		}
	}
	s := mustOpen(t, dir)
	hold(t, s, claim("a"))
	s.in.sweepSessions()
	if ids, err := s.in.sessionIDs(); err != nil || len(ids) != 1 {
		t.Errorf("%d sessions are left, %v", len(ids), err)
	}
	s.Close()
}
