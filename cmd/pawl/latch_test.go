//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

func TestLatch(t *testing.T) {
	b := newBundle(t)
	latch := func(what string, args ...string) *proctest.Process {
		t.Helper()
		return b.Run(append([]string{"latch", what, "--count=3"}, args...)...)
	}
	if p := latch("show", "l").Want(0); p.Out.String() != "l: 3 of 3 are missing.\n" {
		t.Error(p.Out)
	}
	wait := b.Start("latch", "--count", "3", "wait", "l")
	for range 2 {
		if p := latch("down", "--party", "a", "l").Want(0); p.Out.String() != "l: 2 of 3 are missing.\n" {
			t.Error(p.Out)
		}
	}
	latch("down", "l").Want(0) // a party of its own
	p := latch("wait", "--timeout", "1s", "l").Want(75)
	if !strings.Contains(p.Err.String(), `latch "l": the time is up, after 1s`) {
		t.Error(p.Err)
	}
	if p := b.Run("latch", "wait", "--count", "4", "l").Want(64); !strings.Contains(p.Err.String(), "latch of size 3") {
		t.Error(p.Err)
	}
	b.Run("barrier", "--parties", "2", "l").Want(64)

	var state struct {
		Count, Left int64
		Open        bool
	}
	p = latch("down", "--json", "--party", "z", "l").Want(0)
	if p.JSON(&state); !state.Open || state.Left != 0 || state.Count != 3 {
		t.Error(p.Out)
	}
	wait.Want(0)
	latch("wait", "l").Want(0)
	if p := latch("show", "l").Want(0); p.Out.String() != "l is open.\n" {
		t.Error(p.Out)
	}
	latch("delete", "l").Want(0)
	if p := latch("show", "l").Want(0); p.Out.String() != "l: 3 of 3 are missing.\n" {
		t.Error(p.Out)
	}
}

func TestLatchIsGivenUp(t *testing.T) {
	b := newBundle(t)
	start := func(name string) *proctest.Process {
		p := b.Start("latch", "wait", "--count=2", name)
		made := func() bool { return b.Run("latch", "show", "--count=3", name).Status() == 64 }
		proctest.Eventually(t, made, "it does not wait")
		return p
	}
	wait := start("l")
	b.Run("latch", "delete", "--count=2", "l").Want(0)
	wait.Want(76)
	if !strings.Contains(wait.Err.String(), "deleted") {
		t.Error(wait.Err)
	}
	wait = start("m")
	wait.Process.Signal(syscall.SIGTERM)
	wait.Want(143)
}

// Without --timeout it gives up, too.
func TestCountDownWithoutStore(t *testing.T) {
	b := newBundle(t)
	b.URL = "redis://127.0.0.1:1"
	p := b.Run("latch", "down", "--count=2", "l").Want(69)
	if !strings.Contains(p.Err.String(), `count down latch "l": the time is up while the engine failed`) {
		t.Error(p.Err)
	}
}

func TestBarrier(t *testing.T) {
	b := newBundle(t)
	barrier := func(args ...string) *proctest.Process {
		return b.Start(append([]string{"barrier", "--parties=3"}, args...)...)
	}
	waiting := func(n string) {
		t.Helper()
		proctest.Eventually(t, func() bool { return barrier("--show", "b").Want(0).Out.String() == n+"\n" }, "%s do not wait", n)
	}
	for range 2 { // generations
		first := barrier("--label", "the first", "b")
		waiting("1")
		second := barrier("b")
		waiting("2")
		if out := b.Run("show", "b").Want(0).Out.String(); !strings.Contains(out, "the first") {
			t.Error(out)
		}
		third := barrier("--json", "b")
		for want, p := range map[string]*proctest.Process{"2\n": first, "1\n": second, `{"name":"b","parties":3,"index":0}` + "\n": third} {
			if p.Want(0); p.Out.String() != want {
				t.Errorf("want %q: %s", want, p.Printed())
			}
		}
	}
	if p := b.Run("barrier", "--parties=2", "b").Want(64); !strings.Contains(p.Err.String(), "barrier of size 3") {
		t.Error(p.Err)
	}
}

func TestBrokenBarrier(t *testing.T) {
	b := newBundle(t)
	for what, leave := range map[string]func(*proctest.Process){
		"timeout": func(p *proctest.Process) { p.Want(75) },
		"signal":  func(p *proctest.Process) { p.Process.Signal(syscall.SIGTERM); p.Want(143) },
		"death":   func(p *proctest.Process) { p.Process.Kill() },
	} {
		waiting := func(n string) {
			t.Helper()
			proctest.Eventually(t, func() bool { return b.Run("barrier", "--parties=3", "--show", what).Out.String() == n+"\n" }, "%s: %s do not wait", what, n)
		}
		stays := b.Start("barrier", "--parties=3", what)
		waiting("1")
		flags := []string{"barrier", "--parties=3", "--timeout=1m", what}
		if what == "timeout" {
			flags[2] = "--timeout=2s"
		}
		leaves := b.Start(flags...)
		if what != "timeout" {
			waiting("2")
		}
		leave(leaves)
		stays.Want(76)
		p := b.Run("barrier", "--parties=3", what).Want(76)
		if !strings.Contains(p.Err.String(), "broken: ") || !strings.Contains(p.Err.String(), "--reset repairs it") {
			t.Errorf("%s: %s", what, p.Err)
		}
		b.Run("barrier", "--parties=3", "--reset", what).Want(0)
		waiting("0")
	}
}
