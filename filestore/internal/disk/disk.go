// Package disk is the little that filestore needs of a file system: files that
// are read and replaced whole, and advisory locks.
//
// Everything is relative to an open folder. If the folder is moved away or
// deleted, an operation meets that very folder or none, never another one that
// took its place in the meantime.
package disk

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// ErrUnsupported: this system lacks what the package is made of.
var ErrUnsupported = errors.New("a folder shared by processes is supported on Linux and macOS only")

// MaxFile bounds the files that Read reads, in bytes.
const MaxFile = 64 << 20

// ErrTooBig: a file is larger than MaxFile.
var ErrTooBig = errors.New("the file is larger than any that was written here")

// ErrNotRegular: what lies there is a pipe, a socket or a device.
var ErrNotRegular = errors.New("not a regular file")

// Dir is an open folder. Its methods may be called at once, Close only last.
type Dir struct {
	fd     int
	path   string
	shared bool // see Share
}

// Path is what the folder was opened by.
func (d *Dir) Path() string { return d.path }

// AsidePrefix begins the names of what is not finished yet.
const AsidePrefix = ".new-"

// Info is what Stat returns of a folder.
type Info struct {
	ID       ID
	UID, GID int
	Mode     fs.FileMode // permissions, and ModeSetgid and ModeSticky
}

// ID tells a file or folder from every other that exists at the same time.
type ID struct{ dev, ino uint64 }

// File is an open file that locks are put on. A lock ends with the process
// that opened the file, however the process ends.
type File struct {
	fd   int
	path string
}

// Turns is an open file with locks that are taken in turns, by their numbers
// (buckets), 0 to Buckets-1. They belong to the open file: who shares it, the
// goroutines of a process, must exclude each other by other means.
type Turns struct {
	fd   int
	path string
	turns
}

// pathError names the file that op failed on.
func pathError(op, dir, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(dir, name), Err: err}
}

// IsGone reports whether err says that a file or folder is not there.
func IsGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// IsHopeless reports whether err is one that repeating does not mend.
func IsHopeless(err error) bool {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrTooBig) || errors.Is(err, ErrNotRegular) || errors.Is(err, ErrUnsupported) {
		return true
	}
	for _, e := range []syscall.Errno{
		syscall.EROFS, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ESTALE, syscall.ENOSYS,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// IsFull reports whether there was no room on the disk.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Cause says what the system means by err and what mends it, where the system's
// own words leave that open; else it is "".
func Cause(err error) string {
	for _, c := range []struct {
		errno syscall.Errno
		cause string
	}{
		{syscall.ENOSPC, "the disk is full, of data or of files: make room"},
		{syscall.EDQUOT, "what the user may use of the disk is used up: make room, or raise the quota"},
		{syscall.EMFILE, "this process has too many files open: see ulimit -n"},
		{syscall.ENFILE, "the system has too many files open"},
		{syscall.EIO, "the disk fails"},
		{syscall.ESTALE, "the folder was taken away from the file system: open the store again"},
	} {
		if errors.Is(err, c.errno) {
			return c.cause
		}
	}
	return ""
}
