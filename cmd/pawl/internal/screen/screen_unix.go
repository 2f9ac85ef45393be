//go:build unix

// Package screen is a terminal that a program has for itself: all of it, and each key.
package screen

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Supported reports whether there are screens on this system.
const Supported = true

// Signals are those that a program with a screen must catch: the first ones end it,
// after Close; see also Suspend and Resize.
var Signals = []os.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, Quit, Stop, Continue, Resize}

// Signals with a meaning of their own.
const (
	Stop     = syscall.SIGTSTP
	Continue = syscall.SIGCONT
	Resize   = syscall.SIGWINCH
	Quit     = syscall.SIGQUIT
)

// Status is that of a process that a signal ended, as shells have it.
func Status(sig os.Signal) int {
	if s, ok := sig.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 1
}

const (
	// The other screen, no cursor, and lines that end at the edge.
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// Screen is the terminal in raw mode.
type Screen struct {
	in, out *os.File
	modes   *term.State // as they were before
	keys    chan []byte
	gone    chan struct{} // closed by Close, like the pipe, for which one can wait beside the terminal
	pipe    [2]*os.File   // to read, to write
	reader  sync.WaitGroup
	mu      sync.Mutex
	closed  bool
}

// Open takes the terminal. Close must be called on every way out.
func Open(in, out *os.File) (*Screen, error) {
	modes, err := term.GetState(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read the modes of the terminal: %w", err)
	}
	s := &Screen{in: in, out: out, modes: modes, keys: make(chan []byte), gone: make(chan struct{})}
	if s.pipe[0], s.pipe[1], err = os.Pipe(); err != nil {
		return nil, err
	}
	if err := s.Enter(); err != nil {
		s.Leave()
		s.pipe[0].Close()
		s.pipe[1].Close()
		return nil, err
	}
	s.reader.Go(s.read)
	return s, nil
}

// Enter takes the terminal again, after a stop.
func (s *Screen) Enter() error {
	if _, err := term.MakeRaw(int(s.in.Fd())); err != nil {
		return fmt.Errorf("set the modes of the terminal: %w", err)
	}
	return s.Draw(enter)
}

// Leave gives the terminal back as it was.
func (s *Screen) Leave() {
	_ = s.Draw(leave) // a terminal that is gone needs nothing
	_ = term.Restore(int(s.in.Fd()), s.modes)
}

// Close is Leave for good, and ends Keys. It may be called more than once.
func (s *Screen) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.Leave()
	close(s.gone)
	s.pipe[1].Close()
	s.reader.Wait()
	s.pipe[0].Close()
}

// Draw writes to the terminal.
func (s *Screen) Draw(text string) error {
	if _, err := s.out.WriteString(text); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// Size returns how many columns and lines there are.
func (s *Screen) Size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// Keys returns what is typed, as it comes. It is closed when the terminal is gone.
func (s *Screen) Keys() <-chan []byte { return s.keys }

// read waits for keys. Reading could not be ended, so it begins when there is one.
func (s *Screen) read() {
	defer close(s.keys)
	in, quitting := int(s.in.Fd()), int(s.pipe[0].Fd())
	buf := make([]byte, 256)
	for {
		var set unix.FdSet
		set.Zero()
		set.Set(in)
		set.Set(quitting)
		if _, err := unix.Select(max(in, quitting)+1, &set, nil, nil, nil); err == unix.EINTR {
			continue
		} else if err != nil || set.IsSet(quitting) {
			return
		}
		n, err := unix.Read(in, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		select {
		case s.keys <- append([]byte(nil), buf[:n]...):
		case <-s.gone:
			return
		}
	}
}

// Suspend stops this process's group, as Ctrl-Z does, and takes the terminal again when
// it goes on. caught is a channel of signal.Notify for Signals; later are those that came
// meanwhile.
func (s *Screen) Suspend(caught <-chan os.Signal) (later []os.Signal, err error) {
	s.Leave()
	// The Go runtime does not let SIGTSTP stop a process that has ever caught it. This
	// one does the same: where no shell could let the group go on, neither stops it.
	_ = syscall.Kill(0, syscall.SIGTTIN)
	for end := time.After(time.Second); ; {
		select {
		case sig := <-caught:
			if sig != Continue {
				later = append(later, sig)
				continue
			}
		case <-end:
		}
		return later, s.Enter()
	}
}
