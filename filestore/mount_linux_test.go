package filestore

import (
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is a file system of its own with little room.
func smallDisk(t *testing.T) string {
	dir := t.TempDir()
	if err := unix.Mount("pawl", dir, "tmpfs", 0, "size=128k,mode=0700"); err != nil {
		t.Skipf("only root can mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func remount(t *testing.T, dir string, readOnly bool) {
	t.Helper()
	flags := uintptr(unix.MS_REMOUNT)
	if readOnly {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("pawl", dir, "tmpfs", flags, "size=128k,mode=0700"); err != nil {
		t.Fatal(err)
	}
}
