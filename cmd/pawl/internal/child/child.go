// Package child runs a command under a lease: in a process group of its own,
// with the terminal if there is one, and never longer than the lease lasts.
package child

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"
)

// Exit statuses of a command that did not run: two as shells have them, and
// EX_OSERR of sysexits.h where this process can't make sure that it ends in
// time.
const (
	CannotGuard = 71
	CannotRun   = 126
	NotFound    = 127
)

// Command is what to run, with this process's standard input and outputs.
type Command struct {
	Path string   // of the executable file; see Find
	Args []string // with the name it is called by
	Env  []string
}

// Lease is what Run watches.
type Lease interface {
	Deadline() time.Time
	Lost() <-chan struct{}
	Extend(ctx context.Context, ttl time.Duration) error
}

// Limits say how long the command may run, and how it is ended.
type Limits struct {
	TTL       time.Duration // of the lease
	KillAfter time.Duration // between SIGTERM and SIGKILL
	MaxHold   time.Duration // 0: none
	Started   time.Time     // MaxHold counts from here
	// Keep lets the command go on when the lease is lost, of which Lost is told
	// once. It is still killed with this process.
	Keep bool
	Lost func()
	// Stuck is called once if the group survives SIGKILL for long, as
	// processes do that hang in the kernel or belong to another user.
	Stuck func()
	// Unguarded is called once if the process that would kill the group
	// instead of this one has been killed, and no other can be started.
	Unguarded func(error)
	// Watcher, if not nil, is told how the command does.
	Watcher Watcher
}

// Watcher is called by the goroutine that ends the command in time: what it is told
// shows that this goroutine lives. It must not wait for anything.
type Watcher interface {
	// Running is called once, when the command runs.
	Running()
	// Turn is called again and again. It returns when it wants to be called at the
	// latest.
	Turn(now time.Time) time.Time
	// Ending is called once, when the command is being ended: by SIGTERM, which this
	// process was sent, if the cause is Itself.
	Ending(Cause)
}

// last is when the command must be dead, as far as is known.
func (l *Limits) last(lease Lease) time.Time {
	if l.Keep {
		return l.Started.Add(forEver)
	}
	return lease.Deadline().Add(-margin(l.TTL))
}

// forEver is longer than any command runs.
const forEver = 100 * 365 * 24 * time.Hour

// margin is what is left of the lease when the group is dead, for a machine
// that is late.
func margin(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 20*time.Millisecond), 500*time.Millisecond)
}

// MinTTL is the shortest TTL within which processes can be ended reliably.
const MinTTL = 300 * time.Millisecond

// DefaultKillAfter suits a TTL.
func DefaultKillAfter(ttl time.Duration) time.Duration { return min(ttl/3, 5*time.Second) }

// Check returns why a command can't be ended before the lease ends, in terms of
// pawl's flags. A lease is
// renewed every third of its TTL; SIGTERM must come later than that, or one
// slow renewal would end the command.
func (l *Limits) Check() error {
	switch {
	case l.TTL < MinTTL:
		return fmt.Errorf("--ttl %v: a command can't be ended so quickly; use %v or more", l.TTL, MinTTL)
	case l.KillAfter < 0:
		return fmt.Errorf("--kill-after %v: it can't be negative", l.KillAfter)
	case l.KillAfter > l.TTL/2:
		return fmt.Errorf("--kill-after %v: COMMAND could not be ended before a lock with --ttl %v is lost; use --ttl %v or more, or --kill-after %v or less",
			l.KillAfter, l.TTL, 2*l.KillAfter, l.TTL/2)
	case l.MaxHold < 0:
		return fmt.Errorf("--max-hold %v: it can't be negative", l.MaxHold)
	}
	return nil
}

// Cause says why Run ended the command.
type Cause uint8

const (
	Itself    Cause = iota // it ended by itself, or by a signal from outside
	LeaseLost              // the lease was lost, or could not be renewed in time
	HeldMax                // Limits.MaxHold was reached
)

// Result of a command that ran.
type Result struct {
	Status int // its exit status; 128+N if signal N ended it
	Cause  Cause
	// Key is the signal of Ctrl-C or Ctrl-\ that ended it in the terminal's
	// foreground, else nil: it was meant for the whole job, of which only the
	// command was in the foreground. The rest of this process's group shall get
	// it, too: a shell that runs a script goes on unless it gets the signal and
	// sees its child die of it.
	Key os.Signal
	// Told is a signal that told this process to end, and of which the command
	// died, else nil. This process shall die of it, too.
	Told os.Signal
}

// Error is a command that can't be run.
type Error struct {
	Status int // CannotGuard, CannotRun or NotFound
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Find looks the command up as a shell would, and returns its path or an
// *Error.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) {
		err = nil // PATH names the folder: the user wants that
	}
	if err != nil {
		return "", cannotRun(name, err)
	}
	return path, nil
}

func cannotRun(name string, err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	status := CannotRun
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = NotFound
	}
	return &Error{status, fmt.Errorf("can't run %q: %w", name, err)}
}

// Interrupted returns a Run that did not start the command because a signal
// had come that ends this process.
type Interrupted struct{ Signal os.Signal }

func (e *Interrupted) Error() string { return fmt.Sprintf("ended by signal: %v", e.Signal) }
