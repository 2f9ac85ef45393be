package workspace

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"

	"github.com/pawl-go/pawl/release/internal/git"
)

// SetVersion writes into each module of the repository at root that it requires the
// others at version, with the checksums that they will have; and into go.work that
// these versions are the folders. The repository's index is changed along with the
// files.
func SetVersion(root string, modules []*Module, version string) error {
	for _, m := range modules {
		if err := require(root, m, modules, version); err != nil {
			return err
		}
	}
	if err := replaceFolders(root, modules, version); err != nil {
		return err
	}
	// What a module's checksum covers includes its go.sum, which has those of the
	// modules that it requires: these come first.
	sums := make(map[string][]string)
	for _, m := range modules {
		if !m.Released {
			continue
		}
		var lines []string
		for _, r := range Closure(modules, m.Path) {
			lines = append(lines, sums[r.Path]...)
		}
		if err := writeSums(root, m, modules, lines); err != nil {
			return err
		}
		var err error
		if sums[m.Path], err = checksums(root, m, version); err != nil {
			return err
		}
	}
	_, err := git.Run(root, "add", "--all")
	return err
}

// require writes the versions of the other modules into go.mod of m.
func require(root string, m *Module, modules []*Module, version string) error {
	mod, err := readMod(root, m.Dir)
	if err != nil {
		return err
	}
	for _, r := range mod.Require {
		if ours(modules, r.Mod.Path) {
			if err := mod.AddRequire(r.Mod.Path, version); err != nil {
				return fmt.Errorf("%s: %w", m.Path, err)
			}
		}
	}
	text, err := mod.Format()
	if err != nil {
		return fmt.Errorf("%s: %w", m.Path, err)
	}
	return write(root, m.Dir, "go.mod", text)
}

// replaceFolders lets go.work say that the modules at version are those of the
// folders: what is required may not be there yet.
func replaceFolders(root string, modules []*Module, version string) error {
	work, err := readWork(root)
	if err != nil {
		return err
	}
	for _, m := range modules {
		for _, r := range work.Replace {
			if r.Old.Path == m.Path {
				r.Syntax.Token[slices.Index(r.Syntax.Token, r.Old.Version)] = version
			}
		}
	}
	return write(root, ".", "go.work", modfile.Format(work.Syntax))
}

// writeSums replaces the lines of this repository's modules in go.sum of m.
func writeSums(root string, m *Module, modules []*Module, lines []string) error {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.Dir), "go.sum"))
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("%s: read its checksums: %w", m.Path, err)
	}
	for line := range strings.Lines(string(data)) {
		if !ours(modules, sumPath(line)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	return write(root, m.Dir, "go.sum", []byte(strings.Join(slices.Compact(lines), "\n")+"\n"))
}

// checksums returns the lines of go.sum for m as it is in the files now.
func checksums(root string, m *Module, version string) ([]string, error) {
	if _, err := git.Run(root, "add", "--all"); err != nil {
		return nil, err
	}
	tree, err := git.Run(root, "write-tree")
	if err != nil {
		return nil, err
	}
	// A work tree's files are packed from the repository that it belongs to: packing
	// wants a folder with a .git.
	repository, err := git.Run(root, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp("", "pawl-module-*.zip")
	if err != nil {
		return nil, fmt.Errorf("%s: pack it: %w", m.Path, err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	dir := m.Dir
	if dir == "." {
		dir = ""
	}
	v := module.Version{Path: m.Path, Version: version}
	if err := zip.CreateFromVCS(file, v, filepath.Dir(repository), tree, dir); err != nil {
		return nil, fmt.Errorf("%s: pack it: %w", m.Path, err)
	}
	all, err := dirhash.HashZip(file.Name(), dirhash.Hash1)
	if err != nil {
		return nil, fmt.Errorf("%s: checksum: %w", m.Path, err)
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(root, filepath.FromSlash(m.Dir), "go.mod"))
	})
	if err != nil {
		return nil, fmt.Errorf("%s: checksum: %w", m.Path, err)
	}
	return []string{
		fmt.Sprintf("%s %s %s", m.Path, version, all),
		fmt.Sprintf("%s %s/go.mod %s", m.Path, version, mod),
	}, nil
}

func write(root, dir, name string, text []byte) error {
	if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(dir), name), text, 0o644); err != nil {
		return fmt.Errorf("write a version: %w", err)
	}
	return nil
}
