package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pawl-go/pawl/internal/proctest"
)

// bin is the command, built for the tests.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	proctest.Signals()
	path, remove, err := proctest.Build(".")
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
	t    *testing.T
	dir  string
	vars []string
}

func newBundle(t *testing.T) *bundle {
	t.Parallel()
	dir := t.TempDir()
	return &bundle{t, dir, []string{"PAWL_STORE=file://" + filepath.Join(dir, "store"), "D=" + dir}}
}

func (b *bundle) command(args ...string) *proctest.Process {
	p := proctest.Command(b.t, bin, args...)
	mine := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PAWL_STORE=") })
	p.Env = append(mine, b.vars...)
	p.Dir = b.dir
	return p
}

// start starts pawl; it is killed at the end of the test.
func (b *bundle) start(args ...string) *proctest.Process {
	b.t.Helper()
	p := b.command(args...)
	p.Start()
	return p
}

// hold starts a pawl that holds name until it is ended.
func (b *bundle) hold(name string, flags ...string) *proctest.Process {
	b.t.Helper()
	p := b.start(append(append([]string{"run"}, flags...), name, "sh", "-c", "echo ready; while :; do sleep 0.05; done")...)
	p.Await("ready")
	return p
}

// run runs pawl to its end.
func (b *bundle) run(args ...string) *proctest.Process {
	b.t.Helper()
	p := b.start(args...)
	p.Status()
	return p
}

// queue is what show tells of a name.
func (b *bundle) queue(name string) (q queueJSON) {
	b.t.Helper()
	p := b.run("show", "--json", name).Want(0)
	if err := json.Unmarshal([]byte(p.Out.String()), &q); err != nil {
		b.t.Fatalf("%v in %s", err, p.Out)
	}
	return q
}

func (b *bundle) read(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return string(data)
}
