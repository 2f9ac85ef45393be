//go:build unix

package child

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
)

// session is a program on a terminal of its own.
type session struct {
	process
	tty *os.File // what its user types and sees
}

func onTerminal(t *testing.T, args []string, vars ...string) *session {
	t.Helper()
	p := proctest.Command(t, args[0], args[1:]...)
	p.Stdout, p.Stderr = nil, nil // the terminal
	p.Env = append(os.Environ(), vars...)
	blocking, err := pty.Start(p.Cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	tty := os.NewFile(uintptr(fd), "terminal") // closing it ends reads, and hangs up
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(p.Out, tty)
	}()
	t.Cleanup(func() {
		p.Process.Kill()
		tty.Close()
		<-read
	})
	return &session{process{p}, tty}
}

func (s *session) key(text string) {
	s.T.Helper()
	if _, err := io.WriteString(s.tty, text); err != nil {
		s.T.Fatal(err)
	}
}

// awaitJob waits until the shell has given its terminal to a job.
func (s *session) awaitJob() {
	s.T.Helper()
	conn, err := s.tty.SyscallConn()
	if err != nil {
		s.T.Fatal(err)
	}
	await.That(s.T, "a job comes to the foreground", func() bool {
		var front int
		if err := conn.Control(func(fd uintptr) { front, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) }); err != nil {
			s.T.Fatal(err)
		}
		return err == nil && front != s.Process.Pid
	})
}

// shell is an interactive shell with job control. $RUN starts the helper.
func shell(t *testing.T, vars ...string) *session {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this test needs bash")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := onTerminal(t, []string{bash, "--norc", "--noprofile", "-i"},
		append(vars, "PS1=$ ", "TERM=dumb", "LC_ALL=C", "RUN=env CHILD_TEST=run "+self, "FRONT=env CHILD_TEST=front "+self, "COUNT=env CHILD_TEST=count "+self)...)
	s.Await("$ ")
	return s
}

func TestCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.key("$RUN $FRONT; echo front-$?\n")
	s.Await("front-0")
	// A script's next command would stop if it were not given back.
	s.key("sh -c '$RUN true; read x; echo got-$x'\n")
	time.Sleep(300 * time.Millisecond) // or the shell's line editor might get it
	s.key("text\n")
	s.Await("got-text")
}

func TestCtrlC(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.key("$RUN sh -c 'trap \"echo c-is-here; exit 5\" INT; echo rea\"\"dy; while :; do sleep 0.05; done'; echo status-$?\n")
	s.Await("ready")
	s.key("\x03")
	s.Await("c-is-here")
	s.Await("status-5")
}

// Reading needs the foreground, also where a pipeline kept it from the command.
func TestPipelineLeavesTheTerminalToThePager(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.key("$RUN sh -c 'echo o\"\"ut; sleep 0.3' | (read a; read b </dev/tty; echo $a-$b)\n")
	s.key("typed\n")
	s.Await("out-typed")

	s.key("echo in | $RUN sh -c 'read a; read b </dev/tty; echo $a+$b'; echo do\"\"ne\n")
	time.Sleep(300 * time.Millisecond) // or the shell's line editor might get it
	s.key("again\n")
	s.Await("in+again")
	s.Await("done")
}

func lines(t *testing.T, file string) int {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

// stands tells whether the file does not grow.
func stands(t *testing.T, file string) bool {
	t.Helper()
	n := lines(t, file)
	time.Sleep(300 * time.Millisecond)
	return lines(t, file) == n
}

func TestCtrlZ(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "count")
	s := shell(t, "FILE="+file)
	s.key("$RUN $COUNT\n")
	await.That(t, "it runs", func() bool { return lines(t, file) > 3 })
	s.key("\x1a")
	s.Await("Stopped")
	if !stands(t, file) {
		t.Fatal("the shell has its prompt, and the command runs on")
	}
	n := lines(t, file)
	s.key("fg\n")
	await.That(t, "it runs again", func() bool { return lines(t, file) > n+3 })
	s.key("\x1a")
	await.That(t, "Ctrl-Z works again", func() bool { return strings.Count(s.Out.String(), "Stopped") == 2 })
	n = lines(t, file)
	s.key("bg\n")
	await.That(t, "it runs in the background", func() bool { return lines(t, file) > n+3 })
	s.key("fg; echo sta\"\"tus-$?\n")
	s.awaitJob()
	s.key("\x03")
	s.Await("status-130")
}

