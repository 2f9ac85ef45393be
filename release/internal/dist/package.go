package dist

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/google/rpmpack"
)

// Package is what a .deb and an .rpm install.
type Package struct {
	Version string // as in v1.2.3-rc.1
	Arch    string // as Go calls it
	Time    time.Time
	Files   []File
}

// File is a file of a package, owned by root.
type File struct {
	Path string // absolute
	Mode int64
	Data []byte
}

const (
	summary     = "run commands under a distributed lock"
	description = `pawl runs a command while it holds a lock that other processes, on this machine
or on others, respect. Locks are kept in a folder, or in Redis, Valkey, etcd,
ZooKeeper, PostgreSQL, MySQL or MariaDB. Each grant has a number greater than all
before it, by which what is protected can refuse who comes late.`
	homepage   = "https://github.com/pawl-go/pawl"
	maintainer = "The authors of pawl <pawl-go@users.noreply.github.com>"
)

// number is the version as packages write it: what precedes a release has a tilde,
// which sorts before it, and there is no dash.
func (p *Package) number() string {
	number := strings.Replace(strings.TrimPrefix(p.Version, "v"), "-", "~", 1)
	return strings.ReplaceAll(number, "-", ".")
}

// WriteDeb writes the package for Debian: an ar archive of two tar archives.
func (p *Package) WriteDeb(w io.Writer) error {
	var size int64
	var sums strings.Builder
	for _, f := range p.Files {
		size += int64(len(f.Data))
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.Data), strings.TrimPrefix(f.Path, "/"))
	}
	control := fmt.Sprintf(`Package: pawl
Version: %s
Architecture: %s
Maintainer: %s
Installed-Size: %d
Suggests: bash-completion
Section: utils
Priority: optional
Homepage: %s
Description: %s
 %s
`, p.number(), p.Arch, maintainer, (size+1023)/1024, homepage, summary, strings.ReplaceAll(description, "\n", "\n "))
	about, err := p.tar([]File{{"/control", 0o644, []byte(control)}, {"/md5sums", 0o644, []byte(sums.String())}})
	if err != nil {
		return err
	}
	content, err := p.tar(p.Files)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	out.WriteString("!<arch>\n")
	for _, member := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", about}, {"data.tar.gz", content}} {
		fmt.Fprintf(&out, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", member.name, p.Time.Unix(), 0, 0, 0o100644, len(member.data))
		out.Write(member.data)
		if len(member.data)%2 == 1 {
			out.WriteByte('\n')
		}
	}
	_, err = w.Write(out.Bytes())
	return err
}

// tar returns files and their folders as a compressed archive.
func (p *Package) tar(files []File) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(z)
	folders := make(map[string]bool)
	var folder func(dir string) error
	folder = func(dir string) error {
		if folders[dir] {
			return nil
		}
		folders[dir] = true
		if dir != "/" {
			if err := folder(path.Dir(dir)); err != nil {
				return err
			}
		}
		name := "." + strings.TrimSuffix(dir, "/") + "/"
		return t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: p.Time, Uname: "root", Gname: "root"})
	}
	for _, f := range files {
		if err := folder(path.Dir(f.Path)); err != nil {
			return nil, err
		}
		h := &tar.Header{Name: "." + f.Path, Mode: f.Mode, Size: int64(len(f.Data)), ModTime: p.Time, Uname: "root", Gname: "root"}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// WriteRPM writes the package for Fedora, RHEL, SUSE and the like.
func (p *Package) WriteRPM(w io.Writer) error {
	r, err := rpmpack.NewRPM(rpmpack.RPMMetaData{
		Name: "pawl", Version: p.number(), Release: "1", Arch: rpmArch[p.Arch], OS: "linux",
		Summary: summary, Description: description, URL: homepage, Licence: "Apache-2.0", Packager: maintainer,
		BuildHost: "localhost", BuildTime: p.Time, Compressor: "gzip",
	})
	if err != nil {
		return err
	}
	for _, f := range p.Files {
		r.AddFile(rpmpack.RPMFile{
			Name: f.Path, Body: f.Data, Mode: 0o100000 | uint(f.Mode), Owner: "root", Group: "root", MTime: uint32(p.Time.Unix()),
		})
	}
	return r.Write(w)
}

var rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
