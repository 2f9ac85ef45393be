package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pawl-go/pawl/internal/await"
)

// dieWithParent ends the server with the program that started it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// quitWithParent lets the server tidy up when it ends so.
func quitWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }

// removeSegment removes a segment of shared memory.
func removeSegment(id int) {
	const remove = 0 // IPC_RMID
	syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), remove, 0)
}

// awaitStopped waits until all threads of a process have seen that it is stopped.
func awaitStopped(pid int) {
	running := func() bool {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, task := range tasks {
			text, err := os.ReadFile(task)
			// Its state is behind its name, which is in parentheses.
			if _, state, found := strings.Cut(string(text), ") "); err == nil && found && !strings.ContainsAny(state[:1], "TtZX") {
				return true
			}
		}
		return false
	}
	for end := time.Now().Add(await.Limit); pid != 0 && running() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
