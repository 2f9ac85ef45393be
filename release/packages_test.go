package release_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pawl-go/pawl/internal/await"
	"github.com/pawl-go/pawl/release/internal/tagging"
)

// What a release publishes for this system, installed below a folder, as a user meets
// it: sums, packages, the manual in man, names completed by the shells themselves.
func TestPackages(t *testing.T) {
	if !await.Soak() {
		t.Skip("it builds the command anew: make release-test")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the packages are those of Linux")
	}
	root, repo := t.TempDir(), repository(t)
	if _, err := tagging.Release(repo, version, time.Now()); err != nil {
		t.Fatal(err)
	}
	// As make release does, for one system.
	build := exec.Command("go", "run", "./release/build", "-o", "dist", "linux/"+runtime.GOARCH)
	build.Dir = repo
	if said, err := build.CombinedOutput(); err != nil || string(said) != version+" is in dist\n" {
		t.Fatalf("%q: %v", said, err)
	}
	out := filepath.Join(repo, "dist")
	t.Run("sums", func(t *testing.T) { sums(t, out) })
	t.Run("binary", func(t *testing.T) { binary(t, out) })
	t.Run("rpm", func(t *testing.T) { rpm(t, out) })
	t.Run("scratch", func(t *testing.T) { scratch(t, out) })
	debs, _ := filepath.Glob(filepath.Join(out, "*.deb"))
	if len(debs) != 1 {
		t.Fatalf("there are the packages %q", debs)
	}
	// Below a folder, so that the system that tests run on stays as it is.
	install := exec.Command("fakeroot", "dpkg", "--root="+root, "--force-script-chrootless", "--install", debs[0])
	if os.Geteuid() == 0 {
		install = exec.Command(install.Args[1], install.Args[2:]...)
	}
	if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg/updates"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg/info"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "var/lib/dpkg/status"), "")
	if said, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install %s: %v\n%s", debs[0], err, said)
	}
	t.Run("man", func(t *testing.T) { manual(t, root) })
	t.Run("completion", func(t *testing.T) { completion(t, root) })
}

func sums(t *testing.T, out string) {
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = out
	if said, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	all, _ := os.ReadDir(out)
	lines, _ := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if n := bytes.Count(lines, []byte("\n")); n != len(all)-1 {
		t.Errorf("%d files have %d sums", len(all)-1, n)
	}
}

// binary checks that the binary runs where nothing else is, and says what it is.
func binary(t *testing.T, out string) {
	file := filepath.Join(out, "pawl-linux-"+runtime.GOARCH)
	if said := output(t, nil, file, "--version"); !strings.HasPrefix(said, "pawl "+version+" (go") || !strings.Contains(said, ", commit ") {
		t.Errorf("--version printed %q", said)
	}
	if said := output(t, nil, "readelf", "--program-headers", file); strings.Contains(said, "INTERP") {
		t.Errorf("it is not static:\n%s", said)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	text, err := os.ReadFile(file + ".cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var bill struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &bill); err != nil {
		t.Fatal(err)
	}
	have := make(map[string]string)
	for _, c := range bill.Components {
		have[c.Name] = c.Version
	}
	for _, name := range []string{"std", "google.golang.org/grpc", "github.com/pawl-go/pawl", "github.com/pawl-go/pawl/etcdstore"} {
		if have[name] == "" || strings.HasPrefix(name, rootMod) != (have[name] == version) {
			t.Errorf("the bill of materials has %s in version %q", name, have[name])
		}
	}
	if bill.BOMFormat != "CycloneDX" {
		t.Errorf("the bill's format is %q", bill.BOMFormat)
	}
}

// scratch runs the binary where there is nothing else but what a container has, as the
// user of the Dockerfile.
func scratch(t *testing.T, out string) {
	if said, err := exec.Command("unshare", "--mount", "mount", "-t", "tmpfs", "none", os.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("this user may not change the root folder: %v: %s", err, said)
	}
	root := t.TempDir()
	data, err := os.ReadFile(filepath.Join(out, "pawl-linux-"+runtime.GOARCH))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "pawl"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := root; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // that the user may enter it
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"locks", "proc", "dev"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(root, "locks"), 65532, 65532); err != nil {
		t.Fatal(err)
	}
	said := output(t, []string{"PATH=" + os.Getenv("PATH")}, "unshare", "--mount", "sh", "-ec", `mount -t proc proc "$1/proc"
		mount --rbind /dev "$1/dev"
		exec chroot --userspec=65532:65532 "$1" /pawl run --store=file:///locks report /pawl --version`, "sh", root)
	if !strings.HasPrefix(said, "pawl v") {
		t.Errorf("it printed %q", said)
	}
}

