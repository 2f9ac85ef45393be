package drivertest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawl-go/pawl/driver"
)

var loadTests = []test{
	{name: "Counter", run: loadCounter},
	{name: "Semaphore", run: loadSemaphore, needs: []Feature{Units}},
	{name: "GivingUp", run: loadGivingUp},
	{name: "ConcurrentEnter", run: loadConcurrentEnter},
}

// Three processes with four goroutines each count under the lock.
func loadCounter(e *env) {
	const workers, rounds = 12, 10
	stores := []driver.Store{e.a, e.b, e.open()}
	name := e.name()
	var count, last int64 // atomic for the race detector, which sees no lock here
	e.each(workers, func(i int) {
		for range rounds {
			s, c := stores[i%len(stores)], e.claim(name)
			st, err := e.acquire(e.ctx, s, c)
			if err != nil {
				e.Errorf("acquire: %v", err)
				return
			}
			n := atomic.LoadInt64(&count)
			if before := atomic.LoadInt64(&last); st.Token <= before {
				e.Errorf("holds with token %d after %d", st.Token, before)
			}
			runtime.Gosched()
			atomic.StoreInt64(&last, st.Token)
			atomic.StoreInt64(&count, n+1)
			e.leaves(s, c, driver.Holding)
		}
	})
	if count != workers*rounds {
		e.Errorf("counted to %d, want %d", count, workers*rounds)
	}
	e.queueIs(name, 0)
}

// each runs f in n goroutines and waits for them.
func (e *env) each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// leaves is leave for goroutines other than the test's.
func (e *env) leaves(s driver.Store, c driver.Claim, want ...driver.State) {
	was, err := s.Leave(e.ctx, ref(c))
	if err != nil {
		e.Errorf("Leave: %v", err)
		return
	}
	for _, w := range want {
		if was == w {
			return
		}
	}
	e.Errorf("Leave returned %v, want one of %v", was, want)
}

// Claims of various sizes never hold more than the limit.
func loadSemaphore(e *env) {
	const limit = 5
	stores := []driver.Store{e.a, e.b}
	name := e.name()
	var used atomic.Int64
	e.each(8, func(i int) {
		for n := range 8 {
			s, c := stores[i%2], e.part(name, int64((i+n)%limit)+1, limit)
			if _, err := e.acquire(e.ctx, s, c); err != nil {
				e.Errorf("acquire: %v", err)
				return
			}
			if n := used.Add(c.Units); n > limit {
				e.Errorf("%d units are held, the limit is %d", n, limit)
			}
			runtime.Gosched()
			used.Add(-c.Units)
			e.leaves(s, c, driver.Holding)
		}
	})
	e.queueIs(name, 0)
}

// Whoever gives up leaves nothing behind, and does not stop the others.
func loadGivingUp(e *env) {
	stores := []driver.Store{e.a, e.b}
	name := e.name()
	var held atomic.Int32
	e.each(8, func(i int) {
		for n := range 10 {
			s, c := stores[i%2], e.claim(name)
			ctx, cancel := context.WithCancel(e.ctx)
			switch (i + n) % 3 {
			case 0:
				c.Try = true
			case 1:
				time.AfterFunc(rand.N(3*time.Millisecond), cancel)
			}
			st, err := e.acquire(ctx, s, c)
			if err != nil && ctx.Err() == nil {
				e.Errorf("acquire: %v", err)
			}
			if err == nil && st.State == driver.Holding {
				if n := held.Add(1); n != 1 {
					e.Errorf("%d hold at once", n)
				}
				runtime.Gosched()
				held.Add(-1)
			}
			cancel()
			if err != nil { // the request may have been carried out or not
				e.leaves(s, c, driver.Gone, driver.Waiting, driver.Holding)
			} else if st.State == driver.Holding {
				e.leaves(s, c, driver.Holding)
			}
		}
	})
	e.queueIs(name, 0)
}

// Of many that try at once exactly one holds, and at most one where votes are gathered: each
// may stand in another's way. The same claim entered many times at once is one claim.
func loadConcurrentEnter(e *env) {
	stores := []driver.Store{e.a, e.b}
	name := e.name()
	var holding atomic.Int32
	e.each(8, func(i int) {
		st, err := stores[i%2].Enter(e.ctx, try(e.claim(name)))
		if err != nil {
			e.Errorf("Enter: %v", err)
		}
		if st.State == driver.Holding {
			holding.Add(1)
		}
	})
	if n := holding.Load(); n != 1 && !(n == 0 && e.lacks(Gathered)) {
		e.Errorf("%d of 8 that tried hold", n)
	}
	c := e.claim(e.name())
	var tokens sync.Map
	e.each(8, func(i int) {
		st, err := stores[i%2].Enter(e.ctx, c)
		if err != nil || st.State != driver.Holding {
			e.Errorf("Enter: %v, %v", st.State, err)
		}
		tokens.Store(st.Token, true)
	})
	n := 0
	for range tokens.Range {
		n++
	}
	if n != 1 {
		e.Errorf("one claim has %d tokens", n)
	}
	e.queueIs(c.Name, 1, c)
}
