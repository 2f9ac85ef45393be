package child

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-go/pawl/internal/await"
)

// orphan is a script with a second process, which nobody kills with its parent.
const orphan = `trap '' TERM HUP; sh -c 'echo inner $$; while :; do sleep 0.05; done' & echo ready $$; wait`

// guards returns the guards of a process that live.
func guards(t testing.TB, of int) (pids []int) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s\x00of process %d\x00", guardName, of)
	for _, dir := range dirs {
		if line, err := os.ReadFile(dir + "/cmdline"); err == nil && string(line) == want {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// guard waits for the guard of p until it is prepared for signals, and returns
// it.
func (p process) guard() (pid int) {
	p.T.Helper()
	await.That(p.T, "a guard", func() bool {
		all := guards(p.T, p.Process.Pid)
		if len(all) != 1 {
			return false
		}
		pid = all[0]
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err == nil && strings.TrimSpace(string(name)) == guardName
	})
	return pid
}

func (p process) wantDead(what string, pid int) {
	p.T.Helper()
	await.That(p.T, fmt.Sprintf("%s, process %d, dies", what, pid), func() bool { return !alive(pid) })
}

func TestGuardKillsWhenItsParentIsKilled(t *testing.T) {
	t.Parallel()
	p := start(t, orphan)
	inner, guard := p.Number("inner"), p.guard()
	p.Process.Kill()
	p.status()
	p.wantDead("the command's child", inner)
	p.wantDead("the guard", guard)
}

// The command does not run before the guard knows of it.
func TestStarterWaits(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "ran")
	cmd := exec.Command(os.Args[0], "touch", mark)
	cmd.Env = append(os.Environ(), "CHILD_TEST=killed")
	out, _ := cmd.Output()
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	await.That(t, "the starter dies", func() bool { return !alive(pid) })
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran")
	}
}

// A starter that is stopped does not stop who has started it.
func TestStarterIsStopped(t *testing.T) {
	t.Parallel()
	path, err := Find("true")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStarter(Command{path, []string{"true"}, os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	collect := func(options int) {
		t.Helper()
		if err := retry(func() error { _, err := unix.Wait4(s.pid, &ws, options, nil); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Kill(s.pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if collect(unix.WUNTRACED); !ws.Stopped() {
		t.Fatalf("it is not stopped: %#x", ws)
	}
	var released atomic.Bool
	go func() {
		s.release()
		released.Store(true)
	}()
	defer func() {
		if !released.Load() {
			unix.Kill(s.pid, unix.SIGKILL)
		}
	}()
	await.That(t, "it is released", released.Load)
	if err := unix.Kill(s.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if collect(0); !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("it has not become the command: %#x", ws)
	}
}

// Who watches the command is stopped, and finds it dead when it goes on.
func TestGuardKillsAtTheDeadline(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		vars []string
		want int
	}{
		"of the lease": {[]string{"TTL=4s", "FIXED=1", "KILL_AFTER=900ms"}, exitLost},
		"no grace":     {[]string{"TTL=4s", "FIXED=1", "KILL_AFTER=0s"}, exitLost},
		"held long":    {[]string{"MAX_HOLD=4s", "KILL_AFTER=200ms"}, exitMax},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, orphan, append(tt.vars, "LATE=1")...)
			inner, group, guard := p.Number("inner"), p.Number("ready"), p.guard()
			p.Process.Signal(syscall.SIGSTOP)
			p.wantDead("the command", group)
			p.wantDead("the command's child", inner)
			p.wantDead("the guard", guard)
			p.Process.Signal(syscall.SIGCONT)
			if got := p.status(); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
		})
	}
}

// A guard that has not heard of the last renewals would kill while the lease
// lasts: here it would have heard of none for the whole TTL.
func TestGuardHearsOfRenewals(t *testing.T) {
	t.Parallel()
	p := start(t, `echo ready; sleep 7.5; exit 4`, "TTL=6s", "KILL_AFTER=0s")
	p.Await("ready")
	time.Sleep(4 * time.Second)
	p.Process.Signal(syscall.SIGSTOP)
	time.Sleep(2500 * time.Millisecond)
	p.Process.Signal(syscall.SIGCONT)
	if got := p.status(); got != 4 {
		t.Errorf("status %d, want 4", got)
	}
}

func TestGuardGoesWithTheCommand(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  string
		want int
	}{
		"ends":      {"exit 3", 3},
		"is killed": {"kill -KILL $$", 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "end")
			p := start(t, `while ! test -e $FILE; do sleep 0.02; done; `+tt.end, "FILE="+file)
			guard := p.guard()
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if got := p.status(); got != tt.want {
				t.Errorf("status %d, want %d", got, tt.want)
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", guard)); err == nil {
				t.Error("the guard was left behind")
			}
		})
	}
	p := startCommand(t, []string{"/etc"})
	p.status()
	if all := guards(t, p.Process.Pid); len(all) > 0 {
		t.Error("the guard of a command that can't be run was left behind")
	}
}

// If anybody else had the writing end, the guard would not learn of the death
// of its parent.
func TestGuardHasThePipeAlone(t *testing.T) {
	t.Parallel()
	p := start(t, orphan)
	command, inner, guard := p.Number("ready"), p.Number("inner"), p.guard()
	pipe, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", guard))
	if err != nil || !strings.HasPrefix(pipe, "pipe:") {
		t.Fatalf("the guard reads %q, %v", pipe, err)
	}
	count := func(pid int) (n int) {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of process %d: %v", pid, err)
		}
		for _, file := range files {
			if target, err := os.Readlink(file); err == nil && target == pipe {
				n++
			}
		}
		return n
	}
	for pid, want := range map[int]int{command: 0, inner: 0, guard: 1, p.Process.Pid: 1} {
		if got := count(pid); got != want {
			t.Errorf("process %d has the pipe %d times, want %d", pid, got, want)
		}
	}
}

func TestGuardOutlivesSignals(t *testing.T) {
	t.Parallel()
	p := start(t, orphan)
	inner, guard := p.Number("inner"), p.guard()
	for _, sig := range append(forwarded, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU) {
		syscall.Kill(guard, sig.(syscall.Signal))
	}
	time.Sleep(200 * time.Millisecond)
	if again := p.guard(); again != guard {
		t.Errorf("guard %d was replaced by %d", guard, again)
	}
	if session, err := syscall.Getpgid(guard); err != nil || session != guard {
		t.Errorf("it is in the group %d: %v", session, err)
	}
	p.Process.Kill()
	p.status()
	p.wantDead("the command's child", inner)
}

func TestGuardIsReplaced(t *testing.T) {
	t.Parallel()
	p := start(t, orphan)
	inner, guard := p.Number("inner"), p.guard()
	syscall.Kill(guard, syscall.SIGKILL)
	await.That(t, "the guard is replaced", func() bool {
		all := guards(t, p.Process.Pid)
		return len(all) == 1 && all[0] != guard
	})
	p.Process.Kill()
	p.status()
	p.wantDead("the command's child", inner)
}

func TestNoCommandWithoutGuard(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "started")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := startCommand(t, []string{"sh", "-c", `ulimit -n 64; FILES=all exec "$0" touch "$1"`, self, mark})
	if got := p.status(); got != CannotGuard {
		t.Errorf("status %d, want %d", got, CannotGuard)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command was started")
	}
	if !strings.Contains(p.Out.String(), "guards the command") {
		t.Errorf("it says %q", p.Out)
	}
}
