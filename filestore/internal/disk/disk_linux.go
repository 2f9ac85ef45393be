package disk

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Buckets is how many locks a file of Turns has.
const Buckets = 1 << 20

// A bucket is a range of the file's offsets, of which nothing is ever written.
// Who has the first byte locked has the bucket. Who waits draws a ticket, an
// offset in the bucket, while it has the last byte locked, and keeps the
// ticket locked while it waits for all that is before it. So those who come
// later pass nobody who has a ticket; and as the system takes away what a dead
// process had locked, it is passed over wherever it was killed.
//
// Tickets come from the clock. One that is too low (the clock's range has
// begun anew) makes the order unfair for an instant, no more: only the first
// byte decides.
const (
	bucketSize = 1 << 40
	drawOffset = bucketSize - 1
)

// lockRange changes the lock on n bytes from an offset of the bucket on. These
// locks belong to the open file, unlike the older ones of fcntl, which belong
// to the process and go when any descriptor of the file is closed.
func (t *Turns) lockRange(how int16, wait bool, bucket, from, n int64) (bool, error) {
	cmd := unix.F_OFD_SETLK
	if wait {
		cmd = unix.F_OFD_SETLKW
	}
	l := unix.Flock_t{Type: how, Start: bucket*bucketSize + from, Len: n}
	err := retry(func() error { return unix.FcntlFlock(uintptr(t.fd), cmd, &l) })
	if err == unix.EAGAIN || err == unix.EACCES && !wait {
		return false, nil
	}
	return err == nil, pathError("lock", t.path, "", err)
}

// Try takes the bucket if nobody has it or waits for it.
func (t *Turns) Try(bucket int64) (bool, error) {
	if ok, err := t.lockRange(unix.F_WRLCK, false, bucket, 0, drawOffset); !ok {
		return false, err
	}
	_, err := t.lockRange(unix.F_UNLCK, false, bucket, 1, drawOffset-1)
	return err == nil, err
}

// Take takes the bucket, after all who came before. It blocks the thread.
func (t *Turns) Take(bucket int64) error {
	if _, err := t.lockRange(unix.F_WRLCK, true, bucket, drawOffset, 1); err != nil {
		return err
	}
	ticket, err := t.draw(bucket)
	if _, uerr := t.lockRange(unix.F_UNLCK, false, bucket, drawOffset, 1); err == nil {
		err = uerr
	}
	if err == nil {
		_, err = t.lockRange(unix.F_WRLCK, true, bucket, 0, ticket)
	}
	if err != nil {
		_ = t.Drop(bucket)
	}
	return err
}

func (t *Turns) draw(bucket int64) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, err
	}
	ticket := 1 + ts.Nano()/1000%(drawOffset-16)
	for range 8 { // another one was drawn in the same microsecond
		if ok, err := t.lockRange(unix.F_WRLCK, false, bucket, ticket, 1); ok || err != nil {
			return ticket, err
		}
		ticket++
	}
	_, err := t.lockRange(unix.F_WRLCK, true, bucket, ticket, 1)
	return ticket, err
}

// Drop gives the bucket back: at once, even if a child that is being started
// still has a copy of the open file.
func (t *Turns) Drop(bucket int64) error {
	_, err := t.lockRange(unix.F_UNLCK, false, bucket, 0, drawOffset)
	return err
}

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
