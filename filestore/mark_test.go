package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// renewed renews the claims and fails the test unless all hold.
func renewed(t testing.TB, ctx context.Context, s *Store, refs ...driver.Ref) {
	t.Helper()
	s.Renew(ctx, refs, func(i int, st driver.Status, err error) {
		if err != nil || st.State != driver.Holding {
			t.Errorf("renew %s: %v, %v", refs[i].Name, st.State, err)
		}
	})
}

// TestMarkOnAFullDisk: the mark moves where nothing can be allocated, so a disk
// that stays full takes no lock from anybody.
func TestMarkOnAFullDisk(t *testing.T) {
	dir := smallDisk(t)
	m, move := still(t)
	s := mustOpenOn(t, dir+"/locks", m)
	held := claim("held")
	held.TTL = 24 * time.Hour
	enter(t, s, held, driver.Holding)
	if err := os.WriteFile(dir+"/fill", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk has room left: %v", err)
	}
	for range 15 {
		move(time.Minute)
		renewed(t, t.Context(), s, ref(held))
	}
	move(time.Hour) // beyond the mark: it is moved before anything else
	renewed(t, t.Context(), s, ref(held))
	if f, err := s.in.readClock(); err != nil || f.Mark <= s.in.clock.now() {
		t.Errorf("it is %d, and the clock's file says %+v, %v", s.in.clock.now(), f, err)
	}
	leave(t, s, held)
}

// TestMarkOfASpoiledClock: who uses the folder knows its clock, and writes the
// file again if it was spoiled, or is one of an earlier version without room to
// move the mark in.
func TestMarkOfASpoiledClock(t *testing.T) {
	narrow := func(f *clockFile) []byte {
		b, err := json.Marshal(map[string]any{"format": f.Format, "boot": f.Boot, "base": f.Base, "mark": f.Mark})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for what, spoil := range map[string]func(*clockFile) []byte{
		"empty":      func(*clockFile) []byte { return nil },
		"torn":       func(f *clockFile) []byte { return narrow(f)[:20] },
		"other form": narrow,
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			m, move := still(t)
			s := mustOpenOn(t, dir, m)
			held := claim("held")
			held.TTL = 24 * time.Hour
			enter(t, s, held, driver.Holding)
			f, err := s.in.readClock()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, clockName), spoil(f), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				move(time.Hour)
				renewed(t, t.Context(), s, ref(held))
				was := *f
				if f, err = mustOpenOn(t, dir, m).in.readClock(); err != nil || f.Mark <= s.in.clock.now() || f.Base != was.Base {
					t.Errorf("the file says %+v, before %+v, %v", f, was, err)
				}
			}
		})
	}
}

// TestMarkOfALaterVersion: what another version wrote is left as it is.
func TestMarkOfALaterVersion(t *testing.T) {
	dir := t.TempDir()
	m, move := still(t)
	s := mustOpenOn(t, dir, m)
	later := []byte(`{"format": 3}`)
	if err := os.WriteFile(filepath.Join(dir, clockName), later, 0o600); err != nil {
		t.Fatal(err)
	}
	move(time.Hour)
	_, err := s.Enter(t.Context(), claim("a"))
	wants(t, err, clockName, "format is 3")
	if b, err := os.ReadFile(filepath.Join(dir, clockName)); err != nil || string(b) != string(later) {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// TestMarkOfTwoCopies: a mark that was read or written in part counts as the one
// that harms nobody.
func TestMarkOfTwoCopies(t *testing.T) {
	dir := t.TempDir()
	m, move := still(t)
	s := mustOpenOn(t, dir, m)
	f, err := s.in.readClock()
	if err != nil {
		t.Fatal(err)
	}
	low := f.Mark
	f.Again = f.Mark + reserve
	if err := os.WriteFile(filepath.Join(dir, clockName), f.encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustOpenOn(t, dir, m).in.clock.mark.Load(); got != low {
		t.Errorf("who reads meanwhile takes the mark to be %d of %d and %d", got, low, f.Again)
	}
	s.Close()
	move(time.Second)
	m.boot = "another"
	m.wall = func() time.Time { return time.Unix(0, 0) }
	if now := mustOpenOn(t, dir, m).in.clock.now(); now < f.Again {
		t.Errorf("after a boot the clock starts at %d, before %d", now, f.Again)
	}
}

// TestStoppedAmidTheMark: while a process is stopped with the folder locked,
// nobody waits for it as long as the mark is ahead.
func TestStoppedAmidTheMark(t *testing.T) {
	dir := t.TempDir()
	m, move := still(t)
	s := mustOpenOn(t, dir, m)
	refs := make([]driver.Ref, 20)
	for i := range refs {
		c := claim(fmt.Sprint("held/", i))
		c.TTL = time.Hour
		enter(t, s, c, driver.Holding)
		refs[i] = ref(c)
	}
	stopped := mustOpenOn(t, dir, m)
	if err := stopped.in.folder.take(t.Context(), folderLock); err != nil {
		t.Fatal(err)
	}
	move(6 * time.Minute)
	ctx := soon(t)
	renewed(t, ctx, s, refs...)
	if ctx.Err() != nil {
		t.Error("renewals wait for the folder's lock")
	}
	if _, err := s.Enter(soon(t), claim("free")); err != nil {
		t.Error(err)
	}
	if _, err := s.CompareAndSwap(soon(t), driver.Record{Name: "r", Value: []byte("v")}); err != nil {
		t.Error(err)
	}
	// The mark is moved as soon as that can be, without another operation.
	stopped.in.folder.drop(folderLock)
	for end := time.Now().Add(longest); s.in.clock.mark.Load() < s.in.clock.now()+reserve/2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the mark is not moved")
		}
	}
	// Beyond the mark everybody waits, but with no name's file locked.
	if err := stopped.in.folder.take(t.Context(), folderLock); err != nil {
		t.Fatal(err)
	}
	move(time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() {
		_, err := s.Enter(ctx, claim("n"))
		done <- err
	}()
	for end := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
		s.in.folder.mu.Lock()
		waits := len(s.in.folder.lines) > 0
		s.in.folder.mu.Unlock()
		if waits {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody waits for the folder")
		}
	}
	if !s.in.queues.free("n") {
		t.Error("the name's file is locked while the mark is waited for")
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Enter: %v", err)
	}
	s.Close()
	stopped.in.folder.drop(folderLock)
}
