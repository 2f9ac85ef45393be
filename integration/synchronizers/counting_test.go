//go:build unix

package synchronizers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
)

func testElection(g *group) {
	a, crash := g.mortal(pawl.Options{TTL: short, Label: "a"})
	b, c := g.client(pawl.Options{Label: "b"}), g.client(pawl.Options{})
	_, err := c.Election(g.name).Leader(g.ctx)
	g.want(err, pawl.ErrNoLeader)
	seen := make(chan pawl.Leader, 100)
	watching, stop := context.WithCancel(g.ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		for l, err := range c.Election(g.name).Observe(watching) {
			if err != nil {
				if watching.Err() == nil {
					g.Errorf("observe: %v", err)
				}
				return
			}
			seen <- l
		}
	})
	// see waits until value is seen; what comes before may be skipped.
	see := func(value string) (l pawl.Leader) {
		g.Helper()
		for {
			select {
			case l = <-seen:
				if string(l.Value) == value && (value == "") == (l.Token == 0) {
					return l
				}
			case <-g.ctx.Done():
				g.Fatalf("%q is not seen", value)
			}
		}
	}
	see("")
	first, err := a.Election(g.name).Campaign(g.ctx, []byte("one"))
	g.must(err)
	if l := see("one"); l.Token != first.Token() || l.Owner.Label != "a" {
		g.Errorf("%+v leads", l)
	}
	g.must(first.Proclaim(g.ctx, []byte("two")))
	see("two")

	// The leader's process is gone.
	var second *pawl.Leadership
	next := wait(g, b, g.name, 1, func(ctx context.Context) (*pawl.Lease, error) {
		l, err := b.Election(g.name).Campaign(ctx, []byte("three"))
		second = l
		if err != nil {
			return nil, err
		}
		return l.Lease, nil
	})
	crash()
	g.closes(first.Lost(), "the leader that crashed is told")
	got := <-next
	g.must(got.err)
	if d := first.Deadline(); got.at.Before(d) {
		g.Errorf("another one led %v before the first one's time was over", d.Sub(got.at))
	}
	if l := see("three"); l.Token != second.Token() || l.Token <= first.Token() {
		g.Errorf("%+v leads, after token %d", l, first.Token())
	}
	g.want(first.Proclaim(g.ctx, []byte("late")), pawl.ErrLost)
	l, err := c.Election(g.name).Leader(g.ctx)
	g.must(err)
	if string(l.Value) != "three" {
		g.Errorf("%q leads", l.Value)
	}
	g.must(second.Resign(g.ctx))
	see("")
	_, err = c.Election(g.name).Leader(g.ctx)
	g.want(err, pawl.ErrNoLeader)
	g.free(c, g.name)
}

func testLatch(g *group) {
	a, b, c := g.client(pawl.Options{}), g.client(pawl.Options{}), g.client(pawl.Options{})
	down := func(c *pawl.Client, party string, want int64) {
		g.Helper()
		left, err := c.Latch(g.name, 3).CountDown(g.ctx, party)
		g.must(err)
		if left != want {
			g.Errorf("%q: %d are missing, want %d", party, left, want)
		}
	}
	opened := make(chan error, 2)
	for _, c := range []*pawl.Client{b, c} {
		go func() { opened <- c.Latch(g.name, 3).Wait(g.ctx) }()
	}
	down(a, "one", 2)
	down(b, "one", 2) // the same, started anew
	down(b, "two", 1)
	select {
	case err := <-opened:
		g.Fatalf("open with one missing: %v", err)
	case <-time.After(moment):
	}
	_, err := c.Latch(g.name, 2).Count(g.ctx)
	g.want(err, pawl.ErrMismatch)
	down(c, "", 0)
	for range 2 {
		g.must(<-opened)
	}
	g.must(a.Latch(g.name, 3).Wait(g.ctx)) // it stays open
	g.must(a.Latch(g.name, 3).Delete(g.ctx))
	left, err := b.Latch(g.name, 3).Count(g.ctx)
	g.must(err)
	if left != 3 {
		g.Errorf("of a new latch %d are missing", left)
	}

	// All at once, and nobody is forgotten.
	name := g.name + "/many"
	var work sync.WaitGroup
	var zero atomic.Int64
	for _, c := range []*pawl.Client{a, b, c} {
		for range 4 {
			work.Go(func() {
				left, err := c.Latch(name, 12).CountDown(g.ctx, "")
				if err != nil {
					g.Error(err)
				}
				if left == 0 {
					zero.Add(1)
				}
			})
		}
	}
	work.Wait()
	g.must(a.Latch(name, 12).Wait(g.ctx))
	if n := zero.Load(); n != 1 {
		g.Errorf("%d of 12 were the last", n)
	}
	g.must(a.Latch(name, 12).Delete(g.ctx))
}

