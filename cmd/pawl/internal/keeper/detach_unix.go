//go:build unix

package keeper

import (
	"os"
	"strconv"
	"syscall"
)

// detached is a process that no key and no signal to a group reaches, and that does
// not end with the terminal.
func detached() *syscall.SysProcAttr {
	keepFiles()
	return &syscall.SysProcAttr{Setsid: true}
}

// keepFiles lets no program that is started inherit what this process has inherited:
// somebody may wait for the end of such a pipe.
func keepFiles() {
	fds, _ := os.ReadDir("/dev/fd") // where there is none, they are inherited
	for _, fd := range fds {
		if n, err := strconv.Atoi(fd.Name()); err == nil && n > 2 {
			syscall.CloseOnExec(n)
		}
	}
}
