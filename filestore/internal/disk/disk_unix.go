//go:build linux || darwin

package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// retry repeats f while a signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func openat(dir int, name string, flags int) (fd int, err error) {
	err = retry(func() error {
		// Close-on-exec: a child must not keep a lock of ours alive.
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0o600)
		return err
	})
	return fd, err
}

// Open opens a folder. Symbolic links on the way are followed.
func Open(path string) (*Dir, error) {
	fd, err := openat(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, pathError("open", path, "", err)
	}
	return &Dir{fd: fd, path: path}, nil
}

// Open opens a folder inside this one.
func (d *Dir) Open(name string) (*Dir, error) {
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, pathError("open", d.path, name, err)
	}
	return &Dir{fd, filepath.Join(d.path, name), d.shared}, nil
}

// Make opens a folder inside this one, which it makes if need be.
func (d *Dir) Make(name string) (*Dir, error) {
	in, err := d.Open(name) // first, for it needs no right to write
	if !IsGone(err) {
		return in, err
	}
	if d.shared {
		err = d.publish(name, d.mkdirShared)
	} else {
		err = mkdir(d.fd, name)
	}
	if err != nil && err != unix.EEXIST {
		return nil, pathError("mkdir", d.path, name, err)
	}
	return d.Open(name)
}

func (d *Dir) Close() error { return unix.Close(d.fd) }

// Stat tells what the open folder is.
func (d *Dir) Stat() (Info, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(d.fd, &st) }); err != nil {
		return Info{}, pathError("stat", d.path, "", err)
	}
	return info(&st), nil
}

// StatPath tells what lies at path now.
func StatPath(path string) (Info, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(path, &st) }); err != nil {
		return Info{}, pathError("stat", path, "", err)
	}
	return info(&st), nil
}

// Link reports whether path is a symbolic link, and whose.
func Link(path string) (uid int, is bool, err error) {
	var st unix.Stat_t
	err = retry(func() error { return unix.Lstat(path, &st) })
	return int(st.Uid), st.Mode&unix.S_IFMT == unix.S_IFLNK, pathError("stat", path, "", err)
}

func info(st *unix.Stat_t) Info {
	mode := fs.FileMode(st.Mode & 0o777)
	if st.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return Info{ID{uint64(st.Dev), uint64(st.Ino)}, int(st.Uid), int(st.Gid), mode}
}

// Read returns the content of a file, in the memory of buf if that is enough.
func (d *Dir) Read(name string, buf []byte) ([]byte, error) {
	// A pipe that nobody writes to would block.
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil, pathError("open", d.path, name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &st) }); err != nil {
		return nil, pathError("stat", d.path, name, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return nil, pathError("read", d.path, name, unix.EISDIR)
	default:
		return nil, pathError("read", d.path, name, ErrNotRegular)
	}
	if n := min(st.Size, MaxFile) + 512; int64(cap(buf)) < n {
		buf = make([]byte, 0, n+n/4)
	}
	buf = buf[:0]
	for {
		if len(buf) > MaxFile {
			return nil, pathError("read", d.path, name, ErrTooBig)
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		var n int
		err := retry(func() (err error) {
			n, err = unix.Read(fd, buf[len(buf):cap(buf)])
			return err
		})
		if err != nil {
			return nil, pathError("read", d.path, name, err)
		}
		if n <= 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
	}
}

// Tail returns what was added to a file since it was old, in the memory of buf if
// that is enough, and whether it is that file still: it begins with the first head
// bytes of old, and has the last seam bytes of old where they were.
func (d *Dir) Tail(name string, old []byte, head, seam int, buf []byte) (tail []byte, ok bool) {
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	if buf, err = readAt(fd, buf, 0, head); err != nil || !bytes.Equal(buf, old[:head]) {
		return nil, false
	}
	from := len(old) - seam
	if buf, err = readAt(fd, buf, int64(from), MaxFile); err != nil || !bytes.HasPrefix(buf, old[from:]) {
		return nil, false
	}
	return buf[seam:], true
}

// readAt reads up to n bytes, in the memory of buf if that is enough.
func readAt(fd int, buf []byte, offset int64, n int) ([]byte, error) {
	buf = slices.Grow(buf[:0], min(n, 4096))
	for {
		free := buf[len(buf):min(cap(buf), n)]
		var got int
		err := retry(func() (err error) {
			got, err = unix.Pread(fd, free, offset+int64(len(buf)))
			return err
		})
		if err != nil {
			return buf, err
		}
		buf = buf[:len(buf)+max(0, got)]
		if got < len(free) || len(buf) == n {
			return buf, nil
		}
		buf = slices.Grow(buf, 1)
	}
}

// Create writes a new file; what a crash may have left under that name is
// removed. With sync it is on the disk when Create returns.
func (d *Dir) Create(name string, data []byte, sync bool) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW
	fd, err := openat(d.fd, name, flags)
	if err == unix.EEXIST {
		// Not truncated: file systems take that for a file being rewritten in
		// place, and write it to the disk at once.
		if err := d.Remove(name); err != nil && !IsGone(err) {
			return err
		}
		fd, err = openat(d.fd, name, flags)
	}
	if err != nil {
		return pathError("create", d.path, name, err)
	}
	if err = d.admit(fd); err == nil {
		err = write(fd, data)
	}
	if err == nil && sync {
		err = retry(func() error { return unix.Fsync(fd) })
	}
	if cerr := unix.Close(fd); err == nil && cerr != unix.EINTR {
		err = cerr
	}
	if err != nil {
		_ = d.Remove(name) // on a full disk every block counts
	}
	return pathError("write", d.path, name, err)
}

