package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
	"github.com/pawl-go/pawl/internal/await"
)

// Who is refused a lock at the moment that its context ends is told one of the two.
func TestRefusedAndOver(t *testing.T) {
	d, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	l := newLocks(d, make(chan struct{}))
	if err := l.take(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	l.drop(1)
	l.file.Close()
	// Its number stays taken: by a folder, of which no lock can be had.
	for {
		other, err := disk.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if ok, _ := l.file.Try(1); !ok {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		if l.take(ctx, 1) == nil {
			t.Fatal("it has the lock of a file that is closed")
		}
	}
}

// Whoever cannot begin, for the folder is locked by a process that is stopped, waits
// for that no longer than the call lasts.
func TestBeginBesideStopped(t *testing.T) {
	dir := t.TempDir()
	s, stopped := mustOpen(t, dir), mustOpen(t, dir)
	if err := stopped.in.folder.take(t.Context(), folderLock); err != nil {
		t.Fatal(err)
	}
	waiting := func(n int) {
		t.Helper()
		await.That(t, "it does not wait for the folder", func() bool {
			s.in.folder.mu.Lock()
			defer s.in.folder.mu.Unlock()
			l := s.in.folder.lines[folderLock]
			return l != nil && len(l.waiting) == n
		})
	}
	go func() { _ = s.Listen(t.Context(), func(driver.Notice) {}) }()
	waiting(1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Enter(ctx, claim("a"))
		ended <- err
	}()
	waiting(2)
	cancel()
	if err := await.Value(t, "it has given up", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Enter returned %v", err)
	}
	stopped.in.folder.drop(folderLock)
	enter(t, s, claim("a"), driver.Holding)
}

// namesInOrder returns two names whose locks are taken in this order.
func namesInOrder() (first, last string) {
	for i := 0; first == "" || last == ""; i++ {
		switch n := fmt.Sprint("n", i); shardOf(n) {
		case 0:
			first = n
		case shards - 1:
			last = n
		}
	}
	return first, last
}

// Who wants two names, one of which a process has locked that is stopped, does not
// keep the other name from its holder.
func TestAllBesideStopped(t *testing.T) {
	dir := t.TempDir()
	s, stopped, both := mustOpen(t, dir), mustOpen(t, dir), mustOpen(t, dir)
	first, last := namesInOrder()
	held := claim(first)
	enter(t, s, held, driver.Holding)
	sh, err := stopped.in.queues.shard(shardOf(last))
	if err != nil {
		t.Fatal(err)
	}
	bucket := bucketOf(queueFileName(last))
	if err := sh.take(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		sts []driver.Status
		err error
	}
	done := make(chan outcome, 1)
	cs := []driver.Claim{claim(first), claim(last)}
	go func() {
		sts, err := both.EnterAll(await.Context(t), cs)
		done <- outcome{sts, err}
	}()
	other, err := both.in.queues.shard(shardOf(last))
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "nobody waits for the name that is locked", func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		return len(other.lines) > 0
	})
	s.Renew(await.Context(t), []driver.Ref{ref(held)}, func(_ int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			t.Errorf("renew: %v, %v", st.State, err)
		}
	})
	sh.drop(bucket)
	leave(t, s, held)
	if o := await.Value(t, "the others' claims", done); o.err != nil {
		t.Error(o.err)
	}
}

// What a reader cannot make out without the lock may be half of what it will read.
func TestReadWhileItGrows(t *testing.T) {
	dir := t.TempDir()
	s, other := mustOpen(t, dir), mustOpen(t, dir)
	held, waits := claim("a"), claim("a")
	enter(t, other, held, driver.Holding)
	enter(t, s, waits, driver.Waiting)
	sh, err := other.in.queues.shard(shardOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	bucket := bucketOf(queueFileName("a"))
	if err := sh.take(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	path := queueFile(s, "a")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()+200); err != nil { // zeros
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		k, forget := s.in.papers.of("a")
		defer forget()
		st, err := s.in.look(await.Context(t), ref(waits), k, 0)
		if err == nil && st.State != driver.Waiting {
			err = errors.New(st.State.String())
		}
		done <- err
	}()
	own, err := s.in.queues.shard(shardOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "it does not wait for the lock", func() bool {
		own.mu.Lock()
		defer own.mu.Unlock()
		n := own.lines[bucket]
		return n != nil && n.taking
	})
	if err := os.Truncate(path, info.Size()); err != nil {
		t.Fatal(err)
	}
	sh.drop(bucket)
	if err := await.Value(t, "it has looked", done); err != nil {
		t.Error(err)
	}
}

// Who holds goes on holding on a full disk also when another claim of the name has
// run out, which takes room to write.
func TestRenewOnFullDisk(t *testing.T) {
	dir := smallDisk(t)
	m, wait := still(t)
	s := mustOpenOn(t, dir+"/locks", m)
	held, brief := claim("held"), claim("held")
	brief.TTL = time.Second
	enter(t, s, held, driver.Holding)
	enter(t, s, brief, driver.Waiting)
	path := queueFile(s, "held")
	for i := 0; ; i++ { // until a page has no room for a change
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size()%4096 > 4096-60 {
			break
		}
		c := claim("held")
		c.Owner.Label = string(bytes.Repeat([]byte("x"), i%9))
		enter(t, s, c, driver.Waiting)
	}
	if err := os.WriteFile(dir+"/fill", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk has room left: %v", err)
	}
	wait(2 * brief.TTL)
	for range 3 {
		s.Renew(t.Context(), []driver.Ref{ref(held), ref(brief)}, func(i int, st driver.Status, err error) {
			if i == 0 && (err != nil || st.State != driver.Holding) {
				t.Errorf("who holds: %v, %v", st.State, err)
			} else if i == 1 && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("whose time is over: %v, %v", st.State, err)
			}
		})
		wait(long / 2)
	}
	if err := os.Remove(dir + "/fill"); err != nil {
		t.Fatal(err)
	}
	leave(t, s, held)
}

// A process keeps some long files that it does not use, the latest.
func TestLongFilesAreLetGo(t *testing.T) {
	var ps papers
	for i := range 10 * keptPapers {
		name := fmt.Sprint("n", i)
		k, forget := ps.of(name)
		k.raw = make([]byte, shortSize)
		forget()
		if ps.m[name] != k || len(ps.m) > keptPapers {
			t.Fatalf("%d are kept, the latest: %v", len(ps.m), ps.m[name] == k)
		}
	}
}

// How many other files are in use has no say in which are kept, and is not gone
// through.
func TestLongFilesBesideOthersInUse(t *testing.T) {
	var ps papers
	for i := range 2 * keptPapers {
		ps.of(fmt.Sprint("used", i))
	}
	k, forget := ps.of("long")
	k.raw = make([]byte, shortSize)
	forget()
	_, forget = ps.of("another")
	forget()
	if ps.m["long"] != k {
		t.Error("a long file is not kept beside others in use")
	}
}
