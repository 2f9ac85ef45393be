//go:build unix && !linux && !darwin

package child

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is for systems with a clock that all processes share.
type guard struct{ fired bool }

func newGuard() (*guard, error) { return &guard{}, nil }

func (*guard) tell(int, time.Time) error           { return nil }
func (*guard) collected(int, unix.WaitStatus) bool { return false }
func (*guard) end() bool                           { return false }

// starter is the command itself at once: nobody would have to know of it before.
type starter struct{ pid int }

func newStarter(c Command) (*starter, error) {
	pid, err := syscall.ForkExec(c.Path, c.Args, &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: attr()})
	if err != nil {
		return nil, cannotRun(c.Args[0], err)
	}
	return &starter{pid}, nil
}

func (*starter) release()      {}
func (*starter) started() bool { return true }
func (*starter) failed() error { return nil }