func write(fd int, data []byte) error {
	for len(data) > 0 {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Write(fd, data)
			return err
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		data = data[n:]
	}
	return nil
}

// Overwrite writes data over what a file has at that offset. Who reads the file
// meanwhile may find a part of data only. With sync it is on the disk when
// Overwrite returns.
func (d *Dir) Overwrite(name string, offset int64, data []byte, sync bool) error {
	fd, err := openat(d.fd, name, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return pathError("open", d.path, name, err)
	}
	defer unix.Close(fd)
	for len(data) > 0 && err == nil {
		var n int
		err = retry(func() (err error) {
			n, err = unix.Pwrite(fd, data, offset)
			return err
		})
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		data, offset = data[max(n, 0):], offset+int64(n)
	}
	if err == nil && sync {
		err = retry(func() error { return unix.Fsync(fd) })
	}
	return pathError("write", d.path, name, err)
}

// Append adds data to a file that is there, or to a pipe that is read. It does
// not wait for who reads a pipe: it fails if there is no room in it.
func (d *Dir) Append(name string, data []byte) error {
	fd, err := openat(d.fd, name, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err != nil {
		return pathError("open", d.path, name, err)
	}
	defer unix.Close(fd)
	return pathError("write", d.path, name, write(fd, data))
}

// Move gives a file another name, in the place of what has that name.
func (d *Dir) Move(name, target string) error {
	err := retry(func() error { return unix.Renameat(d.fd, name, d.fd, target) })
	return pathError("rename", d.path, target, err)
}

// Replace is Move for a target that is there already: at any instant the
// target is either the old or the new file.
func (d *Dir) Replace(name, target string) error {
	// A rename over a file makes ext4 and others write the new one to the disk
	// at once, which takes longer than all the rest; exchanging the two does not.
	if err := exchange(d.fd, name, target); err != nil {
		return d.Move(name, target)
	}
	_ = d.Remove(name) // the old file; if it stays, the next Create removes it
	return nil
}

// Remove deletes a file.
func (d *Dir) Remove(name string) error {
	return pathError("remove", d.path, name, retry(func() error { return unix.Unlinkat(d.fd, name, 0) }))
}

// RemoveDir deletes an empty folder.
func (d *Dir) RemoveDir(name string) error {
	return pathError("remove", d.path, name, retry(func() error { return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR) }))
}

// Sync puts the names in the folder on the disk.
func (d *Dir) Sync() error {
	return pathError("sync", d.path, "", retry(func() error { return unix.Fsync(d.fd) }))
}

// Names yields what is in the folder.
func (d *Dir) Names() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		fd, err := openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			yield("", pathError("open", d.path, "", err))
			return
		}
		f := os.NewFile(uintptr(fd), d.path)
		defer f.Close()
		for {
			names, err := f.Readdirnames(512)
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield("", err)
				return
			}
		}
	}
}

// Modified is when a file was last written or touched, by the wall clock.
func (d *Dir) Modified(name string) (time.Time, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return time.Time{}, pathError("stat", d.path, name, err)
	}
	return time.Unix(st.Mtim.Unix()), nil
}

// File opens a file for a lock.
func (d *Dir) File(name string) (*File, error) {
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil, pathError("open", d.path, name, err)
	}
	return &File{fd, filepath.Join(d.path, name)}, nil
}

// Turns opens a file for locks that are taken in turns, and makes it if need be.
func (d *Dir) Turns(name string) (*Turns, error) {
	const flags = unix.O_RDWR | unix.O_NOFOLLOW
	create := unix.O_CREAT
	if d.shared {
		create = 0
	}
	fd, err := openat(d.fd, name, flags|create)
	if d.shared && err == unix.ENOENT {
		if err = d.publish(name, d.touchShared); err == nil || err == unix.EEXIST {
			fd, err = openat(d.fd, name, flags)
		}
	}
	if err != nil {
		return nil, pathError("open", d.path, name, err)
	}
	return &Turns{fd: fd, path: filepath.Join(d.path, name)}, nil
}

// Removed reports whether the file's name was deleted since it was opened.
func (t *Turns) Removed() (bool, error) { return (&File{t.fd, t.path}).Removed() }

func (t *Turns) Close() error { return unix.Close(t.fd) }

// TryLock takes the lock, for itself alone or shared, and reports whether it
// could.
func (f *File) TryLock(shared bool) (bool, error) {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	err := retry(func() error { return unix.Flock(f.fd, how|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, pathError("lock", f.path, "", err)
}

// Removed reports whether the file's name was deleted since it was opened.
func (f *File) Removed() (bool, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(f.fd, &st) }); err != nil {
		return false, pathError("stat", f.path, "", err)
	}
	return st.Nlink == 0, nil
}

func (f *File) Close() error { return unix.Close(f.fd) }
