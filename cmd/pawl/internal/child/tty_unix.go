//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal, which the group in its foreground reads
// and whose keys (Ctrl-C, Ctrl-Z) go to that group.
type terminal struct {
	fd    int
	own   int // this process's group
	modes *term.State
	given bool // to the command's group, and not taken back
}

// openTerminal returns nil if there is none, as under cron.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, own: unix.Getpgrp()}
	t.modes, _ = term.GetState(fd) // without them nothing is restored
	return t
}

// begin hands the terminal to a command that has just started, if it is ours to
// give. In a pipeline it is not: the one who reads our output may need it
// (a pager); there the command gets it when it asks.
//
// SIGTTOU is ignored from here on, so that a process in the background may hand
// the terminal around, and can't be stopped while it has a lease to watch. The
// command has been started before, so it does not inherit that.
func (t *terminal) begin(group int) {
	if t == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	out, err := os.Stdout.Stat()
	if term.IsTerminal(0) && err == nil && out.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		t.give(group)
	}
}

// foreground returns the group that has the terminal, 0 if none has.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give hands the terminal to group if it is ours, and reports whether group has
// it then.
func (t *terminal) give(group int) bool {
	switch t.foreground() {
	case group:
	case t.own:
		if unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) != nil {
			return false
		}
	default:
		return false
	}
	t.given = true
	return true
}

// end takes the terminal back from a group that is gone, unless somebody else
// got it meanwhile. A command that was ended may leave it in modes of its own.
func (t *terminal) end(group int, ended bool) {
	if t == nil {
		return
	}
	if front := t.foreground(); t.given && front != t.own && (front == group || !exists(front)) {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) // gone with the terminal
	}
	if t.given && ended && t.modes != nil && t.foreground() == t.own {
		_ = term.Restore(t.fd, t.modes)
	}
	signal.Reset(syscall.SIGTTOU)
	unix.Close(t.fd)
}
