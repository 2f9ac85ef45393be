// Package proctest runs programs in tests, and watches what they print and how
// they end.
package proctest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
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

// Process is a program that runs, or will.
type Process struct {
	*exec.Cmd
	Out, Err *Output

	T testing.TB
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
	p.T.Helper()
	if err := p.Cmd.Start(); err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { p.Process.Kill() })
}

// Status waits for its end, and returns its status as shells have it: 128+N of a
// process that died of signal N. A process that does not end is killed, and what it
// and its children are doing is in what it has written, if they are written in Go.
func (p *Process) Status() int {
	p.T.Helper()
	status := p.end()
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// WantSignal checks that it died of a signal, which is more than to exit with the
// status that tells of one: a shell's loop ends by that alone.
func (p *Process) WantSignal(sig syscall.Signal) *Process {
	p.T.Helper()
	if status := p.end(); !status.Signaled() || status.Signal() != sig {
		p.T.Errorf("%q ended with %d, want it to die of %v\n%s", p.Args[1:], p.Status(), sig, p.Printed())
	}
	return p
}

func (p *Process) end() syscall.WaitStatus {
	p.T.Helper()
	if p.ProcessState != nil {
		return p.ProcessState.Sys().(syscall.WaitStatus)
	}
	timer := time.AfterFunc(await.Limit, func() {
		abort(p.Process.Pid)
		time.Sleep(time.Second)
		p.Process.Kill()
	})
	defer timer.Stop()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.T.Fatal(err)
	}
	return p.ProcessState.Sys().(syscall.WaitStatus)
}

// abort ends a process and its children, where the system tells of them, with a
// signal at which the Go runtime prints all goroutines. The youngest go first: of
// others the end may be that of their children, too.
func abort(pid int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range threads {
		children, _ := os.ReadFile(file)
		for child := range strings.FieldsSeq(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				abort(n)
			}
		}
	}
	if p, err := os.FindProcess(pid); err == nil {
		p.Signal(syscall.SIGABRT)
	}
}

// Want checks how it ends.
func (p *Process) Want(status int) *Process {
	p.T.Helper()
	if got := p.Status(); got != status {
		p.T.Errorf("%q ended with %d, want %d\n%s", p.Args[1:], got, status, p.Printed())
	}
	return p
}

// Printed is what it wrote to its two outputs.
func (p *Process) Printed() string { return p.Out.String() + p.Err.String() }

// Await waits until it has written all of the texts.
func (p *Process) Await(texts ...string) {
	p.T.Helper()
	for _, text := range texts {
		Eventually(p.T, func() bool { return strings.Contains(p.Printed(), text) }, "%q did not print %q", p.Args[1:], text)
	}
}

// Number waits until it has written a line "label N", and returns N.
func (p *Process) Number(label string) (n int) {
	p.T.Helper()
	Eventually(p.T, func() bool {
		_, after, _ := strings.Cut(p.Printed(), label+" ")
		number, _, whole := strings.Cut(after, "\n")
		var err error
		n, err = strconv.Atoi(strings.TrimSpace(number))
		return whole && err == nil
	}, "%q did not print %q and a number", p.Args[1:], label)
	return n
}

// JSON reads what it wrote to its standard output.
func (p *Process) JSON(v any) {
	p.T.Helper()
	if err := json.Unmarshal([]byte(p.Out.String()), v); err != nil {
		p.T.Fatalf("%v in %s", err, p.Printed())
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
