//go:build unix

package child

import (
	"os"
	"syscall"
)

var forwarded = []os.Signal{
	syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

func ending(sig os.Signal) bool {
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// Status is the exit status that tells of the signal.
func (e *Interrupted) Status() int { return 128 + int(e.Signal.(syscall.Signal)) }
