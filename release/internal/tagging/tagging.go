// Package tagging makes the commit and the tags of a release.
package tagging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/pawl-go/pawl/release/internal/git"
	"github.com/pawl-go/pawl/release/internal/workspace"
)

// Made is what a release has made.
type Made struct {
	Branch string
	Tags   []string // each after those of the modules that its own requires
}

// Release makes the commit and the tags of a version in the repository at root,
// whose branch it moves to that commit.
//
// All of it happens in a work tree of its own first. Then the branch goes there,
// and all tags appear in one step, so that there is never half a release.
func Release(root, version string, now time.Time) (Made, error) {
	made, err := check(root, version)
	if err != nil {
		return made, err
	}
	dir, err := os.MkdirTemp("", "pawl-release-")
	if err != nil {
		return made, fmt.Errorf("make a work tree: %w", err)
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "pawl")
	if _, err := git.Run(root, "worktree", "add", "--quiet", "--detach", tree, "HEAD"); err != nil {
		return made, err
	}
	commit, err := commit(tree, version, now, &made)
	_, gone := git.Run(root, "worktree", "remove", "--force", tree)
	if err := errors.Join(err, gone); err != nil {
		return made, err
	}
	if _, err := git.Run(root, "merge", "--quiet", "--ff-only", commit); err != nil {
		return made, err
	}
	var refs strings.Builder
	for _, tag := range made.Tags {
		fmt.Fprintf(&refs, "create refs/tags/%s %s\n", tag, commit)
	}
	return made, git.Input(root, refs.String(), "update-ref", "--stdin")
}

// check refuses what can't become a release.
func check(root, version string) (Made, error) {
	var made Made
	if semver.Canonical(version) != version {
		return made, fmt.Errorf("version %q: it is written like v0.1.0 or v0.1.0-rc.1", version)
	}
	if major := semver.Major(version); major != "v0" && major != "v1" {
		return made, fmt.Errorf("version %q: from v2 on the modules need other paths", version)
	}
	branch, err := git.Run(root, "symbolic-ref", "--short", "HEAD")
	if err != nil {
		return made, fmt.Errorf("a release is made on a branch: %w", err)
	}
	made.Branch = branch
	changed, err := git.Run(root, "status", "--porcelain")
	if err != nil {
		return made, err
	}
	if changed != "" {
		return made, fmt.Errorf("there are files that are not committed:\n%s", changed)
	}
	tags, err := git.Run(root, "tag", "--list")
	if err != nil {
		return made, err
	}
	for tag := range strings.FieldsSeq(tags) {
		if old := tag[strings.LastIndex(tag, "/")+1:]; semver.Compare(old, version) >= 0 {
			return made, fmt.Errorf("version %s: there is %s already", version, tag)
		}
	}
	return made, nil
}

// commit makes the commit in a work tree and returns its id.
func commit(tree, version string, now time.Time, made *Made) (string, error) {
	modules, err := workspace.Load(tree)
	if err != nil {
		return "", err
	}
	for _, m := range modules {
		if m.Released {
			made.Tags = append(made.Tags, m.Tag(version))
		}
	}
	if err := dateChanges(filepath.Join(tree, "CHANGELOG.md"), version, now); err != nil {
		return "", err
	}
	if err := workspace.SetVersion(tree, modules, version); err != nil {
		return "", err
	}
	if _, err := git.Run(tree, "commit", "--quiet", "--no-verify", "-m", "Release "+version); err != nil {
		return "", err
	}
	return git.Run(tree, "rev-parse", "HEAD")
}

const unreleased = "## [Unreleased]\n"

// dateChanges puts what is unreleased under the new version.
func dateChanges(file, version string, now time.Time) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("date the changes: %w", err)
	}
	before, after, ok := strings.Cut(string(text), unreleased)
	if !ok {
		return fmt.Errorf("%s has no line %q", file, strings.TrimSpace(unreleased))
	}
	changes, _, _ := strings.Cut(after, "\n## ")
	if strings.TrimSpace(changes) == "" {
		return fmt.Errorf("%s: nothing has changed since the last version", file)
	}
	heading := fmt.Sprintf("\n## [%s] - %s\n", strings.TrimPrefix(version, "v"), now.UTC().Format(time.DateOnly))
	if err := os.WriteFile(file, []byte(before+unreleased+heading+after), 0o644); err != nil {
		return fmt.Errorf("date the changes: %w", err)
	}
	return nil
}
