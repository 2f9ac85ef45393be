//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filefence

import (
	"errors"
	"os"
	"syscall"
)

// tryLock reports whether it got the lock on the open file. Children that a process
// starts do not inherit the file.
func tryLock(file *os.File) (bool, error) {
	for {
		switch err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
