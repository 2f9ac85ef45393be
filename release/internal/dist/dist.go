// Package dist makes what people download: binaries, packages, checksums.
package dist

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pawl-go/pawl/release/internal/git"
	"github.com/pawl-go/pawl/release/internal/workspace"
)

const (
	repository = "github.com/pawl-go/pawl"
	command    = repository + "/cmd/pawl"
)

// Systems are those that there are binaries for.
var Systems = []string{
	"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64",
	"windows/amd64", "windows/arm64", "freebsd/amd64", "freebsd/arm64",
}

// Options say what to make of the repository at Root, into the folder Out, which is
// made anew.
type Options struct {
	Root, Out string
	Systems   []string // empty: all
}

// Make builds a binary with its bill of materials for each system, packages for Linux,
// and the file of checksums. It returns the version.
func Make(o Options) (version string, err error) {
	if len(o.Systems) == 0 {
		o.Systems = Systems
	}
	for _, s := range o.Systems {
		if !slices.Contains(Systems, s) {
			return "", fmt.Errorf("system %q: there are %s", s, strings.Join(Systems, ", "))
		}
	}
	scratch, err := os.MkdirTemp("", "pawl-dist-")
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(scratch)
	b, err := newBuild(o, scratch)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(b.Out); err != nil {
		return "", fmt.Errorf("make %s anew: %w", b.Out, err)
	}
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return "", fmt.Errorf("make %s anew: %w", b.Out, err)
	}
	docs, err := b.documents()
	if err != nil {
		return "", err
	}
	for _, s := range o.Systems {
		if err := b.system(s, docs); err != nil {
			return "", err
		}
	}
	return b.version, writeChecksums(b.Out)
}

// build is a release under way.
type build struct {
	Options
	scratch string
	work    string // the file of the workspace that has the command's modules only
	time    time.Time
	version string
}

func newBuild(o Options, scratch string) (*build, error) {
	root, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, err
	}
	o.Root = root
	if o.Out, err = filepath.Abs(o.Out); err != nil { // the compiler runs in another folder
		return nil, err
	}
	modules, err := workspace.Load(root)
	if err != nil {
		return nil, err
	}
	// The versions of other modules are to be those that 'go install' takes: the
	// repository's own workspace has modules that ask for more.
	b := &build{Options: o, scratch: scratch, work: filepath.Join(scratch, "go.work")}
	text, err := workspace.Of(root, workspace.Closure(modules, command))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.work, text, 0o644); err != nil {
		return nil, fmt.Errorf("write a workspace: %w", err)
	}
	committed, err := git.Run(root, "log", "-1", "--format=%cI")
	if err != nil {
		return nil, err
	}
	if b.time, err = time.Parse(time.RFC3339, committed); err != nil {
		return nil, fmt.Errorf("time of the commit: %w", err)
	}
	return b, nil
}

// compile builds the command for a system, "" for this one.
func (b *build) compile(system, file string) error {
	// grpcnotrace leaves out gRPC's pages for debugging, which nobody can see here.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=true", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir = filepath.Join(b.Root, "cmd", "pawl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK="+b.work, "GOFLAGS=")
	if goos, arch, ok := strings.Cut(system, "/"); ok {
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH="+arch)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build for %s: %w\n%s", system, err, out)
	}
	return nil
}

// documents returns the manual pages and completions, which the command itself writes,
// where packages have them.
func (b *build) documents() ([]File, error) {
	pawl := filepath.Join(b.scratch, "pawl")
	if err := b.compile("", pawl); err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(pawl)
	if err != nil {
		return nil, fmt.Errorf("read what was built: %w", err)
	}
	if b.version = info.Main.Version; b.version == "(devel)" {
		return nil, fmt.Errorf("%s has no version: it must be a clone of the repository, and not a further work tree of one", b.Root)
	}
	pages := filepath.Join(b.scratch, "man")
	if err := os.Mkdir(pages, 0o755); err != nil {
		return nil, err
	}
	if _, err := run(pawl, "man", "--dir", pages); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(pages, "*.1"))
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range names {
		page, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read a manual page: %w", err)
		}
		var packed bytes.Buffer
		z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // that level is there
		z.Write(page)                                              // a buffer takes all
		z.Close()
		files = append(files, File{"/usr/share/man/man1/" + filepath.Base(name) + ".gz", 0o644, packed.Bytes()})
	}
	for shell, path := range map[string]string{
		"bash": "/usr/share/bash-completion/completions/pawl",
		"fish": "/usr/share/fish/vendor_completions.d/pawl.fish",
		"zsh":  "/usr/share/zsh/vendor-completions/_pawl",
	} {
		script, err := run(pawl, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, File{path, 0o644, script})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

func run(name string, args ...string) ([]byte, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return out, nil
}

// system makes all that there is for one system.
func (b *build) system(system string, docs []File) error {
	goos, arch, _ := strings.Cut(system, "/")
	base := filepath.Join(b.Out, "pawl-"+goos+"-"+arch)
	binary := base
	if goos == "windows" {
		binary += ".exe"
	}
	if err := b.compile(system, binary); err != nil {
		return err
	}
	bill, err := SBOM(binary, b.version, b.time)
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".cdx.json", bill, 0o644); err != nil {
		return fmt.Errorf("write the bill of materials: %w", err)
	}
	if goos != "linux" {
		return nil
	}
	p, err := b.contents(binary, arch, docs)
	if err != nil {
		return err
	}
	return p.write(b.Out)
}

// contents is the package of a binary.
func (b *build) contents(binary, arch string, docs []File) (*Package, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	license, err := os.ReadFile(filepath.Join(b.Root, "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	files := append([]File{{"/usr/bin/pawl", 0o755, data}, {"/usr/share/doc/pawl/copyright", 0o644, license}}, docs...)
	return &Package{Version: b.version, Arch: arch, Time: b.time, Files: files}, nil
}

func (p *Package) write(dir string) error {
	var deb, rpm bytes.Buffer
	if err := p.WriteDeb(&deb); err != nil {
		return fmt.Errorf("make the .deb: %w", err)
	}
	if err := p.WriteRPM(&rpm); err != nil {
		return fmt.Errorf("make the .rpm: %w", err)
	}
	for name, data := range map[string][]byte{
		fmt.Sprintf("pawl_%s_%s.deb", p.number(), p.Arch):            deb.Bytes(),
		fmt.Sprintf("pawl-%s-1.%s.rpm", p.number(), rpmArch[p.Arch]): rpm.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("write a package: %w", err)
		}
	}
	return nil
}

// writeChecksums writes SHA256SUMS, which sha256sum -c checks.
func writeChecksums(dir string) error {
	entries, err := os.ReadDir(dir) // in order of names
	if err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	var lines strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("checksums: %w", err)
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("checksums: %w", err)
	}
	return nil
}
