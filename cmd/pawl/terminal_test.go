//go:build unix

package main

import (
	"io"
	"os"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/pawl-go/pawl/internal/proctest"
)

// terminal is a pawl on a terminal of its own.
type terminal struct {
	*proctest.Process
	tty *os.File // what its user types and sees
}

// onTerminal starts pawl on a terminal of 24 lines.
func (b *bundle) onTerminal(args ...string) *terminal {
	b.T.Helper()
	return b.terminalFor(b.Command(args...))
}

// terminalFor starts p on a terminal.
func (b *bundle) terminalFor(p *proctest.Process) *terminal {
	b.T.Helper()
	p.Stdout, p.Stderr = nil, nil // the terminal
	p.Env = append(p.Env, "TERM=xterm")
	blocking, err := pty.StartWithSize(p.Cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		b.T.Fatal(err)
	}
	defer blocking.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		b.T.Fatal(err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		b.T.Fatal(err)
	}
	tty := os.NewFile(uintptr(fd), "terminal") // closing it ends reads, and hangs up
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(p.Out, tty)
	}()
	b.T.Cleanup(func() {
		p.Process.Kill()
		tty.Close()
		<-read
	})
	return &terminal{p, tty}
}

// key types.
func (s *terminal) key(text string) {
	s.T.Helper()
	if _, err := io.WriteString(s.tty, text); err != nil {
		s.T.Fatal(err)
	}
}
