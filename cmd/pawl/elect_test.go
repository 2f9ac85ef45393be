//go:build unix

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

// loop is a command that runs until it is ended, and tells when it has begun.
const loop = `echo "leads $PAWL_NAME $PAWL_TOKEN."; while :; do sleep 0.05; done`

func (b *bundle) leader(name string) (l leaderJSON) {
	b.T.Helper()
	p := b.Run("leader", "--json", name)
	if p.Status() == 0 {
		p.JSON(&l)
	}
	return l
}

func TestElect(t *testing.T) {
	b := newBundle(t)
	if p := b.Run("leader", "e").Want(68); !strings.Contains(p.Err.String(), "nobody leads") {
		t.Error(p.Err)
	}
	first := b.Start("elect", "--value", "one:1", "e", "sh", "-c", loop)
	first.Await("leads e ")
	second := b.Start("elect", "--label", "the second", "--value", "two:2", "e", "sh", "-c", loop)
	proctest.Eventually(t, func() bool { return len(b.queue("e").Waiters) == 1 }, "the second does not stand")

	was := b.leader("e")
	if was.Value != "one:1" || was.PID != first.Process.Pid || was.Label != "sh" || was.Since == "" ||
		!strings.Contains(first.Out.String(), fmt.Sprintf("leads e %d.", was.Token)) {
		t.Errorf("%+v beside %s", was, first.Out)
	}
	text := b.Run("leader", "e").Want(0).Out.String()
	for _, want := range []string{`e is led by "sh" (process `, "since ", `value "one:1"`, fmt.Sprint(was.Token)} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if p := b.Run("leader", "--only-value", "e").Want(0); p.Out.String() != "one:1\n" {
		t.Error(p.Out)
	}

	follow := b.Start("leader", "--follow", "e")
	follow.Await("one:1")
	first.Process.Kill()
	second.Await("leads e ")
	follow.Await("two:2")
	if now := b.leader("e"); now.Value != "two:2" || now.Token <= was.Token || now.Label != "the second" {
		t.Errorf("%+v after %+v", now, was)
	}
	second.Process.Signal(syscall.SIGTERM)
	second.Want(143)
	follow.Await("Nobody leads in e.")
	follow.Process.Signal(syscall.SIGINT)
	follow.Want(130)
	b.Run("leader", "e").Want(68)
	if p := b.Run("leader", "--timeout", "1s", "e").Want(68); !strings.Contains(p.Err.String(), "after 1s") {
		t.Error(p.Err)
	}
	b.Run("leader", "--follow", "--timeout", "1s", "e").Want(0)

	wait := b.Start("leader", "--timeout", "1m", "--only-value", "e")
	third := b.Start("elect", "--value", "three", "e", "sh", "-c", loop)
	wait.Want(0)
	if wait.Out.String() != "three\n" {
		t.Error(wait.Printed())
	}
	third.Process.Signal(syscall.SIGTERM)
	third.Want(143)
}

// The command ends before its pawl, whose status is the command's, or which
// stands again.
func TestElectUntilTheCommandEnds(t *testing.T) {
	b := newBundle(t)
	b.Run("elect", "e", "sh", "-c", "exit 3").Want(3)
	b.Run("elect", "e", "true").Want(0)
	b.Run("elect", "e", "/no/such/command").Want(127)
	b.Run("elect", "--always", "e", "/etc/passwd").Want(126)

	again := b.Start("elect", "--always", "e", "sh", "-c", `echo "$PAWL_TOKEN" >> $D/tokens; test $(wc -l < $D/tokens) -lt 3 || { trap 'exit 0' TERM; echo third; while :; do sleep 0.05; done; }; exit 3`)
	again.Await("third")
	if n := strings.Count(again.Err.String(), `COMMAND ended with status 3; standing for election in "e" again`); n != 2 {
		t.Errorf("told %d times: %s", n, again.Err)
	}
	again.Process.Signal(syscall.SIGTERM)
	again.Want(0) // as COMMAND did: it was told to end, and did
	tokens := strings.Fields(b.Read("tokens"))
	for i := range tokens {
		if i > 0 && tokens[i] <= tokens[i-1] {
			t.Errorf("tokens %q", tokens)
		}
	}
}

