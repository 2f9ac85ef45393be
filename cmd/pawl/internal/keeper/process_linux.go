package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// began returns when the process started, in ticks since the machine did.
func began(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return "", errNone
	}
	if err != nil {
		return "", err
	}
	// The second field is a name in parentheses, with anything in it.
	rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(rest) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has %d fields behind the name", pid, len(rest))
	}
	if state := rest[0]; state == "Z" || state == "X" {
		return "", errNone
	}
	return rest[19], nil
}

// Name returns the name of the program, nothing if that is not known.
func (p Process) Name() string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(name), "\n")
}

// Watch is a process that is watched.
type Watch struct {
	p  Process
	fd int // -1: the system does not tell
}

// Watch begins to watch. It must be closed.
func (p Process) Watch() *Watch {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		fd = -1
	}
	return &Watch{p, fd}
}

// Close ends watching.
func (w *Watch) Close() {
	if w.fd >= 0 {
		unix.Close(w.fd)
	}
}

// Gone waits for the end of the process, for d at the most, and reports whether it is
// gone. It may return earlier.
func (w *Watch) Gone(d time.Duration) bool {
	d = max(d, 0)
	if w.fd < 0 {
		time.Sleep(min(d, 250*time.Millisecond))
		return !w.p.Lives()
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, int((d+time.Millisecond-1)/time.Millisecond))
	return err == nil && n > 0 || !w.p.Lives() // what was opened may have been another one already
}
