//go:build unix

// Package command tests cmd/pawl, as users run it, on real servers.
package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m, "../../cmd/pawl") }

type bundle struct{ proctest.Bundle }

func newBundle(t *testing.T, url string) *bundle {
	return &bundle{proctest.Bundle{T: t, URL: url, Dir: t.TempDir()}}
}

// hold starts a pawl whose command ignores SIGTERM, and returns the command's
// pid when it runs.
func (b *bundle) hold(name string, flags ...string) (*proctest.Process, int) {
	b.T.Helper()
	p := b.Start(slices.Concat([]string{"run"}, flags, []string{name, "sh", "-c", `trap "" TERM; echo ready $$; while :; do sleep 0.05; done`})...)
	return p, p.Number("ready")
}

// waiter starts a pawl that waits for name; flags come first, as --flag=value.
func (b *bundle) waiter(name string, args ...string) *proctest.Process {
	b.T.Helper()
	flags := 0
	for flags < len(args) && strings.HasPrefix(args[flags], "-") {
		flags++
	}
	p := b.Start(slices.Concat([]string{"run"}, args[:flags], []string{name}, args[flags:])...)
	proctest.Eventually(b.T, func() bool { return slices.Contains(b.show(name).waiters(), p.Process.Pid) }, "%q does not wait: %v", args, p.Err)
	return p
}

// queue is what show tells of a name.
type queue struct {
	Holders, Waiters []struct {
		ID    string
		PID   int
		Token int64
	}
}

func (b *bundle) show(name string) (q queue) {
	b.T.Helper()
	p := b.Run("show", "--json", name)
	for end := time.Now().Add(await.Limit); p.Status() == 69 && time.Now().Before(end); {
		p = b.Run("show", "--json", name) // a busy server may take longer than it waits
	}
	p.Want(0).JSON(&q)
	return q
}

// names are those that list tells.
func (b *bundle) names() (all []string) {
	b.T.Helper()
	var queues []struct{ Name string }
	b.Run("list", "--json").Want(0).JSON(&queues)
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
	b.T.Helper()
	if err := os.WriteFile(filepath.Join(b.Dir, name), []byte(text), 0o600); err != nil {
		b.T.Fatal(err)
	}
}

func (b *bundle) exists(name string) bool {
	_, err := os.Stat(filepath.Join(b.Dir, name))
	return err == nil
}

// read returns the lines of a file, none if there is no file.
func (b *bundle) read(name string) (lines []string) {
	b.T.Helper()
	for line := range strings.Lines(b.Read(name)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
