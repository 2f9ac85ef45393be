// Package proctest runs programs in tests, and watches what they print and how
// they end.
package proctest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
)

// Signals lets the programs that tests start have the signals which this process
// was started to ignore, as by nohup or in a shell's background.
func Signals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // what is caught is not inherited
		}
	}
}

// Build builds the Go program in the folder source, and returns its path and a
// function that removes it.
func Build(source string) (path string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "pawl-test")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, "pawl")
	build := exec.Command("go", "build", "-o", path, ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return path, remove, nil
}

// Process is a program that runs, or will.
type Process struct {
	*exec.Cmd
	Out, Err *Output

	t testing.TB
}

// Command prepares to run a program.
func Command(t testing.TB, path string, args ...string) *Process {
	p := &Process{exec.Command(path, args...), &Output{}, &Output{}, t}
	p.Stdout, p.Stderr = p.Out, p.Err
	p.WaitDelay = 2 * time.Second
	return p
}

// Start starts it; it is killed at the end of the test.
func (p *Process) Start() {
	p.t.Helper()
	if err := p.Cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.Process.Kill() })
}

// Status waits for its end, and returns its status as shells have it: 128+N of a
// process that died of signal N. A process that does not end is killed.
func (p *Process) Status() int {
	p.t.Helper()
	status := p.end()
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// WantSignal checks that it died of a signal, which is more than to exit with the
// status that tells of one: a shell's loop ends by that alone.
func (p *Process) WantSignal(sig syscall.Signal) *Process {
	p.t.Helper()
	if status := p.end(); !status.Signaled() || status.Signal() != sig {
		p.t.Errorf("%q ended with %d, want it to die of %v\n%s", p.Args[1:], p.Status(), sig, p.Printed())
	}
	return p
}

func (p *Process) end() syscall.WaitStatus {
	p.t.Helper()
	if p.ProcessState != nil {
		return p.ProcessState.Sys().(syscall.WaitStatus)
	}
	timer := time.AfterFunc(await.Limit, func() { p.Process.Kill() })
	defer timer.Stop()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.t.Fatal(err)
	}
	return p.ProcessState.Sys().(syscall.WaitStatus)
}

// Want checks how it ends.
func (p *Process) Want(status int) *Process {
	p.t.Helper()
	if got := p.Status(); got != status {
		p.t.Errorf("%q ended with %d, want %d\n%s", p.Args[1:], got, status, p.Printed())
	}
	return p
}

// Printed is what it wrote to its two outputs.
func (p *Process) Printed() string { return p.Out.String() + p.Err.String() }

// Await waits until it has written all of the texts.
func (p *Process) Await(texts ...string) {
	p.t.Helper()
	for _, text := range texts {
		Eventually(p.t, func() bool { return strings.Contains(p.Printed(), text) }, "%q did not print %q", p.Args[1:], text)
	}
}

// Output collects what a process writes.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Eventually waits until ok, and fails the test with the message if that takes
// too long.
func Eventually(t testing.TB, ok func() bool, format string, args ...any) {
	t.Helper()
	for end := time.Now().Add(await.Limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf(format, args...)
		}
	}
}
