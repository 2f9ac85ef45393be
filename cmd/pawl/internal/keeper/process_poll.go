//go:build !linux

package keeper

import "time"

// Name returns the name of the program, nothing if that is not known.
func (p Process) Name() string { return "" }

// Watch is a process that is watched.
type Watch struct{ p Process }

// Watch begins to watch. It must be closed.
func (p Process) Watch() *Watch { return &Watch{p} }

// Close ends watching.
func (w *Watch) Close() {}

// Gone waits for the end of the process, for d at the most, and reports whether it is
// gone. It may return earlier.
func (w *Watch) Gone(d time.Duration) bool {
	time.Sleep(max(min(d, 250*time.Millisecond), 0))
	return !w.p.Lives()
}
