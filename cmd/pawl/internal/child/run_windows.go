package child

import (
	"errors"
	"os"
	"os/exec"
	"time"
)

var forwarded = []os.Signal{os.Interrupt}

func ending(os.Signal) bool { return true }

// Status is the exit status that tells of the signal.
func (e *Interrupted) Status() int { return 130 }

// Run starts the command and returns when it has ended. Windows has no process
// groups as Unix has: only the command itself is ended before the lease ends,
// and at once; Ctrl-C reaches it through the console.
func Run(c Command, lease Lease, lim Limits, sig *Signals) (Result, error) {
	if ended := sig.Ended(); ended != nil {
		return Result{}, &Interrupted{ended}
	}
	cmd := exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return Result{}, cannotRun(c.Args[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	var cause Cause
	lost := lease.Lost()
	for {
		last := lim.last(lease)
		due := last
		if lim.MaxHold > 0 && lim.Started.Add(lim.MaxHold).Before(due) {
			due = lim.Started.Add(lim.MaxHold)
		}
		if cause != Itself { // it is being ended
			due = time.Now().Add(time.Second)
		}
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return Result{}, err
			}
			return Result{Status: cmd.ProcessState.ExitCode(), Cause: cause}, nil
		case told := <-sig.ch: // the console has told the command too
			sig.note(told)
			continue
		case <-lost:
			if lost = nil; lim.Keep {
				if lim.Lost != nil {
					lim.Lost()
				}
				continue
			}
			if cause == Itself {
				cause = LeaseLost
			}
		case now := <-time.After(time.Until(due)):
			switch {
			case cause != Itself:
			case due.Before(last):
				cause = HeldMax
			case now.Before(lim.last(lease)):
				continue // renewed meanwhile
			default:
				cause = LeaseLost
			}
		}
		_ = cmd.Process.Kill() // it fails when the command has ended
	}
}
