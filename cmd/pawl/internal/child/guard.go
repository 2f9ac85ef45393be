//go:build linux || darwin

package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pawl-go/pawl/internal/clock"
)

// A guard is a process that outlives this one: it kills the command's group
// when this process is gone, or has let a deadline pass because it is stopped.
// It learns what to do from a pipe that nobody else has. All methods belong to
// the goroutine of Run.
type guard struct {
	pid int // 0: it does not run
	w   int // the pipe; -1: closed

	group int           // told last
	until time.Duration // told last, by the machine's clock
	by    time.Time     // the same

	fired bool // it has killed the group
}

// guardName is the first argument of a guard; the second is for whoever lists
// processes.
const guardName = "pawl-guard"

// exitFired is the exit status of a guard that has killed.
const exitFired = 1

// A message is the group to kill and, by the machine's clock, when to do so; a
// group of 0 sends the guard home. It is shorter than PIPE_BUF: the pipe keeps
// it in one piece, and a read for this size gets exactly one.
const messageSize = 16

func newGuard() (*guard, error) {
	g := &guard{w: -1}
	if err := g.start(0, 0); err != nil {
		return nil, &Error{CannotGuard, err}
	}
	return g, nil
}

// start starts the guard. What it is to do, if that is known, is in the pipe before
// it lives: at no time is there one that knows less than the one before.
func (g *guard) start(group int, until time.Duration) (err error) {
	path, err := selfPath()
	if err != nil {
		return fmt.Errorf("start the process that guards the command: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("start the process that guards the command: %w", err)
	}
	defer null.Close()
	r, w, err := pipe()
	if err != nil {
		return fmt.Errorf("start the process that guards the command: make a pipe: %w", err)
	}
	defer unix.Close(r)
	g.w = w
	defer func() {
		if err != nil {
			unix.Close(w)
			g.pid, g.w = 0, -1
		}
	}()
	if group != 0 {
		if err := g.send(group, until); err != nil {
			return fmt.Errorf("tell the process that guards the command: %w", err)
		}
	}
	g.pid, err = syscall.ForkExec(path, []string{guardName, fmt.Sprintf("of process %d", os.Getpid())}, &syscall.ProcAttr{
		Dir: "/", // it must not keep a disk busy
		// None of this process's variables: there may be a password in them.
		Env:   []string{"GOMAXPROCS=1", "GOGC=off"},
		Files: []uintptr{uintptr(r), null.Fd(), null.Fd()},
		// No key and no signal to a group reaches it there.
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start the process that guards the command: %s: %w", path, err)
	}
	return nil
}

// pipe is closed in every program that is started. A guard that does not read
// must not stop the one who writes.
func pipe() (r, w int, err error) {
	var p [2]int
	syscall.ForkLock.RLock()
	if err = unix.Pipe(p[:]); err == nil {
		unix.CloseOnExec(p[0])
		unix.CloseOnExec(p[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, 0, err
	}
	if err := unix.SetNonblock(p[1], true); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return 0, 0, err
	}
	return p[0], p[1], nil
}

// tell lets the guard kill group at by unless it hears of a later time. A guard
// that is gone is replaced.
func (g *guard) tell(group int, by time.Time) error {
	if g.fired || g.pid != 0 && g.group == group && g.by.Equal(by) {
		return nil
	}
	// In this order: a pause in between makes it earlier.
	now, _ := clock.Boottime()
	until := now + time.Until(by)
	if g.pid == 0 {
		if err := g.start(group, until); err != nil {
			return err
		}
	} else if err := g.send(group, until); err != nil {
		g.kill() // the next one is told in its place
		return fmt.Errorf("tell the process that guards the command: %w", err)
	}
	g.group, g.by, g.until = group, by, until
	return nil
}

func (g *guard) send(group int, until time.Duration) error {
	var m [messageSize]byte
	binary.NativeEndian.PutUint64(m[:8], uint64(group))
	binary.NativeEndian.PutUint64(m[8:], uint64(until))
	return retry(func() error {
		_, err := unix.Write(g.w, m[:])
		return err
	})
}

// collected takes note of the guard's end, and reports whether it was that
// process that ended.
func (g *guard) collected(pid int, ws unix.WaitStatus) bool {
	if pid != g.pid {
		return false
	}
	if ws.Exited() && ws.ExitStatus() == exitFired {
		g.fired = true
	}
	unix.Close(g.w)
	g.pid, g.w = 0, -1
	return true
}

// end sends the guard home, when the group is gone, and waits until it is gone
// too. It reports whether it had killed the group.
func (g *guard) end() bool {
	if g.pid == 0 {
		return g.fired
	}
	if now, _ := clock.Boottime(); g.group == 0 || now < g.until {
		g.kill() // it cannot have fired yet, and this is the quickest
		return false
	}
	_ = g.send(0, 0) // else it finds the group gone
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(g.pid, &ws, unix.WNOHANG, nil)
		if err == nil && pid != 0 {
			g.collected(pid, ws)
			return g.fired
		}
	}
	g.kill()
	return g.fired
}

func (g *guard) kill() {
	_ = unix.Kill(g.pid, unix.SIGKILL) // nobody else collects it: the pid is still its own
	var ws unix.WaitStatus
	_ = retry(func() error {
		_, err := unix.Wait4(g.pid, &ws, 0, nil)
		return err
	})
	g.collected(g.pid, ws)
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// init is the whole life of a process that Run has started for itself, if this is
// one. It does not wait for what of the program is initialized later: a run takes
// 15 ms of processor time so, and 21 ms if main calls this.
func init() {
	switch {
	case len(os.Args) == 2 && os.Args[0] == guardName:
		signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
			unix.SIGPIPE, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
		nameProcess(guardName)
		os.Exit(watch(0))
	case len(os.Args) > 3 && os.Args[0] == starterName:
		os.Exit(become(os.Args))
	}
}

// watch reads messages from fd and returns the exit status.
func watch(fd int) int {
	var group int
	var until time.Duration
	var m [messageSize]byte
	for {
		wait := -1
		now, _ := clock.Boottime()
		if group != 0 {
			// poll does not know how long the machine sleeps, thus not longer
			// than a second.
			wait = int((min(max(until-now, 0), time.Second) + time.Millisecond - 1) / time.Millisecond)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, wait)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return killGroup(group)
		case n == 0: // what was told has been read: the deadline stands
			if now, _ := clock.Boottime(); now >= until {
				return killGroup(group)
			}
			continue
		}
		n, err = unix.Read(fd, m[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != messageSize { // who told us is gone
			return killGroup(group)
		}
		group = int(binary.NativeEndian.Uint64(m[:8]))
		until = time.Duration(binary.NativeEndian.Uint64(m[8:]))
		if group <= 1 { // 1 would be everybody
			return 0
		}
	}
}

// killGroup kills until nobody is left: where a process may fork while its
// group is being killed, once is not enough. A group whose parent is stopped,
// or collects nobody, is never gone.
func killGroup(group int) int {
	if group <= 1 {
		return 0
	}
	pause := time.Millisecond
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if errors.Is(unix.Kill(-group, unix.SIGKILL), unix.ESRCH) {
			break
		}
		time.Sleep(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
	return exitFired
}
