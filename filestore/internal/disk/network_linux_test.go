package disk

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNetwork(t *testing.T) {
	for _, c := range []struct {
		magic uint32
		mount string
		want  string
	}{
		{magic: unix.EXT4_SUPER_MAGIC},
		{magic: unix.XFS_SUPER_MAGIC},
		{magic: unix.BTRFS_SUPER_MAGIC},
		{magic: unix.TMPFS_MAGIC},
		{magic: unix.OVERLAYFS_SUPER_MAGIC},
		{magic: unix.NFS_SUPER_MAGIC, want: "NFS"},
		{magic: 0xff534d42, want: "CIFS"},
		{magic: 0xfe534d42, want: "SMB"},
		{magic: unix.V9FS_MAGIC, want: "9P"},
		{magic: 0x0bd00bd0, want: "Lustre"},
		{magic: unix.FUSE_SUPER_MAGIC, mount: "fuse.sshfs", want: "fuse.sshfs"},
		{magic: unix.FUSE_SUPER_MAGIC, mount: "virtiofs", want: "virtiofs"},
		{magic: unix.FUSE_SUPER_MAGIC, mount: "fuseblk"},
		{magic: unix.FUSE_SUPER_MAGIC, mount: "fuse.fuse-overlayfs"},
	} {
		got, err := network(c.magic, func() (string, error) { return c.mount, nil })
		if err != nil || got != c.want {
			t.Errorf("file system %#x (%s): %q, %v; want %q", c.magic, c.mount, got, err, c.want)
		}
	}
	if _, err := network(unix.FUSE_SUPER_MAGIC, func() (string, error) { return "", errors.New("no table") }); err == nil {
		t.Error("a FUSE file system of unknown kind passes")
	}
}

func TestFindMount(t *testing.T) {
	const table = `22 1 253:0 / / rw,relatime - ext4 /dev/vda rw
36 22 0:45 / /mnt/host rw,nosuid shared:7 - fuse.sshfs me@host:/ rw,user_id=1000
37 22 8:1 / /mnt/disk rw - fuseblk /dev/sda1 rw
`
	for device, want := range map[string]string{"0:45": "fuse.sshfs", "8:1": "fuseblk", "253:0": "ext4", "9:9": "FUSE"} {
		if got := findMount(table, device); got != want {
			t.Errorf("device %s: %q, want %q", device, got, want)
		}
	}
}

func TestHere(t *testing.T) {
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if kind, err := d.Network(); err != nil {
		t.Errorf("%q, %v", kind, err)
	}
	if _, err := d.mountType(); err != nil {
		t.Error(err)
	}
}
