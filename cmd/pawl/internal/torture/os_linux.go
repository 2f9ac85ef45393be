package torture

import (
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// prepare lets a process die with this one, also while it is stopped, and keeps the
// terminal's signals from it.
func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when all threads of a child stand still, or it is gone.
func awaitStopped(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WSTOPPED|unix.WNOHANG, nil)
		switch {
		case err == nil && info.Signo != 0:
			return
		case err != nil && err != unix.EINTR:
			return
		}
		time.Sleep(time.Millisecond)
	}
}
