package disk

import (
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTurns opens the same locks several times, as processes would.
func openTurns(t *testing.T, n int) []*Turns {
	t.Helper()
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	all := make([]*Turns, n)
	for i := range all {
		if all[i], err = d.Turns("lock"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { all[i].Close() })
	}
	return all
}

// tickets waits until so many tickets of the bucket are out.
func (t *Turns) tickets(tb *testing.T, bucket int64, want int) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		n := 0
		for from := int64(1); from < drawOffset; n++ {
			l := unix.Flock_t{Type: unix.F_WRLCK, Start: bucket*bucketSize + from, Len: drawOffset - from}
			if err := unix.FcntlFlock(uintptr(t.fd), unix.F_OFD_GETLK, &l); err != nil {
				tb.Fatal(err)
			}
			if l.Type == unix.F_UNLCK {
				break
			}
			from = l.Start - bucket*bucketSize + 1 // each is one byte long
		}
		if n == want {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("%d tickets are out, want %d", n, want)
		}
	}
}

// TestTurns: a lock goes to those who wait in order of arrival, past one that
// has it and wants it again, and past one that is gone.
func TestTurns(t *testing.T) {
	const bucket = Buckets - 1
	all := openTurns(t, 6)
	holder, looks, waiting := all[0], all[1], all[2:]
	if ok, err := holder.Try(bucket); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := looks.Try(bucket - 1); !ok || err != nil {
		t.Error("another bucket is taken, too", err)
	}
	order := make(chan int, len(waiting)+1)
	take := func(i int, w *Turns) {
		if err := w.Take(bucket); err != nil {
			t.Error(err)
		}
		order <- i
		if err := w.Drop(bucket); err != nil {
			t.Error(err)
		}
	}
	for i, w := range waiting {
		go take(i, w)
		looks.tickets(t, bucket, i+1)
	}
	if err := holder.Drop(bucket); err != nil {
		t.Fatal(err)
	}
	if ok, err := holder.Try(bucket); err != nil {
		t.Error(err)
	} else if ok && len(order) < len(waiting) {
		t.Error("the one that had it came before those who waited")
	} else if ok {
		_ = holder.Drop(bucket)
	}
	take(len(waiting), holder)
	for want := range len(waiting) + 1 {
		if got := <-order; got != want {
			t.Errorf("number %d had the %d. turn", got, want)
		}
	}
	looks.tickets(t, bucket, 0)
}

// TestTurnsChild: a child that outlives the one that took the lock does not keep
// it.
func TestTurnsChild(t *testing.T) {
	all := openTurns(t, 2)
	if ok, err := all[0].Try(7); !ok || err != nil {
		t.Fatal(ok, err)
	}
	sleeps := exec.Command("sleep", "60")
	if err := sleeps.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		_ = sleeps.Process.Kill()
		_ = sleeps.Wait()
	}()
	if ok, err := all[1].Try(7); ok || err != nil {
		t.Error("it is taken twice", err)
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	if ok, err := all[1].Try(7); !ok || err != nil {
		t.Error("it is still taken", err)
	}
}

// within fails the test if f does not end.
func within(t *testing.T, what string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(what, err)
		}
	case <-time.After(time.Minute):
		t.Fatal(what, "takes for ever")
	}
}

// TestTurnsPastStopped: one that is stopped while it waits in line, or while it
// draws its ticket, keeps nobody from a lock that is free.
func TestTurnsPastStopped(t *testing.T) {
	const bucket = 3
	for what, at := range map[string]int64{"in line": 5, "drawing": drawOffset} {
		t.Run(what, func(t *testing.T) {
			all := openTurns(t, 3)
			stopped, comes, other := all[0], all[1], all[2]
			if ok, err := stopped.lockRange(unix.F_WRLCK, false, bucket, at, 1); !ok || err != nil {
				t.Fatal(ok, err)
			}
			free := func(want bool) {
				t.Helper()
				if ok, err := other.lockRange(unix.F_WRLCK, false, bucket, 0, 1); err != nil || ok != want {
					t.Errorf("the lock is free: %v, want %v, %v", ok, want, err)
				} else if ok {
					_ = other.Drop(bucket)
				}
			}
			for range 3 {
				within(t, "Take", func() error { return comes.Take(bucket) })
				free(false)
				if err := comes.Drop(bucket); err != nil {
					t.Fatal(err)
				}
				free(true)
			}
			within(t, "Take", func() error { return comes.Take(bucket) })
			if _, err := stopped.lockRange(unix.F_UNLCK, false, bucket, at, 1); err != nil {
				t.Fatal(err)
			}
			// It goes on; the thread that is still in line gets its turn.
			within(t, "the thread in line", func() error {
				for {
					comes.mu.Lock()
					n := len(comes.inLine)
					comes.mu.Unlock()
					if n == 0 {
						return nil
					}
					time.Sleep(time.Millisecond)
				}
			})
			free(false)
			if err := comes.Drop(bucket); err != nil {
				t.Fatal(err)
			}
			if ok, err := other.Try(bucket); !ok || err != nil {
				t.Error("something is still locked", err)
			}
		})
	}
}

