//go:build unix

package synchronizers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl"
)

func testRWMutex(g *group) {
	a, b, c := g.client(pawl.Options{}), g.client(pawl.Options{}), g.client(pawl.Options{})
	ra := g.rwLease(a.RWMutex(g.name).RLock(g.ctx))
	rb := g.rwLease(b.RWMutex(g.name).TryRLock(g.ctx))
	_, err := c.RWMutex(g.name).TryLock(g.ctx)
	g.want(err, pawl.ErrHeld)
	_, err = c.Mutex(g.name).TryLock(g.ctx)
	g.want(err, pawl.ErrMismatch)

	writer := wait(g, c, g.name, 1, c.RWMutex(g.name).Lock)
	_, err = a.With(func(o *pawl.Options) { o.Label = "another claim" }).RWMutex(g.name).TryRLock(g.ctx)
	g.want(err, pawl.ErrHeld) // a writer that waits stops later readers
	late := wait(g, b, g.name, 2, b.With(func(o *pawl.Options) { o.Label = "late" }).RWMutex(g.name).RLock)
	passes := a.With(func(o *pawl.Options) { o.Overtake = true })
	g.unlock(g.rwLease(passes.RWMutex(g.name).TryRLock(g.ctx)))
	g.unlock(ra)
	select {
	case <-writer:
		g.Fatal("a writer holds beside a reader")
	case <-time.After(moment):
	}
	g.unlock(rb)
	w := granted(g, writer)
	if w.Token() <= max(ra.Token(), rb.Token()) {
		g.Errorf("the writer's token %d, after %d and %d", w.Token(), ra.Token(), rb.Token())
	}
	select {
	case <-late:
		g.Fatal("a reader holds beside a writer")
	case <-time.After(moment):
	}

	token := w.Token()
	g.must(w.Downgrade(g.ctx))
	r := granted(g, late)
	if r.Token() <= token || w.Token() != token {
		g.Errorf("a reader's token %d after the writer's %d, which is %d now", r.Token(), token, w.Token())
	}
	g.want(w.TryUpgrade(g.ctx), pawl.ErrHeld)
	g.unlock(r)
	g.must(w.TryUpgrade(g.ctx))
	if w.Token() <= r.Token() {
		g.Errorf("upgraded to token %d after %d", w.Token(), r.Token())
	}
	_, err = a.RWMutex(g.name).TryRLock(g.ctx)
	g.want(err, pawl.ErrHeld)
	g.unlock(w)
	g.free(a, g.name)
}

func testSharedLocally(g *group) {
	a, b := g.client(pawl.Options{}), g.client(pawl.Options{})
	const all = 1000
	var work sync.WaitGroup
	var in, failed atomic.Int64
	leave := make(chan struct{})
	for range all {
		work.Go(func() {
			lease, err := a.RWMutex(g.name).RLock(g.ctx)
			if err != nil {
				failed.Add(1)
				return
			}
			in.Add(1)
			<-leave
			if lease.Unlock(g.ctx) != nil {
				failed.Add(1)
			}
		})
	}
	g.eventually(func() bool { return in.Load()+failed.Load() == all }, "not all of them read")
	if h, w := g.count(b, g.name); h != 1 || w != 0 {
		g.Errorf("%d readers of one process hold %d claims, and %d wait", all, h, w)
	}
	close(leave)
	work.Wait()
	if n := failed.Load(); n > 0 {
		g.Errorf("%d failed", n)
	}
	g.free(b, g.name)
}

func testReadersAndWriters(g *group) {
	var readers, writers, wrong atomic.Int64
	var work sync.WaitGroup
	for range 2 {
		c := g.client(pawl.Options{})
		for range 3 {
			work.Go(func() {
				for range 5 {
					err := c.RWMutex(g.name).RDo(g.ctx, func(context.Context) error {
						readers.Add(1)
						if writers.Load() > 0 {
							wrong.Add(1)
						}
						time.Sleep(time.Millisecond)
						readers.Add(-1)
						return nil
					})
					if err != nil {
						g.Error(err)
					}
				}
			})
		}
		work.Go(func() {
			for range 5 {
				err := c.RWMutex(g.name).Do(g.ctx, func(context.Context) error {
					if writers.Add(1) > 1 || readers.Load() > 0 {
						wrong.Add(1)
					}
					time.Sleep(time.Millisecond)
					if readers.Load() > 0 {
						wrong.Add(1)
					}
					writers.Add(-1)
					return nil
				})
				if err != nil {
					g.Error(err)
				}
			}
		})
	}
	work.Wait()
	if n := wrong.Load(); n > 0 {
		g.Errorf("%d times a writer was not alone", n)
	}
}

