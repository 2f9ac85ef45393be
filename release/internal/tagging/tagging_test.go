package tagging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/release/internal/git"
)

// small returns a repository of two modules, of which one requires the other.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":       "module example.com/a\n\ngo 1.26.0\n",
		"a.go":         "package a\n",
		"LICENSE":      "do what you like\n",
		"sub/go.mod":   "module example.com/a/sub\n\ngo 1.26.0\n\nrequire example.com/a v0.0.0\n",
		"sub/b.go":     "package sub\n\nimport _ \"example.com/a\"\n",
		"go.work":      "go 1.26.0\n\nuse (\n\t.\n\t./sub\n)\n\nreplace example.com/a v0.0.0 => .\n",
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n### Added\n- All of it.\n",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	must(t, dir, "init", "--quiet", "--initial-branch=main")
	must(t, dir, "config", "user.name", "somebody")
	must(t, dir, "config", "user.email", "somebody@example.com")
	must(t, dir, "add", "--all")
	must(t, dir, "commit", "--quiet", "-m", "all")
	return dir
}

func TestRelease(t *testing.T) {
	t.Parallel()
	dir := small(t)
	made, err := Release(dir, "v0.1.0", time.Date(2026, 5, 4, 23, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(made.Tags, " "); got != "v0.1.0 sub/v0.1.0" || made.Branch != "main" {
		t.Errorf("it made %q on %s", got, made.Branch)
	}
	head := must(t, dir, "rev-parse", "HEAD")
	for _, tag := range made.Tags {
		if at := must(t, dir, "rev-parse", tag); at != head {
			t.Errorf("%s is at %s, not at %s", tag, at, head)
		}
	}
	for name, want := range map[string]string{
		"sub/go.mod":   "require example.com/a v0.1.0\n",
		"sub/go.sum":   "example.com/a v0.1.0 h1:",
		"go.work":      "replace example.com/a v0.1.0 => .\n",
		"CHANGELOG.md": "## [Unreleased]\n\n## [0.1.0] - 2026-05-04\n\n### Added\n",
	} {
		if text := read(t, filepath.Join(dir, name)); !strings.Contains(text, want) {
			t.Errorf("%s has no %q:\n%s", name, want, text)
		}
	}
	// The next one has only its own versions.
	file := filepath.Join(dir, "CHANGELOG.md")
	write(t, file, strings.Replace(read(t, file), "## [Unreleased]\n", "## [Unreleased]\n\n- More.\n", 1))
	must(t, dir, "commit", "--quiet", "-am", "more")
	if _, err := Release(dir, "v0.2.0-rc.1", time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sub/go.mod", "sub/go.sum", "go.work"} {
		if text := read(t, filepath.Join(dir, name)); strings.Contains(text, "v0.1.0") || !strings.Contains(text, "example.com/a v0.2.0-rc.1") {
			t.Errorf("%s has another version:\n%s", name, text)
		}
	}
	if left := must(t, dir, "status", "--porcelain") + must(t, dir, "worktree", "prune", "--verbose"); left != "" {
		t.Errorf("it left %s", left)
	}
}

// What is refused changes nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		version string
		before  func(dir string)
		want    string
	}{
		"no version":   {"0.1.0", nil, "v0.1.0"},
		"short":        {"v1", nil, "v0.1.0"},
		"major":        {"v2.0.0", nil, "other paths"},
		"uncommitted":  {"v0.1.0", func(dir string) { write(t, filepath.Join(dir, "new.go"), "package a\n") }, "new.go"},
		"same version": {"v0.1.0", func(dir string) { must(t, dir, "tag", "v0.1.0") }, "there is v0.1.0 already"},
		"later module": {"v0.1.0", func(dir string) { must(t, dir, "tag", "sub/v0.2.0") }, "there is sub/v0.2.0 already"},
		"no branch":    {"v0.1.0", func(dir string) { must(t, dir, "checkout", "--quiet", "--detach") }, "on a branch"},
		"no changes": {"v0.1.0", func(dir string) {
			write(t, filepath.Join(dir, "CHANGELOG.md"), "## [Unreleased]\n\n## [0.0.1] - 2026-01-01\n")
			must(t, dir, "commit", "--quiet", "-am", "less")
		}, "nothing has changed"},
		"replace": {"v0.1.0", func(dir string) {
			file := filepath.Join(dir, "sub/go.mod")
			write(t, file, read(t, file)+"\nreplace example.com/a => ..\n")
			must(t, dir, "commit", "--quiet", "-am", "replace")
		}, "has a replace directive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := small(t)
			if c.before != nil {
				c.before(dir)
			}
			state := func() string {
				return must(t, dir, "rev-parse", "HEAD") + must(t, dir, "tag") + must(t, dir, "status", "--porcelain") + must(t, dir, "worktree", "list")
			}
			before := state()
			if _, err := Release(dir, c.version, time.Now()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it said %v, not %q", err, c.want)
			}
			if after := state(); after != before {
				t.Errorf("it changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

func must(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git.Run(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
