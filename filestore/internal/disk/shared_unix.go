//go:build linux || darwin

package disk

import (
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"
)

// Permissions of what is made in a folder that a group shares. Folders pass their
// group on to what is made in them.
const (
	sharedFile = 0o660
	sharedDir  = 0o770 | unix.S_ISGID
)

// Share lets the members of the folder's group use what is made in it, whatever the
// umask of this process. The folder must pass its group on (setgid).
//
// Invariant: what others may need has its permissions before it has its name. Else a
// process that is killed in between would leave what nobody else can use.
func (d *Dir) Share() { d.shared = true }

// admit gives a file that was just made its permissions.
func (d *Dir) admit(fd int) error {
	if !d.shared {
		return nil
	}
	return retry(func() error { return unix.Fchmod(fd, sharedFile) })
}

func mkdir(dir int, name string) error {
	return retry(func() error { return unix.Mkdirat(dir, name, 0o700) })
}

func (d *Dir) mkdirShared(name string) error {
	if err := mkdir(d.fd, name); err != nil {
		return err
	}
	fd, err := openat(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return retry(func() error { return unix.Fchmod(fd, sharedDir) })
}

func (d *Dir) touchShared(name string) error {
	fd, err := openat(d.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return d.admit(fd)
}

// publish makes something aside, and gives it its name if that is still free: else
// the error is EEXIST. What a crash leaves aside is empty.
func (d *Dir) publish(name string, create func(name string) error) error {
	aside := fmt.Sprintf("%s%s-%x", AsidePrefix, name, rand.Uint64())
	err := create(aside)
	if err == nil {
		err = retry(func() error { return renameNew(d.fd, aside, name) })
		switch err {
		case nil:
			return nil
		case unix.EINVAL, unix.ENOSYS, unix.ENOTSUP:
			err = fmt.Errorf("%w: this file system can't keep two processes from making it at the same time (%w)", ErrUnsupported, err)
		}
	}
	for _, how := range []int{0, unix.AT_REMOVEDIR} {
		_ = unix.Unlinkat(d.fd, aside, how)
	}
	return err
}