func testSemaphore(g *group) {
	a, b, c := g.client(pawl.Options{}), g.client(pawl.Options{}), g.client(pawl.Options{})
	sem := func(c *pawl.Client) *pawl.Semaphore { return c.Semaphore(g.name, 3) }
	two := g.lease(sem(a).Acquire(g.ctx, 2))
	one := g.lease(sem(b).TryAcquire(g.ctx, 1))
	_, err := sem(c).TryAcquire(g.ctx, 1)
	g.want(err, pawl.ErrHeld)
	_, err = c.Semaphore(g.name, 4).TryAcquire(g.ctx, 1)
	g.want(err, pawl.ErrMismatch)
	if limit := new(pawl.MismatchError); !errors.As(err, &limit) || limit.Have != 3 || limit.Want != 4 {
		g.Errorf("%v does not name both limits", err)
	}
	_, err = sem(c).Acquire(g.ctx, 4)
	g.want(err, pawl.ErrInvalid)

	all := wait(g, c, g.name, 1, func(ctx context.Context) (*pawl.Lease, error) { return sem(c).Acquire(ctx, 3) })
	g.unlock(one)
	_, err = sem(b).TryAcquire(g.ctx, 1)
	g.want(err, pawl.ErrHeld) // it is free, but the big one stands in front
	passed := g.lease(b.With(func(o *pawl.Options) { o.Overtake = true }).Semaphore(g.name, 3).TryAcquire(g.ctx, 1))
	g.unlock(two)
	select {
	case <-all:
		g.Fatal("three permits beside one, of three")
	case <-time.After(moment):
	}
	g.unlock(passed)
	g.unlock(granted(g, all))
	g.free(a, g.name)
}

func testSetLimit(g *group) {
	a, b := g.client(pawl.Options{}), g.client(pawl.Options{})
	sem := func(c *pawl.Client) *pawl.Semaphore { return c.Semaphore(g.name, 2) }
	first := g.lease(sem(a).Acquire(g.ctx, 2))
	second := wait(g, b, g.name, 1, func(ctx context.Context) (*pawl.Lease, error) { return sem(b).Acquire(ctx, 1) })
	g.must(sem(b).SetLimit(g.ctx, 3))
	one := granted(g, second)
	g.must(sem(b).SetLimit(g.ctx, 1)) // nobody loses permits
	if first.Err() != nil || one.Err() != nil {
		g.Fatalf("a smaller limit: %v, %v", first.Err(), one.Err())
	}
	_, err := sem(a).TryAcquire(g.ctx, 2)
	g.want(err, pawl.ErrMismatch)
	g.unlock(first)
	_, err = sem(a).TryAcquire(g.ctx, 1)
	g.want(err, pawl.ErrHeld)
	g.unlock(one)
	g.unlock(g.lease(sem(a).TryAcquire(g.ctx, 1)))
	g.must(sem(a).SetLimit(g.ctx, 2))
	g.unlock(g.lease(sem(b).TryAcquire(g.ctx, 2)))
}

func testSemaphoreCrash(g *group) {
	a, crash := g.mortal(pawl.Options{TTL: short})
	b := g.client(pawl.Options{})
	lost := g.lease(a.Semaphore(g.name, 3).Acquire(g.ctx, 2))
	stays := g.lease(b.Semaphore(g.name, 3).Acquire(g.ctx, 1))
	next := wait(g, b, g.name, 1, func(ctx context.Context) (*pawl.Lease, error) { return b.Semaphore(g.name, 3).Acquire(ctx, 2) })
	crash()
	g.closes(lost.Lost(), "the one that crashed is told")
	told := time.Now()
	got := <-next
	g.lease(got.lease, got.err)
	if got.at.Before(lost.Deadline()) {
		g.Errorf("its permits were another's %v before its own deadline (told at %v)", lost.Deadline().Sub(got.at), told)
	}
	g.unlock(stays, got.lease)
	g.free(b, g.name)
}

