//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/filestore"
	"github.com/pawl-go/pawl/internal/proctest"
)

// script prepares to run a shell script, in which pawl is the command.
func (b *bundle) script(text string) *proctest.Process {
	p := b.Command()
	p.Path, p.Args = "/bin/sh", []string{"/bin/sh", "-c", "set -u; pawl() { " + proctest.Pawl + ` "$@"; }; ` + text}
	return p
}

// free waits until nobody holds or waits for a name.
func (b *bundle) free(name string) {
	b.T.Helper()
	proctest.Eventually(b.T, func() bool { q := b.queue(name); return len(q.Holders)+len(q.Waiters) == 0 }, "%q is not free", name)
}

// dead waits until a process is gone.
func dead(t *testing.T, pid int) {
	t.Helper()
	proctest.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, "process %d is still there", pid)
}

// A script holds a lock, also beside a pipe that it has open, and gives it back.
func TestAcquire(t *testing.T) {
	b := newBundle(t)
	p := b.script(`
		mkfifo "$D/pipe"; cat "$D/pipe" & exec 9>"$D/pipe"
		h=$(pawl acquire --label me --for-pid $$ x 2>&1) || exit 1
		exec 9>&-; wait # for the end of the pipe
		pawl renew "$h" || exit 2
		pawl run -n -q x true; [ $? = 75 ] || exit 3
		pawl show x --json
		[ "$(pawl show x --json | grep -o '"token":[0-9]*')" = '"token":'$(echo "$h" | cut -d. -f2) ] || exit 4
		pawl unlock "$h" || exit 5
		pawl run -n -q x true || exit 6
		pawl unlock "$h"; [ $? = 79 ] || exit 7
		pawl renew "$h"; [ $? = 79 ] || exit 8
		echo pid $$`)
	p.Start()
	p.Want(0)
	if out := p.Out.String(); !strings.Contains(out, `"label":"me"`) || strings.Count(p.Err.String(), "lease lost: it was released") != 2 {
		t.Error(p.Printed())
	}
	// It is the script's: who looks finds that one.
	var q queueJSON
	first, _, _ := strings.Cut(p.Out.String(), "\n")
	if err := json.Unmarshal([]byte(first), &q); err != nil {
		t.Fatal(err)
	}
	if pid := p.Number("pid"); q.Holders[0].PID != pid {
		t.Errorf("held by process %d, the script is %d", q.Holders[0].PID, pid)
	}
}

// keep starts a process that holds a lock without running under it.
func (b *bundle) keep(flags string) (p *proctest.Process, out handleJSON) {
	b.T.Helper()
	p = b.script(`pawl acquire --json --for-pid $$ ` + flags + `; exec sleep 1000`)
	p.Start()
	p.Await("keeper_pid")
	p.JSON(&out)
	return p, out
}

// However the process ends, its lock is released and its keeper ends.
func TestKeeperEndsWithTheProcess(t *testing.T) {
	b := newBundle(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		p, h := b.keep("--ttl 1h x")
		p.Process.Signal(sig) // nobody collects it
		b.free("x")
		dead(t, h.Keeper)
	}
}

func TestKeeperIsStopped(t *testing.T) {
	b := newBundle(t)
	_, h := b.keep("--ttl 1h x")
	syscall.Kill(h.Keeper, syscall.SIGHUP) // it has no terminal, and this is not for it
	b.Run("renew", h.Handle).Want(0)
	syscall.Kill(h.Keeper, syscall.SIGTERM)
	b.free("x")
	dead(t, h.Keeper)
	b.Run("renew", h.Handle).Want(79)
}

// A keeper renews; one that has lost its lock ends, and takes nothing from the next.
func TestKeeperRenews(t *testing.T) {
	b := newBundle(t)
	_, h := b.keep("--ttl 12s x")
	var before, left int64
	proctest.Eventually(t, func() bool {
		before, left = left, b.queue("x").Holders[0].TTLMS
		return before > 0 && left > before
	}, "it is not renewed")
	b.Run("release", "--force", "x").Want(0)
	_, next := b.keep("--ttl 1h x")
	dead(t, h.Keeper)
	b.Run("renew", next.Handle).Want(0)
}

// Who does not get the handle does not hold the lock.
func TestAcquireLeavesNothing(t *testing.T) {
	b := newBundle(t)
	for _, flags := range []string{"--for-pid=" + strconv.Itoa(os.Getpid()), "--no-renewal --ttl=1h"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip("this test needs /dev/full")
		}
		p := b.Command(fields("acquire x " + flags)...)
		p.Stdout = full
		p.Start()
		p.Want(74)
		full.Close()
		b.free("x")
	}
	hold := b.hold("x")
	p := b.Start(fields("acquire --for-pid=" + strconv.Itoa(os.Getpid()) + " x")...)
	proctest.Eventually(t, func() bool { return len(b.queue("x").Waiters) == 1 }, "it does not wait")
	p.Process.Signal(syscall.SIGINT)
	p.WantSignal(syscall.SIGINT)
	b.Run(fields("acquire -n -q -E 9 --no-renewal --ttl 1m x")...).Want(9)
	hold.Process.Signal(syscall.SIGTERM)
	b.free("x")
}

