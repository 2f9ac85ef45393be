package sdnotify

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// send sends one datagram, and reports false if the receiver has no room for it. The
// socket is one of its own each time: a manager that was restarted has another one.
func send(socket string, message []byte) (bool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for {
		err = unix.Sendto(fd, message, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: socket})
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
			return false, nil
		}
		return err == nil, os.NewSyscallError("sendto", err)
	}
}