// TestTurnsExclude: a lock has one holder, also while some pass the line.
func TestTurnsExclude(t *testing.T) {
	was := lineBound
	lineBound = time.Millisecond
	defer func() { lineBound = was }()
	var inside, count atomic.Int32
	var all sync.WaitGroup
	for _, w := range openTurns(t, 5) {
		all.Go(func() {
			for range 40 {
				if err := w.Take(1); err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two have the lock")
				}
				time.Sleep(500 * time.Microsecond)
				count.Add(1)
				inside.Add(-1)
				if err := w.Drop(1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := count.Load(); n != 200 {
		t.Errorf("%d turns, want 200", n)
	}
}

// TestTurnsAfterPassing: who has passed the line, and waits again while its ticket
// of before is still in it, is served when that comes to its turn: also if the
// lock is in use all the time.
func TestTurnsAfterPassing(t *testing.T) {
	const bucket, rounds = 9, 10
	all := openTurns(t, 4)
	stopped, passes, others := all[0], all[1], all[2:]
	if ok, err := stopped.lockRange(unix.F_WRLCK, false, bucket, 5, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	within(t, "Take past the line", func() error { return passes.Take(bucket) })
	if err := passes.Drop(bucket); err != nil {
		t.Fatal(err)
	}
	if ok, err := others[0].lockRange(unix.F_WRLCK, false, bucket, 0, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := stopped.lockRange(unix.F_UNLCK, false, bucket, 5, 1); err != nil {
		t.Fatal(err) // it goes on
	}
	served := make(chan error, 1)
	go func() { served <- passes.Take(bucket) }()
	passes.tickets(t, bucket, 0) // it sees none of its own
	time.Sleep(50 * time.Millisecond)
	holder, next := others[0], others[1]
	for range rounds {
		took := make(chan error, 1)
		go func() { took <- next.Take(bucket) }()
		next.waits(t, bucket)
		time.Sleep(2 * time.Millisecond)
		if err := holder.Drop(bucket); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-served:
			if err != nil {
				t.Fatal(err)
			}
			_ = passes.Drop(bucket)
			if err := <-took; err != nil {
				t.Fatal(err)
			}
			return
		case err := <-took:
			if err != nil {
				t.Fatal(err)
			}
		}
		holder, next = next, holder
	}
	t.Errorf("it was passed %d times", rounds)
	_ = holder.Drop(bucket)
	<-served
}

// waits waits until a thread of t is in line with its ticket.
func (t *Turns) waits(tb *testing.T, bucket int64) {
	tb.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		t.mu.Lock()
		in := t.inLine[bucket] != nil
		t.mu.Unlock()
		if in {
			return
		}
		if time.Now().After(end) {
			tb.Fatal("nobody is in line")
		}
	}
}

// TestTurnsDroppedMeanwhile: a thread in line whose turn has come has nothing if
// what its process had by passing was given back before it could tell.
func TestTurnsDroppedMeanwhile(t *testing.T) {
	const bucket = 11
	all := openTurns(t, 3)
	stopped, passes, other := all[0], all[1], all[2]
	if ok, err := stopped.lockRange(unix.F_WRLCK, false, bucket, 5, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	within(t, "Take past the line", func() error { return passes.Take(bucket) })
	passes.mu.Lock()
	w := passes.inLine[bucket]
	if _, err := stopped.lockRange(unix.F_UNLCK, false, bucket, 5, 1); err != nil {
		t.Fatal(err)
	}
	within(t, "the turn of the thread", func() error {
		for {
			ok, err := other.lockRange(unix.F_WRLCK, false, bucket, 5, 1)
			if !ok {
				return err
			}
			if _, err := other.lockRange(unix.F_UNLCK, false, bucket, 5, 1); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	})
	if err := passes.drop(bucket); err != nil {
		t.Fatal(err)
	}
	if ok, err := other.lockRange(unix.F_WRLCK, false, bucket, 0, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
	w.wanted = true // as by the next Take
	passes.mu.Unlock()
	select {
	case err := <-w.turn:
		t.Fatal("two have the lock", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := other.Drop(bucket); err != nil {
		t.Fatal(err)
	}
	within(t, "the turn", func() error { return <-w.turn })
	if ok, err := other.lockRange(unix.F_WRLCK, false, bucket, 0, 1); ok || err != nil {
		t.Error("nobody has the lock", err)
	}
}