// From machine to machine the token rises, and only the last handle is good for
// anything.
func TestHandoverAndAdopt(t *testing.T) {
	for name, flags := range map[string]string{"mutex": "", "shared": "-s", "exclusive": "-x", "permits": "--limit=3 -u 2"} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t)
			first, h := b.keep(flags + " x")
			handles, token := []string{h.Handle}, h.Token
			next := func(args ...string) {
				t.Helper()
				var h handleJSON
				b.Run(append(args, "--json", handles[len(handles)-1])...).Want(0).JSON(&h)
				if h.Token <= token {
					t.Errorf("%q: token %d after %d", args, h.Token, token)
				}
				handles, token = append(handles, h.Handle), h.Token
			}
			next("handover")
			first.Process.Kill()
			dead(t, h.Keeper)
			me := "--for-pid=" + strconv.Itoa(os.Getpid())
			next("adopt", me)
			next("adopt", "--no-renewal", "--ttl=1h")
			next("adopt", me)
			for _, old := range handles[:len(handles)-1] {
				b.Run("unlock", old).Want(79)
				b.Run("renew", old).Want(79)
				b.Run("handover", old).Want(79)
				b.Run("adopt", me, old).Want(79)
			}
			q := b.queue("x")
			if len(q.Holders) != 1 {
				t.Fatalf("%+v", q)
			}
			b.Run("renew", handles[len(handles)-1]).Want(0)
			b.Run("unlock", handles[len(handles)-1]).Want(0)
			b.free("x")
		})
	}
}

// A lease goes from a Go program to a script and back.
func TestAdoptFromAProgram(t *testing.T) {
	b := newBundle(t)
	store, err := filestore.Open(b.Dir + "/store")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := pawl.New(store, nil)
	defer c.Close(t.Context())
	l, err := c.Semaphore("x", 5).Acquire(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	handle, err := l.HandOver(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"renew", "unlock", "handover"} {
		b.Run(command, handle+"@x").Want(64)
	}
	p := b.Run("adopt", "--no-renewal", "--ttl=1h", handle+"@x").Want(0)
	parts := strings.Split(p.Out.String(), ".")
	l, err = c.Semaphore("x", 5).Adopt(t.Context(), strings.Join(parts[:3], "."))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAcquireRefused(t *testing.T) {
	b := newBundle(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	me := "--for-pid=" + strconv.Itoa(os.Getpid())
	for _, tt := range []struct{ args, want string }{
		{"acquire x", "Give either --for-pid $$, or --no-renewal --ttl 10m"},
		{"acquire --no-renewal x", "--no-renewal without --ttl"},
		{"acquire --no-renewal --ttl 1m " + me + " x", "who takes care of the lock?"},
		{"acquire --for-pid=" + strconv.Itoa(gone.Process.Pid) + " x", "there is no such process"},
		{"acquire --for-pid=-1 x", "--for-pid -1: it is the number of a process"},
		{"acquire " + me + " --ttl 1ms x", "--ttl 1ms: allowed are 300ms to 168h0m0s"},
		{"acquire " + me + " -n -w 1 x", "--no-wait and --wait exclude each other"},
		{"acquire " + me + " -u 2 x", "--limit is missing"},
		{"acquire " + me + " x true", "one NAME is needed; there are 2 arguments"},
		{"acquire " + me + " --store mem:// x", "mem:// ends with this process"},
		{"acquire --no-renewal --ttl 1m --store zk://127.0.0.1 x", "ZooKeeper keeps a lock no longer"},
		{"unlock nonsense", `invalid handle "nonsense": it is what 'pawl acquire' printed`},
		{"adopt " + me + " nonsense", `invalid handle "nonsense"`},
		{"handover --ttl 1ms ABCDEFGH.1.-.ABCDEFGH.1000@x", "--ttl 1ms: allowed are"},
		{"renew --ttl 1ms ABCDEFGH.1.-.ABCDEFGH.1000@x", "--ttl 1ms: allowed are"},
		{"renew", "one HANDLE is needed"},
	} {
		p := b.Run(fields(tt.args)...).Want(64)
		if !strings.Contains(p.Err.String(), tt.want) {
			t.Errorf("%s: %s", tt.args, p.Err)
		}
	}
	if b.Run("list", "--json").Out.String() != "[]\n" {
		t.Error("something is held")
	}
}
