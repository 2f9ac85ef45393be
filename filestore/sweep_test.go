package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/filestore/internal/disk"
)

// TestManyNames: names that were used leave nothing behind.
func TestManyNames(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	for i := range 2000 {
		c := claim(fmt.Sprint("name/", i))
		enter(t, s, c, driver.Holding)
		leave(t, s, c)
	}
	if n := countFiles(t, s.in.queues.dir.Path()); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// TestSweep: what nobody asks for again is removed all the same, and what is
// in use stays.
func TestSweep(t *testing.T) {
	m, move := still(t)
	dir := t.TempDir()
	s, gone := mustOpenOn(t, dir, m), mustOpenOn(t, dir, m)
	for i := range 50 {
		enter(t, gone, claim(fmt.Sprint("dead/", i)), driver.Holding)
		brief := claim(fmt.Sprint("run out/", i))
		brief.TTL = time.Second
		enter(t, s, brief, driver.Holding)
		lingers := claim(fmt.Sprint("lingers/", i))
		enter(t, s, lingers, driver.Holding)
		r := ref(lingers)
		r.Linger = time.Second
		if _, err := s.Leave(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		rec := driver.Record{Name: fmt.Sprint("r/", i), Value: []byte("v"), TTL: time.Second}
		if _, err := s.CompareAndSwap(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	enter(t, s, claim("in use"), driver.Holding)
	if _, err := s.CompareAndSwap(t.Context(), driver.Record{Name: "in use", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	s.in.sweepFolder(longest)
	if n := countFiles(t, s.in.queues.dir.Path()); n != 151 {
		t.Errorf("%d queues while all are in use, want 151", n)
	}
	gone.Close()
	move(2 * time.Second)
	s.in.sweepFolder(longest)
	if n := countFiles(t, s.in.queues.dir.Path()); n != 1 {
		t.Errorf("%d queues are left, want 1", n)
	}
	if n := countFiles(t, s.in.records.dir.Path()); n != 1 {
		t.Errorf("%d records are left, want 1", n)
	}
}

// TestSweepByItself: opening a folder is enough, once a minute.
func TestSweepByItself(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	for i := range 10 {
		enter(t, s, claim(fmt.Sprint("dead/", i)), driver.Holding)
	}
	queues := s.in.queues.dir.Path()
	for end := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, sweptName)); err == nil {
			break // its own first round is over
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	s.Close()
	if n := countFiles(t, queues); n != 10 {
		t.Fatalf("%d files, want 10", n)
	}
	past := time.Now().Add(-2 * sweepEvery)
	if err := os.Chtimes(filepath.Join(dir, sweptName), past, past); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
	for end := time.Now().Add(longest); countFiles(t, queues) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody cleaned up")
		}
	}
	if at, err := os.Stat(filepath.Join(dir, sweptName)); err != nil || !at.ModTime().After(past) {
		t.Errorf("the next one would sweep at once: %v", err)
	}
}

// TestLeftovers: what killed processes leave goes with the next to come.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "sessions", "deadbeefdeadbeef")
	if err := os.MkdirAll(dead, 0o700); err != nil { // no lock on it
		t.Fatal(err)
	}
	home, err := disk.Open(dead)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	if pipe, err := home.Mailbox(mailName, true); err != nil {
		t.Fatal(err)
	} else {
		pipe.Close()
	}
	for _, file := range []string{sessionName, "other"} {
		if err := os.WriteFile(filepath.Join(dead, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	unborn := filepath.Join(dir, "sessions", asidePrefix+"deadbeefdeadbeef")
	if err := os.Mkdir(unborn, 0o700); err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * sweepEvery)
	if err := os.Chtimes(unborn, past, past); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir)
	s.in.sweepFolder(longest)
	for _, of := range []string{dead, unborn} {
		if _, err := os.Stat(of); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", of, err)
		}
	}
	first := claim("a")
	enter(t, s, first, driver.Holding)
	leave(t, s, first)
	aside := queueFile(s, "a") + asideSuffix
	if err := os.WriteFile(aside, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	enter(t, s, claim("a"), driver.Holding)
	enter(t, s, claim("a"), driver.Waiting)
	if q, err := s.Inspect(t.Context(), "a"); err != nil || len(q.Claims) != 2 {
		t.Errorf("%+v, %v", q, err)
	}
	if _, err := os.Stat(aside); !os.IsNotExist(err) {
		t.Errorf("the file aside is still there: %v", err)
	}
	mustOpen(t, dir)
	if _, err := os.Stat(filepath.Join(dir, "sessions", s.in.id, sessionName)); err != nil {
		t.Errorf("the live session is not: %v", err)
	}
	if err := os.WriteFile(aside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.in.sweepFolder(longest)
	if _, err := os.Stat(aside); !os.IsNotExist(err) {
		t.Errorf("a file aside that nobody needs is still there: %v", err)
	}
}

// TestSweepBesideLocked: names that are locked do not use up the round.
func TestSweepBesideLocked(t *testing.T) {
	dir := t.TempDir()
	mustOpen(t, dir).Close()
	if err := os.WriteFile(filepath.Join(dir, sweptName), nil, 0o600); err != nil { // nobody else cleans up now
		t.Fatal(err)
	}
	s, gone, stopped := mustOpen(t, dir), mustOpen(t, dir), mustOpen(t, dir)
	for i := range 20 {
		name := fmt.Sprint("dead/", i)
		if i > 0 && shardOf(name) == shardOf("dead/0") {
			continue // some systems have one lock for both
		}
		enter(t, gone, claim(name), driver.Holding)
		rec := driver.Record{Name: name, Value: []byte("v"), TTL: time.Millisecond}
		if _, err := s.CompareAndSwap(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	gone.Close()
	aside := queueFile(s, "dead/0") + asideSuffix
	if err := os.WriteFile(aside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, locked := range []struct {
		table *table
		file  string
	}{{&stopped.in.queues, queueFileName("dead/0")}, {&stopped.in.records, recordFileName("dead/0")}} {
		sh, err := locked.table.shard(shardOf("dead/0"))
		if err != nil {
			t.Fatal(err)
		}
		if err := sh.lock(t.Context(), bucketOf(locked.file)); err != nil {
			t.Fatal(err)
		}
		defer sh.drop(bucketOf(locked.file))
	}
	time.Sleep(2 * time.Millisecond) // the records run out
	s.in.sweepFolder(longest)
	if n := countFiles(t, s.in.queues.dir.Path()); n != 2 {
		t.Errorf("%d queues are left, want the locked one and what lies aside", n)
	}
	if n := countFiles(t, s.in.records.dir.Path()); n != 1 {
		t.Errorf("%d records are left, want 1", n)
	}
}
