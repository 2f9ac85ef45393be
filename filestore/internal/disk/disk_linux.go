package disk

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func exchange(dir int, name, target string) error {
	return retry(func() error { return unix.Renameat2(dir, name, dir, target, unix.RENAME_EXCHANGE) })
}

// remote are the file systems that other machines can reach, by the number
// that statfs answers. Cluster file systems are among them: their locks may
// work, but their machines do not share a clock.
var remote = map[uint32]string{
	unix.NFS_SUPER_MAGIC:   "NFS",
	unix.SMB_SUPER_MAGIC:   "SMB",
	unix.SMB2_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC:  "CIFS",
	unix.NCP_SUPER_MAGIC:   "NCP",
	unix.AFS_SUPER_MAGIC:   "AFS",
	unix.AFS_FS_MAGIC:      "AFS",
	unix.CODA_SUPER_MAGIC:  "Coda",
	unix.CEPH_SUPER_MAGIC:  "Ceph",
	unix.OCFS2_SUPER_MAGIC: "OCFS2",
	unix.V9FS_MAGIC:        "9P",
	0x0bd00bd0:             "Lustre",
	0x47504653:             "GPFS",
	0x01161970:             "GFS2",
	0x19830326:             "BeeGFS",
	0xaad7aaea:             "PanFS",
	0x20030528:             "OrangeFS",
	0x786f4256:             "VirtualBox shared folder",
	0xbacbacbc:             "VMware shared folder",
	0x7c7c6673:             "Parallels shared folder",
}

// Network names the network file system that the folder is on; "" if it is on
// a local one.
func (d *Dir) Network() (string, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd, &st) }); err != nil {
		return "", pathError("statfs", d.path, "", err)
	}
	return network(uint32(st.Type), d.mountType)
}

func network(magic uint32, mountType func() (string, error)) (string, error) {
	if magic != unix.FUSE_SUPER_MAGIC {
		return remote[magic], nil
	}
	// Behind FUSE is a program that may keep the files anywhere: sshfs, S3,
	// the host of a virtual machine. Known to be local are a block device and
	// the root of a container without privileges.
	switch t, err := mountType(); {
	case err != nil:
		return "", err
	case t == "fuseblk" || t == "fuse.fuse-overlayfs":
		return "", nil
	default:
		return t, nil
	}
}

// mountType is the type of the folder's mount as its table of mounts says it.
func (d *Dir) mountType() (string, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(d.fd, &st) }); err != nil {
		return "", pathError("stat", d.path, "", err)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find out what kind of file system %s is on: %w", d.path, err)
	}
	return findMount(string(table), fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))), nil
}

// findMount looks for the device in lines such as
// "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw".
func findMount(table, device string) string {
	for line := range strings.Lines(table) {
		mount, kind, ok := strings.Cut(line, " - ")
		if f := strings.Fields(mount); ok && len(f) > 2 && f[2] == device {
			if k := strings.Fields(kind); len(k) > 0 {
				return k[0]
			}
		}
	}
	return "FUSE"
}

// Nap sleeps for less than a millisecond, which timers are too coarse for here.
func Nap(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}
