// Package workspace knows the modules of this repository: what each requires of
// the others, and what has to be written to release them together.
package workspace

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// Module is one of the modules that go.work names.
type Module struct {
	Path     string
	Dir      string   // in the repository, with slashes; "." is the root module
	Requires []string // paths of the modules of this repository that it requires
	Released bool     // users can require it
}

// Tag is the tag that gives the module this version.
func (m *Module) Tag(version string) string {
	if m.Dir == "." {
		return version
	}
	return m.Dir + "/" + version
}

// unreleased are the folders of modules that nobody else can use: they need the
// servers of the tests, or make releases.
var unreleased = []string{"bench", "integration", "release"}

// Load returns the modules of the repository at root, each after those that it
// requires.
func Load(root string) ([]*Module, error) {
	work, err := readWork(root)
	if err != nil {
		return nil, err
	}
	files := make(map[string]*modfile.File)
	modules := make(map[string]*Module)
	for _, use := range work.Use {
		m := &Module{Dir: path.Clean(use.Path), Released: !slices.Contains(unreleased, path.Clean(use.Path))}
		mod, err := readMod(root, m.Dir)
		if err != nil {
			return nil, err
		}
		m.Path = mod.Module.Mod.Path
		modules[m.Path], files[m.Path] = m, mod
	}
	for p, mod := range files {
		for _, r := range mod.Require {
			if modules[r.Mod.Path] != nil {
				modules[p].Requires = append(modules[p].Requires, r.Mod.Path)
			}
		}
	}
	return inOrder(modules)
}

// Closure returns the module of that path and all of this repository that it requires,
// itself last.
func Closure(modules []*Module, of string) []*Module {
	wanted := map[string]bool{of: true}
	for _, m := range slices.Backward(modules) { // who requires comes before what is required
		for _, r := range m.Requires {
			wanted[r] = wanted[r] || wanted[m.Path]
		}
	}
	var all []*Module
	for _, m := range modules {
		if wanted[m.Path] {
			all = append(all, m)
		}
	}
	return all
}

func inOrder(modules map[string]*Module) ([]*Module, error) {
	var order []*Module
	done := make(map[string]bool)
	var left []*Module
	for _, m := range modules {
		left = append(left, m)
	}
	slices.SortFunc(left, func(a, b *Module) int { return cmp.Compare(a.Path, b.Path) })
	for len(left) > 0 {
		ready := func(m *Module) bool {
			return !slices.ContainsFunc(m.Requires, func(r string) bool { return !done[r] })
		}
		i := slices.IndexFunc(left, ready)
		if i < 0 {
			return nil, fmt.Errorf("modules require each other in a circle: %s and others", left[0].Path)
		}
		m := left[i]
		for _, r := range m.Requires {
			if m.Released && !modules[r].Released {
				return nil, fmt.Errorf("%s requires %s, which is not released", m.Path, r)
			}
		}
		done[m.Path] = true
		order, left = append(order, m), slices.Delete(left, i, i+1)
	}
	return order, nil
}

func readMod(root, dir string) (*modfile.File, error) {
	file := filepath.Join(root, filepath.FromSlash(dir), "go.mod")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read a module: %w", err)
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		return nil, fmt.Errorf("read a module: %w", err)
	}
	if len(mod.Replace) > 0 {
		// Nobody could install what has one, and requiring it would not heed it.
		return nil, fmt.Errorf("%s has a replace directive: go.work is the place for them", file)
	}
	return mod, nil
}

// ours reports whether path is one of modules.
func ours(modules []*Module, path string) bool {
	return slices.ContainsFunc(modules, func(m *Module) bool { return m.Path == path })
}

// sumPath is the module of a line of go.sum.
func sumPath(line string) string {
	p, _, _ := strings.Cut(line, " ")
	return p
}

// Of returns the text of a go.work for some modules of the repository at root, which
// has them as its own does.
func Of(root string, modules []*Module) ([]byte, error) {
	all, err := readWork(root)
	if err != nil {
		return nil, err
	}
	work := &modfile.WorkFile{Syntax: new(modfile.FileSyntax)}
	if err := work.AddGoStmt(all.Go.Version); err != nil {
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	for _, m := range modules {
		dir := filepath.Join(root, filepath.FromSlash(m.Dir))
		if err := work.AddUse(dir, m.Path); err != nil {
			return nil, fmt.Errorf("make a workspace: %w", err)
		}
		for _, r := range all.Replace {
			if r.Old.Path != m.Path {
				continue
			}
			if err := work.AddReplace(r.Old.Path, r.Old.Version, dir, ""); err != nil {
				return nil, fmt.Errorf("make a workspace: %w", err)
			}
		}
	}
	return modfile.Format(work.Syntax), nil
}

func readWork(root string) (*modfile.WorkFile, error) {
	file := filepath.Join(root, "go.work")
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the workspace: %w", err)
	}
	work, err := modfile.ParseWork(file, data, nil)
	if err != nil {
		return nil, fmt.Errorf("read the workspace: %w", err)
	}
	return work, nil
}
