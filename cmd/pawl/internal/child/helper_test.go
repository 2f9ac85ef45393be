//go:build unix

package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-go/pawl/internal/proctest"
)

// Run collects every child of its process and changes how it takes signals, so
// each test runs it in a process of its own: this binary, started again.

const (
	exitLost  = 79
	exitMax   = 80
	exitLate  = 81 // the group outlived the lease
	exitError = 99
)

func TestMain(m *testing.M) {
	switch os.Getenv("CHILD_TEST") {
	case "run":
		os.Exit(helper(os.Args[1:]))
	case "killed":
		os.Exit(killed(os.Args[1:]))
	case "count":
		os.Exit(count(os.Args[1:]))
	case "front":
		os.Exit(front())
	}
	proctest.Signals()
	os.Exit(m.Run())
}

// fakeLease ends when told by the variables of the helper's environment.
type fakeLease struct {
	mu       sync.Mutex
	deadline time.Time // zero: renewed all the time
	ttl      time.Duration
	gone     bool
	lost     chan struct{}
}

func (l *fakeLease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if file := os.Getenv("ENDED"); file != "" {
		if _, err := os.Stat(file); err == nil {
			return time.Now().Add(-time.Second)
		}
	}
	if l.deadline.IsZero() {
		return time.Now().Add(l.ttl)
	}
	return l.deadline
}

func (l *fakeLease) Lost() <-chan struct{} { return l.lost }

func (l *fakeLease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.gone {
		l.gone = true
		close(l.lost)
	}
}

func (l *fakeLease) Extend(_ context.Context, ttl time.Duration) error {
	if os.Getenv("EXTEND") == "lost" {
		l.lose()
		return errors.New("lost")
	}
	return nil
}

// helper runs args under a fake lease: TTL, KILL_AFTER, MAX_HOLD; FIXED: it is
// never renewed; ENDED: its time has passed once there is that file; BREAK: it is lost after that time; EXTEND=lost: found lost when
// asked for; SIGNAL: arrives before the start; LATE: this process is stopped
// beyond the lease; FILES=all: no
// more can be opened.
func helper(args []string) int {
	sig := Catch()
	defer sig.Stop()
	ttl := duration("TTL", 30*time.Second)
	l := &fakeLease{ttl: ttl, lost: make(chan struct{})}
	if os.Getenv("FIXED") != "" {
		l.deadline = time.Now().Add(ttl)
	}
	if d := duration("BREAK", 0); d > 0 {
		time.AfterFunc(d, l.lose)
	}
	lim := Limits{TTL: ttl, KillAfter: duration("KILL_AFTER", DefaultKillAfter(ttl)), MaxHold: duration("MAX_HOLD", 0), Started: time.Now()}
	if n, err := strconv.Atoi(os.Getenv("SIGNAL")); err == nil {
		ctx, stop := sig.Context(context.Background())
		syscall.Kill(os.Getpid(), syscall.Signal(n))
		<-ctx.Done()
		stop()
	}
	path, err := Find(args[0])
	if err != nil {
		path = args[0] // let the kernel say it
	}
	for os.Getenv("FILES") == "all" {
		if _, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			break
		}
	}
	stalled := func() time.Duration { return 0 }
	if os.Getenv("FIXED") != "" {
		stalled = stalls()
	}
	r, err := Run(Command{path, args, os.Environ()}, l, lim, sig)
	ended := time.Now()
	var interrupted *Interrupted
	var cannot *Error
	switch {
	case errors.As(err, &interrupted):
		return interrupted.Status()
	case errors.As(err, &cannot):
		fmt.Fprintln(os.Stderr, err)
		return cannot.Status
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return exitError
	case os.Getenv("FIXED") != "" && os.Getenv("LATE") == "" && !ended.Before(l.deadline.Add(stalled())):
		return exitLate
	case r.Cause == LeaseLost:
		return exitLost
	case r.Cause == HeldMax:
		return exitMax
	}
	return r.Status
}

// killed is killed between the start of a starter and its release.
func killed(args []string) int {
	path, err := Find(args[0])
	if err == nil {
		var s *starter
		if s, err = newStarter(Command{path, args, os.Environ()}); err == nil {
			fmt.Println(s.pid)
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	fmt.Println(err)
	return exitError
}

// stalls measures for how long this machine lets a process wait that wants to run:
// by so much what it does may be late.
func stalls() func() time.Duration {
	var worst atomic.Int64
	go func() {
		for last := time.Now(); ; last = time.Now() {
			time.Sleep(time.Millisecond)
			worst.Store(max(worst.Load(), int64(time.Since(last))))
		}
	}()
	// The command and the one who collects it wait in turns.
	return func() time.Duration { return 4 * time.Duration(worst.Load()) }
}

func duration(name string, def time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv(name)); err == nil {
		return d
	}
	return def
}

// front tells whether its group has the terminal.
func front() int {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err != nil || group != unix.Getpgrp() {
		fmt.Println("background", group, unix.Getpgrp(), err)
		return 1
	}
	fmt.Println("foreground")
	return 0
}

// count adds a line to FILE all the time. A shell that starts programs all the
// time would not do: Ctrl-Z between its vfork and the exec hangs it.
func count(args []string) int {
	if len(args) > 0 {
		signal.Ignore(syscall.SIGTERM)
	}
	for {
		f, err := os.OpenFile(os.Getenv("FILE"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return 1
		}
		fmt.Fprintln(f, "line")
		f.Close()
		time.Sleep(10 * time.Millisecond)
	}
}

// process is a helper that runs. Both its outputs are Out.
type process struct{ *running }

type running = proctest.Process // by this name it does not hide that of exec.Cmd

// start starts a helper with those variables that runs sh -c script.
func start(t *testing.T, script string, vars ...string) process {
	t.Helper()
	return startCommand(t, []string{"sh", "-c", script}, vars...)
}

func startCommand(t *testing.T, args []string, vars ...string) process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := proctest.Command(t, self, args...)
	p.Env = append(append(os.Environ(), "CHILD_TEST=run"), vars...)
	p.Stderr = p.Out
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Start()
	return process{p}
}

// status waits for the end and returns the exit status, -1 if it died of a signal.
func (p process) status() int {
	p.T.Helper()
	p.Status()
	return p.ProcessState.ExitCode()
}

// alive tells whether a process runs; one that nobody has collected does not.
func alive(pid int) bool {
	if runtime.GOOS != "linux" {
		return syscall.Kill(pid, 0) == nil
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}
