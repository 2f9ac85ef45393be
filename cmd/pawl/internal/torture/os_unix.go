//go:build unix

package torture

import (
	"os"
	"syscall"
)

func stopProcess(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// dump lets a Go program write what its goroutines do, and end.
func dump(p *os.Process) { p.Signal(syscall.SIGQUIT) }