// What stopped too long has lost its lock: it must not run one more step.
func TestCtrlZBeyondTheLease(t *testing.T) {
	t.Parallel()
	for name, vars := range map[string][]string{
		"by its own clock": nil,
		"as the store has": {"EXTEND=lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, ended := filepath.Join(t.TempDir(), "count"), filepath.Join(t.TempDir(), "ended")
			s := shell(t, append(vars, "FILE="+file, "ENDED="+ended)...)
			s.key("$RUN $COUNT stubborn\n")
			await.That(t, "it runs", func() bool { return lines(t, file) > 3 })
			s.key("\x1a")
			s.Await("Stopped")
			n := lines(t, file)
			if vars == nil {
				if err := os.WriteFile(ended, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s.key("fg; echo sta\"\"tus-$?\n")
			s.Await("status-")
			if lines(t, file) != n {
				t.Errorf("the command went on without its lock")
			}
		})
	}
}

// A background job that wants to read stops until it is in front.
func TestBackgroundJobReads(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.key("$RUN sh -c 'read x; echo go\"\"t-$x' & until jobs | grep Stop\"\"ped; do sleep 0.05; done; echo kno\"\"wn\n")
	s.Await("known")
	s.key("fg\n")
	s.awaitJob()
	s.key("line\n")
	s.Await("got-line")
}

// Where no shell could continue us, Ctrl-Z must not stop anything for ever.
func TestCtrlZWithoutAShell(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "count")
	s := onTerminal(t, []string{self, "env", "CHILD_TEST=count", self}, "CHILD_TEST=run", "FILE="+file)
	await.That(t, "it runs", func() bool { return lines(t, file) > 3 })
	s.key("\x1a")
	time.Sleep(100 * time.Millisecond)
	n := lines(t, file)
	await.That(t, "it goes on", func() bool { return lines(t, file) > n+5 })
	s.key("\x03")
	if got := s.status(); got != 130 {
		t.Errorf("status %d", got)
	}
}

// One pawl in another hands the terminal down, and back up.
func TestNested(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "count")
	s := shell(t, "FILE="+file)
	s.key("$RUN $RUN $COUNT\n")
	await.That(t, "it runs", func() bool { return lines(t, file) > 3 })
	s.key("\x1a")
	s.Await("Stopped")
	if !stands(t, file) {
		t.Fatal("the command runs on")
	}
	n := lines(t, file)
	s.key("fg; echo sta\"\"tus-$?\n")
	await.That(t, "it runs again", func() bool { return lines(t, file) > n+3 })
	s.key("\x03")
	s.Await("status-130")
}

// A command that is killed in raw mode must not leave the terminal so.
func TestModesAreRestored(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.key("$RUN sh -c 'stty -echo -icanon; kill -KILL $$'; stty -a | grep -c -- '-icanon' | sed 's/^/raw-/'\n")
	s.Await("raw-0")
	// Bash, with its line editor, would restore them after a signal by itself.
	s.key("sh -c 'MAX_HOLD=300ms $RUN sh -c \"trap \\\"exit 3\\\" TERM; stty -echo -icanon; while :; do sleep 0.05; done\"; echo sta\"\"tus-$?; stty -a | grep -c -- -icanon | sed s/^/modes-/'\n")
	s.Await("status-80")
	s.Await("modes-0")
}

// SIGSTOP is not the terminal's: somebody looks at the command; it keeps the
// lock, so this process must go on.
func TestFrozenCommandKeepsTheLock(t *testing.T) {
	t.Parallel()
	s := shell(t)
	s.key("$RUN sh -c 'echo ready $$; while :; do sleep 0.05; done'; echo sta\"\"tus-$?\n")
	pid := s.Number("\nready")
	syscall.Kill(-pid, syscall.SIGSTOP)
	time.Sleep(300 * time.Millisecond)
	if strings.Contains(s.Out.String(), "Stopped") {
		t.Error("this process stopped as well")
	}
	syscall.Kill(-pid, syscall.SIGCONT)
	s.key("\x03")
	s.Await("status-130")
}
