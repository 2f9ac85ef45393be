package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/await"
)

const (
	// life is the TTL of claims that must not run out during a test.
	life = 40 * time.Minute
	// longest bounds the wait for something that should come at once. It is
	// far below life, so that what comes only when a claim runs out fails.
	longest = await.Limit
)

// env is what a test works with: two Store values on one backing.
type env struct {
	testing.TB
	h       Harness
	backing Backing
	ctx     context.Context
	a, b    driver.Store
	short   time.Duration // TTL of claims that are to run out; see expire
	since   time.Time     // when something got that TTL; see inTime
}

func newEnv(t *testing.T, h Harness, short time.Duration) *env {
	ctx, cancel := context.WithTimeout(context.Background(), 2*longest)
	t.Cleanup(cancel)
	e := &env{TB: t, h: h, backing: h.New(t), ctx: ctx, short: short}
	if e.backing.Advance != nil {
		e.short = life / 4
	}
	e.a, e.b = e.open(), e.open()
	return e
}

// open returns a further Store value; it is closed at the end of the test.
func (e *env) open() driver.Store {
	e.Helper()
	s, err := e.backing.Open()
	if err != nil {
		e.Fatalf("open: %v", err)
	}
	e.Cleanup(func() {
		if err := s.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
	})
	return s
}

// errSlow is a panic that ends a test whose claims have run out too early.
var errSlow = errors.New("what was to be there has run out before the test came to look at it")

// attempt runs a test. It returns false if the machine was too slow for e.short:
// then the test has shown nothing.
func (e *env) attempt(test func(*env)) (inTime bool) {
	defer func() {
		if r := recover(); r == errSlow {
			e.Logf("it took longer than %v", e.short)
		} else if r != nil {
			panic(r)
		}
	}()
	test(e)
	return true
}

// begin is called before something gets the TTL e.short.
func (e *env) begin() {
	if e.since.IsZero() {
		e.since = time.Now()
	}
}

// inTime is called when what has the TTL e.short need not be there any more. If
// that comes later than the TTL allows, nothing is wrong, and the test is run again
// with a longer one.
func (e *env) inTime() {
	e.Helper()
	e.blame()
	e.since = time.Time{}
}

// blame is called when a test fails: while something was to be there, it is not the
// store's fault if that has run out.
func (e *env) blame() {
	if e.backing.Advance == nil && !e.since.IsZero() && time.Since(e.since) > e.short {
		panic(errSlow)
	}
}

func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.blame()
	e.TB.Errorf(format, args...)
}

func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	e.blame()
	e.TB.Fatalf(format, args...)
}

func (e *env) Error(args ...any) { e.Helper(); e.Errorf("%s", fmt.Sprint(args...)) }

func (e *env) Fatal(args ...any) { e.Helper(); e.Fatalf("%s", fmt.Sprint(args...)) }

// lacks tells whether the engine cannot do that.
func (e *env) lacks(f Feature) bool { return e.h.Missing[f] != "" }

// expire lets claims with the TTL e.short run out, and no others.
func (e *env) expire() {
	e.inTime()
	if e.backing.Advance != nil {
		e.backing.Advance(e.short + time.Millisecond)
		return
	}
	time.Sleep(e.short + e.h.Late + 10*time.Millisecond)
}

// name returns a name that nobody else uses.
func (e *env) name() string { return "test/" + rand.Text() }

// claim returns a claim for one of one.
func (e *env) claim(name string) driver.Claim {
	return driver.Claim{
		Name: name, ID: driver.NewID(), Kind: driver.KindMutex, Units: 1, Limit: 1, TTL: life,
		Owner: driver.Owner{Label: e.Name(), Host: "here", PID: 1},
	}
}

// part returns a claim for units of limit.
func (e *env) part(name string, units, limit int64) driver.Claim {
	c := e.claim(name)
	c.Kind, c.Units, c.Limit = driver.KindSemaphore, units, limit
	return c
}

// try returns c with Try.
func try(c driver.Claim) driver.Claim {
	c.Try = true
	return c
}

// brief returns c with the TTL that expire outlasts.
func (e *env) brief(c driver.Claim) driver.Claim {
	e.begin()
	c.TTL = e.short
	return c
}

func ref(c driver.Claim) driver.Ref {
	return driver.Ref{Name: c.Name, ID: c.ID, TTL: c.TTL}
}

// enter enters c and fails the test unless its state is want then.
func (e *env) enter(s driver.Store, c driver.Claim, want driver.State) driver.Status {
	e.Helper()
	st, err := s.Enter(e.ctx, c)
	if err != nil {
		e.Fatalf("Enter %d of %d: %v", c.Units, c.Limit, err)
	}
	e.is(st, want, "Enter")
	return st
}