func TestElectAgain(t *testing.T) {
	b := newBundle(t)
	p := b.Start("elect", "e", "sh", "-c", loop)
	p.Await("leads e ")
	was := b.leader("e")
	b.Run("release", "--force", "e").Want(0)
	proctest.Eventually(t, func() bool { now := b.leader("e"); return now.Token > was.Token }, "it does not lead again")
	proctest.Eventually(t, func() bool { return strings.Count(p.Out.String(), "leads e ") == 2 }, "COMMAND does not run again: %s", p.Printed())
	if !strings.Contains(p.Err.String(), "standing for election again") {
		t.Error(p.Err)
	}
	// While another one leads, it can be told to end.
	other := b.Start("elect", "e", "sh", "-c", loop)
	proctest.Eventually(t, func() bool { return len(b.queue("e").Waiters) == 1 }, "the other one does not stand")
	b.Run("release", "--force", "e").Want(0)
	other.Await("leads e ")
	proctest.Eventually(t, func() bool { return len(b.queue("e").Waiters) == 1 }, "it does not stand again")
	p.Process.Signal(syscall.SIGTERM)
	p.Want(143)
	if n := strings.Count(p.Out.String(), "leads e "); n != 2 {
		t.Errorf("COMMAND ran %d times", n)
	}
	if p := b.Run("elect", "--timeout", "1s", "e", "true").Want(75); !strings.Contains(p.Err.String(), "still busy after 1s: held by") {
		t.Error(p.Err)
	}
}

// A file that is not there for a moment, as while it is being replaced, is a term
// that failed.
func TestElectWhileTheCommandIsReplaced(t *testing.T) {
	b := newBundle(t)
	script := func(text string) {
		t.Helper()
		if err := os.WriteFile(b.Dir+"/new", []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(b.Dir+"/new", b.Dir+"/command"); err != nil {
			t.Fatal(err)
		}
	}
	script("rm $D/command")
	p := b.Start("elect", "--always", "e", b.Dir+"/command")
	p.Await("no such file or directory", "standing for election in \"e\" again in 1s")
	// Each attempt leads for a moment; the pauses between them grow.
	proctest.Eventually(t, func() bool { return b.Run("leader", "e").Status() != 0 }, "it leads without its command")
	script(loop)
	p.Await("leads e ")
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
}

// Who reads standard error may go: the command does not, and gets a SIGPIPE of its
// own as ever.
func TestElectWithoutAReader(t *testing.T) {
	b := newBundle(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := b.Command("elect", "--always", "e", "sh", "-c", `echo "$PAWL_TOKEN" >> $D/tokens; test $(wc -l < $D/tokens) = 1 || exec sleep 1000; kill -PIPE $$; echo lives`)
	p.Stderr = w
	p.Start()
	w.Close()
	r.Close()
	proctest.Eventually(t, func() bool { return strings.Count(b.Read("tokens"), "\n") > 1 }, "it does not stand again")
	p.Process.Signal(syscall.SIGTERM)
	p.WantSignal(syscall.SIGTERM)
	if strings.Contains(p.Out.String(), "lives") {
		t.Error("its command does not die of SIGPIPE")
	}
}

func TestElectInTurns(t *testing.T) {
	b := newBundle(t)
	one := b.Start("elect", "--max-hold", "300ms", "--kill-after", "100ms", "e", "sh", "-c", loop)
	one.Await("leads e ")
	two := b.Start("elect", "--max-hold", "300ms", "--kill-after", "100ms", "e", "sh", "-c", loop)
	two.Await("leads e ")
	proctest.Eventually(t, func() bool { return strings.Count(one.Out.String(), "leads e ") > 1 }, "it has no second turn: %s", one.Printed())
	if !strings.Contains(one.Err.String(), "--max-hold 300ms") {
		t.Error(one.Err)
	}
}
