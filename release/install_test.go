// Package release_test installs a release as users do.
package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/release/internal/git"
	"github.com/pawl-go/pawl/release/internal/tagging"
	"github.com/pawl-go/pawl/release/internal/workspace"
)

const (
	origin  = "https://github.com/pawl-go/pawl"
	rootMod = "github.com/pawl-go/pawl"
	command = rootMod + "/cmd/pawl"
	version = "v0.999.0"
)

const program = `package main

import (
	"context"
	"fmt"

	"github.com/pawl-go/pawl"
	"github.com/pawl-go/pawl/memstore"
	"github.com/pawl-go/pawl/zkstore"
)

var _ = zkstore.Open // of a module of its own

func main() {
	lease, err := pawl.New(memstore.New(), nil).Mutex("orders/42").Lock(context.Background())
	fmt.Println(err == nil && lease.Token() > 0, lease.Unlock(context.Background()))
}
`

// A release of what is checked out here is tagged in a repository of its own, fetched
// from there by its tags into a module proxy of files, and installed from that with an
// empty module cache: the command, and a program that uses two of the modules.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("it fetches modules and builds a command")
	}
	t.Parallel()
	repo := repository(t)
	made, err := tagging.Release(repo, version, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	modules, err := workspace.Load(repo)
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	var versions []string
	for _, m := range modules {
		if m.Released {
			versions = append(versions, m.Path+"@"+version)
		}
	}
	if len(versions) != len(made.Tags) || len(versions) < 11 {
		t.Fatalf("the tags %q do not fit the modules %q", made.Tags, versions)
	}
	// As a proxy does it for the first who asks: by the tags, from the repository.
	u := user{t, t.TempDir(), append(environment(proxy), "GONOPROXY="+rootMod,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+repo+".insteadOf", "GIT_CONFIG_VALUE_0="+origin)}
	u.run(t.TempDir(), "go", append([]string{"mod", "download"}, versions...)...)

	u = user{t, t.TempDir(), append(environment(t.TempDir()), "GOPROXY="+proxies(t, proxy))}
	t.Run("program", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "main.go"), program)
		u.run(dir, "go", "mod", "init", "example.com/user")
		u.run(dir, "go", "get", rootMod+"@"+version, rootMod+"/zkstore@"+version)
		if out := u.run(dir, "go", "run", "."); out != "true <nil>\n" {
			t.Errorf("the program printed %q", out)
		}
	})
	t.Run("command", func(t *testing.T) {
		u.run(t.TempDir(), "go", "install", "-tags=folder", command+"@"+version)
		pawl := filepath.Join(u.bin, "pawl")
		if out := u.run(t.TempDir(), pawl, "--version"); !strings.HasPrefix(out, "pawl "+version+" (go") {
			t.Errorf("--version printed %q", out)
		}
		store := "--store=file://" + t.TempDir() + "/locks"
		if out := u.run(t.TempDir(), pawl, "run", store, "report", "sh", "-c", "echo $PAWL_NAME"); out != "report\n" {
			t.Errorf("the command printed %q", out)
		}
		for _, args := range [][]string{{"list"}, {"doctor"}, {"run", "report", "true"}} {
			refused(t, pawl, 64, "built with -tags folder", append([]string{"--store=redis://127.0.0.1"}, args...)...)
		}
		if os.Getenv("PAWL_SOAK") == "" {
			return
		}
		u.run(t.TempDir(), "go", "install", command+"@"+version)
		refused(t, pawl, 69, "refused", "list", "--store=etcd://127.0.0.1:1")
		refused(t, pawl, 69, "refused", "list", "--store=redis://127.0.0.1:1")
	})
	// What is checked out at the tag is complete, too: its go.sum files have all that
	// they must, also the checksums of the release itself. The command requires most modules.
	t.Run("tag", func(t *testing.T) {
		for _, m := range modules {
			if m.Released && (m.Path == command || os.Getenv("PAWL_SOAK") != "") {
				u.run(filepath.Join(repo, m.Dir), "go", "list", "-mod=readonly", "-deps", "./...")
			}
		}
	})
}

// refused checks that pawl ends with that status, and says why.
func refused(t *testing.T, pawl string, status int, why string, args ...string) {
	t.Helper()
	cmd := exec.Command(pawl, args...)
	if said, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != status || !strings.Contains(string(said), why) {
		t.Errorf("pawl %s: status %d, not %d: %s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), status, said)
	}
}

// repository returns a repository with the files that are here, committed.
func repository(t *testing.T) string {
	t.Helper()
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"config", "user.name", "somebody"},
		{"config", "user.email", "somebody@example.com"},
		{"--work-tree=" + here, "--git-dir=" + dir + "/.git", "add", "--all"},
		{"commit", "--quiet", "-m", "all"},
		{"reset", "--quiet", "--hard"},
	} {
		if _, err := git.Run(dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// user is somebody with a module cache and a folder for commands of their own.
type user struct {
	t   *testing.T
	bin string
	env []string
}

func (u *user) run(dir, name string, args ...string) string {
	u.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(u.env, "GOBIN="+u.bin)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		u.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, complaint.String())
	}
	return string(out)
}

// environment is this one, without what would make Go look elsewhere.
func environment(cache string) []string {
	return append(os.Environ(), "GOMODCACHE="+cache, "GOFLAGS=-modcacherw", "GOWORK=off", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOPRIVATE=")
}

// proxies are the proxy of the release's modules, and for all others what has been
// fetched on this machine already, and then where that came from.
func proxies(t *testing.T, ours string) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	here := strings.Fields(string(out))
	return "file://" + filepath.Join(ours, "cache", "download") + ",file://" + filepath.Join(here[0], "cache", "download") + "," + here[1]
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