func rpm(t *testing.T, out string) {
	files, _ := filepath.Glob(filepath.Join(out, "*.rpm"))
	if len(files) != 1 {
		t.Fatalf("there are the packages %q", files)
	}
	if said := output(t, nil, "rpm", "--query", "--package", "--list", files[0]); !strings.Contains(said, "/usr/bin/pawl\n") ||
		!strings.Contains(said, "/usr/share/man/man1/pawl-run.1.gz\n") {
		t.Errorf("%s has\n%s", files[0], said)
	}
	output(t, nil, "rpm", "--checksig", "--nosignature", files[0])
	// And it unpacks to what the binary is.
	dir := t.TempDir()
	unpack := exec.Command("sh", "-c", `rpm2cpio "$1" | cpio --extract --make-directories --no-absolute-filenames --quiet`, "sh", files[0])
	unpack.Dir = dir
	if said, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, said)
	}
	a, errA := os.ReadFile(filepath.Join(dir, "usr/bin/pawl"))
	b, errB := os.ReadFile(filepath.Join(out, "pawl-linux-"+runtime.GOARCH))
	if errA != nil || errB != nil || sha256.Sum256(a) != sha256.Sum256(b) {
		t.Errorf("the package has another binary: %v, %v", errA, errB)
	}
}

func manual(t *testing.T, root string) {
	env := append(os.Environ(), "MANPATH="+root+"/usr/share/man", "MANWIDTH=80", "LC_ALL=C.UTF-8")
	page := output(t, env, "man", "pawl-run")
	for _, want := range []string{"pawl-run - run a command", "SYNOPSIS", "--max-hold duration", "EXIT STATUS", "SEE ALSO", "PAWL_TOKEN"} {
		if !strings.Contains(strings.Join(strings.Fields(page), " "), want) {
			t.Errorf("man pawl-run does not say %q:\n%s", want, page)
		}
	}
	files, _ := filepath.Glob(filepath.Join(root, "usr/share/man/man1/*.gz"))
	if len(files) < 10 {
		t.Errorf("there are the pages %q", files)
	}
	for _, file := range files {
		lint := exec.Command("man", "--warnings=w", "--local-file", file)
		lint.Env = env
		var said bytes.Buffer
		lint.Stderr = &said
		if err := lint.Run(); err != nil || said.Len() > 0 {
			t.Errorf("%s: %v\n%s", file, err, said.String())
		}
	}
}

// completion has each shell complete what a user has typed so far.
func completion(t *testing.T, root string) {
	env := append(os.Environ(), "PATH="+root+"/usr/bin:"+os.Getenv("PATH"), "XDG_DATA_DIRS="+root+"/usr/share", "HOME="+t.TempDir(), "ROOT="+root)
	for _, shell := range []struct {
		name   string
		args   []string
		script string
	}{
		{"bash", []string{"--norc", "--noprofile", "-i", "-c"}, `
			. /usr/share/bash-completion/bash_completion
			_completion_loader pawl
			complete -p pawl
			COMP_LINE="pawl ru" COMP_POINT=7 COMP_WORDS=(pawl ru) COMP_CWORD=1 COMP_TYPE=9
			$(complete -p pawl | sed 's/.*-F \([^ ]*\) .*/\1/') pawl ru pawl
			echo "<${COMPREPLY[*]}>"`},
		{"fish", []string{"--no-config", "-c"}, `
			source $ROOT/usr/share/fish/vendor_completions.d/pawl.fish
			echo "<"(complete -C "pawl ru" | string split -f1 \t)">"`},
		{"zsh", []string{"-f", "-c"}, `
			zmodload zsh/zpty
			zpty shell zsh -f -i
			zpty -w shell 'PS1=; fpath=($ROOT/usr/share/zsh/vendor-completions $fpath); autoload -U compinit; compinit -u -D'
			zpty -w shell 'show() { print -r -- "${BUFFER/#pawl /<}>" }; zle -N show; bindkey "^I" complete-word "^X" show; print re""ady'
			zpty -r shell said '*ready*'
			zpty -w -n shell $'pawl ru\t\x18'
			zpty -r shell said '*<r*>*'
			print -r -- $said`},
	} {
		t.Run(shell.name, func(t *testing.T) {
			said := output(t, env, shell.name, append(shell.args, shell.script)...)
			if !strings.Contains(said, "<run>") && !strings.Contains(said, "<run >") {
				t.Errorf("pawl ru is completed to %q", said)
			}
		})
	}
}

func output(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(await.Context(t), name, args...) // a shell may wait for ever
	cmd.Env = env
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out, complaint.String())
	}
	return string(out)
}
