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

// readOnlyView is another path to the file system, by which nothing can be
// written.
func readOnlyView(t *testing.T, dir string) string {
	t.Helper()
	view := t.TempDir()
	if err := unix.Mount(dir, view, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(view, unix.MNT_DETACH) })
	if err := unix.Mount("", view, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return view
}
