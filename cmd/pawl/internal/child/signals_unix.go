//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"
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

// Follow ends this process as Result.Key ended the command, together with the
// rest of its group: the key was meant for the whole job, of which only the
// command was in the foreground. A shell that runs a script goes on unless it
// gets the signal and sees its child die of it. It returns if that does not end
// this process, which then has to exit by itself. Signals must be stopped.
func Follow(key os.Signal) {
	sig, ok := key.(syscall.Signal)
	if !ok || signal.Ignored(sig) {
		return
	}
	if sig == syscall.SIGQUIT {
		signal.Ignore(sig) // the Go runtime would print its stacks
		_ = syscall.Kill(0, sig)
		return
	}
	signal.Reset(sig)
	_ = syscall.Kill(0, sig)
	time.Sleep(100 * time.Millisecond) // it arrives on any thread
}