// renew renews c and fails the test unless its state is want then.
func (e *env) renew(s driver.Store, c driver.Claim, want driver.State) driver.Status {
	e.Helper()
	st, err := e.renewRef(s, ref(c))
	if err != nil {
		e.Fatalf("Renew: %v", err)
	}
	e.is(st, want, "Renew")
	return st
}

func (e *env) renewRef(s driver.Store, r driver.Ref) (driver.Status, error) {
	e.Helper()
	got := e.renewAll(e.ctx, s, []driver.Ref{r})[0]
	return got.st, got.err
}

type renewed struct {
	st  driver.Status
	err error
}

// renewAll renews a batch and fails the test unless each index was reported
// exactly once before Renew returned.
func (e *env) renewAll(ctx context.Context, s driver.Store, rs []driver.Ref) []renewed {
	e.Helper()
	var mu sync.Mutex
	out, times := make([]renewed, len(rs)), make([]int, len(rs))
	stray := 0
	s.Renew(ctx, rs, func(i int, st driver.Status, err error) {
		mu.Lock()
		defer mu.Unlock()
		if i < 0 || i >= len(rs) {
			stray++
			return
		}
		times[i]++
		out[i] = renewed{st, err}
	})
	mu.Lock()
	defer mu.Unlock()
	if stray > 0 {
		e.Fatalf("Renew of %d claims reported an index outside", len(rs))
	}
	for i, n := range times {
		if n != 1 {
			e.Fatalf("Renew reported index %d of %d %d times, want once", i, len(rs), n)
		}
	}
	return out
}

// leave removes c and fails the test unless its state was want.
func (e *env) leave(s driver.Store, c driver.Claim, want driver.State) {
	e.Helper()
	e.leaveRef(s, ref(c), want)
}

func (e *env) leaveRef(s driver.Store, r driver.Ref, want driver.State) {
	e.Helper()
	was, err := s.Leave(e.ctx, r)
	if err != nil {
		e.Fatalf("Leave: %v", err)
	}
	if was != want {
		e.Fatalf("Leave returned %v, want %v", was, want)
	}
}

// wait calls Wait until the claim does not wait any more.
func (e *env) wait(s driver.Store, c driver.Claim) (driver.Status, error) {
	ctx, cancel := context.WithTimeout(e.ctx, longest)
	defer cancel()
	for {
		st, err := s.Wait(ctx, ref(c))
		if err != nil || st.State != driver.Waiting {
			return st, err
		}
		time.Sleep(time.Millisecond) // Wait may return early
	}
}

// granted fails the test unless Wait alone soon tells that c holds.
func (e *env) granted(s driver.Store, c driver.Claim) driver.Status {
	e.Helper()
	st, err := e.wait(s, c)
	if err != nil {
		e.Fatalf("Wait for a grant: %v", err)
	}
	e.is(st, driver.Holding, "Wait")
	return st
}

// await calls Wait in a goroutine, as wait does.
func (e *env) await(s driver.Store, c driver.Claim) <-chan renewed {
	ch := make(chan renewed, 1)
	go func() {
		st, err := e.wait(s, c)
		ch <- renewed{st, err}
	}()
	return ch
}

// becomes renews c until its state is want.
func (e *env) becomes(s driver.Store, c driver.Claim, want driver.State) driver.Status {
	e.Helper()
	var st driver.Status
	if want == driver.Holding && e.lacks(Queue) {
		return e.granted(s, c)
	}
	e.eventually("the claim is "+want.String(), func() bool {
		var err error
		if st, err = e.renewRef(s, ref(c)); err != nil {
			e.Fatalf("Renew: %v", err)
		}
		return st.State == want
	})
	return st
}

// acquire does what a client does to hold c: it waits, and renews at Status.Recheck and at
// every third of the TTL. Wait may return early, and tells no Recheck: the one of the last
// renewal stays.
func (e *env) acquire(ctx context.Context, s driver.Store, c driver.Claim) (driver.Status, error) {
	renewed := time.Now()
	st, err := s.Enter(ctx, c)
	for err == nil && st.State == driver.Waiting {
		due := renewed.Add(c.TTL / 3)
		if !st.Recheck.IsZero() && st.Recheck.Before(due) {
			due = st.Recheck
		}
		for err == nil && st.State == driver.Waiting && time.Now().Before(due) {
			wctx, cancel := context.WithDeadline(ctx, due)
			st, err = s.Wait(wctx, ref(c))
			cancel()
		}
		if passed := !time.Now().Before(due); ctx.Err() == nil && passed && (err != nil || st.State == driver.Waiting) {
			renewed = time.Now()
			s.Renew(ctx, []driver.Ref{ref(c)}, func(_ int, got driver.Status, e error) { st, err = got, e })
		}
	}
	return st, err
}

