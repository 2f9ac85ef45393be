package disk

import (
	"time"

	"golang.org/x/sys/unix"
)

// exchange: a rename over a file costs nothing extra here.
func exchange(int, string, string) error { return unix.ENOTSUP }

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

// Nap sleeps for a short while.
func Nap(d time.Duration) { time.Sleep(d) }
