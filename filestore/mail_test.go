//go:build linux || darwin

package filestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/driver"
)

// listen returns what s tells a listener, after the first word.
func listen(t *testing.T, s *Store) <-chan driver.Notice {
	t.Helper()
	notices := make(chan driver.Notice, 1<<16)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Listen(ctx, func(n driver.Notice) { notices <- n })
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	told(t, notices, driver.Notice{Kind: driver.Check})
	return notices
}

func told(t *testing.T, notices <-chan driver.Notice, want driver.Notice) {
	t.Helper()
	for end := time.After(longest); ; {
		select {
		case n := <-notices:
			if n.Kind == want.Kind && n.ID == want.ID {
				return
			}
		case <-end:
			t.Fatalf("no notice %v %q", want.Kind, want.ID)
		}
	}
}

// TestFullMail: nobody waits for a process that does not take in its hints. When
// it does again it looks at everything, as some were lost.
func TestFullMail(t *testing.T) {
	dir := t.TempDir()
	ours, stopped := mustOpen(t, dir), mustOpen(t, dir)
	c := claim("a")
	enter(t, stopped, c, driver.Holding)
	home, err := stopped.in.begun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := home.Mailbox(mailName, true) // which it does not read yet
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if info, err := pipe.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Skip("there are no pipes here")
	}
	mail := filepath.Join(stopped.in.id, mailName)
	hint := []byte(driver.NewID() + "." + mailCheck + "\n")
	for ours.in.sessions.Append(mail, hint) == nil {
	}
	enter(t, ours, claim("a"), driver.Waiting)
	if broken, err := ours.Break(t.Context(), "a"); err != nil || len(broken) != 1 {
		t.Fatal(broken, err)
	}
	notices := listen(t, stopped)
	told(t, notices, driver.Notice{Kind: driver.Check})
	ours.in.send(stopped.in.id, c.ID, mailWanted)
	told(t, notices, driver.Notice{Kind: driver.Wanted, ID: c.ID})
}

// TestMailInAFile: where there are no pipes hints arrive through a file, which
// does not grow for ever.
func TestMailInAFile(t *testing.T) {
	dir := t.TempDir()
	m := thisMachine(t)
	m.pipes, m.probe = false, time.Millisecond
	ours, theirs := mustOpenOn(t, dir, m), mustOpenOn(t, dir, m)
	notices := listen(t, theirs)
	path := filepath.Join(dir, "sessions", theirs.in.id, mailName)
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	long := strings.Repeat("A", 2000)
	for i := 0; size() <= mailMost; i++ {
		ours.in.send(theirs.in.id, fmt.Sprint(long, i), mailCheck)
	}
	for end := time.Now().Add(longest); size() > mailMost; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the file is never made short")
		}
	}
	told(t, notices, driver.Notice{Kind: driver.Check})
	ours.in.send(theirs.in.id, "last", mailWanted)
	told(t, notices, driver.Notice{Kind: driver.Wanted, ID: "last"})
}

// TestMailThatCannotBegin: while hints cannot come Listen says so, and does not
// when they can.
func TestMailThatCannotBegin(t *testing.T) {
	dir := t.TempDir()
	s, other := mustOpen(t, dir), mustOpen(t, dir)
	held := claim("a")
	enter(t, s, held, driver.Holding)
	inTheWay := filepath.Join(dir, "sessions", s.in.id, mailName)
	if err := os.Mkdir(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun := false
	err := s.Listen(ctx, func(driver.Notice) { begun = true; cancel() })
	if begun || err == nil || ctx.Err() != nil {
		t.Errorf("it began to listen without its pipe: %v", err)
	}
	cancel()
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	notices := listen(t, s)
	enter(t, other, claim("a"), driver.Waiting)
	told(t, notices, driver.Notice{Kind: driver.Wanted, ID: held.ID})
}
