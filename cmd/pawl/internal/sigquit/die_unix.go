//go:build unix

package sigquit

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

var sigquit os.Signal = syscall.SIGQUIT

const status = 128 + int(syscall.SIGQUIT)

// Die ends this process by a signal: whoever waits for it sees what ended it. It
// returns if that cannot be done; then the caller exits by itself.
func Die(sig os.Signal) { send(sig, syscall.Getpid()) }

// DieAll is Die for the whole process group.
func DieAll(sig os.Signal) { send(sig, 0) }

func send(sig os.Signal, to int) {
	s, ok := sig.(syscall.Signal)
	if !ok || signal.Ignored(s) {
		return
	}
	if s != syscall.SIGQUIT {
		signal.Reset(s)
	} else if signal.Ignore(s); !byDefault(s) && to != 0 {
		return
	}
	_ = syscall.Kill(to, s)
	time.Sleep(2 * time.Second) // it arrives on any thread, at once
}
