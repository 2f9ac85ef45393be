package disk

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

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
//
// A process that is stopped while it waits keeps its ticket. So who has waited
// for lineBound takes the first byte alone as soon as it stays free, past all
// tickets. Its own ticket stays in line, and is there for whoever waits next.
const (
	bucketSize = 1 << 40
	drawOffset = bucketSize - 1
	lookEvery  = 10 * time.Millisecond
	freeLooks  = 2 // whose turn it is takes it before as many looks are over
)

var lineBound = 200 * time.Millisecond

// turns is what a Turns knows of its own locks.
type turns struct {
	mu     sync.Mutex
	held   map[int64]bool    // the buckets that a caller has
	inLine map[int64]*inLine // the buckets that a thread waits in line for
}

// inLine is a thread that waits in line.
type inLine struct {
	turn   chan error
	wanted bool // by a Take; else what the thread gets is given back
}

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
	t.mu.Lock()
	defer t.mu.Unlock()
	if ok, err := t.lockRange(unix.F_WRLCK, false, bucket, 0, drawOffset); !ok {
		return false, err
	}
	_, err := t.lockRange(unix.F_UNLCK, false, bucket, 1, drawOffset-1)
	t.hold(bucket)
	return err == nil, err
}

// hold notes that a caller has the bucket. mu is locked.
func (t *Turns) hold(bucket int64) {
	if t.held == nil {
		t.held = make(map[int64]bool)
	}
	t.held[bucket] = true
}

// Take takes the bucket, after all who came before, as far as they go on. Of a
// bucket there may be one Take at a time.
func (t *Turns) Take(bucket int64) error {
	t.mu.Lock()
	w := t.inLine[bucket]
	passed := w != nil // by the Take before; the line may still be as it was
	if passed {
		w.wanted = true
	}
	t.mu.Unlock()
	if !passed {
		var err error
		if w, err = t.stand(bucket); err != nil {
			return err
		}
		bound := time.NewTimer(lineBound)
		defer bound.Stop()
		select {
		case err := <-w.turn:
			return err
		case <-bound.C:
		}
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for free := 0; ; {
		select {
		case err := <-w.turn:
			return err
		case <-look.C:
		}
		t.mu.Lock()
		if t.inLine[bucket] != w { // it is our turn after all
			t.mu.Unlock()
			return <-w.turn
		}
		ok, err := t.free(bucket)
		if free++; !ok {
			free = 0
		}
		taken := false
		if err == nil && free >= freeLooks {
			if taken, err = t.lockRange(unix.F_WRLCK, false, bucket, 0, 1); taken {
				t.hold(bucket)
			}
		}
		done := taken || err != nil
		w.wanted = !done
		t.mu.Unlock()
		if done {
			return err
		}
	}
}

// free reports whether no other process has the bucket. It only looks: the
// thread in line may get it at this moment.
func (t *Turns) free(bucket int64) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: bucket * bucketSize, Len: 1}
	err := retry(func() error { return unix.FcntlFlock(uintptr(t.fd), unix.F_OFD_GETLK, &l) })
	return err == nil && l.Type == unix.F_UNLCK, pathError("lock", t.path, "", err)
}

// stand starts a thread that waits in line. The system does not let it go when
// nobody wants its turn any longer. It has a descriptor of its own, since the
// caller may close the file.
func (t *Turns) stand(bucket int64) (*inLine, error) {
	fd, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("open", t.path, "", err)
	}
	own := &Turns{fd: fd, path: t.path}
	w := &inLine{turn: make(chan error, 1), wanted: true}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inLine == nil {
		t.inLine = make(map[int64]*inLine)
	}
	t.inLine[bucket] = w
	go own.line(t, bucket, w)
	return w, nil
}

// line waits for the bucket behind all who came before. It blocks the thread. t
// is whose turn it is then.
func (own *Turns) line(t *Turns, bucket int64, w *inLine) {
	ticket, err := own.ticket(bucket)
	mine := false
	for {
		if err == nil {
			_, err = own.lockRange(unix.F_WRLCK, true, bucket, 0, ticket)
		}
		t.mu.Lock()
		mine = err == nil && w.wanted
		if mine {
			// A Drop of what was had by passing the line may have come since: the
			// first byte was one for both.
			mine, err = own.lockRange(unix.F_WRLCK, false, bucket, 0, 1)
			if !mine && err == nil {
				t.mu.Unlock()
				continue
			}
		}
		break
	}
	defer t.mu.Unlock()
	delete(t.inLine, bucket)
	switch {
	case mine:
		t.hold(bucket)
	case t.held[bucket]: // by a call that passed: the first byte is its
		_, _ = own.lockRange(unix.F_UNLCK, false, bucket, 1, drawOffset-1)
	default:
		_, _ = own.lockRange(unix.F_UNLCK, false, bucket, 0, drawOffset)
	}
	own.Close()
	w.turn <- err
}

// ticket draws a ticket.
func (t *Turns) ticket(bucket int64) (int64, error) {
	if _, err := t.lockRange(unix.F_WRLCK, true, bucket, drawOffset, 1); err != nil {
		return 0, err
	}
	ticket, err := t.draw(bucket)
	if _, uerr := t.lockRange(unix.F_UNLCK, false, bucket, drawOffset, 1); err == nil {
		err = uerr
	}
	return ticket, err
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
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.drop(bucket)
}

// drop is Drop. mu is locked.
func (t *Turns) drop(bucket int64) error {
	delete(t.held, bucket)
	n := int64(drawOffset)
	if t.inLine[bucket] != nil {
		n = 1 // the thread that is still in line keeps its ticket
	}
	_, err := t.lockRange(unix.F_UNLCK, false, bucket, 0, n)
	return err
}

func exchange(dir int, name, target string) error {
	return retry(func() error { return unix.Renameat2(dir, name, dir, target, unix.RENAME_EXCHANGE) })
}

// renameNew does not replace what has that name.
func renameNew(dir int, name, target string) error {
	return unix.Renameat2(dir, name, dir, target, unix.RENAME_NOREPLACE)
}

func mkfifo(d *Dir, name string) error { return unix.Mkfifoat(d.fd, name, 0o600) }

// remote are the file systems that other machines can reach, by the number
// that statfs returns. Cluster file systems are among them: their locks may
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
