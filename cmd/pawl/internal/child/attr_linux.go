package child

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// attr makes a group for the command, and lets it die with the thread that
// starts it: Run stays on its thread until the group is gone.
func attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adopt makes this process the parent of those whose parent in the group has
// ended. Else they would become children of init, which in a container may
// never collect them, and the group would never be gone.
func adopt() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphaned processes: %w", err)
	}
	return nil
}
