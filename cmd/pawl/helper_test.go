package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// bin is the command, built for the tests.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pawl-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "pawl")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build pawl: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// bundle is one test's store and folder.
type bundle struct {
	t    *testing.T
	dir  string
	vars []string
}

func newBundle(t *testing.T) *bundle {
	t.Parallel()
	dir := t.TempDir()
	return &bundle{t, dir, []string{"PAWL_STORE=file://" + filepath.Join(dir, "store"), "D=" + dir}}
}

// process is a pawl that runs.
type process struct {
	*exec.Cmd
	t        *testing.T
	out, err *output
}

func (b *bundle) command(args ...string) *process {
	p := &process{exec.Command(bin, args...), b.t, &output{}, &output{}}
	p.Env = append(os.Environ(), b.vars...)
	p.Stdout, p.Stderr = p.out, p.err
	p.Dir = b.dir
	p.WaitDelay = 2 * time.Second
	return p
}

// start starts pawl; it is killed at the end of the test.
func (b *bundle) start(args ...string) *process {
	b.t.Helper()
	p := b.command(args...)
	if err := p.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { p.Process.Kill() })
	return p
}

// hold starts a pawl that holds name until it is ended.
func (b *bundle) hold(name string, flags ...string) *process {
	b.t.Helper()
	p := b.start(append(append([]string{"run"}, flags...), name, "sh", "-c", "echo ready; while :; do sleep 0.05; done")...)
	p.out.wait(b.t, "ready")
	return p
}

// run runs pawl to its end.
func (b *bundle) run(args ...string) *process {
	b.t.Helper()
	p := b.start(args...)
	p.status()
	return p
}

func (p *process) status() int {
	p.t.Helper()
	if p.ProcessState != nil {
		return p.ProcessState.ExitCode()
	}
	timer := time.AfterFunc(60*time.Second, func() { p.Process.Kill() })
	defer timer.Stop()
	err := p.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

// want checks how it ended.
func (p *process) want(status int) *process {
	p.t.Helper()
	if got := p.status(); got != status {
		p.t.Errorf("%q ended with %d, want %d\n%s%s", p.Args[1:], got, status, p.out, p.err)
	}
	return p
}

// queue is what show tells of a name.
func (b *bundle) queue(name string) (q queueJSON) {
	b.t.Helper()
	p := b.run("show", "--json", name).want(0)
	if err := json.Unmarshal([]byte(p.out.String()), &q); err != nil {
		b.t.Fatalf("%v in %s", err, p.out)
	}
	return q
}

// output collects what a process prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) wait(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() bool { return strings.Contains(o.String(), text) }, "%q was not printed", text)
}

func eventually(t *testing.T, ok func() bool, format string, args ...any) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf(format, args...)
		}
	}
}

func (b *bundle) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return string(data)
}
