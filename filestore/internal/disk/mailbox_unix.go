//go:build linux || darwin

package disk

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Mailbox opens what others Append to and one reads: a pipe, which it makes if
// need be, or a file where there are no pipes, or pipe is false.
func (d *Dir) Mailbox(name string, pipe bool) (*os.File, error) {
	// With an end to write to of its own, it is not at its end when nobody else
	// has one.
	flags := unix.O_RDWR | unix.O_NONBLOCK | unix.O_NOFOLLOW
	if pipe {
		err := d.fifo(name)
		pipe = err == nil || err == unix.EEXIST
	}
	if !pipe && d.shared {
		if err := d.publish(name, d.touchShared); err != nil && err != unix.EEXIST {
			return nil, pathError("create", d.path, name, err)
		}
	} else if !pipe {
		flags |= unix.O_CREAT
	}
	fd, err := openat(d.fd, name, flags)
	if err != nil {
		return nil, pathError("open", d.path, name, err)
	}
	return os.NewFile(uintptr(fd), filepath.Join(d.path, name)), nil
}

// fifo makes a pipe with a name.
func (d *Dir) fifo(name string) error {
	if !d.shared {
		return retry(func() error { return mkfifo(d, name) })
	}
	return d.publish(name, func(aside string) error {
		if err := retry(func() error { return mkfifo(d, aside) }); err != nil {
			return err
		}
		return retry(func() error { return unix.Fchmodat(d.fd, aside, sharedFile, 0) })
	})
}