// ahead fails the test unless n wait in front of the claim.
func (e *env) ahead(st driver.Status, n int) {
	e.Helper()
	if e.lacks(Queue) {
		n = 0
	}
	if st.Ahead != n {
		e.Errorf("Ahead is %d, want %d", st.Ahead, n)
	}
}

// behind fails the test unless n wait behind the claim.
func (e *env) behind(st driver.Status, n int) {
	e.Helper()
	if e.lacks(Queue) {
		n = 0
	}
	if st.Behind != n {
		e.Errorf("Behind is %d, want %d", st.Behind, n)
	}
}

// shown returns those of the claims that Inspect shows: the first n hold, the others
// wait.
func (e *env) shown(n int, claims ...driver.Claim) []driver.Claim {
	if e.lacks(Queue) {
		return claims[:n]
	}
	return claims
}

// knowing returns the Store value of two to ask for a claim that waits: it was entered
// through the first, and all know of it where there is a queue.
func (e *env) knowing(entered, other driver.Store) driver.Store {
	if e.lacks(Queue) {
		return entered
	}
	return other
}

// recheck fails the test unless st, asked for after before, says when what
// stands in the way may have run out; ttl is the least of it.
func (e *env) recheck(st driver.Status, before time.Time, ttl time.Duration) {
	e.Helper()
	if e.lacks(Recheck) {
		return
	}
	if !st.Recheck.After(before) || st.Recheck.After(time.Now().Add(ttl+time.Second)) {
		e.Errorf("Recheck is in %v, but what stands in the way has a TTL of %v", time.Until(st.Recheck), ttl)
	}
}

// is fails the test unless the state is want, and what must go with any state
// is right.
func (e *env) is(st driver.Status, want driver.State, what string) {
	e.Helper()
	if st.State != want {
		e.Fatalf("%s returned %v, want %v", what, st.State, want)
	}
	switch want {
	case driver.Holding:
		if st.Token <= 0 {
			e.Errorf("%s: holding with token %d", what, st.Token)
		}
		if st.Ahead != 0 || st.Blocker != nil || !st.Recheck.IsZero() {
			e.Errorf("%s: holding, but somebody stands in the way: %+v", what, st)
		}
	case driver.Waiting:
		if st.Blocker == nil {
			e.Errorf("%s: waiting without a blocker", what)
		}
		if st.Token != 0 {
			e.Errorf("%s: waiting with token %d", what, st.Token)
		}
	case driver.Gone:
		if !st.Deadline.IsZero() || st.Token != 0 {
			e.Errorf("%s: gone, but with deadline %v and token %d", what, st.Deadline, st.Token)
		}
	}
}

func (e *env) inspect(s driver.Store, name string) driver.Queue {
	e.Helper()
	q, err := s.Inspect(e.ctx, name)
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	return q
}

// queueIs fails the test unless exactly those claims are in the queue, in
// that order, the first n of them holding.
func (e *env) queueIs(name string, holding int, want ...driver.Claim) {
	e.Helper()
	for _, s := range []driver.Store{e.a, e.b} {
		var got, wanted []string
		for _, c := range e.inspect(s, name).Claims {
			got = append(got, c.ID+" "+c.State.String())
		}
		for i, c := range e.shown(holding, want...) {
			state := driver.Waiting
			if i < holding {
				state = driver.Holding
			}
			wanted = append(wanted, c.ID+" "+state.String())
		}
		if !slices.Equal(got, wanted) {
			e.Fatalf("the queue is\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(wanted, "\n  "))
		}
	}
}

// entry returns the claim as Inspect shows it, and fails the test if it is
// not there.
func (e *env) entry(s driver.Store, c driver.Claim) driver.Entry {
	e.Helper()
	q := e.inspect(s, c.Name)
	i := slices.IndexFunc(q.Claims, func(en driver.Entry) bool { return en.ID == c.ID })
	if i < 0 {
		e.Fatalf("Inspect does not show the claim: %+v", q)
	}
	return q.Claims[i]
}

// eventually polls until cond is true.
func (e *env) eventually(what string, cond func() bool) {
	e.Helper()
	for end := time.Now().Add(longest); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			e.Fatalf("not within %v: %s", longest, what)
		}
	}
}

// errIs fails the test unless err is target.
func (e *env) errIs(err, target error, what string) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("%s: error %v, want %v", what, err, target)
	}
}

// soon receives from ch, and fails the test if nothing comes.
func soon[T any](e *env, ch <-chan T, what string) T {
	e.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(2 * longest):
		e.Fatalf("not within %v: %s", longest, what)
		panic("unreachable")
	}
}
