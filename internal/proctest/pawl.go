package proctest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Pawl is the command, as Main has built it.
var Pawl string

// Main is the TestMain of a package that starts pawl, whose source is in that
// folder.
func Main(m *testing.M, source string) { os.Exit(run(m, source)) }

func run(m *testing.M, source string) int {
	Signals()
	dir, err := os.MkdirTemp("", "pawl-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run it, too
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	Pawl = filepath.Join(dir, "pawl")
	build := exec.Command("go", "build", "-o", Pawl, ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build %s: %v\n%s", source, err, out)
		return 1
	}
	return m.Run()
}

// Bundle is one test's store and folder, where it runs pawl.
type Bundle struct {
	T    *testing.T
	URL  string   // of the store; empty: none is named
	Dir  string   // D in the environment of what is run
	Vars []string // more of that
}

// Command prepares to run pawl.
func (b *Bundle) Command(args ...string) *Process {
	p := Command(b.T, Pawl, args...)
	p.Dir = b.Dir
	p.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PAWL_STORE=") })
	if b.URL != "" {
		p.Env = append(p.Env, "PAWL_STORE="+b.URL)
	}
	p.Env = append(append(p.Env, "D="+b.Dir), b.Vars...)
	return p
}

// Start starts pawl; it is killed at the end of the test.
func (b *Bundle) Start(args ...string) *Process {
	b.T.Helper()
	p := b.Command(args...)
	p.Start()
	return p
}

// Run runs pawl to its end.
func (b *Bundle) Run(args ...string) *Process {
	b.T.Helper()
	p := b.Start(args...)
	p.Status()
	return p
}

// Read returns what is in a file, nothing if there is no file.
func (b *Bundle) Read(name string) string {
	b.T.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, name))
	if err != nil && !os.IsNotExist(err) {
		b.T.Fatal(err)
	}
	return string(text)
}
