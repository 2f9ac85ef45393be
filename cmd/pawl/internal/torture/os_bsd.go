//go:build unix && !linux

package torture

import (
	"os/exec"
	"syscall"
	"time"
)

// prepare keeps the terminal's signals from a process.
func prepare(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// awaitStopped waits until all threads of a child are likely to stand still.
func awaitStopped(int) { time.Sleep(50 * time.Millisecond) }
