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
