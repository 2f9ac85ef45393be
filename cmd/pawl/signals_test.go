//go:build unix

package main

import (
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/pawl-go/pawl/internal/proctest"
)

// Whoever waits dies of the signal that ends it, as its command would: the shell
// loop around it ends by that, not by the status alone.
func TestWhoWaitsDiesOfTheSignal(t *testing.T) {
	for name, tt := range map[string]struct {
		args   string
		queues bool // and shows in the queue of x
		prints string
	}{
		"run":             {"run x true", true, ""},
		"run --timeout":   {"run --timeout 1h x true", true, ""},
		"elect":           {"elect x true", true, ""},
		"elect --always":  {"elect --always x true", true, ""},
		"leader --follow": {"leader --follow y", false, "Nobody leads in y"},
		"leader":          {"leader --timeout 1h y", false, ""},
		"latch wait":      {"latch wait --count 2 y", false, ""},
		"barrier":         {"barrier --parties 2 b", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			queue, waiting := "x", func(q *queueJSON) bool { return len(q.Waiters) == 1 }
			if name == "barrier" {
				queue, waiting = "b", func(q *queueJSON) bool { return len(q.Holders) == 1 }
			} else if strings.HasPrefix(name, "elect") {
				b.Start("elect", "x", "sh", "-c", loop).Await("leads x ")
			} else if tt.queues {
				b.hold("x")
			}
			signals := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}
			if name == "run" {
				signals = append(signals, syscall.SIGTERM, syscall.SIGHUP)
			}
			for _, sig := range signals {
				p := b.Command(fields(tt.args)...)
				p.Env = append(p.Env, "GODEBUG=inittrace=1")
				p.Start()
				switch {
				case tt.queues:
					proctest.Eventually(t, func() bool { q := b.queue(queue); return waiting(&q) }, "it does not wait")
				case tt.prints != "":
					p.Await(tt.prints)
				default:
					p.Await("init main ")
					time.Sleep(100 * time.Millisecond) // or it dies before it waits, which is no less right
				}
				p.Process.Signal(sig)
				p.WantSignal(sig)
				if strings.Contains(p.Printed(), "goroutine") {
					t.Error(p.Printed())
				}
				if q := b.queue(queue); waiting(&q) {
					t.Errorf("%v: a claim stays behind: %+v", sig, q)
				}
				if name == "barrier" {
					b.Run("barrier", "--reset", "b").Want(0)
				}
			}
		})
	}
}

// A signal to pawl that ends COMMAND ends pawl in the same way; what COMMAND makes
// of it otherwise is its own business.
func TestDiesAsTheCommandDid(t *testing.T) {
	b := newBundle(t)
	for _, command := range []string{"run", "elect"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
			p := b.Start(command, "x", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 1000")
			p.Await("ready")
			p.Process.Signal(sig)
			p.WantSignal(sig)
		}
		p := b.Start(command, "x", "sh", "-c", "trap 'exit 3' INT; echo ready; while :; do sleep 0.05; done")
		p.Await("ready")
		p.Process.Signal(syscall.SIGINT)
		p.Want(3)
	}
}

// One Ctrl-C ends a loop around a pawl that waits, and one around a pawl whose
// command has not got the terminal.
func TestCtrlCEndsTheLoop(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this test needs bash")
	}
	for name, args := range map[string]string{
		"waits":       "run x -- true",
		"stands":      "elect e -- true",
		"no terminal": "run z -- sh -c 'echo wait\"\"ing for nobody; exec sleep 1000' </dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			b.hold("x")
			b.Start("elect", "e", "sh", "-c", loop).Await("leads e ")
			p := b.Command()
			p.Path, p.Args = bash, []string{bash, "-c", "while true; do echo rou\"\"nd; " + proctest.Pawl + " " + args + "; done"}
			p.Stdout, p.Stderr = nil, nil // the terminal
			tty, err := pty.Start(p.Cmd)
			if err != nil {
				t.Fatal(err)
			}
			go io.Copy(p.Out, tty) // ends with the terminal
			t.Cleanup(func() { p.Process.Kill() })
			p.Await("waiting for")
			if _, err := io.WriteString(tty, "\x03"); err != nil {
				t.Fatal(err)
			}
			p.WantSignal(syscall.SIGINT)
			if n := strings.Count(p.Out.String(), "round"); n != 1 {
				t.Errorf("%d rounds: %s", n, p.Out)
			}
		})
	}
}

// From the first moment on, nobody is shown the stacks of a Go program.
func TestQuitAtOnce(t *testing.T) {
	b := newBundle(t)
	b.hold("x") // or the command might be starting by then, which is another program
	for _, args := range []string{"run x sleep 1000", "leader --follow x", "latch wait --count 2 x"} {
		p := b.Command(fields(args)...)
		p.Env = append(p.Env, "GODEBUG=inittrace=1")
		p.Start()
		p.Await("init github.com/spf13/cobra") // it is still starting
		p.Process.Signal(syscall.SIGQUIT)
		p.WantSignal(syscall.SIGQUIT)
		if strings.Contains(p.Err.String(), "goroutine") {
			t.Errorf("%s: %s", args, p.Err)
		}
	}
}
