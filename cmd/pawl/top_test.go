//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/driver"
	"github.com/pawl-go/pawl/internal/proctest"
	"github.com/pawl-go/pawl/memstore"
)

const (
	screenOn  = "\x1b[?1049h"
	screenOff = "\x1b[?1049l"
)

// However top ends, the terminal is as it was.
func TestTopRestoresTheTerminal(t *testing.T) {
	b := newBundle(t)
	b.hold("a", "--label=one")
	for name, tt := range map[string]struct {
		end    func(*terminal)
		status int
	}{
		"q":       {func(s *terminal) { s.key("q") }, 0},
		"Ctrl-C":  {func(s *terminal) { s.key("\x03") }, 130},
		"Ctrl-\\": {func(s *terminal) { s.key("\x1c") }, 131},
		"TERM":    {func(s *terminal) { s.Process.Process.Signal(syscall.SIGTERM) }, 143},
		"INT":     {func(s *terminal) { s.Process.Process.Signal(syscall.SIGINT) }, 130},
		"HUP":     {func(s *terminal) { s.Process.Process.Signal(syscall.SIGHUP) }, 129},
		"QUIT":    {func(s *terminal) { s.Process.Process.Signal(syscall.SIGQUIT) }, 131},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bundle{b.Bundle}
			b.T = t
			master, tty, err := pty.Open() // as each terminal is at first
			if err != nil {
				t.Fatal(err)
			}
			before, err := term.GetState(int(tty.Fd()))
			if tty.Close(); err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			s := b.onTerminal("top", "--interval=100ms")
			s.Await(screenOn, "one@")
			if raw, err := term.GetState(int(s.tty.Fd())); err != nil || reflect.DeepEqual(raw, before) {
				t.Errorf("the terminal is not raw: %v", err)
			}
			tt.end(s)
			s.Want(tt.status)
			if after, err := term.GetState(int(s.tty.Fd())); err != nil || !reflect.DeepEqual(after, before) {
				t.Errorf("the modes of the terminal are others than before: %v", err)
			}
			if out := s.Out.String(); !strings.HasSuffix(out, screenOff) {
				proctest.Eventually(t, func() bool { return strings.HasSuffix(s.Out.String(), screenOff) }, "the screen is not given back: %q", out[max(0, len(out)-100):])
			}
		})
	}
}

// topStore lists what it is told to, and counts.
type topStore struct {
	driver.Store
	lists, inspects atomic.Int64
	list            func(n int64) error // of the nth list
}

func (s *topStore) List(context.Context, string) iter.Seq2[driver.Queue, error] {
	return func(yield func(driver.Queue, error) bool) {
		if err := s.list(s.lists.Add(1)); err != nil {
			yield(driver.Queue{}, err)
			return
		}
		yield(queueNamed("a"), nil)
	}
}

func (s *topStore) Inspect(context.Context, string) (driver.Queue, error) {
	s.inspects.Add(1)
	return queueNamed("a"), nil
}

// inProcess runs top on a terminal of this process, and returns how it ended.
func inProcess(t *testing.T, s *topStore, keys io.Reader) (out *proctest.Output, restored bool, err error) {
	t.Helper()
	s.Store = memstore.New()
	defer s.Close()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	out = &proctest.Output{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(out, master) // until nobody has the terminal open
	}()
	typed := make(chan struct{})
	go func() {
		defer close(typed)
		io.Copy(master, keys)
	}()
	before, _ := term.GetState(int(tty.Fd()))
	func() {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		top := newTop(s, pawl.New(s, nil), "", 20*time.Millisecond)
		top.terminal = [2]*os.File{tty, tty}
		err = top.run(t.Context())
	}()
	after, _ := term.GetState(int(tty.Fd()))
	<-typed
	tty.Close()
	<-read
	master.Close()
	return out, reflect.DeepEqual(before, after) && strings.HasSuffix(out.String(), screenOff), err
}

func TestTopAndAStoreThatFails(t *testing.T) {
	s := &topStore{list: func(n int64) error {
		switch {
		case n > 8:
			return driver.Permanent(errors.New("no such user"))
		case n > 3:
			return errors.New("connection reset")
		}
		return nil
	}}
	out, restored, err := inProcess(t, s, strings.NewReader(""))
	if err == nil || classify(err).status != exitUnreachable || !strings.Contains(err.Error(), "no such user") || !restored {
		t.Errorf("%v, the terminal is restored: %v", err, restored)
	}
	if !strings.Contains(out.String(), "connection reset") { // it goes on
		t.Error("it does not tell the error")
	}

	s = &topStore{list: func(int64) error { return errors.New("connection refused") }}
	out, _, err = inProcess(t, s, strings.NewReader(""))
	if err == nil || classify(err).status != exitUnreachable || out.String() != "" {
		t.Errorf("%v, and it drew %q", err, out)
	}
}

func TestTopPanics(t *testing.T) {
	s := &topStore{list: func(n int64) error {
		if n > 3 {
			panic("for the test")
		}
		return nil
	}}
	_, restored, err := inProcess(t, s, strings.NewReader(""))
	if err == nil || !strings.Contains(err.Error(), "for the test") || !strings.Contains(err.Error(), "goroutine") || !restored {
		t.Errorf("%v, the terminal is restored: %v", err, restored)
	}
}

