//go:build unix

// Package command tests cmd/pawl, as users run it, on real servers.
package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
)

var bin string // the command

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	proctest.Signals()
	path, remove, err := proctest.Build("../../cmd/pawl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	bin = path
	return m.Run()
}

// bundle is one test's store and folder.
type bundle struct {
	t   *testing.T
	url string
	dir string // D in the environment of what is run
}

func newBundle(t *testing.T, url string) *bundle { return &bundle{t, url, t.TempDir()} }

func (b *bundle) command(args ...string) *proctest.Process {
	p := proctest.Command(b.t, bin, args...)
	p.Env = append(os.Environ(), "PAWL_STORE="+b.url, "D="+b.dir)
	return p
}

// start starts pawl; it is killed at the end of the test.
func (b *bundle) start(args ...string) *proctest.Process {
	b.t.Helper()
	p := b.command(args...)
	p.Start()
	return p
}

// run runs pawl to its end.
func (b *bundle) run(args ...string) *proctest.Process {
	b.t.Helper()
	p := b.start(args...)
	p.Status()
	return p
}

// hold starts a pawl whose command ignores SIGTERM, and returns the command's
// pid when it runs.
func (b *bundle) hold(name string, flags ...string) (*proctest.Process, int) {
	b.t.Helper()
	p := b.start(slices.Concat([]string{"run"}, flags, []string{name, "sh", "-c", `trap "" TERM; echo "ready $$."; while :; do sleep 0.05; done`})...)
	p.Await("ready ", ".")
	_, after, _ := strings.Cut(p.Printed(), "ready ")
	pid, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(after), "."))
	if err != nil {
		b.t.Fatal(err)
	}
	return p, pid
}

// waiter starts a pawl that waits for name; flags come first, as --flag=value.
func (b *bundle) waiter(name string, args ...string) *proctest.Process {
	b.t.Helper()
	flags := 0
	for flags < len(args) && strings.HasPrefix(args[flags], "-") {
		flags++
	}
	p := b.start(slices.Concat([]string{"run"}, args[:flags], []string{name}, args[flags:])...)
	proctest.Eventually(b.t, func() bool { return slices.Contains(b.show(name).waiters(), p.Process.Pid) }, "%q does not wait: %v", args, p.Err)
	return p
}

// queue is what show tells of a name.
type queue struct {
	Holders, Waiters []struct {
		PID   int
		Token int64
	}
}

func (b *bundle) show(name string) (q queue) {
	b.t.Helper()
	p := b.run("show", "--json", name)
	for end := time.Now().Add(await.Limit); p.Status() == 69 && time.Now().Before(end); {
		p = b.run("show", "--json", name) // a busy server may take longer than it waits
	}
	p.Want(0)
	if err := json.Unmarshal([]byte(p.Out.String()), &q); err != nil {
		b.t.Fatalf("%v in %s", err, p.Out)
	}
	return q
}

// names are those that list tells.
func (b *bundle) names() (all []string) {
	b.t.Helper()
	var queues []struct{ Name string }
	p := b.run("list", "--json").Want(0)
	if err := json.Unmarshal([]byte(p.Out.String()), &queues); err != nil {
		b.t.Fatalf("%v in %s", err, p.Out)
	}
	for _, q := range queues {
		all = append(all, q.Name)
	}
	return all
}

// waiters are the processes that wait, in order.
func (q queue) waiters() (pids []int) {
	for _, w := range q.Waiters {
		pids = append(pids, w.PID)
	}
	return pids
}

func (b *bundle) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bundle) exists(name string) bool {
	_, err := os.Stat(filepath.Join(b.dir, name))
	return err == nil
}

// read returns the lines of a file, none if there is no file.
func (b *bundle) read(name string) (lines []string) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