func testBarrier(g *group) {
	const parties, generations = 3, 4
	var indexes [generations][]int
	var mu sync.Mutex
	var work sync.WaitGroup
	var actions, come atomic.Int64
	for range parties {
		b := g.client(pawl.Options{}).Barrier(g.name, parties).WithAction(func(context.Context) error {
			actions.Add(1)
			return nil
		})
		work.Go(func() {
			for n := range generations {
				come.Add(1)
				i, err := b.Wait(g.ctx)
				if err != nil {
					g.Error(err)
					return
				}
				if got := come.Load(); got < int64(parties*(n+1)) {
					g.Errorf("generation %d: one went on after %d came", n, got)
				}
				mu.Lock()
				indexes[n] = append(indexes[n], i)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	for n, got := range indexes {
		if slices.Sort(got); !slices.Equal(got, []int{0, 1, 2}) {
			g.Errorf("generation %d: indexes %v", n, got)
		}
	}
	if n := actions.Load(); n != generations {
		g.Errorf("the action ran %d times in %d generations", n, generations)
	}
	c := g.client(pawl.Options{})
	_, err := c.Barrier(g.name, 2).Waiting(g.ctx)
	g.want(err, pawl.ErrMismatch)
	g.free(c, g.name)
}

func testBrokenBarrier(g *group) {
	a, crash := g.mortal(pawl.Options{TTL: short})
	b, bores := g.client(pawl.Options{}), g.client(pawl.Options{})
	wait := func(c *pawl.Client, ctx context.Context, waiting int) <-chan error {
		g.Helper()
		ch := make(chan error, 1)
		go func() { _, err := c.Barrier(g.name, 3).Wait(ctx); ch <- err }()
		g.eventually(func() bool {
			n, err := b.Barrier(g.name, 3).Waiting(g.ctx)
			g.must(err)
			return n == waiting
		}, "%d do not wait", waiting)
		return ch
	}
	// One gives up.
	stays := wait(b, g.ctx, 1)
	leaving, leave := context.WithCancelCause(g.ctx)
	defer leave(nil)
	leaves := wait(bores, leaving, 2)
	bored := errors.New("bored")
	leave(bored)
	g.want(<-leaves, bored)
	g.want(<-stays, pawl.ErrBroken)
	_, err := b.Barrier(g.name, 3).Wait(g.ctx)
	g.want(err, pawl.ErrBroken)
	g.must(b.Barrier(g.name, 3).Reset(g.ctx))

	// One dies.
	stays = wait(b, g.ctx, 1)
	dies := wait(a, g.ctx, 2)
	crash()
	g.want(<-stays, pawl.ErrBroken)
	if err := <-dies; err == nil {
		g.Error("the one that died went on")
	}
	g.must(b.Barrier(g.name, 3).Reset(g.ctx))
	if n, err := b.Barrier(g.name, 3).Waiting(g.ctx); n != 0 || err != nil {
		g.Errorf("after a reset %d wait: %v", n, err)
	}
}

func testOnce(g *group) {
	var ran, done atomic.Int64
	var work sync.WaitGroup
	for range 3 {
		once := g.client(pawl.Options{}).Once(g.name, time.Hour)
		for range 2 {
			work.Go(func() {
				err := once.Do(g.ctx, func(context.Context) error {
					ran.Add(1)
					time.Sleep(moment)
					return nil
				})
				if errors.Is(err, pawl.ErrDone) {
					done.Add(1)
				} else if err != nil {
					g.Error(err)
				}
			})
		}
	}
	work.Wait()
	if r, d := ran.Load(), done.Load(); r != 1 || d != 5 {
		g.Errorf("it ran %d times, and %d were told that it was done", r, d)
	}

	// Who fails leaves it to the next one.
	a, b := g.client(pawl.Options{}), g.client(pawl.Options{})
	name, failure := g.name+"/fails", errors.New("failed")
	g.want(a.Once(name, time.Hour).Do(g.ctx, func(context.Context) error {
		g.want(b.Once(name, time.Hour).TryDo(g.ctx, nothing), pawl.ErrHeld)
		return failure
	}), failure)
	g.must(b.Once(name, time.Hour).TryDo(g.ctx, nothing))
	g.want(a.Once(name, time.Hour).TryDo(g.ctx, nothing), pawl.ErrDone)
}

func nothing(context.Context) error { return nil }

func testOnceCrash(g *group) {
	a, crash := g.mortal(pawl.Options{TTL: short})
	b := g.client(pawl.Options{})
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- a.Once(g.name, time.Hour).Do(g.ctx, func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	g.closes(began, "the first run")
	crash()
	g.must(b.Once(g.name, time.Hour).Do(g.ctx, nothing))
	g.want(<-ended, pawl.ErrLost)
	g.want(b.Once(g.name, time.Hour).TryDo(g.ctx, nothing), pawl.ErrDone)
}
