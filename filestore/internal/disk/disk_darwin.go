package disk

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Buckets is how many locks a file of Turns has.
const Buckets = 1

type turns struct{}

// Try takes the lock if nobody has it.
func (t *Turns) Try(int64) (bool, error) {
	return (&File{t.fd, t.path}).TryLock(false)
}

// Take takes the lock. It blocks the thread, and the system decides who is
// next.
func (t *Turns) Take(int64) error {
	return pathError("lock", t.path, "", retry(func() error { return unix.Flock(t.fd, unix.LOCK_EX) }))
}

// Drop gives the lock back: at once, even if a child that is being started
// still has a copy of the open file.
func (t *Turns) Drop(int64) error {
	return pathError("unlock", t.path, "", retry(func() error { return unix.Flock(t.fd, unix.LOCK_UN) }))
}

// exchange: a rename over a file costs nothing extra here.
func exchange(int, string, string) error { return unix.ENOTSUP }

// renameNew does not replace what has that name.
func renameNew(dir int, name, target string) error {
	return unix.RenameatxNp(dir, name, dir, target, unix.RENAME_EXCL)
}

func mkfifo(d *Dir, name string) error { return unix.Mkfifo(filepath.Join(d.path, name), 0o600) }

// Network names the network file system that the folder is on; "" if it is on
// a local one.
func (d *Dir) Network() (string, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd, &st) }); err != nil {
		return "", pathError("statfs", d.path, "", err)
	}
	if st.Flags&unix.MNT_LOCAL != 0 {
		return "", nil
	}
	return unix.ByteSliceToString(st.Fstypename[:]), nil
}
