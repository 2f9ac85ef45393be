//go:build linux || darwin

package child

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A starter is the process that becomes the command. It is one of this program
// until the guard knows its group.
//
// Invariant: the command does not run before the guard knows whom to kill. Else
// what it has started by then would outlive a process that is killed at that
// moment, with nobody's lock.
type starter struct {
	pid  int
	name string // of the command, for errors
	conn int    // a socket to it
}

// starterName is the first argument of a starter; then come the number of its end
// of the socket, the path of the command and its arguments.
const starterName = "pawl-start"

// newStarter starts one in a group of its own.
func newStarter(c Command) (*starter, error) {
	path, err := selfPath()
	if err != nil {
		return nil, cannotRun(c.Args[0], err)
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, cannotRun(c.Args[0], err)
	}
	args := append([]string{starterName, strconv.Itoa(theirs), c.Path}, c.Args...)
	// The socket keeps its number there: every other one may be of a file that the
	// command inherits.
	_, err = unix.FcntlInt(uintptr(theirs), unix.F_SETFD, 0)
	var pid int
	if err == nil {
		pid, err = syscall.ForkExec(path, args, &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: attr()})
	}
	unix.Close(theirs)
	if err != nil {
		unix.Close(ours)
		return nil, cannotRun(c.Args[0], err)
	}
	return &starter{pid, c.Args[0], ours}, nil
}

// socketpair is closed in every program that is started.
func socketpair() (ours, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	return p[0], p[1], nil
}

// release lets it become the command. It does not wait for that: whoever stops it now
// must not stop the supervisor.
func (s *starter) release() {
	// Where it is gone already, a signal has ended it: that is the command's end.
	_, _ = unix.Write(s.conn, []byte{1})
}

// started reports whether it has become the command, where the socket is closed.
func (s *starter) started() bool {
	var m [1]byte
	n, _, err := unix.Recvfrom(s.conn, m[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return n == 0 && err == nil
}

// failed returns an *Error if it ended since it could not become the command.
func (s *starter) failed() error {
	defer unix.Close(s.conn)
	var m [8]byte
	if n, _, _ := unix.Recvfrom(s.conn, m[:], unix.MSG_DONTWAIT); n != len(m) {
		return nil
	}
	return cannotRun(s.name, syscall.Errno(binary.NativeEndian.Uint64(m[:])))
}

// become is the whole life of a starter.
func become(args []string) int {
	conn, err := strconv.Atoi(args[1])
	if err != nil {
		return CannotRun
	}
	unix.CloseOnExec(conn)
	var m [8]byte
	n := 0
	_ = retry(func() (err error) {
		n, err = unix.Read(conn, m[:1])
		return err
	})
	if n != 1 { // who started it is gone
		return CannotGuard
	}
	err = syscall.Exec(args[2], args[3:], os.Environ())
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EINVAL
	}
	binary.NativeEndian.PutUint64(m[:], uint64(errno))
	_, _ = unix.Write(conn, m[:])
	return CannotRun
}