func testLockAll(g *group) {
	names := g.names(3)
	var held [3]atomic.Int32
	var wrong atomic.Int64
	var work sync.WaitGroup
	for i := range 3 {
		c := g.client(pawl.Options{})
		pair := []int{i, (i + 1) % 3}
		work.Go(func() {
			for range 6 {
				set, err := c.LockAll(g.ctx, names[pair[0]], names[pair[1]])
				if err != nil {
					g.Error(err)
					return
				}
				for _, n := range pair {
					if held[n].Add(1) > 1 {
						wrong.Add(1)
					}
				}
				time.Sleep(time.Millisecond)
				for _, n := range pair {
					held[n].Add(-1)
				}
				if err := set.Unlock(g.ctx); err != nil {
					g.Error(err)
				}
			}
		})
	}
	work.Wait()
	if n := wrong.Load(); n > 0 {
		g.Errorf("%d times two held a name", n)
	}

	a, b := g.client(pawl.Options{}), g.client(pawl.Options{})
	one := g.lease(a.Mutex(names[1]).Lock(g.ctx))
	_, err := b.TryLockAll(g.ctx, names...)
	g.want(err, pawl.ErrHeld)
	for _, name := range []string{names[0], names[2]} {
		g.unlock(g.lease(a.Mutex(name).TryLock(g.ctx))) // nothing stayed behind
	}
	g.unlock(one)
	set, err := b.TryLockAll(g.ctx, names...)
	g.must(err)
	if set.TokenOf(names[1]) <= one.Token() {
		g.Errorf("token %d after %d", set.TokenOf(names[1]), one.Token())
	}
	removed, err := a.ForceRelease(g.ctx, names[2])
	g.must(err)
	if len(removed) != 1 {
		g.Errorf("removed %+v", removed)
	}
	g.closes(set.Lost(), "one of the set's names was taken away")
	g.want(set.Unlock(g.ctx), pawl.ErrLost)
	for _, name := range names {
		g.free(a, name)
	}
}

func testYield(g *group) {
	a, b := g.client(pawl.Options{TTL: 9 * time.Second}), g.client(pawl.Options{})
	l := g.lease(a.Mutex(g.name).Lock(g.ctx))
	select {
	case <-l.YieldRequested():
		g.Error("requested by nobody")
	case <-time.After(moment):
	}
	next := wait(g, b, g.name, 1, b.Mutex(g.name).Lock)
	g.closes(l.YieldRequested(), "another one waits")
	g.unlock(l)
	l = granted(g, next)
	if err := a.RequestYield(g.ctx, g.name); err != nil {
		g.want(err, pawl.ErrUnsupported)
		g.Logf("request yield: %v", err)
	} else {
		// It is a hint, and may be lost.
		for asked := false; !asked; {
			select {
			case <-l.YieldRequested():
				asked = true
			case <-time.After(time.Second):
				g.must(a.RequestYield(g.ctx, g.name))
			case <-g.ctx.Done():
				g.Fatal("asked: nothing happens")
			}
		}
	}
	g.unlock(l)
}

func testForceRelease(g *group) {
	events := make(chan pawl.Event, 100)
	a, b := g.client(pawl.Options{TTL: 9 * time.Second}), g.client(pawl.Options{TTL: 9 * time.Second})
	c := g.client(pawl.Options{Label: "operator", Observer: func(e pawl.Event) {
		if e.Kind == pawl.EventRemoved {
			events <- e
		}
	}})
	ra, rb := g.rwLease(a.RWMutex(g.name).RLock(g.ctx)), g.rwLease(b.RWMutex(g.name).RLock(g.ctx))
	removed, err := c.ForceRelease(g.ctx, g.name)
	g.must(err)
	if len(removed) != 2 {
		g.Errorf("removed %+v", removed)
	}
	g.closes(ra.Lost(), "the first is told")
	g.closes(rb.Lost(), "the second is told")
	g.want(ra.Unlock(g.ctx), pawl.ErrLost)
	g.want(rb.Err(), pawl.ErrLost)
	w := g.rwLease(b.RWMutex(g.name).TryLock(g.ctx))
	if w.Token() <= max(ra.Token(), rb.Token()) {
		g.Errorf("token %d after %d and %d", w.Token(), ra.Token(), rb.Token())
	}
	g.unlock(w)
	select {
	case e := <-events:
		if len(e.Removed) != 2 || e.By.Label != "operator" {
			g.Errorf("%+v", e)
		}
	case <-g.ctx.Done():
		g.Error("the observer was not told")
	}
}
