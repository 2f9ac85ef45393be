package disk

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// turns opens the same locks several times, as processes would.
func turns(t *testing.T, n int) []*Turns {
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
	all := turns(t, 6)
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
	all := turns(t, 2)
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