// While one queue is shown, nothing else is read.
func TestTopReadsWhatItShows(t *testing.T) {
	s := &topStore{list: func(int64) error { return nil }}
	r, w := io.Pipe()
	var before, after int64
	go func() {
		defer w.Close()
		proctest.Eventually(t, func() bool { return s.lists.Load() > 2 }, "it does not read the names again")
		io.WriteString(w, "\r")
		proctest.Eventually(t, func() bool { return s.inspects.Load() > 0 }, "it does not read the queue")
		before = s.lists.Load()
		n := s.inspects.Load()
		proctest.Eventually(t, func() bool { return s.inspects.Load() > n+5 }, "it does not read the queue again")
		after = s.lists.Load()
		io.WriteString(w, "q")
	}()
	if _, restored, err := inProcess(t, s, r); err != nil || !restored || after > before {
		t.Errorf("%v, %v; %d lists, then %d", err, restored, before, after)
	}
}

func TestTopResizes(t *testing.T) {
	b := newBundle(t)
	b.hold("a")
	s := b.onTerminal("top", "--interval=1h")
	s.Await("\x1b[24;1H")
	if err := pty.Setsize(s.tty, &pty.Winsize{Rows: 50, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	s.Await("\x1b[50;1H")
	s.key("q")
	s.Want(0)
}

func TestTopStops(t *testing.T) {
	b := newBundle(t)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this test needs bash")
	}
	b.hold("a", "--label=one")
	p := b.Command()
	p.Path, p.Args = bash, []string{"bash", "--norc", "--noprofile", "-i"}
	p.Env = append(p.Env, "PS1=$ ", "PAWL="+proctest.Pawl)
	s := b.terminalFor(p)
	s.Await("$ ")
	s.key("$PAWL top --interval=100ms\n")
	s.Await(screenOn, "one@")
	s.key("\x1a")
	s.Await(screenOff, "Stopped")
	s.key("stty -a | grep -c -- ' icanon' | sed s/^/modes-/\n")
	s.Await("modes-1")
	s.key("fg; echo sta\"\"tus-$?\n")
	proctest.Eventually(t, func() bool { return strings.Count(s.Out.String(), screenOn) == 2 }, "it does not go on")
	s.key("q")
	s.Await("status-0")
	if n := strings.Count(s.Out.String(), screenOff); n != 2 {
		t.Errorf("the screen was given back %d times, want 2", n)
	}
}

func TestTopWithoutATerminal(t *testing.T) {
	b := newBundle(t)
	b.hold("a", "--label=one")
	if p := b.Run("top").Want(0); !strings.Contains(p.Out.String(), "one") || !strings.Contains(p.Err.String(), "no terminal") {
		t.Error(p.Printed())
	}
	var all []queueJSON
	if b.Run("top", "--json").Want(0).JSON(&all); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	b.Run("top", "--sort=size").Want(64)
	b.Run("top", "--interval=1ms").Want(64)
	b.Run("top", "--store=redis://127.0.0.1:1").Want(69)
	s := b.onTerminal("top", "--store=redis://127.0.0.1:1")
	if s.Want(69); strings.Contains(s.Out.String(), screenOn) {
		t.Errorf("%q", s.Out)
	}
}

// A real terminal of 80 columns: no line is broken, whatever the names are.
func TestTopInTmux(t *testing.T) {
	b := newBundle(t)
	path, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("this test needs tmux")
	}
	names := []string{"ascii", strings.Repeat("漢", 100), strings.Repeat("long", 100), "e\u0301tat", "\U0001F512 locked"}
	var holders []*proctest.Process
	for _, name := range names {
		holders = append(holders, b.hold(name, "--label="+name[:min(len(name), 60)]))
	}
	tmux := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(path, append([]string{"-u", "-S", filepath.Join(b.Dir, "tmux"), "-f", "/dev/null"}, args...)...)
		cmd.Env = append(b.Command().Env, "LC_ALL=C.UTF-8")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	tmux("new-session", "-d", "-x", "80", "-y", "24", proctest.Pawl+" top --sort name --interval 100ms; echo status-$?; sleep 1000")
	defer tmux("kill-server")
	lines := func() []string { return strings.Split(strings.TrimSuffix(tmux("capture-pane", "-p"), "\n"), "\n") }
	has := func(text string) {
		t.Helper()
		proctest.Eventually(t, func() bool { return strings.Contains(strings.Join(lines(), "\n"), text) }, "there is no %q", text)
	}
	has("q quit")
	got := lines()
	if !strings.HasPrefix(got[0], "pawl top  5 held, 0 waiting, 5 names") || !strings.HasPrefix(got[2], "NAME ") || !strings.HasPrefix(got[len(got)-1], "q quit") {
		t.Errorf("it shows\n%s", strings.Join(got, "\n"))
	}
	for i, prefix := range []string{"ascii ", "e\u0301tat ", "longlong", "漢漢漢", "\U0001F512 locked"} {
		if line := got[3+i]; !strings.HasPrefix(line, prefix) || !strings.HasSuffix(line, " -") {
			t.Errorf("line %d is %q, want %q", 4+i, line, prefix)
		}
	}
	if strings.TrimSpace(strings.Join(got[8:len(got)-1], "")) != "" {
		t.Errorf("below the names there is\n%s", strings.Join(got[8:], "\n"))
	}
	tmux("send-keys", "r")
	has(`held by "ascii" (process`)
	has("Release ascii, claim ")
	tmux("send-keys", "F")
	has("released ascii: it was held by")
	holders[0].Want(79)
	has("4 held")
	tmux("send-keys", "q")
	has("status-0")
}
